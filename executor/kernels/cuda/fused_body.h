// What the source of a chain of elementwise operators calls (fused_source.h). NVRTC compiles this, too, with the
// headers that it includes, and nvrtc_std.cuh in place of the standard library's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/cuda/pack.h"
#include "engine/kernels/arithmetic.h"
#include "executor/kernels/cuda/fused_args.h"
#include "executor/kernels/native_functions.h"

namespace bindery::cuda {

// The function at a place of a list.
template <class List, size_t kPlace>
struct At;
template <class F, class... Rest>
struct At<FunctionList<F, Rest...>, 0> {
  using Type = F;
};
template <class F, class... Rest, size_t kPlace>
struct At<FunctionList<F, Rest...>, kPlace> : At<FunctionList<Rest...>, kPlace - 1> {};

template <class List, size_t kPlace, class... Operands>
__device__ auto Call(Operands... x) {
  return typename At<List, kPlace>::Type()(x...);
}
// Of a curve with the numbers a and b.
template <class List, size_t kPlace, class T>
__device__ T TimesSlope(T dy, T x, T a, T b) {
  return dy * typename At<List, kPlace>::Type().slope(x, a, b);
}

// What reading it again would give, had it been written as T: operators by themselves write what they give.
template <class T>
__device__ auto As(flat::Arithmetic<T> value) {
  return flat::Load<T>(flat::Store<T>(value));
}

// Neighbours of type T, in memory or as what is computed with.
template <class T>
using Stored = Pack<T, FusedArgs::kPack>;
template <class T>
using Loaded = Pack<flat::Arithmetic<T>, FusedArgs::kPack>;

// Of memory of which `count` elements are left, as many as there are: by one access where all are and the address allows
// it. What is behind the end is read as 0, and not written.
template <class T>
__device__ Loaded<T> LoadPack(const T* from, int64_t count) {
  Loaded<T> x = {};
  const auto* const pack = reinterpret_cast<const Stored<T>*>(from);
  if (count >= FusedArgs::kPack && Aligned(pack)) {
    const Stored<T> stored = *pack;
    for (int e = 0; e < FusedArgs::kPack; ++e) x.v[e] = flat::Load<T>(stored.v[e]);
  } else {
    for (int e = 0; e < FusedArgs::kPack; ++e) {
      if (e < count) x.v[e] = flat::Load<T>(from[e]);
    }
  }
  return x;
}
template <class T>
__device__ void StorePack(T* to, int64_t count, const Loaded<T>& y) {
  auto* const pack = reinterpret_cast<Stored<T>*>(to);
  if (count >= FusedArgs::kPack && Aligned(pack)) {
    Stored<T> stored;
    for (int e = 0; e < FusedArgs::kPack; ++e) stored.v[e] = flat::Store<T>(y.v[e]);
    *pack = stored;
  } else {
    for (int e = 0; e < FusedArgs::kPack; ++e) {
      if (e < count) to[e] = flat::Store<T>(y.v[e]);
    }
  }
}

// Which element of an input that is stretched belongs to element i of the result. Its divisions are most of what is to be
// compiled: so they are there once.
__attribute__((noinline)) __device__ inline int64_t PlaceOf(const FusedArgs& args, int input, int64_t i) {
  const auto divide = [&]<class Index>(Index left) {
    int64_t place = 0;
    for (int axis = args.rank - 1; axis >= 0; --axis) {
      const auto extent = static_cast<Index>(args.extents[axis]);
      place += static_cast<int64_t>(left % extent) * args.strides[input][axis];
      left /= extent;
    }
    return place;
  };
  return args.n <= INT32_MAX ? divide(static_cast<uint32_t>(i)) : divide(static_cast<uint64_t>(i));
}

// Of an input of type T what the result's elements from i on are made of: its own there, its only one, or those where
// the strides have them.
template <class T>
__device__ Loaded<T> Read(const FusedArgs& args, int input, int64_t i) {
  return LoadPack(static_cast<const T*>(args.in[input]) + i, args.n - i);
}
template <class T>
__device__ Loaded<T> Repeat(const T* from) {
  Loaded<T> x;
  for (int e = 0; e < FusedArgs::kPack; ++e) x.v[e] = flat::Load<T>(*from);
  return x;
}
template <class T>
__device__ Loaded<T> ReadOne(const FusedArgs& args, int input) {
  return Repeat(static_cast<const T*>(args.in[input]));
}
template <class T>
__device__ Loaded<T> ReadStretched(const FusedArgs& args, int input, int64_t i) {
  const auto* const from = static_cast<const T*>(args.in[input]);
  const int last = args.rank - 1;
  if (args.extents[last] % FusedArgs::kPack == 0) {  // so the pack does not go beyond the last axis' end
    const T* const first = from + PlaceOf(args, input, i);
    return args.strides[input][last] == 0 ? Repeat(first) : LoadPack(first, FusedArgs::kPack);
  }
  Loaded<T> x = {};
  for (int e = 0; e < FusedArgs::kPack; ++e) {
    if (i + e < args.n) x.v[e] = flat::Load<T>(from[PlaceOf(args, input, i + e)]);
  }
  return x;
}
template <class T>
__device__ void Write(const FusedArgs& args, int64_t i, const Loaded<T>& y) {
  StorePack(static_cast<T*>(args.out) + i, args.n - i, y);
}

}  // namespace bindery::cuda
