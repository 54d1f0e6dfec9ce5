#include "engine/kernels/finite_sum.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "base/error.h"
#include "engine/kernels/vectorized.h"

namespace bindery::flat {
namespace {

constexpr int64_t kBlock = 1024;  // sums that stay in the first-level cache

// All bits of the exponent are set.
template <class T, class Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>
[[gnu::always_inline]] inline Bits IsNotFinite(T x) {
  constexpr Bits kMask = sizeof(T) == 4 ? 0x7f800000u : static_cast<Bits>(0x7ff0000000000000u);
  return static_cast<Bits>((std::bit_cast<Bits>(x) & kMask) == kMask);
}

template <class T>
[[gnu::always_inline]] inline void FiniteSumLoop(const void* const* in, size_t count, int64_t n, bool* finite) {
  decltype(IsNotFinite(T())) bad = 0;
  const T* const first = static_cast<const T*>(in[0]);
  if (count == 1) {
    for (int64_t i = 0; i < n; ++i) bad |= IsNotFinite(first[i]);
  } else if (count == 2) {
    const T* const second = static_cast<const T*>(in[1]);
    for (int64_t i = 0; i < n; ++i) bad |= IsNotFinite(first[i] + second[i]);
  } else {
    T sums[kBlock];
    for (int64_t block = 0; block < n; block += kBlock) {
      const int64_t size = std::min(kBlock, n - block);
      const T* const second = static_cast<const T*>(in[1]) + block;
      for (int64_t i = 0; i < size; ++i) sums[i] = first[block + i] + second[i];
      for (size_t k = 2; k + 1 < count; ++k) {
        const T* const next = static_cast<const T*>(in[k]) + block;
        for (int64_t i = 0; i < size; ++i) sums[i] += next[i];
      }
      const T* const last = static_cast<const T*>(in[count - 1]) + block;
      for (int64_t i = 0; i < size; ++i) bad |= IsNotFinite(sums[i] + last[i]);
    }
  }
  *finite = bad == 0;
}

}  // namespace

bool SumIsFinite(DType dtype, std::span<const void* const> in, int64_t n) {
  Check(!in.empty() && (dtype == DType::kFloat32 || dtype == DType::kFloat64), "a sum of float32 or float64");
  bool finite = true;
  if (dtype == DType::kFloat32) {
    Vectorized<FiniteSumLoop<float>>(in.data(), in.size(), n, &finite);
  } else {
    Vectorized<FiniteSumLoop<double>>(in.data(), in.size(), n, &finite);
  }
  return finite;
}

}  // namespace bindery::flat
