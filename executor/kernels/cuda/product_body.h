// Products of matrices, which may be patches of images; and pooling.
#pragma once

#include "executor/kernels/cuda/product_args.h"
#include "executor/kernels/cuda/values.h"
#include "executor/kernels/native_functions.h"

namespace bindery::cuda {

// Where tap `tap` at position `at` of a sample's windows is in its plane of inputs; -1: beside it.
__device__ inline int64_t InputOf(const Slide& s, int64_t at, int64_t tap) {
  int64_t place = 0, scale = 1;
  for (int axis = 2; axis >= 0; --axis) {
    const int64_t next_at = s.per_out[axis].Of(at), next_tap = s.per_kernel[axis].Of(tap);
    const int64_t p = at - next_at * s.out[axis], k = tap - next_tap * s.kernel[axis];
    const int64_t x = p * s.stride[axis] - s.pad[axis] + k * s.dilate[axis];
    if (x < 0 || x >= s.in[axis]) return -1;
    place += x * scale;
    scale *= s.in[axis];
    at = next_at;
    tap = next_tap;
  }
  return place;
}
// The output whose tap meets the input at `at`; -1: none.
__device__ inline int64_t OutputOf(const Slide& s, int64_t at, int64_t tap) {
  int64_t place = 0, scale = 1;
  for (int axis = 2; axis >= 0; --axis) {
    const int64_t next_at = s.per_in[axis].Of(at), next_tap = s.per_kernel[axis].Of(tap);
    const int64_t k = tap - next_tap * s.kernel[axis];
    const int64_t x = at - next_at * s.in[axis] + s.pad[axis] - k * s.dilate[axis];
    if (x < 0) return -1;
    const int64_t p = s.per_stride[axis].Of(x);
    if (x != p * s.stride[axis] || p >= s.out[axis]) return -1;
    place += p * scale;
    scale *= s.out[axis];
    at = next_at;
    tap = next_tap;
  }
  return place;
}

// Of element (row, column) in memory; -1: it is 0.
__device__ inline int64_t PlaceIn(const Matrix& m, const Slide& s, int64_t row, int64_t column) {
  switch (m.form) {
    case Form::kPlain: {
      const int64_t period = column < m.period.by ? 0 : m.period.Of(column);
      return row * m.row_stride + period * m.period_stride + (column - period * m.period.by) * m.column_stride;
    }
    case Form::kPositions: {
      const int64_t other = row;
      row = column;
      column = other;
      [[fallthrough]];
    }
    case Form::kPatches: {
      const int64_t sample = s.per_outputs.Of(column), channel = s.per_taps.Of(row);
      const int64_t place = InputOf(s, column - sample * s.outputs, row - channel * s.taps);
      return place < 0 ? -1 : sample * m.sample_stride + channel * s.inputs + place;
    }
    case Form::kMet: {
      const int64_t sample = s.per_inputs.Of(column), channel = s.per_taps.Of(row);
      const int64_t place = OutputOf(s, column - sample * s.inputs, row - channel * s.taps);
      return place < 0 ? -1 : sample * m.sample_stride + channel * s.outputs + place;
    }
  }
  return -1;
}

// Rows are one longer than they must be, so that what a warp writes down a column is in different banks.
template <class Value>
struct Tiles {
  static constexpr int kRow = ProductArgs::kTile + 1;
  Value a[ProductArgs::kStep][kRow], b[ProductArgs::kStep][kRow];
};
template <class Value>
struct Sums {
  Value of[ProductArgs::kOwn][ProductArgs::kOwn], part[ProductArgs::kOwn][ProductArgs::kOwn];
};

template <class Value>
__device__ Value Activated(int function, Value x) {
  int i = 0;
  [&]<class... F>(std::type_identity<FunctionList<F...>>) {
    static_cast<void>(((function == i++ ? (x = F()(x), true) : false) || ...));
  }(std::type_identity<native::ActivationFunctions>());
  return x;
}

// Elements as what is computed with: of integers, `numbers`, in double, saturated when they are written.
template <class Value>
__device__ Value Read(const Source& source, int64_t i, bool numbers) {
  return numbers ? static_cast<Value>(Number(source, i)) : Element<Value>(source, i);
}
template <class Value>
__device__ void Write(const Target& target, int64_t i, Value value, bool numbers) {
  numbers ? Put(target.data, target.dtype, i, value) : PutWrapped(target.data, target.dtype, i, value);
}

// An element of a product, which is whole: what is beyond the sum, and to memory.
template <class Value>
__device__ void PutProduct(const ProductArgs& args, int64_t begin, int64_t product, int64_t row, int64_t column,
                           Value y) {
  const int64_t at = begin + PlaceIn(args.c, args.slide, row, column);
  if (args.bias.data) y += Read<Value>(args.bias, args.bias_by_row ? product * args.m + row : column, args.numbers);
  if (args.addend.data) y += Read<Value>(args.addend, at, args.numbers);
  if (args.activation >= 0) y = Activated(args.activation, y);
  Write(args.out, at, y, args.numbers);
}

template <class Value, class Block>
__device__ void Multiply(const Block& block, const ProductArgs& args) {
  constexpr int kTile = ProductArgs::kTile, kStep = ProductArgs::kStep, kOwn = ProductArgs::kOwn;
  constexpr int kAcross = kTile / kOwn;  // threads along a side
  Tiles<Value>& tiles = block.template Shared<Tiles<Value>>();
  typename Block::template Own<Sums<Value>> own(block);
  const int64_t down = (args.m + kTile - 1) / kTile, across = (args.n + kTile - 1) / kTile;
  for (int64_t task = block.index(); task < args.tiles() * args.splits; task += block.count()) {
    const int64_t split = task / args.tiles(), tile = task - split * args.tiles();
    const int64_t product = tile / (down * across), within = tile - product * down * across;
    const int64_t row0 = within / across * kTile, column0 = within % across * kTile;
    const int64_t first = split * args.split_k;
    const int64_t end = args.splits > 1 && first + args.split_k < args.k ? first + args.split_k : args.k;
    const auto begin = PlacesOf(args.products, product, args.a_strides, args.b_strides, args.c_strides);
    block.Each([&](int thread) { own[thread] = {}; });
    int folded = 0;
    for (int64_t k0 = first; k0 < end; k0 += kStep) {
      const int steps = static_cast<int>(end - k0 < kStep ? end - k0 : kStep);
      folded = (folded + 1) % ProductArgs::kFold;
      const bool fold = folded == 0 || k0 + kStep >= end;
      block.Each([&](int thread) {
        // Neighbours in memory are neighbouring threads', whichever way a matrix lies.
        const auto fill = [&](const Matrix& matrix, int64_t offset, bool down_is_k, auto& tile_of, int64_t from,
                              int64_t to, bool k_is_inner) {
          for (int e = thread; e < kTile * kStep; e += block.threads()) {
            const int k = k_is_inner ? e % kStep : e / kTile, i = k_is_inner ? e / kStep : e % kTile;
            Value value = 0;
            if (k < steps && from + i < to) {
              const int64_t at = down_is_k ? PlaceIn(matrix, args.slide, k0 + k, from + i)
                                           : PlaceIn(matrix, args.slide, from + i, k0 + k);
              if (at >= 0) value = Read<Value>(matrix.source, offset + at, args.numbers);
            }
            tile_of[k][i] = value;
          }
        };
        fill(args.a, begin.of[0], false, tiles.a, row0, args.m, args.a.row_stride != 1);
        const bool b_is_inner = args.b.form == Form::kPlain && args.b.row_stride == 1;
        fill(args.b, begin.of[1], true, tiles.b, column0, args.n, b_is_inner);
      });
      block.Each([&](int thread) {
        const int row = thread / kAcross, column = thread % kAcross;
        if (thread >= kAcross * kAcross || row0 + row >= args.m || column0 + column >= args.n) return;
        Sums<Value>& sums = own[thread];
        for (int k = 0; k < steps; ++k) {
          for (int i = 0; i < kOwn; ++i) {
            const Value a = tiles.a[k][row + i * kAcross];
            for (int j = 0; j < kOwn; ++j) {
              sums.part[i][j] = block.MultiplyAdd(a, tiles.b[k][column + j * kAcross], sums.part[i][j]);
            }
          }
        }
        if (!fold) return;
        for (int i = 0; i < kOwn; ++i) {
          for (int j = 0; j < kOwn; ++j) {
            sums.of[i][j] += sums.part[i][j];
            sums.part[i][j] = 0;
          }
        }
      });
    }
    block.Each([&](int thread) {
      if (thread >= kAcross * kAcross) return;
      for (int i = 0; i < kOwn; ++i) {
        for (int j = 0; j < kOwn; ++j) {
          const int64_t row = row0 + thread / kAcross + i * kAcross, column = column0 + thread % kAcross + j * kAcross;
          if (row >= args.m || column >= args.n) continue;
          const Value y = own[thread].of[i][j];
          if (args.splits > 1) {
            const int64_t at = (product * args.m + row) * args.n + column;
            static_cast<Value*>(args.partial)[split * args.elements() + at] = y;
          } else {
            PutProduct(args, begin.of[2], product, row, column, y);
          }
        }
      }
    });
  }
}

template <class Block>
__device__ void Run(const Block& block, const ProductArgs& args) {
  if (args.numbers) return Multiply<double>(block, args);
  ForFloats(args.out.dtype, [&]<class Value>() { Multiply<Value>(block, args); });
}

template <class Block>
__device__ void Run(const Block& block, const ProductEndArgs& args) {
  const auto end = [&]<class Value>() {
    ForAll(block, args.elements(), [&](int64_t i) {
      double sum = 0;
      for (int64_t split = 0; split < args.splits; ++split) {
        sum += static_cast<const Value*>(args.partial)[split * args.elements() + i];
      }
      const int64_t row = i / args.n, product = row / args.m;
      const int64_t begin = PlacesOf(args.products, product, args.c_strides).of[0];
      PutProduct(args, begin, product, row - product * args.m, i - row * args.n, static_cast<Value>(sum));
    });
  };
  if (args.numbers) return end.template operator()<double>();
  ForFloats(args.out.dtype, end);
}

// ---- pooling ----

// What a window holds along each axis: elements begin, begin + step, ... before end, `padded` of them with padding.
struct Extents {
  int64_t begin[3], end[3], padded[3];
};
__device__ inline Extents WindowAt(const PoolArgs& args, int64_t at) {
  const Slide& s = args.slide;
  Extents e;
  for (int axis = 2; axis >= 0; --axis) {
    const int64_t next = s.per_out[axis].Of(at), p = at - next * s.out[axis], step = s.dilate[axis];
    const int64_t begin = p * s.stride[axis] - s.pad[axis], end = begin + step * (s.kernel[axis] - 1) + 1;
    e.begin[axis] = begin < 0 ? begin + (-begin + step - 1) / step * step : begin;
    e.end[axis] = end < s.in[axis] ? end : s.in[axis];
    const int64_t padded = end < args.padded[axis] ? end : args.padded[axis];
    e.padded[axis] = (padded - begin + step - 1) / step;
    at = next;
  }
  return e;
}
template <class Value>
__device__ Value DivisorOf(const PoolArgs& args, const Extents& e) {
  Value divisor = 1;
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t step = args.slide.dilate[axis], inside = (e.end[axis] - e.begin[axis] + step - 1) / step;
    divisor *= static_cast<Value>(args.count_padding ? e.padded[axis] : inside);
  }
  return divisor;
}
// f(place in the plane) for all of them, in order.
template <class F>
__device__ void ForWindow(const Slide& s, const Extents& e, const F& f) {
  for (int64_t d = e.begin[0]; d < e.end[0]; d += s.dilate[0]) {
    for (int64_t h = e.begin[1]; h < e.end[1]; h += s.dilate[1]) {
      for (int64_t w = e.begin[2]; w < e.end[2]; w += s.dilate[2]) f((d * s.in[1] + h) * s.in[2] + w);
    }
  }
}

