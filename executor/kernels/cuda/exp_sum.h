// The logarithm of a sum of powers of e in one pass: max + log(sum).
#pragma once

#include <cmath>
#include <limits>

#include "engine/cuda/pack.h"

namespace bindery::cuda {

// sum of e^((x - max) / t), in any order; an x that is infinite or no number gives what such a sum gives.
template <class Value>
struct ExpSum {
  Value max, sum;
  static __device__ ExpSum Nothing() { return {-std::numeric_limits<Value>::infinity(), 0}; }
  __device__ void Add(Value x, Value t) { *this = Joined(*this, {x, 1}, t); }
  static __device__ ExpSum Joined(const ExpSum& a, const ExpSum& b, Value t) {
    const Value max = a.max >= b.max || a.max != a.max ? a.max : b.max;
    return {max, Part(a, max, t) + Part(b, max, t)};
  }

 private:
  static __device__ Value Part(const ExpSum& a, Value max, Value t) {
    return a.max == max && max < std::numeric_limits<Value>::infinity() ? a.sum : a.sum * std::exp((a.max - max) / t);
  }
};

}  // namespace bindery::cuda
