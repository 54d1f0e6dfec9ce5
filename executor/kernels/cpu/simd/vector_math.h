// Vectors of kLanes floats and functions of them. Part of loops_body.h: included inside a namespace that defines kLanes
// and what plain C++ cannot say (SquareRoot; MultiplyAdd, a b + c; Register; MultiplyLow32), once per set of
// instructions; it has no include guard and includes nothing.
//
// Polynomials are those of the Cephes library (Moshier), good to 1 or 2 units in the last place.

typedef float V __attribute__((vector_size(4 * kLanes)));
typedef int32_t I __attribute__((vector_size(4 * kLanes)));
typedef uint64_t W __attribute__((vector_size(4 * kLanes)));  // half as many, twice as wide

inline V Load(const float* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
inline void Store(float* p, V v) { __builtin_memcpy(p, &v, sizeof v); }
// The first n lanes, 0 < n < kLanes; the others are zero.
inline V LoadPart(const float* p, int64_t n) {
  alignas(V) float lanes[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
  return Load(lanes);
}
inline void StorePart(float* p, int64_t n, V v) {
  alignas(V) float lanes[kLanes];
  Store(lanes, v);
  for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
}
inline V Splat(float x) { return x - V{}; }
inline float SumOf(V v) {
  float sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += v[i];
  return sum;
}

inline V AbsOf(V x) { return (V)((I)x & 0x7fffffff); }
inline V CopySign(V magnitude, V sign) { return (V)((I)magnitude | ((I)sign & INT32_MIN)); }
inline V Max0(V x) { return x < 0 ? Splat(0) : x; }  // keeps NaN

// 2^n, -126 <= n <= 127
inline V PowerOf2(I n) { return (V)((n + 127) << 23); }

inline V Exp(V x) {
  x = x > 89 ? Splat(89) : x;  // e^89 overflows, e^-105 rounds to 0; NaN passes
  x = x < -105 ? Splat(-105) : x;
  const V shifted = x * 1.44269504088896341f + 12582912.0f;  // 1.5 * 2^23: the fraction is rounded away
  const V n = shifted - 12582912.0f;
  V r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  V p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1;
  const I whole = __builtin_convertvector(n, I);
  const I half = whole >> 1;  // two factors, so that results may be denormal
  return p * PowerOf2(half) * PowerOf2(whole - half);
}

inline V Log(V x) {
  const I denormal = x < 1.17549435e-38f;
  const V scaled = denormal ? x * 8388608.0f : x;
  const I bits = (I)scaled;
  // x = m 2^e with m in [sqrt(1/2), sqrt(2))
  I e = ((bits >> 23) & 255) - 126;
  V m = (V)((bits & 0x007fffff) | 0x3f000000);
  const I low = m < 0.707106781186547524f;
  m = low ? m + m : m;
  e = e + (low & -1);  // low is -1 where true
  const V exponent = __builtin_convertvector(e, V) - (denormal ? Splat(23) : Splat(0));
  const V t = m - 1;
  const V z = t * t;
  V p = t * 7.0376836292e-2f - 1.1514610310e-1f;
  p = p * t + 1.1676998740e-1f;
  p = p * t - 1.2420140846e-1f;
  p = p * t + 1.4249322787e-1f;
  p = p * t - 1.6668057665e-1f;
  p = p * t + 2.0000714765e-1f;
  p = p * t - 2.4999993993e-1f;
  p = p * t + 3.3333331174e-1f;
  V y = p * t * z;
  y = y + exponent * -2.12194440e-4f;
  y = y - 0.5f * z;
  y = t + y + exponent * 0.693359375f;
  y = x == 0 ? Splat(-INFINITY) : y;
  y = x < 0 ? Splat(NAN) : y;
  return (x != x) | (x == INFINITY) ? x : y;
}

inline V TanhOf(V x) {
  const V a = AbsOf(x);
  const V z = x * x;
  V p = z * -5.70498872745e-3f + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const V small = p * z * x + x;
  const V large = CopySign(1 - 2 / (Exp(a + a) + 1), x);
  return a < 0.625f ? small : large;
}

inline V SigmoidOf(V x) {
  const V e = Exp(-AbsOf(x));
  const V y = 1 / (1 + e);
  return x < 0 ? e * y : y;
}

// log(1 + e^x) = max(x, 0) + log1p(t), t = e^-|x|; log1p(t) = log(u) t / (u - 1) with u = 1 + t (Kahan).
inline V SoftReluOf(V x) {
  const V t = Exp(-AbsOf(x));
  const V u = 1 + t;
  const V d = u - 1;
  const V log1p = d == 0 ? t : Log(u) * (t / d);
  return Max0(x) + log1p;
}

// 1 - e^-y, by its series where the difference would cancel.
inline V OneMinusExp(V y) {
  const V series = y * (1 - y * (0.5f - y * (0.166666667f - y * 0.0416666667f)));
  return AbsOf(y) < 0.05f ? series : 1 - Exp(-y);
}

// ---- the names that executor/kernels/functions.h uses ----

template <class T>
inline V Value(float x) {
  return Splat(x);
}
template <class T>
inline V Truth(I mask) {
  return mask ? Splat(1) : Splat(0);
}
inline V abs(V x) { return AbsOf(x); }
inline V sqrt(V x) { return SquareRoot(x); }
inline V exp(V x) { return Exp(x); }
inline V log(V x) { return Log(x); }
inline V tanh(V x) { return TanhOf(x); }
inline V sigmoid(V x) { return SigmoidOf(x); }
inline V softrelu(V x) { return SoftReluOf(x); }
inline V one_minus_exp(V y) { return OneMinusExp(y); }
inline V quotient(V a, V b) { return a / b; }

inline V each(V x, float (*f)(float)) {
  V y;
  for (int i = 0; i < kLanes; ++i) y[i] = f(x[i]);
  return y;
}
inline V each(V a, V b, float (*f)(float, float)) {
  V y;
  for (int i = 0; i < kLanes; ++i) y[i] = f(a[i], b[i]);
  return y;
}
inline V expm1(V x) { return each(x, std::expm1); }
inline V log1p(V x) { return each(x, std::log1p); }
inline V floor(V x) { return each(x, std::floor); }
inline V ceil(V x) { return each(x, std::ceil); }
inline V rint(V x) { return each(x, std::rint); }
inline V erf(V x) { return each(x, std::erf); }
inline V sin(V x) { return each(x, std::sin); }
inline V cos(V x) { return each(x, std::cos); }
inline V tan(V x) { return each(x, std::tan); }
inline V asin(V x) { return each(x, std::asin); }
inline V acos(V x) { return each(x, std::acos); }
inline V atan(V x) { return each(x, std::atan); }
inline V sinh(V x) { return each(x, std::sinh); }
inline V cosh(V x) { return each(x, std::cosh); }
inline V asinh(V x) { return each(x, std::asinh); }
inline V acosh(V x) { return each(x, std::acosh); }
inline V atanh(V x) { return each(x, std::atanh); }
inline V pow(V a, V b) { return each(a, b, std::pow); }
inline V remainder(V a, V b) { return each(a, b, native::remainder<float>); }
