// Sequences, triangles, quantised numbers, sparse sums along an axis.
#pragma once

#include <cmath>

#include "executor/kernels/cuda/arrange_args.h"
#include "executor/kernels/cuda/values.h"

namespace bindery::cuda {

template <class Block>
__device__ void Run(const Block& block, const ArrangeArgs& args) {
  const int64_t stride = args.step_stride;
  // Of the sequence with this element of data; -1, and it is reported: of no number of steps.
  const auto length_at = [&](int64_t at) -> int64_t {
    const int64_t sample = at / args.sample_stride % args.samples;
    const double length = Number(args.lengths, sample);
    const double least = args.what == Arrange::kMask || args.what == Arrange::kReverse ? 0 : 1;
    const double most = static_cast<double>(args.steps);
    if (IsWholeIn(length, least, most)) return static_cast<int64_t>(length);
    Report(block, args.faults, sample, length, least, most);
    return -1;
  };
  ForUnit(args.unit, [&]<class Unit>() {
    Unit value = {}, fault = {};
    if constexpr (!std::is_same_v<Unit, Unit16>) {
      value = static_cast<Unit>(args.value);
      fault = static_cast<Unit>(args.fault);
    }
    const Unit* const in = static_cast<const Unit*>(args.in);
    ForAll(block, args.n, [&](int64_t at) {
      const int64_t step = at / stride % args.steps;
      // Where the sequence begins, and which it is among all.
      const int64_t begin = at - step * stride, sequence = at / stride / args.steps * stride + at % stride;
      Unit y = value;
      switch (args.what) {
        case Arrange::kMask: {
          const int64_t length = length_at(at);
          if (length < 0) y = fault;
          if (step < length) y = in[at];
          break;
        }
        case Arrange::kReverse: {
          const int64_t length = length_at(at);
          y = length < 0 ? fault : in[step < length ? begin + (length - 1 - step) * stride : at];
          break;
        }
        case Arrange::kLast: {  // `at` is the sequence
          const int64_t first = at / stride * args.steps * stride + at % stride, length = length_at(first);
          y = length < 0 ? fault : in[first + (length - 1) * stride];
          break;
        }
        case Arrange::kLastGrad: {
          const int64_t length = length_at(at);
          if (length < 0) y = fault;
          if (step == length - 1) y = in[sequence];
          break;
        }
        case Arrange::kTrilu: {
          const int64_t above = at % args.samples - at / args.samples % args.steps;
          if (args.upper ? above >= args.diagonal : above <= args.diagonal) y = in[at];
          break;
        }
      }
      static_cast<Unit*>(args.out)[at] = y;
    });
  });
}

template <class Block>
__device__ void Run(const Block& block, const QuantizeArgs& args) {
  ForAll(block, args.n, [&](int64_t i) {
    const int64_t channel = i / args.inner % args.channels;
    const double x = Number(args.in, i), scale = Number(args.scale, channel);
    const double zero = args.zero.data ? Number(args.zero, channel) : 0;
    double y = (x - zero) * scale;
    if (!args.back) {
      double quotient = x / scale;
      if (args.in.dtype != DType::kFloat64) quotient = static_cast<double>(static_cast<float>(quotient));
      y = std::rint(quotient) + zero;
      if (y != y) y = 0;
    }
    Put(args.out.data, args.out.dtype, i, y);
  });
}

template <class Block>
__device__ void Run(const Block& block, const ResampleArgs& args) {
  const auto resample = [&]<class Value>() {
    ForAll(block, args.n, [&](int64_t i) {
      const int64_t row = i / args.inner, c = row % args.count, j = i % args.inner;
      const int64_t begin = args.starts[c], end = args.starts[c + 1];
      Value y = begin == end ? static_cast<Value>(args.outside) : Value{0};
      for (int64_t k = begin; k < end; ++k) {
        const int64_t from = (row / args.count * args.axis + args.indices[k]) * args.inner + j;
        const Value x = static_cast<Value>(Number(args.in, from));
        y += args.weights ? static_cast<Value>(args.weights[k]) * x : x;
      }
      Put(args.out.data, args.out.dtype, i, y);
    });
  };
  // A single term of weight 1 is a copy, of all bits that an integer has.
  if (args.weights == nullptr && !IsFloating(args.in.dtype)) {
    return ForValues(args.in.dtype, [&]<class Value>() {
      ForAll(block, args.n, [&](int64_t i) {
        const int64_t row = i / args.inner, c = row % args.count, j = i % args.inner;
        Value y = args.starts[c] == args.starts[c + 1] ? StoreAs<Value>(args.outside) : Value{0};
        for (int64_t k = args.starts[c]; k < args.starts[c + 1]; ++k) {
          y = Plus(y, Element<Value>(args.in, (row / args.count * args.axis + args.indices[k]) * args.inner + j));
        }
        Put(args.out.data, args.out.dtype, i, y);
      });
    });
  }
  IsComputedInFloat(args.in.dtype) ? resample.template operator()<float>() : resample.template operator()<double>();
}

}  // namespace bindery::cuda
