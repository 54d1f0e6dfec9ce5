#include "base/dtype.h"

#include <cmath>
#include <limits>

namespace bindery {
namespace {

constexpr DType kAll[kNumDTypes] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16, DType::kInt8,
                                    DType::kInt32,   DType::kInt64,   DType::kUInt8,    DType::kBool,    DType::kInt16,
                                    DType::kUInt16,  DType::kUInt32,  DType::kUInt64};

// A double as a float whose last bit is set whenever anything was lost ("round to odd"). Rounding that float once more
// to a format of at most 22 bits gives what rounding the double directly would have given.
float RoundToOdd(double value) {
  const float nearest = static_cast<float>(value);
  if (std::isnan(value) || static_cast<double>(nearest) == value) return nearest;
  const uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (bits & 1u) return nearest;
  return std::bit_cast<float>(std::fabs(static_cast<double>(nearest)) > std::fabs(value) ? bits - 1 : bits + 1);
}

}  // namespace

int64_t SizeOf(DType dtype) {
  return Dispatch(dtype, []<class T>() -> int64_t { return sizeof(T); });
}

const char* ToString(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return "float32";
    case DType::kFloat64: return "float64";
    case DType::kBFloat16: return "bfloat16";
    case DType::kFloat16: return "float16";
    case DType::kInt8: return "int8";
    case DType::kInt32: return "int32";
    case DType::kInt64: return "int64";
    case DType::kUInt8: return "uint8";
    case DType::kBool: return "bool";
    case DType::kInt16: return "int16";
    case DType::kUInt16: return "uint16";
    case DType::kUInt32: return "uint32";
    case DType::kUInt64: return "uint64";
  }
  return "invalid dtype";
}

DType ParseDType(std::string_view name) {
  std::string choices;
  for (DType dtype : kAll) {
    if (name == ToString(dtype)) return dtype;
    if (!choices.empty()) choices += ", ";
    choices += ToString(dtype);
  }
  Throw("unknown dtype \"{}\": expected one of {}", name, choices);
}

bool IsFloat(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kBFloat16 || dtype == DType::kFloat16;
}

// binary16: 1 sign, 5 exponent (bias 15), 10 mantissa bits; below 2^-14 the unit is 2^-24.
uint16_t FloatToHalfBits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));  // quiet NaN
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and more round to infinity
  if (magnitude < 0x38800000u) {
    // Subnormal or zero: adding 0.5, whose unit in the last place is 2^-24, rounds to that unit, ties to even.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f)));
  }
  const uint32_t odd = magnitude >> 13 & 1u;
  return static_cast<uint16_t>(sign | ((magnitude - (112u << 23) + 0xfffu + odd) >> 13));
}

float HalfBitsToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = bits >> 10 & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  return std::bit_cast<float>(sign | (exponent + 112u) << 23 | mantissa << 13);
}

template <class T>
T StoreDouble(double value) {
  if constexpr (std::is_same_v<T, double> || std::is_same_v<T, float>) {
    return static_cast<T>(value);
  } else if constexpr (std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>) {
    return T(RoundToOdd(value));
  } else if constexpr (std::is_same_v<T, bool>) {
    return value != 0;
  } else {
    if (std::isnan(value)) return 0;
    const double rounded = std::nearbyint(value);
    // The highest int64 is not a double; 2^digits is one for every type.
    if (rounded >= std::ldexp(1.0, std::numeric_limits<T>::digits)) return std::numeric_limits<T>::max();
    if (rounded < static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
    return static_cast<T>(rounded);
  }
}

template float StoreDouble<float>(double);
template double StoreDouble<double>(double);
template bfloat16 StoreDouble<bfloat16>(double);
template float16 StoreDouble<float16>(double);
template int8_t StoreDouble<int8_t>(double);
template int32_t StoreDouble<int32_t>(double);
template int64_t StoreDouble<int64_t>(double);
template uint8_t StoreDouble<uint8_t>(double);
template bool StoreDouble<bool>(double);
template int16_t StoreDouble<int16_t>(double);
template uint16_t StoreDouble<uint16_t>(double);
template uint32_t StoreDouble<uint32_t>(double);
template uint64_t StoreDouble<uint64_t>(double);

}  // namespace bindery
