#include <algorithm>
#include <atomic>
#include <type_traits>

#include "base/checked.h"
#include "base/error.h"
#include "engine/kernels/arithmetic.h"
#include "engine/kernels/flat.h"
#include "engine/kernels/vectorized.h"
#include "engine/team.h"

namespace bindery::flat {
namespace {

constexpr int64_t kLanes = 16;
// SumOfSquares adds up blocks, then their sums in order. The blocks depend on `n` only, so the result does not depend
// on the team; few enough that their sums fit on the stack.
constexpr int64_t kMaxBlocks = 256;
constexpr int64_t kMinBlock = 16 * 1024;
constexpr int64_t kSums = 1024;  // elements of a sum of arrays that stay in the first-level cache

// Not finite: all bits of the exponent are set.
template <class T>
struct Exponent;
template <>
struct Exponent<float> {
  using Bits = uint32_t;
  static constexpr Bits kMask = 0x7f800000u;
};
template <>
struct Exponent<double> {
  using Bits = uint64_t;
  static constexpr Bits kMask = 0x7ff0000000000000u;
};
template <>
struct Exponent<bfloat16> {
  using Bits = uint16_t;
  static constexpr Bits kMask = 0x7f80u;
};
template <>
struct Exponent<float16> {
  using Bits = uint16_t;
  static constexpr Bits kMask = 0x7c00u;
};

template <class T>
[[gnu::always_inline]] inline auto IsNotFinite(T x) {
  using Bits = typename Exponent<T>::Bits;
  const Bits exponent = std::bit_cast<Bits>(x) & Exponent<T>::kMask;
  return static_cast<Bits>(exponent == Exponent<T>::kMask);
}

template <class T>
[[gnu::always_inline]] inline void FiniteLoop(const T* in, int64_t n, bool* finite) {
  typename Exponent<T>::Bits bad = 0;
  for (int64_t i = 0; i < n; ++i) bad |= IsNotFinite(in[i]);
  *finite = bad == 0;
}

// Of at least two arrays.
template <class T>
[[gnu::always_inline]] inline void FiniteSumLoop(const void* const* in, size_t count, int64_t n, bool* finite) {
  typename Exponent<T>::Bits bad = 0;
  const T *const first = static_cast<const T*>(in[0]), *const second = static_cast<const T*>(in[1]);
  if (count == 2) {
    for (int64_t i = 0; i < n; ++i) bad |= IsNotFinite(first[i] + second[i]);
  } else {
    T sums[kSums];
    for (int64_t block = 0; block < n; block += kSums) {
      const int64_t size = std::min(kSums, n - block);
      for (int64_t i = 0; i < size; ++i) sums[i] = first[block + i] + second[block + i];
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

// Lane l adds elements l, l + 16, l + 32 ...; then the lanes are added as a tree.
template <class T>
[[gnu::always_inline]] inline void SquaresLoop(const Stored<T>* in, int64_t n, double* result) {
  double lanes[kLanes] = {};
  const int64_t whole = n / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
#pragma GCC unroll 16
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = static_cast<double>(Load<T>(in[i + lane]));
      lanes[lane] += value * value;
    }
  }
  for (int64_t i = whole; i < n; ++i) {
    const double value = static_cast<double>(Load<T>(in[i]));
    lanes[i - whole] += value * value;
  }
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  *result = lanes[0];
}

}  // namespace

bool AllFinite(DType dtype, const void* in, int64_t n) {
  std::atomic<bool> all{true};
  Dispatch(dtype, [&]<class T>() {
    if constexpr (!std::is_integral_v<T>) {
      ParallelFor(n, kGrain, kSerialElements, [&](int64_t begin, int64_t end, int) {
        for (int64_t block = begin; block < end && all.load(std::memory_order_relaxed); block += kMinBlock) {
          bool finite = true;
          Vectorized<FiniteLoop<T>>(static_cast<const T*>(in) + block, std::min(kMinBlock, end - block), &finite);
          if (!finite) all.store(false, std::memory_order_relaxed);
        }
      });
    }
  });
  return all;
}

bool SumIsFinite(DType dtype, std::span<const void* const> in, int64_t n) {
  Check(!in.empty() && (dtype == DType::kFloat32 || dtype == DType::kFloat64), "a sum of float32 or float64");
  const auto is_finite = [&]<class T>(T) {
    bool finite = true;
    if (in.size() == 1) {
      Vectorized<FiniteLoop<T>>(static_cast<const T*>(in[0]), n, &finite);
    } else {
      Vectorized<FiniteSumLoop<T>>(in.data(), in.size(), n, &finite);
    }
    return finite;
  };
  return dtype == DType::kFloat32 ? is_finite(float{}) : is_finite(double{});
}

double SumOfSquares(DType dtype, const void* in, int64_t n) {
  const int64_t block = std::max(kMinBlock, RoundUp(CeilDiv(n, kMaxBlocks), kGrain));
  const int64_t blocks = CeilDiv(n, block);
  double sums[kMaxBlocks];
  Dispatch(dtype, [&]<class T>() {
    ParallelFor(blocks, 1, kSerialElements / block, [&](int64_t begin, int64_t end, int) {
      for (int64_t b = begin; b < end; ++b) {
        Vectorized<SquaresLoop<T>>(static_cast<const Stored<T>*>(in) + b * block, std::min(block, n - b * block),
                                   &sums[b]);
      }
    });
  });
  double sum = 0;
  for (int64_t b = 0; b < blocks; ++b) sum += sums[b];
  return sum;
}

}  // namespace bindery::flat
