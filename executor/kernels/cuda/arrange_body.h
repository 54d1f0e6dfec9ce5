// Sequences, triangles, quantised numbers, sparse sums along an axis, grids.
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

// f(offset in the plane, inside, weight, slopes) for each element of a place; slopes are by the numbers of the grid, as
// they lie there.
template <Sampling kSampling, class Value, class F>
__device__ void ForElements(const GridArgs& args, int64_t place, const F& f) {
  constexpr int kAlong = TapsAlongAxis(kSampling);
  const int space = args.space;
  Taps<Value, kAlong, int64_t> taps[3];
  for (int axis = 0; axis < space; ++axis) {
    const Value at = Get<Value>(args.grid.data, args.grid.dtype, place * space + space - 1 - axis);
    taps[axis] = TapsOf<kSampling, int64_t>(args.axes[axis], PlaceAt<kSampling>(args.axes[axis], at));
  }
  const int planes = space == 3 ? kAlong : 1, all = planes * kAlong * kAlong;
  for (int element = 0; element < all; ++element) {
    int64_t offset = 0;
    bool inside = true;
    Value weight = 1, slopes[3] = {1, 1, 1};
    for (int axis = 0, rest = all; axis < space; ++axis) {
      rest /= kAlong;
      const int tap = element / rest % kAlong;
      offset = offset * args.axes[axis].extent + taps[axis].index[tap];
      inside = inside && taps[axis].inside[tap];
      weight *= taps[axis].weight[tap];
      for (int i = 0; i < space; ++i) {
        slopes[i] *= i == space - 1 - axis ? taps[axis].slope[tap] : taps[axis].weight[tap];
      }
    }
    f(offset, inside, weight, slopes);
  }
}

template <Sampling kSampling, class Value, class Block>
__device__ void SampleBy(const Block& block, const GridArgs& args) {
  ForAll(block, args.samples * args.channels * args.places, [&](int64_t i) {
    const int64_t channel = i / args.places, place = channel / args.channels * args.places + i % args.places;
    Value sum = 0;
    ForElements<kSampling, Value>(args, place, [&](int64_t offset, bool inside, Value weight, const Value*) {
      const Value x = inside ? Get<Value>(args.data.data, args.data.dtype, channel * args.plane + offset) : Value{0};
      sum += weight * x;
    });
    Put(args.out.data, args.out.dtype, i, sum);
  });
}

// A row of data, the last axis', is a thread's, which looks at all places.
template <Sampling kSampling, class Value, class Block>
__device__ void GridGradData(const Block& block, const GridArgs& args) {
  const int64_t row = args.axes[args.space - 1].extent, rows = args.plane / row;
  ForAll(block, args.samples * args.channels * rows, [&](int64_t i) {
    const int64_t channel = i / rows, begin = i % rows * row, first = channel / args.channels * args.places;
    Value* const sums = static_cast<Value*>(args.out.data) + channel * args.plane;
    for (int64_t k = begin; k < begin + row; ++k) sums[k] = 0;
    for (int64_t m = 0; m < args.places; ++m) {
      ForElements<kSampling, Value>(args, first + m, [&](int64_t offset, bool inside, Value weight, const Value*) {
        if (!inside || offset < begin || offset >= begin + row) return;
        sums[offset] += weight * Get<Value>(args.dy.data, args.dy.dtype, channel * args.places + m);
      });
    }
  });
}

// A place is a thread's, which goes through all channels.
template <Sampling kSampling, class Value, class Block>
__device__ void GridGradGrid(const Block& block, const GridArgs& args) {
  ForAll(block, args.samples * args.places, [&](int64_t place) {
    const int64_t sample = place / args.places, m = place % args.places;
    double grads[3] = {};
    ForElements<kSampling, Value>(args, place, [&](int64_t offset, bool inside, Value, const Value* slopes) {
      double sum = 0;
      for (int64_t c = sample * args.channels; c < (sample + 1) * args.channels && inside; ++c) {
        sum += static_cast<double>(Get<Value>(args.dy.data, args.dy.dtype, c * args.places + m)) *
               static_cast<double>(Get<Value>(args.data.data, args.data.dtype, c * args.plane + offset));
      }
      for (int k = 0; k < args.space; ++k) {
        if (slopes[k] != 0) grads[k] += sum * static_cast<double>(slopes[k]);
      }
    });
    for (int k = 0; k < args.space; ++k) Put(args.out.data, args.out.dtype, place * args.space + k, grads[k]);
  });
}

// The nearest elements are moved as they are, whatever they are.
template <class Block>
__device__ void SampleNearest(const Block& block, const GridArgs& args) {
  ForFloats(args.grid.dtype, [&]<class Value>() {
    ForUnit(args.unit, [&]<class Unit>() {
      ForAll(block, args.samples * args.channels * args.places, [&](int64_t i) {
        const int64_t channel = i / args.places, place = channel / args.channels * args.places + i % args.places;
        ForElements<Sampling::kNearest, Value>(args, place, [&](int64_t offset, bool inside, Value, const Value*) {
          const Unit* const x = static_cast<const Unit*>(args.data.data) + channel * args.plane;
          static_cast<Unit*>(args.out.data)[i] = inside ? x[offset] : Unit{};
        });
      });
    });
  });
}

template <class Block>
__device__ void Run(const Block& block, const GridArgs& args) {
  if (args.part == GridPart::kSample && args.sampling == Sampling::kNearest) return SampleNearest(block, args);
  ForFloats(args.grid.dtype, [&]<class Value>() {
    const auto run = [&]<Sampling kSampling>() {
      switch (args.part) {
        case GridPart::kSample: return SampleBy<kSampling, Value>(block, args);
        case GridPart::kGradData: return GridGradData<kSampling, Value>(block, args);
        case GridPart::kGradGrid: return GridGradGrid<kSampling, Value>(block, args);
      }
    };
    switch (args.sampling) {
      case Sampling::kNearest: return run.template operator()<Sampling::kNearest>();
      case Sampling::kLinear: return run.template operator()<Sampling::kLinear>();
      case Sampling::kCubic: return run.template operator()<Sampling::kCubic>();
    }
  });
}

}  // namespace bindery::cuda
