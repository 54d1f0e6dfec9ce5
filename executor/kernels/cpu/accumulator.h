// Sums of elements in the type that holds them best: integers in 64 bits, where they wrap around, floats in double.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/dtype.h"
#include "engine/kernels/flat.h"

namespace bindery::cpu {

template <class T>
using Accumulator =
    std::conditional_t<!std::is_integral_v<T>, double, std::conditional_t<std::is_unsigned_v<T>, uint64_t, int64_t>>;

template <class T>
Accumulator<T> Widened(T x) {
  if constexpr (std::is_integral_v<T>) {
    return x;
  } else {
    return LoadDouble(x);
  }
}

// Sums as elements of a type, integers of their lowest bits.
template <class A>
void StoreSums(const A* sums, int64_t n, DType dtype, void* out) {
  Dispatch(dtype, [&]<class T>() {
    if constexpr (std::is_integral_v<A> && std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      for (int64_t i = 0; i < n; ++i) static_cast<T*>(out)[i] = static_cast<T>(sums[i]);
    } else {
      flat::Cast(kDTypeOf<A>, sums, dtype, out, n);
    }
  });
}

// a + b c
template <class A>
A Sum(A a, A b, A c = 1) {
  if constexpr (std::is_integral_v<A>) {
    return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b) * static_cast<uint64_t>(c));
  } else {
    return a + b * c;
  }
}

// StoreDouble, without a call for each number where it is a single instruction.
template <class T>
T Stored(double value) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(value);
  } else {
    return StoreDouble<T>(value);
  }
}

// The sum, divided by so many elements for their mean, as an element: to the nearest, of two the even one, as far as
// the type goes.
template <class T>
inline T Narrowed(Accumulator<T> sum, int64_t divisor = 1) {
  if constexpr (std::is_same_v<T, bool>) {
    return sum != 0;
  } else if constexpr (std::is_integral_v<T>) {
    using A = Accumulator<T>;
    const A by = static_cast<A>(divisor), rest = sum % by;
    const A left = (rest < 0 ? -rest : rest), lacks = by - left;
    sum /= by;
    if (left > lacks || (left == lacks && sum % 2 != 0)) sum += rest < 0 ? -1 : 1;
    return static_cast<T>(std::clamp<A>(sum, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
  } else {
    return Stored<T>(sum / static_cast<double>(divisor));
  }
}

}  // namespace bindery::cpu
