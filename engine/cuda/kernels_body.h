// Our own kernels, as work of one block of threads. They see their block through a thin interface, which a GPU
// implements (gpu_block.cuh) and a CPU, too (tests/engine/cuda/cpu_block.h), so that the ordinary tests run them.
//
//   index(), count(), threads()   which block of how many, of how many threads
//   Each(f)                       f(thread) by every thread of the block, which then wait for each other
//   Least(f)                      the same, of a number: the least of all threads', for all of them
//   Reduce(f, join)               the same, of trivially copied values of 4 bytes or a multiple: all joined, in one order
//   SetLeast(address, value)      by one thread: *address becomes `value` if that is less, whoever else does the same
//   Claim(address, value)         by one thread: *address becomes `value`; false if it was, whoever else does the same
//   MultiplyAdd(a, b, c)          a b + c, rounded once or twice
//   Shared<T>()                   memory of the block, at most 48 KiB; what is in it is undefined
//   Own<T>                        own[thread]: what a thread keeps from one Each to the next
//
// Values that are computed between these calls are the same in all threads.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "engine/cuda/kernel_args.h"
#include "engine/cuda/pack.h"
#include "engine/kernels/arithmetic.h"

namespace bindery::cuda {

// f(i) for i in 0..n-1, shared out over all threads of all blocks.
template <class Block, class F>
__device__ void ForAll(const Block& block, int64_t n, const F& f) {
  block.Each([&](int thread) {
    const int64_t step = static_cast<int64_t>(block.count()) * block.threads();
    for (int64_t i = static_cast<int64_t>(block.index()) * block.threads() + thread; i < n; i += step) f(i);
  });
}

// f.operator()<T>() with the type of the elements.
template <class F>
__device__ void ForType(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kFloat32: return f.template operator()<float>();
    case DType::kFloat64: return f.template operator()<double>();
    case DType::kBFloat16: return f.template operator()<bfloat16>();
    case DType::kFloat16: return f.template operator()<float16>();
    case DType::kInt8: return f.template operator()<int8_t>();
    case DType::kInt32: return f.template operator()<int32_t>();
    case DType::kInt64: return f.template operator()<int64_t>();
    case DType::kUInt8: return f.template operator()<uint8_t>();
    case DType::kBool: return f.template operator()<bool>();
    case DType::kInt16: return f.template operator()<int16_t>();
    case DType::kUInt16: return f.template operator()<uint16_t>();
    case DType::kUInt32: return f.template operator()<uint32_t>();
    case DType::kUInt64: return f.template operator()<uint64_t>();
  }
}

template <class F>
__device__ void ForUnit(int unit, const F& f) {
  switch (unit) {
    case 1: return f.template operator()<uint8_t>();
    case 2: return f.template operator()<uint16_t>();
    case 4: return f.template operator()<uint32_t>();
    case 8: return f.template operator()<uint64_t>();
    default: return f.template operator()<Unit16>();
  }
}

// base/dtype.cc's rounding: a float whose last bit is set whenever anything was lost, to be rounded once more.
constexpr float RoundToOdd(double value) {
  const float nearest = static_cast<float>(value);
  const double back = static_cast<double>(nearest);
  const uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (value != value || back == value || (bits & 1u)) return nearest;
  const bool away = (back < 0 ? -back : back) > (value < 0 ? -value : value);
  return std::bit_cast<float>(away ? bits - 1 : bits + 1);
}

constexpr double RoundToEven(double value) {
  constexpr double kUnits = 4503599627370496.0;  // 2^52: from here on all are whole
  if (value >= kUnits || value <= -kUnits) return value;
  return value < 0 ? (value - kUnits) + kUnits : (value + kUnits) - kUnits;
}

