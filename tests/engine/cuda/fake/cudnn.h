// A stand-in for cuDNN (engine/cuda/cudnn_api.h) on the fake's GPUs: convolutions by plain loops in double, rounded
// once, on its streams, captured or not. Whatever is linked with the fake finds it (install.cc).
//
// It refuses, and reports as a violation, what cuDNN refuses or what would be silently wrong there: attributes of
// another descriptor, type or number, set twice, after the descriptor was finalized or from one that was not, or read
// before; attributes that are missing; operations that do not follow each other; shapes, types and factors that do not go together; tensors that are not packed
// or overlap; an address that is null or aligned less than was promised, a workspace that is missing or not aligned;
// descriptors that are no more; calls without the context of the handle's GPU, with a stream of another, by two threads
// at once, or with a handle whose own streams a capture holds, a plan's first run in a capture, plans that go without
// the context that they were made in, and plans that are made with a handle that has a stream.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/cuda/cudnn_api.h"

namespace bindery::cuda::fake {

CudnnPtr Cudnn();

// What a convolution was described by, in cuDNN's terms.
struct TensorSeen {
  cudnnDataType_t type = {};
  int64_t alignment = 0;
  std::vector<int64_t> extents = {}, strides = {};
  bool operator==(const TensorSeen&) const = default;
};
struct ConvolutionSeen {
  cudnnBackendDescriptorType_t what = {};  // of the operation
  cudnnDataType_t compute = {};
  cudnnConvolutionMode_t mode = {};
  std::vector<int64_t> before = {}, after = {}, stride = {}, dilate = {};
  TensorSeen x = {}, w = {}, y = {};
  std::vector<TensorSeen> added = {};  // to y, one after the other, in the type that is computed with
  bool operator==(const ConvolutionSeen&) const = default;
};
// Those that graphs were made of, since the last call.
std::vector<ConvolutionSeen> TakeConvolutions();

// What heuristics name, of whatever they are asked that it can do.
struct EngineOffered {
  std::vector<cudnnBackendNumericalNote_t> notes = {};
  std::vector<cudnnBackendBehaviorNote_t> behavior = {};
  int64_t workspace = 0;
  cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;  // of finalizing its plans
  bool adds = true;                             // what graphs add to the convolution
};
// One for tensor cores, which takes TF32 of float32, two that must not or should not be taken, and a plain one.
std::vector<EngineOffered> UsualEngines();
void OfferEngines(std::vector<EngineOffered> engines);

// The engines, by their places, that convolutions were run by since the last call: those that are captured count once.
std::vector<int> TakeEnginesRun();
int LiveCudnnDescriptors();

}  // namespace bindery::cuda::fake
