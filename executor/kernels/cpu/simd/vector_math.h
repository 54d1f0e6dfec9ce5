// Vectors of kLanes numbers of type Real and functions of them. Included inside a namespace that defines Real (float or
// double), kLanes and what plain C++ cannot say (SquareRoot; LoadPart, the first n lanes, 0 < n < kLanes, the others
// zero; MultiplyAdd, a b + c, and for floats kFused, whether it rounds once; Register, of integers; MultiplyLow32), once per type and set of instructions, by
// vector_math_float.h or vector_math_double.h; it has no include guard and includes nothing.

using Integer = std::conditional_t<sizeof(Real) == 4, int32_t, int64_t>;
constexpr Integer kSignBit = std::numeric_limits<Integer>::min();
constexpr int kBytes = sizeof(Real) * kLanes;
typedef Real V __attribute__((vector_size(kBytes)));
typedef Integer I __attribute__((vector_size(kBytes)));

inline V Load(const Real* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
inline void Store(Real* p, V v) { __builtin_memcpy(p, &v, sizeof v); }
// The first n lanes, 0 < n < kLanes, in halves of halves.
inline void StorePart(Real* p, int64_t n, V v) {
  alignas(V) Real lanes[kLanes];
  Store(lanes, v);
  const Real* from = lanes;
#pragma GCC unroll 4
  for (int part = kLanes / 2; part > 0; part /= 2) {
    if (!(n & part)) continue;
    __builtin_memcpy(p, from, part * sizeof(Real));
    p += part;
    from += part;
  }
}
inline V Splat(Real x) { return x - V{}; }
template <int kPart, size_t... kLane>
inline V PartsExchanged(V v, std::index_sequence<kLane...>) {
  return __builtin_shufflevector(v, v, (kLane ^ kPart)...);
}
// Each lane and the one kPart beside it, then those kPart / 2 beside, until lane 0 has the sum of all.
template <int kPart = kLanes / 2>
inline Real SumOf(V v) {
  v += PartsExchanged<kPart>(v, std::make_index_sequence<kLanes>());
  if constexpr (kPart > 1) {
    return SumOf<kPart / 2>(v);
  } else {
    return v[0];
  }
}

inline V Max0(V x) { return x < 0 ? Splat(0) : x; }  // keeps NaN

// ---- names that executor/kernels/functions.h uses; each type has its exp, expm1, log, log1p, erf, sin, cos, tan,
// asin, acos, atan, sinh, cosh, tanh, asinh, acosh, atanh, sigmoid, softrelu, one_minus_exp, pow, dividends_remainder,
// remainder ----

template <class T>
inline V Value(Real x) {
  return Splat(x);
}
template <class T>
inline V Truth(I mask) {
  return mask ? Splat(1) : Splat(0);
}
inline V abs(V x) { return (V)((I)x & ~kSignBit); }
inline V sqrt(V x) { return SquareRoot(x); }
inline V sum(V a, V b) { return a + b; }
inline V quotient(V a, V b) { return a / b; }

inline V each(V x, Real (*f)(Real)) {
  V y = {};
  for (int i = 0; i < kLanes; ++i) y[i] = f(x[i]);
  return y;
}
inline V each(V a, V b, Real (*f)(Real, Real)) {
  V y = {};
  for (int i = 0; i < kLanes; ++i) y[i] = f(a[i], b[i]);
  return y;
}
inline V CopySign(V magnitude, V sign) { return (V)(((I)magnitude & ~kSignBit) | ((I)sign & kSignBit)); }
// Of a number with a fraction, adding the least whose neighbour is 1 away rounds that away.
inline V rint(V x) {
  constexpr Real kWhole = 1 / std::numeric_limits<Real>::epsilon();
  const V large = CopySign(Splat(kWhole), x), rounded = CopySign(x + large - large, x);
  return abs(x) < kWhole ? rounded : x;
}
inline V floor(V x) {
  const V y = rint(x);
  return y > x ? y - 1 : y;
}
inline V ceil(V x) {
  const V y = rint(x);
  return y < x ? CopySign(y + 1, x) : y;
}
inline V trunc(V x) { return CopySign(floor(abs(x)), x); }
