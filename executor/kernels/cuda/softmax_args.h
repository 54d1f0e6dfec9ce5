// What kernels of softmax and losses are launched with (args.h).
#pragma once

#include <tuple>

#include "executor/kernels/cuda/args.h"
#include "executor/step_block.h"

extern "C" const unsigned long long bindery_cuda_softmax[];

namespace bindery::cuda {

// Rows along an axis of (outer, axis, inner), or parts of them: sums of these are taken first, then what comes of all.
enum class RowKind : int32_t {
  kSoftmax,         // x -> y
  kSoftmaxGrad,     // (dy, y) -> dx
  kLogSoftmax,      // x -> y
  kLogSoftmaxGrad,  // (dy, y) -> dx
  kHardmax,         // x -> y
};
struct SoftmaxArgs {
  static constexpr const char* kName = "bindery_softmax";
  static constexpr const unsigned long long* kImage = bindery_cuda_softmax;
  RowKind what = {};
  Rows rows = {};
  Source in[2] = {};
  Target out = {};
  int64_t axis = 1, inner = 1;
  double temperature = 1;
  Stage stage = {};
  int64_t parts = 1, length = 0;  // of a row; elements of each
  void* partial = nullptr;        // (rows, parts), kPartial bytes each
  static constexpr int64_t kPartial = 16;
  void Addresses(const auto& visit) { VisitIn(visit, in, out, partial); }
};

// CrossEntropyOp, forward: (data, label [, weights]) -> loss, weight, maximum, log_sum; and backward: (dy, data, label
// [, weights] [, maximum, log_sum]) -> dx.
struct CrossEntropyArgs {
  static constexpr const char* kName = "bindery_cross_entropy";
  static constexpr const unsigned long long* kImage = bindery_cuda_softmax;
  int32_t backward = 0, use_ignore = 0, log_input = 0;
  double ignore_label = 0, smoothing = 0;
  Rows rows = {};
  int64_t axis = 1, inner = 1;
  Source dy = {}, data = {}, label = {}, weights = {}, maximum = {}, log_sum = {};
  Target out[4] = {};
  FaultRing faults = {};
  void Addresses(const auto& visit) { VisitIn(visit, dy, data, label, weights, maximum, log_sum, out, faults); }
};

// SoftmaxOutputGradOp, and SVMOutputGradOp (which has no divisor).
struct OutputGradArgs {
  static constexpr const char* kName = "bindery_output_grad";
  static constexpr const unsigned long long* kImage = bindery_cuda_softmax;
  int32_t svm = 0, use_linear = 0;  // a hinge itself, not its square
  int32_t use_ignore = 0, distribution = 0, by_batch = 0;
  double ignore_label = 0, smooth = 0, scale = 1, positions = 1, margin = 1;
  int64_t n = 0, axis = 1, inner = 1;
  Source p = {}, label = {}, valid = {}, head = {};
  Target out = {};
  const StepBlock* step = nullptr;
  FaultRing faults = {};
  void Addresses(const auto& visit) { VisitIn(visit, p, label, valid, head, out, step, faults); }
};

// One number that goes by the step: the loss scale, or `scale` over the divisor of the batch or of valid labels.
struct StepNumberArgs {
  static constexpr const char* kName = "bindery_step_number";
  static constexpr const unsigned long long* kImage = bindery_cuda_softmax;
  int32_t loss_scale = 0, by_batch = 0;
  double scale = 1;
  Source valid = {};
  Target out = {};
  const StepBlock* step = nullptr;
  void Addresses(const auto& visit) { VisitIn(visit, valid, out, step); }
};

using SoftmaxImage = std::tuple<SoftmaxArgs, CrossEntropyArgs, OutputGradArgs, StepNumberArgs>;

}  // namespace bindery::cuda
