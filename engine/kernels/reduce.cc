#include <algorithm>
#include <atomic>
#include <type_traits>

#include "base/checked.h"
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
[[gnu::always_inline]] inline void FiniteLoop(const T* in, int64_t n, bool* finite) {
  using Bits = typename Exponent<T>::Bits;
  Bits bad = 0;
  for (int64_t i = 0; i < n; ++i) {
    const Bits exponent = std::bit_cast<Bits>(in[i]) & Exponent<T>::kMask;
    bad |= static_cast<Bits>(exponent == Exponent<T>::kMask);
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