// What an element becomes when it is cast, by the rules of Convert. `value`: as flat::Load gives it.
template <class To, class Value>
constexpr To StoreAs(Value value) {
  if constexpr (std::is_same_v<To, bool>) {
    return value != 0;
  } else if constexpr (std::is_same_v<To, bfloat16> || std::is_same_v<To, float16>) {
    if constexpr (std::is_same_v<Value, float>) return flat::Store<To>(value);
    return flat::Store<To>(RoundToOdd(static_cast<double>(value)));
  } else if constexpr (!std::is_integral_v<To>) {
    return static_cast<To>(value);
  } else if constexpr (std::is_integral_v<Value>) {
    using Limits = std::numeric_limits<To>;
    if (std::cmp_less(value, Limits::min())) return Limits::min();
    if (std::cmp_greater(value, Limits::max())) return Limits::max();
    return static_cast<To>(value);
  } else {
    using Limits = std::numeric_limits<To>;
    constexpr double kEnd = 2.0 * static_cast<double>(uint64_t{1} << (Limits::digits - 1));  // one past the highest
    if (value != value) return 0;
    const double rounded = RoundToEven(static_cast<double>(value));
    if (rounded >= kEnd) return Limits::max();
    if (rounded < static_cast<double>(Limits::min())) return Limits::min();
    return static_cast<To>(rounded);
  }
}

template <class Block>
__device__ void Run(const Block& block, const FillArgs& args) {
  ForUnit(args.unit, [&]<class Unit>() {
    Unit value;
    if constexpr (std::is_same_v<Unit, Unit16>) {
      value = args.value;
    } else {
      value = static_cast<Unit>(args.value.low);
    }
    ForAll(block, args.units, [&](int64_t i) { static_cast<Unit*>(args.out)[i] = value; });
  });
}

template <class Block>
__device__ void Run(const Block& block, const CopyArgs& args) {
  ForUnit(args.unit, [&]<class Unit>() {
    ForAll(block, args.rows * args.units, [&](int64_t i) {
      const int64_t row = args.rows == 1 ? 0 : i / args.units, at = i - row * args.units;
      const char* const in = static_cast<const char*>(args.in) + row * args.in_stride;
      char* const out = static_cast<char*>(args.out) + row * args.out_stride;
      reinterpret_cast<Unit*>(out)[at] = reinterpret_cast<const Unit*>(in)[at];
    });
  });
}

// Between float32 and the 16-bit types, which casts are mostly between: packs where that is possible.
template <class From, class To, class Block>
__device__ void CastPacks(const Block& block, const CastArgs& args) {
  constexpr int kCount = 4;
  const auto* const in = static_cast<const Pack<From, kCount>*>(args.in);
  auto* const out = static_cast<Pack<To, kCount>*>(args.out);
  const int64_t packs = Aligned(in, out) ? args.n / kCount : 0, rest = packs * kCount;
  ForAll(block, packs, [&](int64_t i) {
    const Pack<From, kCount> values = in[i];
    Pack<To, kCount> results;
    for (int k = 0; k < kCount; ++k) results.v[k] = flat::Store<To>(flat::Load<From>(values.v[k]));
    out[i] = results;
  });
  ForAll(block, args.n - rest, [&](int64_t i) {
    static_cast<To*>(args.out)[rest + i] =
        flat::Store<To>(flat::Load<From>(static_cast<const From*>(args.in)[rest + i]));
  });
}

// From all types that are computed with as `Value`, to all types: the types are looked up for each element, which costs
// less than the memory does, and keeps the code of all pairs small.
template <class Value, class Block>
__device__ void CastValues(const Block& block, const CastArgs& args) {
  ForAll(block, args.n, [&](int64_t i) {
    Value value = 0;
    ForType(args.from, [&]<class From>() {
      if constexpr (std::is_same_v<flat::Arithmetic<From>, Value>) {
        value = flat::Load<From>(static_cast<const flat::Stored<From>*>(args.in)[i]);
      }
    });
    ForType(args.to, [&]<class To>() { static_cast<To*>(args.out)[i] = StoreAs<To>(value); });
  });
}

