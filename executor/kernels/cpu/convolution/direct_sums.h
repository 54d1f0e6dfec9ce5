// The sums of a direct convolution: of each place of the output, over the taps of its window, by loops of our own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/checked.h"
#include "engine/team.h"
#include "executor/kernels/cpu/activation_pass.h"
#include "executor/kernels/cpu/convolution/direct_windows.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "symbol/ops/activation.h"

namespace bindery::cpu {

// A block of rows of one plane after another; the activation passes over each while it is near. The same bits with any
// number of threads.
class DirectSums {
 public:
  struct Memory {
    // The last two may be null. The addend lies as y does, and may be it where filters are whole vectors.
    const float *x, *w, *bias, *addend;
    float* y;
  };

  DirectSums(DirectWindows windows, ActivationType activation, int threads)
      : windows_(std::move(windows)), activation_(activation), threads_(threads),
        rows_(RowsAtOnce(windows_.windows[2].output * windows_.filters, windows_.rows())),
        blocks_(CeilDiv(windows_.rows(), rows_)) {}

  void operator()(const Memory& memory) const {
    const int64_t items = windows_.batch * windows_.windows[0].output * blocks_;
    ParallelFor(items, 1, threads_ == 1 ? items : 0, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) SumRows(memory, i);
    });
  }

 private:
  void SumRows(const Memory& memory, int64_t item) const {
    const DirectWindows& c = windows_;
    const int64_t plane = item / blocks_, d = plane % c.windows[0].output, sample = plane / c.windows[0].output;
    const int64_t first = item % blocks_ * rows_, last = std::min(first + rows_, c.rows());
    const float* const x = memory.x + sample * c.x_sample;
    float* const y = memory.y + sample * c.y_sample;
    const float* const addend = memory.addend ? memory.addend + sample * c.y_sample : nullptr;
    for (const VectorGroup& group : c.groups) {
      Loops::WindowSums block{};
      block.w = memory.w;
      block.bias = memory.bias;
      block.w_step = c.w_step;
      block.vectors = group.count;
      block.columns = c.columns.data() + group.first;
      block.w_vectors = c.w_vectors.data() + group.first;
      block.y_vectors = c.y_vectors.data() + group.first;
      c.ForRegions(d, first, last, NarrowRegions::kByRows, [&](const Region& region, int64_t begin, int64_t end) {
        c.SetBlock(region, end - begin, &block);
        block.x = x + c.XOffset(d, begin, region);
        block.y = y + c.YOffset(d, begin, region.runs[2].begin);
        block.addend = addend ? addend + (block.y - y) : nullptr;
        block.runs = c.tap_runs.data() + region.first_run;
        block.run_count = region.last_run - region.first_run;
        BestLoops().convolve(block);
      });
    }
    if (!activation_.loop) return;
    for (int64_t at = 0; at < c.filters; at += c.y.block) {
      activation_.Serial(y + c.y.OffsetOf(at) + c.YOffset(d, first, 0),
                         (last - first) * c.windows[2].output * c.y.position);
    }
  }

  DirectWindows windows_;
  ActivationPass<> activation_;
  int threads_;
  int64_t rows_, blocks_;
};

}  // namespace bindery::cpu
