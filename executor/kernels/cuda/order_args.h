// What kernels of the order of elements along an axis, and of what is accumulated along one, are launched with (args.h).
#pragma once

#include <tuple>

#include "executor/kernels/cuda/args.h"

extern "C" const unsigned long long bindery_cuda_order[];

namespace bindery::cuda {

// Sums or products along an axis, in double, of integers in 64 bits; with `grad` CumProd's gradient of (dy, x). Of few
// long rows the sums of `chunks` chunks of `length` elements each are taken first, then what is before each chunk, then
// the elements, chunk by chunk.
enum class ScanStage : int32_t { kWhole, kTotals, kBefore, kChunks };
struct ScanArgs {
  static constexpr const char* kName = "bindery_scan";
  static constexpr const unsigned long long* kImage = bindery_cuda_order;
  int32_t product = 0, exclusive = 0, reverse = 0, grad = 0;
  ScanStage stage = {};
  Source in = {}, x = {};
  Target out = {};
  int64_t rows = 0, axis = 1, inner = 1;
  int64_t chunks = 1, length = 0;
  // Of 8 bytes: (rows, chunks) totals; of a gradient, in double, the products before each element (rows, axis).
  void* scratch = nullptr;
  void Addresses(const auto& visit) { VisitIn(visit, in, x, out, scratch); }
};

// The k largest or smallest along an axis, in order, and where they were: one after the other.
struct TopKArgs {
  static constexpr const char* kName = "bindery_top_k";
  static constexpr const unsigned long long* kImage = bindery_cuda_order;
  Rows rows = {};
  Source in = {};
  Target values = {}, places = {};
  int64_t axis = 1, inner = 1, k = 1;
  int32_t largest = 1;
  void Addresses(const auto& visit) { VisitIn(visit, in, values, places); }
};

// The same of many: the places (rows, padded) are sorted by a bitonic network, a launch for each of its steps that is
// longer than a chunk and one for all shorter ones; beyond the axis, up to a power of two, places name nothing and come
// last. A chunk has several rows where these are short.
enum class SortStage : int32_t {
  kBegin,   // places in their order, then all steps of sorted runs up to a chunk
  kStep,    // one step: of runs of `size`, between places `stride` apart
  kChunks,  // all steps of runs of `size` between places less than a chunk apart
  kEnd,     // the first k to memory
};
struct SortArgs {
  static constexpr const char* kName = "bindery_sort";
  static constexpr const unsigned long long* kImage = bindery_cuda_order;
  static constexpr int64_t kChunk = 1024;
  SortStage stage = {};
  TopKArgs of = {};
  int64_t padded = kChunk, size = kChunk, stride = 1;
  int32_t* places = nullptr;
  void Addresses(const auto& visit) { VisitIn(visit, of, places); }
};

using OrderImage = std::tuple<ScanArgs, TopKArgs, SortArgs>;

}  // namespace bindery::cuda
