// How the flat loops compute with each element type. Private to engine/kernels and engine/cuda, whose compiler takes
// for its devices what is constexpr.
//
// Float types compute in float32 (float64 in itself). Integers and bool compute in int64, uint64 in itself, and saturate
// when stored; their sums wrap around, so that sums of parts are those of all.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/dtype.h"

namespace bindery::flat {

template <class T>
using Arithmetic = std::conditional_t<std::is_same_v<T, double> || std::is_same_v<T, uint64_t>, T,
                                      std::conditional_t<std::is_integral_v<T>, int64_t, float>>;

// Memory from outside may hold any byte where a bool belongs: loops read bytes.
template <class T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;

// base/dtype.cc's conversions again, without branches, so that loops over them become vector code. Same bits.
[[gnu::always_inline]] constexpr float HalfToFloat(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16, magnitude = (bits & 0x7fffu) << 13;
  const uint32_t normal = magnitude + (112u << 23);
  const uint32_t special = magnitude + (224u << 23);  // infinity, NaN
  // Subnormal: the mantissa under the exponent of 2^-14, minus 2^-14.
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude + (113u << 23)) - 0x1p-14f);
  const uint32_t result = magnitude < (1u << 23) ? small : (magnitude >= (31u << 23) ? special : normal);
  return std::bit_cast<float>(sign | result);
}

[[gnu::always_inline]] constexpr uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  const uint32_t nan = 0x7e00u | (magnitude >> 13 & 0x3ffu);
  // Subnormal: adding 0.5, whose unit in the last place is 2^-24, rounds to that unit, ties to even.
  const uint32_t small =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - std::bit_cast<uint32_t>(0.5f);
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  const uint32_t finite = magnitude < (113u << 23) ? small : normal;
  const uint32_t large = magnitude > 0x7f800000u ? nan : 0x7c00u;
  return static_cast<uint16_t>(sign | (magnitude >= 0x477ff000u ? large : finite));  // 65520 and more are infinity
}

[[gnu::always_inline]] constexpr uint16_t FloatToBFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16, nan = bits >> 16 | 0x40u;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

template <class T>
[[gnu::always_inline]] constexpr Arithmetic<T> Load(Stored<T> value) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
  } else if constexpr (std::is_same_v<T, float16>) {
    return HalfToFloat(value.bits);
  } else if constexpr (std::is_same_v<T, bool>) {
    return value != 0;
  } else {
    return value;
  }
}

template <class T>
[[gnu::always_inline]] constexpr T Store(Arithmetic<T> value) {
  if constexpr (std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>) {
    T result{};
    result.bits = std::is_same_v<T, bfloat16> ? FloatToBFloat(value) : FloatToHalf(value);
    return result;
  } else if constexpr (std::is_same_v<T, bool>) {
    return value != 0;
  } else if constexpr (std::is_integral_v<T> && sizeof(T) < sizeof(int64_t)) {
    return static_cast<T>(std::clamp<int64_t>(value, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
  } else {
    return value;
  }
}

// Sums of integers wrap around: Plus in 64 bits, where C++ would call it undefined, and StoreSum in the element's own.
template <class T>
[[gnu::always_inline]] constexpr T StoreSum(Arithmetic<T> sum) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    return static_cast<T>(sum);
  } else {
    return Store<T>(sum);
  }
}
template <class A>
[[gnu::always_inline]] constexpr A Plus(A a, A b) {
  if constexpr (std::is_same_v<A, int64_t>) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return a + b;
  }
}

}  // namespace bindery::flat