// f(output) for all outputs in whose windows the input at `at` is, in order: no more is looked at than there are,
// however long windows are.
template <class F>
__device__ void ForWindowsAt(const Slide& s, int64_t at, const F& f) {
  int64_t place[3], begin[3], end[3];  // of the input, from where the padding begins; of outputs
  for (int axis = 2; axis >= 0; --axis) {
    const int64_t next = s.per_in[axis].Of(at), stride = s.stride[axis];
    place[axis] = at - next * s.in[axis] + s.pad[axis];
    const int64_t first = place[axis] - s.dilate[axis] * (s.kernel[axis] - 1);
    const int64_t last = s.per_stride[axis].Of(place[axis]);
    begin[axis] = first <= 0 ? 0 : s.per_stride[axis].Of(first + stride - 1);
    end[axis] = last < s.out[axis] ? last + 1 : s.out[axis];
    at = next;
  }
  const auto meets = [&](int axis, int64_t output) {  // is it at a tap?
    return s.dilate[axis] == 1 || (place[axis] - output * s.stride[axis]) % s.dilate[axis] == 0;
  };
  for (int64_t d = begin[0]; d < end[0]; ++d) {
    if (!meets(0, d)) continue;
    for (int64_t h = begin[1]; h < end[1]; ++h) {
      if (!meets(1, h)) continue;
      for (int64_t w = begin[2]; w < end[2]; ++w) {
        if (meets(2, w)) f((d * s.out[1] + h) * s.out[2] + w);
      }
    }
  }
}

