// RangeSquares: sums of squares of the ranges into which a reduction cuts its buckets, found by several threads at once,
// in any order. Totals add them up in the order of the ranges, so they depend on the ranges only.
//
// Ranges are the same from step to step: after the first nothing is allocated.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "engine/kernels/update.h"

namespace bindery {

class RangeSquares {
 public:
  // Of the range that begins at element `begin` of `bucket`, in place of what it had.
  void Set(int bucket, int64_t begin, const UpdateSquares& squares) {
    const std::lock_guard lock(mutex_);
    ranges_[{bucket, begin}] = squares;
  }
  // Of all ranges that begin in begin..end-1 of the bucket; of all there are.
  UpdateSquares Total(int bucket, int64_t begin, int64_t end) const {
    return Sum(ranges_.lower_bound({bucket, begin}), ranges_.lower_bound({bucket, end}));
  }
  UpdateSquares Total() const { return Sum(ranges_.begin(), ranges_.end()); }

 private:
  using Ranges = std::map<std::pair<int, int64_t>, UpdateSquares>;

  static UpdateSquares Sum(Ranges::const_iterator from, Ranges::const_iterator to) {
    UpdateSquares sum;
    for (; from != to; ++from) {
      sum.weight += from->second.weight;
      sum.direction += from->second.direction;
    }
    return sum;
  }

  std::mutex mutex_;
  Ranges ranges_;
};

}  // namespace bindery
