// Element types, the two 16-bit float formats, and dispatch from a run-time DType to a C++ type.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/error.h"

namespace bindery {

// The numeric values are part of the model file format (proto/model.proto): never renumber.
enum class DType : uint8_t {
  kFloat32 = 0,
  kFloat64 = 1,
  kBFloat16 = 2,
  kFloat16 = 3,
  kInt8 = 4,
  kInt32 = 5,
  kInt64 = 6,
  kUInt8 = 7,
  kBool = 8,
  kInt16 = 9,
  kUInt16 = 10,
  kUInt32 = 11,
  kUInt64 = 12,
};
inline constexpr int kNumDTypes = 13;

int64_t SizeOf(DType dtype);              // bytes of one element
const char* ToString(DType dtype);        // "float32"
DType ParseDType(std::string_view name);  // throws Error naming the choices
bool IsFloat(DType dtype);                // float32, float64, bfloat16, float16
inline std::string format_as(DType dtype) { return ToString(dtype); }

// Upper half of a float32; round to nearest even, NaN stays NaN.
struct bfloat16 {
  uint16_t bits = 0;
  bfloat16() = default;
  explicit bfloat16(float value) {
    uint32_t u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<uint16_t>((u >> 16) | 0x40u);
    } else {
      bits = static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

// IEEE 754 binary16; round to nearest even.
uint16_t FloatToHalfBits(float value);
float HalfBitsToFloat(uint16_t bits);
struct float16 {
  uint16_t bits = 0;
  float16() = default;
  explicit float16(float value) : bits(FloatToHalfBits(value)) {}
  explicit operator float() const { return HalfBitsToFloat(bits); }
};

// Load to and store from double, the arithmetic type of the reference kernels. Integers round to
// nearest even and saturate; bool is "not zero".
template <class T>
double LoadDouble(T value) {
  if constexpr (std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>) {
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<double>(value);
  }
}
template <class T>
T StoreDouble(double value);

// From one element type to another, rounded as by StoreDouble. Integers do not go through double, which would round
// the largest.
template <class To, class From>
To Convert(From value) {
  if constexpr (std::is_integral_v<From> && std::is_integral_v<To> && !std::is_same_v<To, bool>) {
    using Limits = std::numeric_limits<To>;
    const auto number = value + From{0};  // of bool, which the comparisons do not take, int
    if (std::cmp_less(number, Limits::min())) return Limits::min();
    if (std::cmp_greater(number, Limits::max())) return Limits::max();
    return static_cast<To>(value);
  } else if constexpr ((std::is_arithmetic_v<From> && std::is_floating_point_v<To>) || std::is_same_v<To, float> ||
                       (std::is_same_v<From, float> && !std::is_integral_v<To>)) {
    return static_cast<To>(value);
  } else {
    return StoreDouble<To>(LoadDouble(value));
  }
}

// Dispatch(dtype, [&]<class T>() { ... }) calls the lambda with the C++ type of `dtype`.
template <class F>
constexpr decltype(auto) Dispatch(DType dtype, F&& f) {
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
  Throw("invalid dtype {}", static_cast<int>(dtype));
}

template <class T>
inline constexpr DType kDTypeOf = [] {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (Dispatch(dtype, []<class Element>() { return std::is_same_v<T, Element>; })) return dtype;
  }
  throw "not an element type";  // as a constant: an error of the compiler
}();

}  // namespace bindery
