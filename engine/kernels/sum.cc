#include <algorithm>

#include "engine/kernels/arithmetic.h"
#include "engine/kernels/flat.h"
#include "engine/kernels/vectorized.h"
#include "engine/team.h"

namespace bindery::flat {
namespace {

// Sums stay in the first-level cache while the inputs stream by.
constexpr int64_t kBlock = 1024;

template <class T>
[[gnu::always_inline]] inline void SumLoop(const void* const* in, size_t count, T* out, int64_t begin, int64_t end) {
  Arithmetic<T> sums[kBlock];
  for (int64_t block = begin; block < end; block += kBlock) {
    const int64_t size = std::min(kBlock, end - block);
    const auto* first = static_cast<const Stored<T>*>(in[0]) + block;
    for (int64_t i = 0; i < size; ++i) sums[i] = Load<T>(first[i]);
    for (size_t k = 1; k < count; ++k) {
      const auto* next = static_cast<const Stored<T>*>(in[k]) + block;
      for (int64_t i = 0; i < size; ++i) sums[i] = Plus(sums[i], Load<T>(next[i]));
    }
    for (int64_t i = 0; i < size; ++i) out[block + i] = StoreSum<T>(sums[i]);
  }
}

template <class T>
[[gnu::always_inline]] inline void AddLoop(const Stored<T>* __restrict in, Stored<T>* __restrict out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = StoreSum<T>(Plus(Load<T>(out[i]), Load<T>(in[i])));
}

template <class T>
[[gnu::always_inline]] inline void ScaleLoop(T* out, int64_t n, Arithmetic<T> factor) {
  for (int64_t i = 0; i < n; ++i) out[i] = Store<T>(Load<T>(out[i]) * factor);
}

}  // namespace

void Sum(DType dtype, std::span<const void* const> in, void* out, int64_t n) {
  if (in.empty()) return Fill(dtype, out, n, 0);
  if (in.size() == 1) return Copy(in[0], out, n * SizeOf(dtype));
  Dispatch(dtype, [&]<class T>() {
    ParallelFor(n, kGrain, kSerialElements, [&](int64_t begin, int64_t end, int) {
      Vectorized<SumLoop<T>>(in.data(), in.size(), static_cast<T*>(out), begin, end);
    });
  });
}

void Add(DType dtype, const void* in, void* out, int64_t n) {
  if (in == out) {  // the loop wants two arrays
    const void* const twice[] = {in, in};
    return Sum(dtype, twice, out, n);
  }
  Dispatch(dtype, [&]<class T>() {
    ParallelFor(n, kGrain, kSerialElements, [=](int64_t begin, int64_t end, int) {
      Vectorized<AddLoop<T>>(static_cast<const Stored<T>*>(in) + begin, static_cast<Stored<T>*>(out) + begin,
                             end - begin);
    });
  });
}

void Scale(DType dtype, void* out, int64_t n, double factor) {
  Dispatch(dtype, [&]<class T>() {
    ParallelFor(n, kGrain, kSerialElements, [=](int64_t begin, int64_t end, int) {
      auto* const part = static_cast<Stored<T>*>(out) + begin;
      if constexpr (std::is_integral_v<T>) {
        for (int64_t i = 0; i < end - begin; ++i)
          part[i] = StoreDouble<T>(static_cast<double>(Load<T>(part[i])) * factor);
      } else {
        Vectorized<ScaleLoop<T>>(part, end - begin, static_cast<Arithmetic<T>>(factor));
      }
    });
  });
}

}  // namespace bindery::flat
