// What kernels of reductions, measures, scans and orders are launched with (args.h).
#pragma once

#include <tuple>

#include "executor/kernels/cuda/args.h"

extern "C" const unsigned long long bindery_cuda_reduce[];

namespace bindery::cuda {

enum class Reduction : int32_t { kSum, kMean, kMax, kMin, kProd, kL1Norm, kL2Norm, kSumSquare, kLogSumExp };

// out[row] = the elements at the indices of `each`, from where the row begins, as one. Of few long rows `parts` parts of
// `length` elements each are taken first, by different blocks, and then what came of them.
struct ReduceArgs {
  static constexpr const char* kName = "bindery_reduce";
  static constexpr const unsigned long long* kImage = bindery_cuda_reduce;
  Reduction what = {};
  Rows rows = {};
  Source in = {};
  Target out = {};
  Grid row = {}, each = {};
  Strides row_strides = {}, each_strides = {};
  int32_t in_double = 0;  // of integers
  Stage stage = {};
  int64_t parts = 1, length = 0;
  void* partial = nullptr;  // (rows, parts), kPartial bytes each
  static constexpr int64_t kPartial = 16;
  void Addresses(const auto& visit) { VisitIn(visit, in, out, partial); }
};

enum class Measure : int32_t { kArgMax, kArgMin, kRankOf };

// out (outer, inner), int64, of (outer, axis, inner); rows are parts, as those of reductions.
struct MeasureArgs {
  static constexpr const char* kName = "bindery_measure";
  static constexpr const unsigned long long* kImage = bindery_cuda_reduce;
  Measure what = {};
  int32_t last = 0;  // of equal ones
  Rows rows = {};
  Source in = {}, place = {};
  int64_t* out = nullptr;
  int64_t axis = 1, inner = 1;
  Stage stage = {};
  int64_t parts = 1, length = 0;
  void* partial = nullptr;  // (rows, parts), kPartial bytes each
  static constexpr int64_t kPartial = 16;
  void Addresses(const auto& visit) { VisitIn(visit, in, place, out, partial); }
};

// One block each: ExactSum's pieces; the first element outside.
struct SumExactlyArgs {
  static constexpr const char* kName = "bindery_sum_exactly";
  static constexpr const unsigned long long* kImage = bindery_cuda_reduce;
  Source in = {};
  int64_t n = 0;
  double* out = nullptr;
  void Addresses(const auto& visit) { VisitIn(visit, in, out); }
};
struct FirstOutsideArgs {
  static constexpr const char* kName = "bindery_first_outside";
  static constexpr const unsigned long long* kImage = bindery_cuda_reduce;
  Source in = {};
  int64_t n = 0;
  double low = 0, high = 0, ignore = 0;
  int32_t whole = 0, use_ignore = 0;
  double* out = nullptr;
  void Addresses(const auto& visit) { VisitIn(visit, in, out); }
};

using ReduceImage = std::tuple<ReduceArgs, MeasureArgs, SumExactlyArgs, FirstOutsideArgs>;

}  // namespace bindery::cuda
