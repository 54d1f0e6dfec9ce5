// What kernels of what moves elements, by strides and by index are launched with (args.h).
#pragma once

#include <tuple>

#include "executor/kernels/cuda/args.h"

extern "C" const unsigned long long bindery_cuda_layout[];

namespace bindery::cuda {

// out[i . to] = in[i . from] for all indices i of the grid; units of `unit` bytes, strides in units.
struct MoveArgs {
  static constexpr const char* kName = "bindery_move";
  static constexpr const unsigned long long* kImage = bindery_cuda_layout;
  int32_t unit = 1;
  Grid grid = {};
  const void* in = nullptr;
  void* out = nullptr;
  Strides from = {}, to = {};
  void Addresses(const auto& visit) { VisitIn(visit, in, out); }
};

// The same where one axis follows itself in `in` and another in `out`: out[column + row out_stride] =
// in[row + column in_stride], for all of `rows` and `columns` and from where each index of the grid begins. By tiles:
// neighbouring threads have neighbours in both.
struct TransposeArgs {
  static constexpr const char* kName = "bindery_transpose";
  static constexpr const unsigned long long* kImage = bindery_cuda_layout;
  static constexpr int64_t kTile = 32;
  int32_t unit = 1;
  int64_t rows = 0, columns = 0, in_stride = 0, out_stride = 0;
  Grid grid = {};
  const void* in = nullptr;
  void* out = nullptr;
  Strides from = {}, to = {};
  void Addresses(const auto& visit) { VisitIn(visit, in, out); }
  constexpr int64_t down() const { return (rows + kTile - 1) / kTile; }
  constexpr int64_t across() const { return (columns + kTile - 1) / kTile; }
  constexpr int64_t tiles() const { return grid.n * down() * across(); }
};

// out[i] = begin + i step
struct RangeArgs {
  static constexpr const char* kName = "bindery_range";
  static constexpr const unsigned long long* kImage = bindery_cuda_layout;
  Target out = {};
  int64_t n = 0;
  double begin = 0, step = 0;
  void Addresses(const auto& visit) { VisitIn(visit, out); }
};

// How an index finds its place (symbol/ops/indexing.h): what lies in data, by rows, named by `k` indices each, or by
// elements along an axis. Update u begins at PlaceOf(u) in data and has `run` units.
struct Indexing {
  Source indices = {};
  int32_t mode = 0, by_elements = 0;
  int64_t padding = 0;
  // By rows: slab u / count is (batch, outer), u % count the row.
  int64_t outer = 1, extent = 0, count = 1, run = 1;
  int32_t k = 1;
  int64_t extents[Shape::kMaxRank] = {};
  // By elements: index u of the grid is in data at `others`, but for the axis.
  Grid grid = {};
  Strides others = {};
  int64_t axis_extent = 0, axis_stride = 0;
};

// out (updates, run) = data at the places of the indices.
struct GatherArgs {
  static constexpr const char* kName = "bindery_gather";
  static constexpr const unsigned long long* kImage = bindery_cuda_layout;
  int32_t unit = 1;
  Indexing at = {};
  int64_t n = 0;  // updates
  const void* in = nullptr;
  void* out = nullptr;
  uint64_t nothing = 0, fault = 0;  // bits: of what is taken nowhere, and for an index that names nothing
  FaultRing faults = {};
  void Addresses(const auto& visit) { VisitIn(visit, at.indices, in, out, faults); }
};

// data at the places of the indices = joined with the updates (updates, run), in their order: each block has places of
// its own, looks at all indices and does what is its. Or, of many: the places are found and sorted first, and each is
// the work of a thread for each element of its run.
enum class ScatterStage : int32_t { kWhole, kFind, kSorted };
struct ScatterArgs {
  static constexpr const char* kName = "bindery_scatter";
  static constexpr const unsigned long long* kImage = bindery_cuda_layout;
  Indexing at = {};
  int64_t n = 0;
  int32_t reduction = 0;
  Source updates = {};
  Target out = {};
  ScatterStage stage = {};
  int64_t* places = nullptr;  // of updates; -1: nowhere
  int32_t* order = nullptr;   // of the updates by their places
  FaultRing faults = {};
  void Addresses(const auto& visit) { VisitIn(visit, at.indices, updates, out, places, order, faults); }
};

// out[i] = the place of index i; -1: none.
struct RowNumbersArgs {
  static constexpr const char* kName = "bindery_row_numbers";
  static constexpr const unsigned long long* kImage = bindery_cuda_layout;
  Indexing at = {};  // by rows, of which data is one slab
  int64_t n = 0;
  int64_t* out = nullptr;
  FaultRing faults = {};
  void Addresses(const auto& visit) { VisitIn(visit, at.indices, out, faults); }
};

// (outer, axis, inner): on at the index, else off.
struct OneHotArgs {
  static constexpr const char* kName = "bindery_one_hot";
  static constexpr const unsigned long long* kImage = bindery_cuda_layout;
  Source indices = {};
  Target out = {};
  int64_t n = 0, axis = 1, inner = 1;
  double on = 1, off = 0;
  int32_t from_end = 0;
  void Addresses(const auto& visit) { VisitIn(visit, indices, out); }
};

using LayoutImage = std::tuple<MoveArgs, TransposeArgs, RangeArgs, GatherArgs, ScatterArgs, RowNumbersArgs, OneHotArgs>;

}  // namespace bindery::cuda
