// What cuDNN is told by, and answers by: descriptors of tensors, operations, plans and so on, whose attributes are set,
// which are then finalized, and only then read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/cuda/cudnn_api.h"

namespace bindery::cuda {

// How cuDNN names the type of an attribute's elements.
template <class T>
consteval cudnnBackendAttributeType_t CudnnTypeOf() {
  if constexpr (std::is_same_v<T, int64_t>) return CUDNN_TYPE_INT64;
  if constexpr (std::is_same_v<T, float>) return CUDNN_TYPE_FLOAT;
  if constexpr (std::is_same_v<T, double>) return CUDNN_TYPE_DOUBLE;
  if constexpr (std::is_same_v<T, bool>) return CUDNN_TYPE_BOOLEAN;
  if constexpr (std::is_same_v<T, void*>) return CUDNN_TYPE_VOID_PTR;
  if constexpr (std::is_same_v<T, cudnnHandle_t>) return CUDNN_TYPE_HANDLE;
  if constexpr (std::is_same_v<T, cudnnDataType_t>) return CUDNN_TYPE_DATA_TYPE;
  if constexpr (std::is_same_v<T, cudnnConvolutionMode_t>) return CUDNN_TYPE_CONVOLUTION_MODE;
  if constexpr (std::is_same_v<T, cudnnPointwiseMode_t>) return CUDNN_TYPE_POINTWISE_MODE;
  if constexpr (std::is_same_v<T, cudnnBackendHeurMode_t>) return CUDNN_TYPE_HEUR_MODE;
  if constexpr (std::is_same_v<T, cudnnBackendNumericalNote_t>) return CUDNN_TYPE_NUMERICAL_NOTE;
  if constexpr (std::is_same_v<T, cudnnBackendBehaviorNote_t>) return CUDNN_TYPE_BEHAVIOR_NOTE;
}

// Owns one. Whatever the library refuses is a DeviceError that names the call and the descriptor.
class CudnnDescriptor {
 public:
  // `what`: for messages; lives as long as the program. So does the table, or as long as this.
  CudnnDescriptor(const CudnnApi& api, cudnnBackendDescriptorType_t type, const char* what) : api_(&api), what_(what) {
    Check(api.create_descriptor(type, &descriptor_), "cudnnBackendCreateDescriptor");
  }
  ~CudnnDescriptor() {
    if (descriptor_) api_->destroy_descriptor(descriptor_);
  }
  CudnnDescriptor(CudnnDescriptor&& other) noexcept
      : api_(other.api_), what_(other.what_), descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept {
    std::swap(api_, other.api_);
    std::swap(what_, other.what_);
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  cudnnBackendDescriptor_t get() const { return descriptor_; }

  template <class T>
  void Set(cudnnBackendAttributeName_t name, std::span<const T> values) {
    SetElements(name, CudnnTypeOf<T>(), std::ssize(values), values.data());
  }
  template <class T>
  void Set(cudnnBackendAttributeName_t name, const std::vector<T>& values) {
    Set(name, std::span<const T>(values));
  }
  template <class T>
  void Set(cudnnBackendAttributeName_t name, const T& value) {
    Set(name, std::span<const T>(&value, 1));
  }
  void Set(cudnnBackendAttributeName_t name, const CudnnDescriptor& other) {
    SetElements(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other.descriptor_);
  }
  void Set(cudnnBackendAttributeName_t name, const std::vector<CudnnDescriptor>& others) {
    std::vector<cudnnBackendDescriptor_t> all;
    for (const CudnnDescriptor& other : others) all.push_back(other.descriptor_);
    SetElements(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::ssize(all), all.data());
  }

  void Finalize() { Check(TryFinalize(), "cudnnBackendFinalize"); }
  cudnnStatus_t TryFinalize() { return api_->finalize(descriptor_); }

  // Up to `most` elements; those that there are beyond are counted alone.
  template <class T>
  std::vector<T> Get(cudnnBackendAttributeName_t name, int64_t most, int64_t* count) const {
    std::vector<T> values(static_cast<size_t>(most));
    GetElements(name, CudnnTypeOf<T>(), most, count, values.data());
    values.resize(static_cast<size_t>(std::min(most, *count)));
    return values;
  }
  // The same of descriptors, which have been made and are filled in. Null: they are counted.
  void Get(cudnnBackendAttributeName_t name, std::vector<cudnnBackendDescriptor_t>* descriptors, int64_t* count) const {
    GetElements(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, descriptors ? std::ssize(*descriptors) : 0, count,
                descriptors ? descriptors->data() : nullptr);
  }

 private:
  void Check(cudnnStatus_t status, const char* call) const {
    if (status != CUDNN_STATUS_SUCCESS) Throw<DeviceError>("{} ({}): {}", call, what_, api_->get_error_string(status));
  }
  void SetElements(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                   const void* elements) {
    Check(api_->set_attribute(descriptor_, name, type, count, elements), "cudnnBackendSetAttribute");
  }
  void GetElements(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t most, int64_t* count,
                   void* elements) const {
    Check(api_->get_attribute(descriptor_, name, type, most, count, elements), "cudnnBackendGetAttribute");
  }

  const CudnnApi* api_;
  const char* what_;
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

}  // namespace bindery::cuda
