// What kernels of sequences, triangles, quantised numbers, sparse sums and grids are launched with (args.h).
#pragma once

#include <tuple>

#include "executor/kernels/cuda/args.h"
#include "executor/kernels/sampling.h"

extern "C" const unsigned long long bindery_cuda_arrange[];

namespace bindery::cuda {

enum class Arrange : int32_t { kMask, kReverse, kLast, kLastGrad, kTrilu };

// Units moved, or `value` in their place. Sequences: data has `steps` steps, `step_stride` apart, and samples
// `sample_stride` apart. kTrilu: matrices of `steps` rows, `samples` columns.
struct ArrangeArgs {
  static constexpr const char* kName = "bindery_arrange";
  static constexpr const unsigned long long* kImage = bindery_cuda_arrange;
  Arrange what = {};
  int32_t unit = 1, upper = 0;
  int64_t n = 0;  // of the output
  int64_t steps = 1, step_stride = 1, samples = 1, sample_stride = 1, diagonal = 0;
  uint64_t value = 0, fault = 0;  // bits: of what is not moved, and of a sequence whose length cannot be
  const void* in = nullptr;
  Source lengths = {};
  void* out = nullptr;
  FaultRing faults = {};
  void Addresses(const auto& visit) { VisitIn(visit, in, lengths, out, faults); }
};

// Of (outer, channels, inner) with a scale for each channel: to integers or back.
struct QuantizeArgs {
  static constexpr const char* kName = "bindery_quantize";
  static constexpr const unsigned long long* kImage = bindery_cuda_arrange;
  int32_t back = 0;
  int64_t n = 0, channels = 1, inner = 1;
  Source in = {}, scale = {}, zero = {};
  Target out = {};
  void Addresses(const auto& visit) { VisitIn(visit, in, scale, zero, out); }
};

// ResampleOp on (outer, axis, inner) -> (outer, count, inner).
struct ResampleArgs {
  static constexpr const char* kName = "bindery_resample";
  static constexpr const unsigned long long* kImage = bindery_cuda_arrange;
  int64_t n = 0, axis = 1, count = 1, inner = 1;
  double outside = 0;
  const int64_t* starts = nullptr;
  const int64_t* indices = nullptr;
  const double* weights = nullptr;  // null: 1
  Source in = {};
  Target out = {};
  void Addresses(const auto& visit) { VisitIn(visit, starts, indices, weights, in, out); }
};

// GridSampleOp and its gradients, of data (samples, channels, plane), a grid (samples, places, space) and an output
// (samples, channels, places), or gradients of these. That of data is added up in the type that is computed with.
enum class GridPart : int32_t { kSample, kGradData, kGradGrid };
struct GridArgs {
  static constexpr const char* kName = "bindery_grid";
  static constexpr const unsigned long long* kImage = bindery_cuda_arrange;
  GridPart part = {};
  Sampling sampling = {};
  int32_t space = 2, unit = 1;
  int64_t samples = 0, channels = 0, plane = 1, places = 1;
  SampledAxis axes[3] = {};
  Source data = {}, grid = {}, dy = {};
  Target out = {};
  void Addresses(const auto& visit) { VisitIn(visit, data, grid, dy, out); }
};

using ArrangeImage = std::tuple<ArrangeArgs, QuantizeArgs, ResampleArgs, GridArgs>;

}  // namespace bindery::cuda