template <class Block>
__device__ void Run(const Block& block, const CastArgs& args) {
  switch (args.from) {
    case DType::kFloat64: return CastValues<double>(block, args);
    case DType::kUInt64: return CastValues<uint64_t>(block, args);
    case DType::kFloat32:
      if (args.to == DType::kBFloat16) return CastPacks<float, bfloat16>(block, args);
      if (args.to == DType::kFloat16) return CastPacks<float, float16>(block, args);
      return CastValues<float>(block, args);
    case DType::kBFloat16:
      if (args.to == DType::kFloat32) return CastPacks<bfloat16, float>(block, args);
      return CastValues<float>(block, args);
    case DType::kFloat16:
      if (args.to == DType::kFloat32) return CastPacks<float16, float>(block, args);
      return CastValues<float>(block, args);
    default: return CastValues<int64_t>(block, args);
  }
}

// sum[i] of `kCount` neighbours, in list order.
template <class T, int kCount, class Block>
__device__ void SumPacks(const Block& block, const SumArgs& args, int64_t begin, int64_t packs) {
  using Values = Pack<flat::Stored<T>, kCount>;
  const auto at = [&](const void* memory, int64_t i) -> const Values& {
    return static_cast<const Values*>(static_cast<const void*>(static_cast<const T*>(memory) + begin))[i];
  };
  ForAll(block, packs, [&](int64_t i) {
    flat::Arithmetic<T> sums[kCount];
    const Values first = at(args.in[0], i);
    for (int e = 0; e < kCount; ++e) sums[e] = flat::Load<T>(first.v[e]);
    for (int k = 1; k < args.count; ++k) {
      const Values next = at(args.in[k], i);
      for (int e = 0; e < kCount; ++e) sums[e] = flat::Plus(sums[e], flat::Load<T>(next.v[e]));
    }
    Values result;
    for (int e = 0; e < kCount; ++e) result.v[e] = flat::StoreSum<T>(sums[e]);
    const_cast<Values&>(at(args.out, i)) = result;
  });
}

template <class Block>
__device__ void Run(const Block& block, const SumArgs& args) {
  ForType(args.dtype, [&]<class T>() {
    int64_t done = 0;
    if constexpr (!std::is_integral_v<T>) {
      constexpr int kCount = 16 / static_cast<int>(sizeof(T));
      using Values = Pack<T, kCount>;
      bool aligned = Aligned(static_cast<const Values*>(args.out));
      for (int k = 0; k < args.count; ++k) aligned = aligned && Aligned(static_cast<const Values*>(args.in[k]));
      if (aligned) {
        done = args.n / kCount * kCount;
        SumPacks<T, kCount>(block, args, 0, done / kCount);
      }
    }
    SumPacks<T, 1>(block, args, done, args.n - done);
  });
}

template <class Block>
__device__ void Run(const Block& block, const ScaleArgs& args) {
  ForType(args.dtype, [&]<class T>() {
    using Stored = flat::Stored<T>;
    ForAll(block, args.n, [&](int64_t i) {
      Stored& element = static_cast<Stored*>(args.out)[i];
      if constexpr (std::is_integral_v<T>) {
        element = StoreAs<T>(static_cast<double>(flat::Load<T>(element)) * args.factor);
      } else {
        element = flat::Store<T>(flat::Load<T>(element) * static_cast<flat::Arithmetic<T>>(args.factor));
      }
    });
  });
}

template <class Block>
__device__ void Run(const Block& block, const NumberPieceArgs& args) {
  ForAll(block, 1, [&](int64_t) {
    *args.piece = args.number + (args.base ? *args.base : 0);
    *args.heard = 0;
  });
}

template <class Block>
__device__ void Run(const Block& block, const MarkPieceArgs& args) {
  ForAll(block, 1, [&](int64_t) { block.TellHost(args.word, args.number); });
}

}  // namespace bindery::cuda
