// The geometry of direct convolution: which windows have the same taps, and where everything lies in memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "executor/format.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "symbol/ops/convolution.h"

namespace bindery::cpu {

inline constexpr int64_t kFewChannels = 3;  // an image's

// How activations (N, C, X...) lie within a sample: blocks of channels, positions of one block one after another.
struct Channels {
  int64_t block, block_step, position;
  int64_t OffsetOf(int64_t c) const { return c / block * block_step + c % block; }
};
// nullopt for formats that are neither plain, channels last nor whole blocks of channels.
std::optional<Channels> ChannelsOf(const Format& format, const Shape& shape);

// Is it an image whose output's channels fill no blocks?
bool FillsNoBlocks(const Shape& data, const Shape& output);
// An image's format as it is given, if the loops can take it, of other data `preferred`.
Format AsGivenOr(const Format& preferred, const Format& given, const Shape& data);
// What of an output's rows is computed at once, so that the data that it needs stay in the nearest cache.
int64_t RowsAtOnce(int64_t row_elements, int64_t rows);

// Of one axis: outputs whose windows have the same taps inside the data.
struct Run {
  int64_t begin, end, first_tap, last_tap;
};
// Windows that have the same taps: [begin, end) of the lists, [first_run, last_run) of tap_runs.
struct Region {
  std::array<Run, 3> runs;  // along d, h, w; axes that are missing have extent 1
  int64_t begin, end, first_run, last_run;
};

// Regions of few columns, at the sides: a part of them is a short loop.
enum class NarrowRegions : uint8_t {
  kByRows,
  kAtOnce,  // all rows are the first block's
};

// Output channels that are computed together: neighbouring vectors.
struct VectorGroup {
  int64_t first, count;
};

class DirectWindows {
 public:
  // False if the loops cannot do it in these formats. With `batch_inside` activations are to lie as (blocks of channels,
  // position, sample, channel of the block), one or two axes of positions: the samples are a third one, so loops are
  // long where planes are small.
  bool Init(const ConvolutionAttrs& attrs, const Shape& data, const Format& x_format, const Shape& output,
            const Format& y_format, const Shape& weight, const Format& w_format, bool batch_inside = false);

  bool FindVectors(const Shape& weight, const Format& w_format);
  bool ListTaps(const Shape& weight, const Format& w_format);
  void ListRuns();

  // f(region, first, last) for what of each region is in these rows of plane d.
  template <class F>
  void ForRegions(int64_t d, int64_t begin, int64_t end, NarrowRegions how, const F& f) const {
    for (const Region& region : regions) {
      if (d < region.runs[0].begin || d >= region.runs[0].end) continue;
      const bool narrow =
          how == NarrowRegions::kAtOnce && 4 * (region.runs[2].end - region.runs[2].begin) < windows[2].output;
      if (narrow && begin > 0) continue;
      const int64_t first = std::max(begin, region.runs[1].begin),
                    last = narrow ? region.runs[1].end : std::min(end, region.runs[1].end);
      if (first < last) f(region, first, last);
    }
  }
  // Where the first window of a region's row begins in a sample: perhaps before it.
  int64_t XOffset(int64_t d, int64_t row, const Region& region) const {
    const std::array<int64_t, 3> at = {d, row, region.runs[2].begin};
    int64_t position = 0;
    for (int i = 0; i < 3; ++i) position = position * in[i] + at[i] * windows[i].stride - windows[i].pad_begin;
    return position * x.position;
  }
  int64_t YOffset(int64_t d, int64_t row, int64_t column) const {
    return ((d * windows[1].output + row) * windows[2].output + column) * y.position;
  }
  // The longer of a region's sides are its places, which are computed at once.
  template <class Block>
  void SetBlock(const Region& region, int64_t rows, Block* block) const {
    block->rows = rows;
    block->places = region.runs[2].end - region.runs[2].begin;
    block->x_row = windows[1].stride * in[2] * x.position;
    block->x_step = windows[2].stride * x.position;
    block->y_row = windows[2].output * y.position;
    block->y_step = y.position;
    if (block->rows > block->places) {
      std::swap(block->rows, block->places);
      std::swap(block->x_row, block->x_step);
      std::swap(block->y_row, block->y_step);
    }
    if (block->x_row == block->places * block->x_step && block->y_row == block->places * block->y_step) {
      block->places *= std::exchange(block->rows, 1);  // one behind the other
    }
  }
  int64_t rows() const { return windows[1].output; }

  int64_t batch, filters;
  std::array<Window, 3> windows;  // the last ones are used
  std::array<int64_t, 3> in = {1, 1, 1};
  size_t first_axis;  // the first that is
  int64_t x_sample, y_sample;
  Channels x, y;
  std::vector<Region> regions;
  std::vector<int32_t> x_taps, numbers;  // of all regions: in a sample, and in w_taps
  std::vector<int32_t> w_taps;           // of all taps: in the weight
  std::vector<TapRun> tap_runs;          // the lists of all regions in short
  int64_t w_step = 0;                    // from tap to tap of a run, in the weight
  std::vector<int32_t> columns, w_vectors, y_vectors;
  std::vector<VectorGroup> groups;
};

// (spatial..., C, O): the output channels of a tap side by side.
Format TapsByFilters(int rank);

}  // namespace bindery::cpu
