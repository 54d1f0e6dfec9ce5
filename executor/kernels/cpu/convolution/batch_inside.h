// Activations whose samples lie inside of their positions, so that loops are long where planes are small.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/shape.h"
#include "engine/team.h"
#include "executor/kernels/cpu/convolution/direct_windows.h"

namespace bindery::cpu {

// Copies between (N, blocks of channels, position, channel of the block) and (blocks, position, N, channel): float32.
class BatchInside {
 public:
  BatchInside(const Shape& shape, const Channels& channels)
      : samples_(shape[0]), blocks_(shape[1] / channels.block), positions_(shape.CountFrom(2)), block_(channels.block) {
  }
  int64_t elements() const { return samples_ * blocks_ * positions_ * block_; }

  void CopyInside(const float* from, float* to, int threads) const {
    ForRows(threads, [&](int64_t outside, int64_t inside) { std::copy_n(from + outside, block_, to + inside); });
  }
  void CopyOutside(const float* from, float* to, int threads) const {
    ForRows(threads, [&](int64_t outside, int64_t inside) { std::copy_n(from + inside, block_, to + outside); });
  }

 private:
  // f(where a block's channels of a position begin with the samples outside, and with them inside).
  template <class F>
  void ForRows(int threads, const F& f) const {
    const int64_t items = blocks_ * samples_;  // channels last are one block
    ParallelFor(items, 1, threads == 1 ? items : 0, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t b = i / samples_, n = i % samples_;
        const int64_t outside = (n * blocks_ + b) * positions_ * block_,
                      inside = (b * positions_ * samples_ + n) * block_;
        for (int64_t p = 0; p < positions_; ++p) f(outside + p * block_, inside + p * samples_ * block_);
      }
    });
  }

  int64_t samples_, blocks_, positions_, block_;
};

}  // namespace bindery::cpu