// The maximum of a window, the first of equal ones, or NaN.
template <class Value, class Block>
__device__ void MaxPool(const Block& block, const PoolArgs& args) {
  const Slide& s = args.slide;
  ForAll(block, args.n, [&](int64_t i) {
    const int64_t plane = s.per_outputs.Of(i);
    Value y = 0;
    int64_t winner = -1;
    ForWindow(s, WindowAt(args, i - plane * s.outputs), [&](int64_t at) {
      const Value next = Element<Value>(args.in, plane * s.inputs + at);
      if (winner < 0 || next > y || (next != next && y == y)) {
        y = next;
        winner = at;
      }
    });
    if (args.out.data) PutWrapped(args.out.data, args.out.dtype, i, y);
    if (args.winners) args.winners[i] = static_cast<int32_t>(winner);
  });
}

// Sums by runs, as JoinRuns.
template <class Value, class Block>
__device__ void AveragePool(const Block& block, const PoolArgs& args) {
  constexpr int kRun = 128;
  const Slide& s = args.slide;
  const bool numbers = !IsFloating(args.out.dtype);
  ForAll(block, args.n, [&](int64_t i) {
    const int64_t plane = s.per_outputs.Of(i);
    const Extents window = WindowAt(args, i - plane * s.outputs);
    Value sum = 0, run = 0;
    int count = 0;
    ForWindow(s, window, [&](int64_t at) {
      run += Read<Value>(args.in, plane * s.inputs + at, numbers);
      if (++count < kRun) return;
      sum += run;
      run = 0;
      count = 0;
    });
    Write(args.out, i, (sum + run) / DivisorOf<Value>(args, window), numbers);
  });
}

template <class Block>
__device__ void Run(const Block& block, const PoolArgs& args) {
  const Slide& s = args.slide;
  const DType dtype = args.out.dtype;
  if (!args.grad && args.max) return ForValues(dtype, [&]<class Value>() { MaxPool<Value>(block, args); });
  if (!args.grad && !IsFloating(dtype)) return AveragePool<double>(block, args);
  ForFloats(dtype, [&]<class Value>() {
    if (!args.grad) return AveragePool<Value>(block, args);
    ForAll(block, args.n, [&](int64_t i) {
      const int64_t plane = s.per_inputs.Of(i), at = i - plane * s.inputs;
      Value dx = 0;
      ForWindowsAt(s, at, [&](int64_t output) {
        const int64_t from = plane * s.outputs + output;
        if (args.max) {
          if (args.winners[from] == at) dx += Element<Value>(args.in, from);
        } else {
          dx += Element<Value>(args.in, from) / DivisorOf<Value>(args, WindowAt(args, output));
        }
      });
      PutWrapped(args.out.data, args.out.dtype, i, dx);
    });
  });
}

}  // namespace bindery::cuda
