#include <immintrin.h>

#include <cstring>
#include <utility>

#include "executor/kernels/cpu/simd/integers.h"

namespace bindery::cpu {
namespace {

using Sums = __m128i;
constexpr int64_t kSums = 4;
constexpr int kMostRows = 2;
inline Sums Zero() { return _mm_setzero_si128(); }
inline void Store(Sums sums, int32_t* p) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), sums); }
inline Sums AddProducts(Sums sums, Sums a, Sums b) { return _mm_add_epi32(sums, _mm_madd_epi16(a, b)); }
inline Sums Pairs(const int8_t* w) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(w));
  return _mm_srai_epi16(_mm_unpacklo_epi8(bytes, bytes), 8);
}
inline int32_t Two(const int16_t* x) {
  int32_t two;
  std::memcpy(&two, x, sizeof two);
  return two;
}
inline Sums Pair(const int16_t* x) { return _mm_set1_epi32(Two(x)); }

#include "executor/kernels/cpu/simd/integers_body.h"

}  // namespace

const IntegerLoops& BaselineIntegers() { return kTable; }

}  // namespace bindery::cpu
