// What the source of a chain of elementwise operators calls (fused_source.h). NVRTC compiles this, too, with the
// headers that it includes, and nvrtc_std.cuh in place of the standard library's.
#pragma once

#include <cstddef>
#include <cstdint>

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

// Element i of an input of type T, as what is computed with.
template <class T>
__device__ auto Read(const FusedArgs& args, int input, int64_t i) {
  return flat::Load<T>(static_cast<const T*>(args.in[input])[i]);
}
// What reading it again would give, had it been written as T: operators by themselves write what they give.
template <class T>
__device__ auto As(flat::Arithmetic<T> value) {
  return flat::Load<T>(flat::Store<T>(value));
}
template <class T>
__device__ void Write(const FusedArgs& args, int64_t i, flat::Arithmetic<T> value) {
  static_cast<T*>(args.out)[i] = flat::Store<T>(value);
}

// Which element of an input that is stretched belongs to element i of the result.
__device__ inline int64_t PlaceOf(const FusedArgs& args, int input, int64_t i) {
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

}  // namespace bindery::cuda
