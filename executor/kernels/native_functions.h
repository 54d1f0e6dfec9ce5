// The elementwise functions of single numbers: float, double and the integers; the 16-bit floats are computed in float,
// bool in int.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/dtype.h"
#include "executor/kernels/function_list.h"

namespace bindery::native {

using std::acos, std::acosh, std::asin, std::asinh, std::atan, std::atanh, std::ceil, std::cos, std::cosh, std::erf,
    std::exp, std::expm1, std::floor, std::log, std::log1p, std::rint, std::sin, std::sinh, std::sqrt, std::tan,
    std::tanh, std::trunc;

template <class T>
constexpr T Value(double x) {
  return static_cast<T>(x);
}
template <class T>
constexpr T Truth(bool mask) {
  return static_cast<T>(mask);
}

template <class T>
constexpr T abs(T x) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::fabs(x);
  } else if constexpr (std::is_unsigned_v<T>) {
    return x;
  } else {
    return x < 0 ? static_cast<T>(0u - static_cast<std::make_unsigned_t<T>>(x)) : x;
  }
}

// Integers wrap around.
template <class T>
constexpr T sum(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return a + b;
  } else {
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  }
}

// Integers are divided towards zero; what has no quotient gives the nearest there is, as in the reference.
template <class T>
constexpr T quotient(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return a / b;
  } else {
    using Limits = std::numeric_limits<T>;
    if (b == 0) return a == 0 ? T{0} : a < T{0} ? Limits::min() : Limits::max();
    if (std::is_signed_v<T> && a == Limits::min() && b == static_cast<T>(-1)) return Limits::max();
    return static_cast<T>(a / b);
  }
}

// a - trunc(a / b) b: the dividend's sign, as in C. Integers divided by 0 leave 0.
template <class T>
constexpr T dividends_remainder(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::fmod(a, b);
  } else {
    if (b == 0 || (std::is_signed_v<T> && b == static_cast<T>(-1))) return 0;
    return static_cast<T>(a % b);
  }
}
// a - floor(a / b) b: the divisor's sign, as in NumPy.
template <class T>
constexpr T remainder(T a, T b) {
  const T r = dividends_remainder(a, b);
  return r != 0 && (r < 0) != (b < 0) ? static_cast<T>(r + b) : r;
}

// Integers wrap around; of negative exponents only 1 and -1 leave anything.
template <class T>
constexpr T pow(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::pow(a, b);
  } else {
    if (b < T{0}) return a == 1 ? T{1} : a == static_cast<T>(-1) ? static_cast<T>(b % 2 == 0 ? 1 : -1) : T{0};
    uint64_t result = 1, factor = static_cast<uint64_t>(a);
    for (uint64_t left = static_cast<uint64_t>(b); left > 0; left >>= 1, factor *= factor) {
      if (left & 1u) result *= factor;
    }
    return static_cast<T>(result);
  }
}

// Bits that leave at one end are gone; by a negative number, or by as many bits as there are, all of them.
template <class T>
constexpr T shift_left(T a, T b) {
  return std::cmp_less(b, 0) || std::cmp_greater_equal(b, 8 * sizeof(T))
             ? T{0}
             : static_cast<T>(static_cast<uint64_t>(a) << b);
}
template <class T>
constexpr T shift_right(T a, T b) {  // the sign stays
  if (std::cmp_less(b, 0) || std::cmp_greater_equal(b, 8 * sizeof(T)))
    return static_cast<T>(std::cmp_less(a, 0) ? -1 : 0);
  return static_cast<T>(a >> b);
}

template <class T>
constexpr T sigmoid(T x) {
  return 1 / (1 + exp(-x));
}
template <class T>
constexpr T normal_part(T x) {
  return std::erfc(x * static_cast<T>(-0.70710678118654752)) / 2;
}
template <class T>
constexpr T softrelu(T x) {
  return (x < 0 ? T{0} : x) + std::log1p(exp(-abs(x)));
}
template <class T>
constexpr T one_minus_exp(T y) {
  return -std::expm1(-y);
}

#include "executor/kernels/functions.h"

// Is the function made for this element type?
template <class F, class T>
inline constexpr bool kTakes = (!(F::kFlags & kFloatsOnly) ||
                                !std::is_integral_v<T>)&&(!(F::kFlags & kIntegersOnly) ||
                                                          (std::is_integral_v<T> && !std::is_same_v<T, bool>));

template <class F, class T>
using Result = std::conditional_t<(F::kFlags & kTruth) != 0, bool, T>;

// f of elements of type T, computed in the type that stands for it.
template <class F, class T, class... Operands>
Result<F, T> Call(Operands... x) {
  if constexpr (std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>) {
    return static_cast<Result<F, T>>(F()(static_cast<float>(x)...));
  } else if constexpr (std::is_same_v<T, bool>) {
    return F()(static_cast<int>(x)...) != 0;
  } else if constexpr (std::is_integral_v<T> && (F::kFlags & kWraps)) {
    // Two uint16 would be multiplied as int, which must not overflow.
    using Unsigned = std::common_type_t<std::make_unsigned_t<T>, unsigned>;
    return static_cast<T>(F()(static_cast<Unsigned>(x)...));
  } else {
    return static_cast<Result<F, T>>(F()(x...));
  }
}

}  // namespace bindery::native
