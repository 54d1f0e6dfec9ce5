// Elements of operands, for what the fakes of libraries compute. Private to the fake.
#pragma once

#include <bit>
#include <cstdint>

#include "base/dtype.h"

namespace bindery::cuda::fake {

inline double Number(const char* memory, DType dtype, int64_t i) {
  return Dispatch(dtype, [&]<class T>() { return LoadDouble(reinterpret_cast<const T*>(memory)[i]); });
}
inline void Store(char* memory, DType dtype, int64_t i, double value) {
  Dispatch(dtype, [&]<class T>() { reinterpret_cast<T*>(memory)[i] = StoreDouble<T>(value); });
}

// To 11 bits, the nearest, or the even one.
inline double ToTf32(double value) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  return static_cast<double>(std::bit_cast<float>((bits + 0xfff + (bits >> 13 & 1)) & ~uint32_t{0x1fff}));
}

}  // namespace bindery::cuda::fake
