#include <algorithm>
#include <cstring>
#include <type_traits>

#include "engine/kernels/arithmetic.h"
#include "engine/kernels/flat.h"
#include "engine/kernels/vectorized.h"
#include "engine/team.h"

namespace bindery::flat {
namespace {

template <class From, class To>
[[gnu::always_inline]] inline void CastLoop(const Stored<From>* __restrict in, To* __restrict out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = Store<To>(static_cast<Arithmetic<To>>(Load<From>(in[i])));
}

// Float types go through their arithmetic type, in vector code: exact, and rounded once. Not so float64 to 16 bits.
template <class From, class To>
constexpr bool kFast =
    !std::is_integral_v<From> && !std::is_integral_v<To> && !(std::is_same_v<From, double> && sizeof(To) == 2);

template <class From, class To>
void CastPart(const Stored<From>* in, To* out, int64_t n) {
  if constexpr (kFast<From, To>) {
    Vectorized<CastLoop<From, To>>(in, out, n);
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = Convert<To>(static_cast<From>(in[i]));
  }
}

}  // namespace

void Fill(DType dtype, void* out, int64_t n, double value) {
  Dispatch(dtype, [&]<class T>() {
    const T element = StoreDouble<T>(value);
    ParallelFor(n, kGrain, kSerialElements, [=](int64_t begin, int64_t end, int) {
      std::fill(static_cast<T*>(out) + begin, static_cast<T*>(out) + end, element);
    });
  });
}

void Copy(const void* in, void* out, int64_t bytes) {
  if (in == out || bytes == 0) return;
  const char* const from = static_cast<const char*>(in);
  char* const to = static_cast<char*>(out);
  if (from < to + bytes && to < from + bytes) {
    std::memmove(to, from, bytes);
    return;
  }
  constexpr int64_t kFloat = sizeof(float);
  ParallelFor(bytes, kGrain * kFloat, kSerialElements * kFloat,
              [=](int64_t begin, int64_t end, int) { std::memcpy(to + begin, from + begin, end - begin); });
}

void Cast(DType from, const void* in, DType to, void* out, int64_t n) {
  if (from == to) return Copy(in, out, n * SizeOf(from));
  Dispatch(from, [&]<class From>() {
    Dispatch(to, [&]<class To>() {
      ParallelFor(n, kGrain, kSerialElements, [=](int64_t begin, int64_t end, int) {
        CastPart<From, To>(static_cast<const Stored<From>*>(in) + begin, static_cast<To*>(out) + begin, end - begin);
      });
    });
  });
}

}  // namespace bindery::flat
