// What the bodies of operators' kernels share: elements of any type as the numbers that are computed with, walks over
// strided memory, and rows that a block or a thread works on (engine/cuda/kernels_body.h).
//
// Numbers are computed with as float (float32 and narrower), double, int64_t or uint64_t: four forms of each kernel for
// thirteen types of elements, which are looked up for each load and store. That costs less than memory does.
#pragma once

#include <cmath>

#include "engine/cuda/kernels_body.h"
#include "executor/kernels/cuda/args.h"

namespace bindery::cuda {

// f.operator()<Value>() with what elements of a type are computed with.
template <class F>
__device__ void ForValues(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kBFloat16:
    case DType::kFloat16: return f.template operator()<float>();
    case DType::kFloat64: return f.template operator()<double>();
    case DType::kUInt64: return f.template operator()<uint64_t>();
    default: return f.template operator()<int64_t>();
  }
}
__device__ inline bool IsComputedInFloat(DType t) {
  return t == DType::kFloat32 || t == DType::kBFloat16 || t == DType::kFloat16;
}
__device__ inline bool IsFloating(DType t) { return t == DType::kFloat64 || IsComputedInFloat(t); }
template <class F>
__device__ void ForFloats(DType dtype, const F& f) {
  dtype == DType::kFloat64 ? f.template operator()<double>() : f.template operator()<float>();
}

// Element i of memory whose type is computed with as `Value`.
template <class Value>
__device__ Value Get(const void* memory, DType dtype, int64_t i) {
  if constexpr (std::is_same_v<Value, float>) {
    switch (dtype) {
      case DType::kBFloat16: return flat::Load<bfloat16>(static_cast<const bfloat16*>(memory)[i]);
      case DType::kFloat16: return flat::Load<float16>(static_cast<const float16*>(memory)[i]);
      default: return static_cast<const float*>(memory)[i];
    }
  } else if constexpr (std::is_same_v<Value, int64_t>) {
    switch (dtype) {
      case DType::kInt8: return static_cast<const int8_t*>(memory)[i];
      case DType::kInt16: return static_cast<const int16_t*>(memory)[i];
      case DType::kInt32: return static_cast<const int32_t*>(memory)[i];
      case DType::kUInt8: return static_cast<const uint8_t*>(memory)[i];
      case DType::kUInt16: return static_cast<const uint16_t*>(memory)[i];
      case DType::kUInt32: return static_cast<const uint32_t*>(memory)[i];
      case DType::kBool: return static_cast<const uint8_t*>(memory)[i] != 0;
      default: return static_cast<const int64_t*>(memory)[i];
    }
  } else {
    return static_cast<const Value*>(memory)[i];
  }
}

// The same of an element of any type, as LoadDouble has it.
__device__ inline double GetNumber(const void* memory, DType dtype, int64_t i) {
  double number = 0;
  ForValues(dtype, [&]<class Value>() { number = static_cast<double>(Get<Value>(memory, dtype, i)); });
  return number;
}

// Element i becomes `value`: rounded, of integers saturated, as a cast has it.
template <class Value>
__device__ void Put(void* memory, DType dtype, int64_t i, Value value) {
  ForType(dtype, [&]<class T>() { static_cast<T*>(memory)[i] = StoreAs<T>(value); });
}
// Of the types that are computed with as `Value` alone, integers wrapped around.
template <class Value>
__device__ void PutWrapped(void* memory, DType dtype, int64_t i, Value value) {
  if constexpr (std::is_same_v<Value, float>) {
    switch (dtype) {
      case DType::kBFloat16: static_cast<bfloat16*>(memory)[i] = flat::Store<bfloat16>(value); return;
      case DType::kFloat16: static_cast<float16*>(memory)[i] = flat::Store<float16>(value); return;
      default: static_cast<float*>(memory)[i] = value; return;
    }
  } else if constexpr (std::is_same_v<Value, int64_t>) {
    switch (dtype) {
      case DType::kInt8:
      case DType::kUInt8: static_cast<uint8_t*>(memory)[i] = static_cast<uint8_t>(value); return;
      case DType::kInt16:
      case DType::kUInt16: static_cast<uint16_t*>(memory)[i] = static_cast<uint16_t>(value); return;
      case DType::kInt32:
      case DType::kUInt32: static_cast<uint32_t*>(memory)[i] = static_cast<uint32_t>(value); return;
      case DType::kBool: static_cast<uint8_t*>(memory)[i] = value != 0; return;
      default: static_cast<int64_t*>(memory)[i] = value; return;
    }
  } else {
    static_cast<Value*>(memory)[i] = value;
  }
}

