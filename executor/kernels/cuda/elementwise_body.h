// Element by element.
#pragma once

#include "executor/kernels/cuda/elementwise_args.h"
#include "executor/kernels/cuda/values.h"
#include "executor/kernels/native_functions.h"

namespace bindery::cuda {

// f.operator()<F>() with the function at `place` of the list.
template <class... F, class G>
__device__ void WithFunction(std::type_identity<FunctionList<F...>>, int place, const G& g) {
  int i = 0;
  static_cast<void>(((place == i++ ? (g.template operator()<F>(), true) : false) || ...));
}

template <class Value>
__device__ Value Applied(const MapArgs& args, const Value* x) {
  Value y = 0;
  const auto choose = [&]<class List>(std::type_identity<List> list, const auto& call) {
    WithFunction(list, args.function, [&]<class F>() {
      if constexpr (native::kTakes<F, Value>) y = static_cast<Value>(call.template operator()<F>());
    });
  };
  // Integers wrap around, as the functions of unsigned ones do.
  const auto of_two = [&]<class F>() {
    if constexpr (std::is_integral_v<Value> && (F::kFlags & kWraps) != 0) {
      return F()(static_cast<uint64_t>(x[0]), static_cast<uint64_t>(x[1]));
    } else {
      return F()(x[0], x[1]);
    }
  };
  const auto of_one = [&]<class F>() {
    if constexpr (std::is_integral_v<Value> && (F::kFlags & kWraps) != 0) {
      return F()(static_cast<uint64_t>(x[0]));
    } else {
      return F()(x[0]);
    }
  };
  const Value a = static_cast<Value>(args.a);
  [[maybe_unused]] const Value b = static_cast<Value>(args.b);
  switch (args.family) {
    case Family::kUnary: choose(std::type_identity<native::UnaryFunctions>(), of_one); break;
    case Family::kPredicate: choose(std::type_identity<native::Predicates>(), of_one); break;
    case Family::kBinary: choose(std::type_identity<native::BinaryFunctions>(), of_two); break;
    case Family::kRelation: choose(std::type_identity<native::Relations>(), of_two); break;
    case Family::kActivation: choose(std::type_identity<native::ActivationFunctions>(), of_one); break;
    case Family::kActivationGrad: choose(std::type_identity<native::ActivationGradFunctions>(), of_two); break;
    case Family::kCast: y = x[0]; break;
    case Family::kAddReluGrad: y = x[2] > 0 ? native::sum(x[0], x[1]) : Value{0}; break;
    default: break;
  }
  if constexpr (!std::is_integral_v<Value>) {
    switch (args.family) {
      case Family::kCurve:
        choose(std::type_identity<native::CurveFunctions>(), [&]<class F>() { return F()(x[0], a, b); });
        break;
      case Family::kCurveGrad:
        choose(std::type_identity<native::CurveFunctions>(), [&]<class F>() { return x[0] * F().slope(x[1], a, b); });
        break;
      case Family::kSum:
        y = native::sum(x[0], x[1]);
        if (args.inputs > 2) y = native::sum(y, x[2]);
        choose(std::type_identity<native::ActivationFunctions>(), [&]<class F>() { return F()(y); });
        break;
      case Family::kDifference: y = (x[0] - x[1]) * a; break;
      case Family::kDifferenceSign: {
        const Value difference = x[0] - x[1];
        y = difference != difference ? difference : static_cast<Value>((difference > 0) - (difference < 0)) * a;
        break;
      }
      case Family::kMasked: y = x[0] * (x[1] != 0 ? a : Value{0}); break;
      default: break;
    }
  }
  return y;
}

// Are elements of the type what is computed with?
template <class Value>
__device__ bool IsOwn(DType dtype) {
  return dtype == (std::is_same_v<Value, double> ? DType::kFloat64 : DType::kFloat32);
}

// kCount neighbours by one load where that is possible.
template <class Value, int kCount>
__device__ void GetPack(const Source& source, int64_t first, int64_t stride, Value* to) {
  const auto load = [&]<class T>() {
    const auto* const pack = reinterpret_cast<const Pack<T, kCount>*>(static_cast<const T*>(source.data) + first);
    if (!Aligned(pack)) return false;
    const Pack<T, kCount> values = *pack;
    for (int k = 0; k < kCount; ++k) to[k] = static_cast<Value>(flat::Load<T>(values.v[k]));
    return true;
  };
  if constexpr (!std::is_integral_v<Value>) {
    bool done = false;
    if (stride == 1) {
      if (IsOwn<Value>(source.dtype)) done = load.template operator()<Value>();
      if constexpr (std::is_same_v<Value, float>) {
        if (source.dtype == DType::kBFloat16) done = load.template operator()<bfloat16>();
        if (source.dtype == DType::kFloat16) done = load.template operator()<float16>();
      }
    }
    if (done) return;
  }
  for (int k = 0; k < kCount; ++k) to[k] = Get<Value>(source.data, source.dtype, first + k * stride);
}
template <class Value, int kCount>
__device__ void PutPack(const Target& target, int64_t first, const Value* from) {
  const auto store = [&]<class T>() {
    auto* const pack = reinterpret_cast<Pack<T, kCount>*>(static_cast<T*>(target.data) + first);
    if (!Aligned(pack)) return false;
    Pack<T, kCount> values;
    for (int k = 0; k < kCount; ++k) values.v[k] = StoreAs<T>(from[k]);
    *pack = values;
    return true;
  };
  if constexpr (!std::is_integral_v<Value>) {
    bool done = false;
    if (IsOwn<Value>(target.dtype)) done = store.template operator()<Value>();
    if constexpr (std::is_same_v<Value, float>) {
      if (target.dtype == DType::kBFloat16) done = store.template operator()<bfloat16>();
      if (target.dtype == DType::kFloat16) done = store.template operator()<float16>();
    }
    if (done) return;
  }
  for (int k = 0; k < kCount; ++k) Put(target.data, target.dtype, first + k, from[k]);
}

// The number that a result is stored as.
template <class Value>
__device__ void StoreResult(const MapArgs& args, int64_t i, Value y) {
  if constexpr (std::is_integral_v<Value>) {
    if (args.family == Family::kCast) {
      return ForType(args.out.dtype, [&]<class T>() {
        constexpr bool kLowBits = std::is_integral_v<T> && !std::is_same_v<T, bool>;
        if constexpr (kLowBits) static_cast<T*>(args.out.data)[i] = static_cast<T>(y);
        if constexpr (!kLowBits) static_cast<T*>(args.out.data)[i] = StoreAs<T>(y);
      });
    }
  }
  if (args.out.dtype == DType::kBool) {
    static_cast<uint8_t*>(args.out.data)[i] = y != 0;
  } else if (args.saturates) {
    if constexpr (!std::is_integral_v<Value>) {
      if (!IsFloating(args.out.dtype)) y = native::trunc(y);
    }
    Put(args.out.data, args.out.dtype, i, y);
  } else {
    PutWrapped(args.out.data, args.out.dtype, i, y);
  }
}

template <class Value>
__device__ Value Operand(const MapArgs& args, int k, int64_t at) {
  return args.mixed ? static_cast<Value>(Number(args.in[k], at)) : Element<Value>(args.in[k], at);
}

template <class Block>
__device__ void Run(const Block& block, const MapArgs& args) {
  ForValues(args.compute, [&]<class Value>() {
    constexpr int kPack = 4, kMax = MapArgs::kMaxInputs;
    int64_t packs = 0;
    if constexpr (!std::is_integral_v<Value>) {
      // Flat, and of numbers in and out.
      const bool packed = args.flat && !args.mixed && IsFloating(args.out.dtype);
      packs = packed ? args.grid.n / kPack : 0;
      ForAll(block, packs, [&](int64_t i) {
        Value x[kMax][kPack] = {}, y[kPack];
        for (int k = 0; k < args.inputs; ++k) {
          const int64_t stride = args.grid.rank == 0 ? 0 : args.strides[k].of[0];
          GetPack<Value, kPack>(args.in[k], i * kPack * stride, stride, x[k]);
        }
        for (int e = 0; e < kPack; ++e) {
          const Value operands[kMax] = {x[0][e], x[1][e], x[2][e]};
          y[e] = Applied(args, operands);
        }
        PutPack<Value, kPack>(args.out, i * kPack, y);
      });
    }
    const int64_t done = packs * kPack;
    ForAll(block, args.grid.n - done, [&](int64_t rest) {
      const int64_t i = done + rest;
      const auto at = PlacesOf(args.grid, i, args.strides[0], args.strides[1], args.strides[2]);
      Value x[kMax] = {};
      for (int k = 0; k < args.inputs; ++k) x[k] = Operand<Value>(args, k, at.of[k]);
      StoreResult(args, i, Applied(args, x));
    });
  });
}

template <class Block>
__device__ void Run(const Block& block, const WhereArgs& args) {
  ForUnit(args.unit, [&]<class Unit>() {
    ForAll(block, args.grid.n, [&](int64_t i) {
      const auto at = PlacesOf(args.grid, i, args.strides[0], args.strides[1], args.strides[2]);
      const int chosen = static_cast<const uint8_t*>(args.condition)[at.of[0]] != 0 ? 0 : 1;
      static_cast<Unit*>(args.out)[i] = static_cast<const Unit*>(args.in[chosen])[at.of[1 + chosen]];
    });
  });
}

}  // namespace bindery::cuda
