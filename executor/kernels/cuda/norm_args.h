// What kernels of normalisations are launched with (args.h).
#pragma once

#include <tuple>

#include "executor/kernels/cuda/args.h"

extern "C" const unsigned long long bindery_cuda_norm[];

namespace bindery::cuda {

// GroupView of executor/kernels/rules.h.
struct Groups {
  int64_t channels = 1, inner = 1, per_sample = 1;
  int32_t by_position = 0;
};

// NormalizeOp: (x [, gamma] [, beta]) -> y, mean, inverse; rows are groups.
struct NormalizeArgs {
  static constexpr const char* kName = "bindery_normalize";
  static constexpr const unsigned long long* kImage = bindery_cuda_norm;
  Rows rows = {};
  Groups groups = {};
  int32_t center = 1, sum = 0;
  double eps = 0;
  Source x = {}, gamma = {}, beta = {};
  Target y = {}, mean = {}, inverse = {};
  void Addresses(const auto& visit) { VisitIn(visit, x, gamma, beta, y, mean, inverse); }
};
// (dy, x, mean, inverse [, gamma]) -> dx; rows are groups.
struct NormalizeGradArgs {
  static constexpr const char* kName = "bindery_normalize_grad";
  static constexpr const unsigned long long* kImage = bindery_cuda_norm;
  Rows rows = {};
  Groups groups = {};
  int32_t center = 1, sum = 0;
  Source dy = {}, x = {}, mean = {}, inverse = {}, gamma = {};
  Target dx = {};
  void Addresses(const auto& visit) { VisitIn(visit, dy, x, mean, inverse, gamma, dx); }
};
// The same -> dgamma, dbeta; rows are parameters, of `terms` elements each.
struct ParameterGradArgs {
  static constexpr const char* kName = "bindery_parameter_grad";
  static constexpr const unsigned long long* kImage = bindery_cuda_norm;
  Rows rows = {};
  Groups groups = {};
  int64_t terms = 0;
  Source dy = {}, x = {}, mean = {}, inverse = {};
  Target dgamma = {}, dbeta = {};
  void Addresses(const auto& visit) { VisitIn(visit, dy, x, mean, inverse, dgamma, dbeta); }
};

// BatchNormOp and what `sync` makes of it; rows are channels of (outer, channels, inner), or parts of them.
enum class Channels : int32_t {
  kForward,     // by batch or running values: y, mean, var [, state]
  kBackward,    // (dy, x, mean, var, gamma [, state]) -> dx, dgamma, dbeta
  kStatistics,  // x -> statistics (3, C)
  kNormalize,   // (x, gamma, beta, statistics, running_mean, running_var) -> y, mean, var
  kGradSums,    // (dy, x, statistics) -> sums (2, C)
  kGradInput,   // (dy, x, gamma, statistics, sums) -> dx
  kMerge,       // statistics of `outer` devices -> statistics
  kCount,       // (mean, var) of `inner` elements per channel -> statistics
  kMove,        // (statistics, running_mean, running_var) -> running_mean, running_var
};
struct ChannelArgs {
  static constexpr const char* kName = "bindery_channels";
  static constexpr const unsigned long long* kImage = bindery_cuda_norm;
  Channels what = {};
  int32_t running = 0, fix_gamma = 0, relu = 0;
  double eps = 0, momentum = 0;
  Rows rows = {};
  int64_t channels = 0, outer = 1, inner = 1;
  Divisor per_inner = {};
  DType compute = {};
  Source x = {}, dy = {}, gamma = {}, beta = {}, mean = {}, var = {}, statistics = {}, sums = {};
  Target out[3] = {};
  uint8_t* state = nullptr;  // 1 where y > 0
  Stage stage = {};
  int64_t parts = 1, length = 0;  // of a channel; elements of each
  void* partial = nullptr;        // (channels, parts), kPartial bytes each
  static constexpr int64_t kPartial = 32;
  void Addresses(const auto& visit) {
    VisitIn(visit, x, dy, gamma, beta, mean, var, statistics, sums, out, state, partial);
  }
};

// LRNOp on (outer, channels, inner): x -> y, or (dy, x) -> dx.
struct LRNArgs {
  static constexpr const char* kName = "bindery_lrn";
  static constexpr const unsigned long long* kImage = bindery_cuda_norm;
  int64_t n = 0, channels = 1, inner = 1, size = 1;
  double factor = 0, beta = 0, bias = 0;
  Source dy = {}, x = {};
  Target out = {};
  void Addresses(const auto& visit) { VisitIn(visit, dy, x, out); }
};

using NormImage = std::tuple<NormalizeArgs, NormalizeGradArgs, ParameterGradArgs, ChannelArgs, LRNArgs>;

}  // namespace bindery::cuda
