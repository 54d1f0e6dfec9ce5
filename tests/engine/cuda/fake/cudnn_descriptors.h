// Descriptors of the fake cuDNN: their attributes, and what it refuses of them. Private to the fake.
#pragma once

#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/engine/cuda/fake/cudnn.h"
#include "tests/engine/cuda/fake/device.h"

namespace bindery::cuda::fake::dnn {

inline constexpr auto kForward = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
inline constexpr auto kGradData = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
inline constexpr auto kGradWeight = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
inline constexpr auto kTensor = CUDNN_BACKEND_TENSOR_DESCRIPTOR;
inline constexpr auto kConvolution = CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR;
inline constexpr auto kPointwise = CUDNN_BACKEND_POINTWISE_DESCRIPTOR;
inline constexpr auto kSum = CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR;
inline constexpr auto kPlan = CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR;
inline constexpr auto kPack = CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR;
inline constexpr auto kGraph = CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR;
inline constexpr auto kHeuristics = CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR;

struct Value {
  cudnnBackendAttributeType_t type;
  std::vector<char> bytes = {};
};
struct Descriptor {
  cudnnBackendDescriptorType_t type;
  bool finalized = false;
  std::map<cudnnBackendAttributeName_t, Value> values = {};
  std::map<cudnnBackendAttributeName_t, Descriptor> others = {};  // as they were when they were set
  ConvolutionSeen convolution = {};                               // of a graph and what was made of it
  std::vector<Descriptor> operations = {};                        // of a graph
  std::vector<int64_t> ids = {};                                  // of x, w, y and what is added
  const FakeGpu* gpu = nullptr;                                   // that it was made for
  EngineOffered engine = {};
  int place = -1;  // of the engine

  template <class T>
  std::vector<T> Get(cudnnBackendAttributeName_t name) const {
    const std::vector<char>& bytes = values.at(name).bytes;
    std::vector<T> elements(bytes.size() / sizeof(T));
    std::memcpy(elements.data(), bytes.data(), bytes.size());
    return elements;
  }
};
struct Handle {
  FakeGpu* gpu;
  CUstream stream = nullptr;
  bool captured = false;                        // what was put on it
  std::set<cudnnBackendDescriptor_t> ran = {};  // plans
  std::thread::id set_by = {};
};
// Handles and descriptors by the address that they are known by.
struct Library {
  std::mutex mutex;
  std::map<cudnnHandle_t, Handle> handles;
  std::map<cudnnBackendDescriptor_t, Descriptor> descriptors;
  std::vector<EngineOffered> engines = UsualEngines();
  std::vector<ConvolutionSeen> convolutions;
  std::vector<int> run;
  uintptr_t next = 0x1000;  // addresses that nobody can follow
};
Library& TheLibrary();

cudnnStatus_t Reject(const char* call, const std::string& why, cudnnStatus_t status = CUDNN_STATUS_BAD_PARAM);

// Null, and a violation, if there is none. Under the lock.
Descriptor* Find(const char* call, cudnnBackendDescriptor_t descriptor);
const Handle* Find(const char* call, cudnnHandle_t handle);  // of the calling thread's GPU

// As cuDNN's.
cudnnStatus_t CreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor);
cudnnStatus_t DestroyDescriptor(cudnnBackendDescriptor_t descriptor);
cudnnStatus_t SetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                           cudnnBackendAttributeType_t type, int64_t count, const void* elements);
cudnnStatus_t Finalize(cudnnBackendDescriptor_t descriptor);

}  // namespace bindery::cuda::fake::dnn