// Integers wrap around.
template <class Value>
__device__ Value Plus(Value a, Value b) {
  if constexpr (std::is_integral_v<Value>) {
    return static_cast<Value>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return a + b;
  }
}
template <class Value>
__device__ Value Times(Value a, Value b) {
  if constexpr (std::is_integral_v<Value>) {
    return static_cast<Value>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else {
    return a * b;
  }
}

// By one thread: `value`, element `at` of an input, is not in low..high. The first of a piece is heard: the others, of
// which there may be one for each element of a bad row, go no further than a look at the device's memory.
template <class Block>
__device__ void Report(const Block& block, const FaultRing& ring, int64_t at, double value, double low, double high) {
  if (!ring.faults) return;
  const uint64_t piece = *ring.piece;
  if (!block.Claim(ring.heard, piece)) return;
  ring.faults[piece % FaultRing::kSize] = {piece, at, value, low, high};
  if (ring.refused) ring.refused->place = 0;
}

// Is it a whole number in low..high?
__device__ inline bool IsWholeIn(double number, double low, double high) {
  return number >= low && number <= high && number == std::floor(number);
}

template <class Value>
__device__ Value Element(const Source& source, int64_t i) {
  return Get<Value>(source.data, source.dtype, i);
}
__device__ inline double Number(const Source& source, int64_t i) { return GetNumber(source.data, source.dtype, i); }

// Where index i of a grid, in C order, is in memory with these strides; in 32 bits where all indices and extents of the
// grid fit, which is the same for all that ask.
template <int kCount>
struct Places {
  int64_t of[kCount] = {};
};
template <class... Strided>
__device__ Places<sizeof...(Strided)> PlacesOf(const Grid& grid, int64_t i, const Strided&... strides) {
  Places<sizeof...(Strided)> at;
  const Strides* const all[] = {&strides...};
  const auto divide = [&]<class Index>(Index left) {
    for (int axis = grid.rank - 1; axis >= 0; --axis) {
      Index index = left;
      if (axis > 0) {
        const auto extent = static_cast<Index>(grid.extents[axis]);
        left /= extent;
        index -= left * extent;
      }
      for (size_t k = 0; k < sizeof...(Strided); ++k) at.of[k] += static_cast<int64_t>(index) * all[k]->of[axis];
    }
  };
  grid.fits_32_bits() ? divide(static_cast<uint32_t>(i)) : divide(static_cast<uint64_t>(i));
  return at;
}

// ---- rows ----

// f(&sum, k) for k = first, first + step ... before n, from `start`, which changes nothing: run by run, so that the error
// of a sum does not grow with n.
template <class T, class F, class J>
__device__ T JoinRuns(int64_t first, int64_t n, int64_t step, const T& start, const F& f, const J& join) {
  constexpr int64_t kRun = 128;
  T all = start;
  for (int64_t begin = first; begin < n; begin += kRun * step) {
    const int64_t end = n - begin < kRun * step ? n : begin + kRun * step;
    T part = start;
    for (int64_t k = begin; k < end; k += step) f(&part, k);
    all = join(all, part);
  }
  return all;
}

// Who works on a row: a block, or one of its threads.
//   ForEach(n, f)          f(k) for k in 0..n-1
//   Join(n, start, f, join)  f(&sum, k) for all k, from `start`, shared out; then all parts by join(a, b)
//   Once(f)                f() once
template <class Block>
struct BlockTeam {
  const Block& block;
  template <class F>
  __device__ void ForEach(int64_t n, const F& f) const {
    block.Each([&](int thread) {
      for (int64_t k = thread; k < n; k += block.threads()) f(k);
    });
  }
  template <class T, class F, class J>
  __device__ T Join(int64_t n, const T& start, const F& f, const J& join) const {
    return block.Reduce([&](int thread) { return JoinRuns(thread, n, block.threads(), start, f, join); }, join);
  }
  template <class F>
  __device__ void Once(const F& f) const {
    block.Each([&](int thread) {
      if (thread == 0) f();
    });
  }
};
struct ThreadTeam {
  template <class F>
  __device__ void ForEach(int64_t n, const F& f) const {
    for (int64_t k = 0; k < n; ++k) f(k);
  }
  template <class T, class F, class J>
  __device__ T Join(int64_t n, const T& start, const F& f, const J& join) const {
    return JoinRuns(0, n, 1, start, f, join);
  }
  template <class F>
  __device__ void Once(const F& f) const {
    f();
  }
};
// f(team, row) for all rows.
template <class Block, class F>
__device__ void ForRows(const Block& block, const Rows& rows, const F& f) {
  if (rows.by_block) {
    for (int64_t row = block.index(); row < rows.count; row += block.count()) f(BlockTeam<Block>{block}, row);
  } else {
    ForAll(block, rows.count, [&](int64_t row) { f(ThreadTeam(), row); });
  }
}

// The sum of f(k), in the order of the team.
template <class Value, class Team, class F>
__device__ Value SumOf(const Team& team, int64_t n, const F& f) {
  return team.Join(
      n, Value{0}, [&](Value* sum, int64_t k) { *sum = Plus(*sum, f(k)); },
      [](Value a, Value b) { return Plus(a, b); });
}

// ---- parts of rows ----

// Which part of a row, of `args.parts` of `args.length` elements each but the last, the number `index` names.
struct PartOfRow {
  int64_t row, part, first, own;  // which of the row's, from which element on, how many
  template <class Args>
  __device__ PartOfRow(const Args& args, int64_t index, int64_t of_row)
      : row(args.parts == 1 ? index : index / args.parts), part(index - row * args.parts), first(part * args.length),
        own(args.parts == 1 || of_row - first < args.length ? of_row - first : args.length) {}
};

// What add(&sum, k), of element k of the part, makes of all elements of the row. Of several parts that is known in
// Stage::kEnd: in kParts it is the part's, which is kept for then.
template <class Args, class Team, class Sum, class Add, class J>
__device__ Sum JoinParts(const Args& args, const Team& team, const PartOfRow& at, const Sum& nothing, const Add& add,
                         const J& joined) {
  static_assert(sizeof(Sum) <= Args::kPartial);
  const auto of_row = [&](int64_t k) -> Sum& { return static_cast<Sum*>(args.partial)[at.row * args.parts + k]; };
  const bool end = args.stage == Stage::kEnd;
  const Sum sum = team.Join(
      end ? args.parts : at.own, nothing,
      [&](Sum* to, int64_t k) { end ? void(*to = joined(*to, of_row(k))) : add(to, k); }, joined);
  if (args.stage == Stage::kParts) team.Once([&] { of_row(at.part) = sum; });
  return sum;
}

}  // namespace bindery::cuda
