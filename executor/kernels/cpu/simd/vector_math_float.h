// vector_math.h for floats; no include guard either. Polynomials are those of the Cephes library (Moshier), good to 1
// or 2 units in the last place.

#include "executor/kernels/cpu/simd/vector_math.h"
#include "executor/kernels/cpu/simd/bfloat16_body.h"

// 2^n, -126 <= n <= 127
inline V PowerOf2(I n) { return (V)((n + 127) << 23); }

constexpr Real kRounder = 12582912;  // 1.5 * 2^23: what is added to it loses its fraction

// e^x = 2^whole (1 + rest)
struct Exponential {
  I whole;
  V rest;
};
inline Exponential ExponentialOf(V x) {
  const V n = x * 1.44269504088896341f + kRounder - kRounder;
  V r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  V p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return {__builtin_convertvector(n, I), p * (r * r) + r};
}
inline V exp(V x) {
  x = x > 89 ? Splat(89) : x;  // e^89 overflows, e^-105 rounds to 0; NaN passes
  x = x < -105 ? Splat(-105) : x;
  const Exponential e = ExponentialOf(x);
  const I half = e.whole >> 1;  // two factors, so that results may be denormal
  return (e.rest + 1) * PowerOf2(half) * PowerOf2(e.whole - half);
}
// Of |x| up to 87, where neither it nor the power of 2 overflows or is denormal: the same bits by fewer instructions.
inline V exp_moderate(V x) {
  const Exponential e = ExponentialOf(x);
  return (e.rest + 1) * PowerOf2(e.whole);
}
// 2^n rest + (2^n - 1), which is exact near 0
inline V expm1(V x) {
  const V low = x < -30 ? Splat(-30) : x;
  const Exponential e = ExponentialOf(low > 40 ? Splat(40) : low);
  const V power = PowerOf2(e.whole), y = e.rest * power + (power - 1);
  return x > 40 ? exp(x) : x == 0 ? x : y;
}

inline V log(V x) {
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
  return ((x != x) | (x == INFINITY)) ? x : y;
}

inline V tanh(V x) {
  const V a = abs(x);
  const V z = x * x;
  V p = z * -5.70498872745e-3f + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const V small = p * z * x + x;
  const V b = a > 10 ? Splat(10) : a;  // from there on 1; NaN passes
  const V large = CopySign(1 - 2 / (exp_moderate(b + b) + 1), x);
  return a < 0.625f ? small : large;
}

// Polynomials of Norbert Juffa: x + x p(x^2) near 0, else 1 - e^-q(|x|), where 1 - erf is exact though it be small.
struct ErrorFunction {
  V near, far_rest;
  I is_near;
};
inline ErrorFunction ErrorFunctionOf(V x) {
  const V a = abs(x), s = x * x;
  V r = a * -1.72853470e-5f + 3.83197126e-4f;
  r = r * s + (a * -3.88396438e-3f + 2.42546219e-2f);
  r = r * a - 1.06777877e-1f;
  r = r * a - 6.34846687e-1f;
  r = r * a - 1.28717512e-1f;
  V p = s * -5.96761703e-4f + 4.99119423e-3f;
  p = p * s - 2.67681349e-2f;
  p = p * s + 1.12819925e-1f;
  p = p * s - 3.76125336e-1f;
  p = p * s + 1.28379166e-1f;
  return {p * x + x, exp(r * a - a), ~(a > 0.927734375f)};
}
inline V erf(V x) {
  const ErrorFunction f = ErrorFunctionOf(x);
  return f.is_near ? f.near : CopySign(1 - f.far_rest, x);
}
inline V normal_part(V x) {
  const ErrorFunction f = ErrorFunctionOf(x * 0.70710678118654752f);
  const V above = f.far_rest * 0.5f;  // of |x|
  return f.is_near ? f.near * 0.5f + 0.5f : x < 0 ? above : 1 - above;
}

inline V sigmoid(V x) {
  const V e = exp(-abs(x));
  const V y = 1 / (1 + e);
  return x < 0 ? e * y : y;
}

// log(u) x / (u - 1) with u = 1 + x (Kahan)
inline V log1p(V x) {
  const V u = 1 + x, d = u - 1;
  return ((d == 0) | (x == INFINITY)) ? x : log(u) * (x / d);
}
inline V softrelu(V x) { return Max0(x) + log1p(exp(-abs(x))); }
inline V one_minus_exp(V y) { return -expm1(-y); }

// x = n right angles and a rest, of which these are sine and cosine. Further out than `kMost` more digits of pi count:
// the functions below take the library's then.
struct Turned {
  V sine, cosine;
  I n;
};
inline bool IsFar(V x) {
  constexpr Real kMost = 8192;
  const I far = ~(abs(x) <= kMost);
  Integer is_far = 0;
  for (int i = 0; i < kLanes; ++i) is_far |= far[i];
  return is_far != 0;
}
inline Turned TurnedBy(V x) {
  const V n = x * 0.636619772367581343f + kRounder - kRounder;
  const V r = ((x - n * 1.5703125f) - n * 4.837512969970703125e-4f) - n * 7.54978995489188216e-8f, z = r * r;
  V sine = z * -1.9515295891e-4f + 8.3321608736e-3f;
  sine = (sine * z - 1.6666654611e-1f) * z * r + r;
  V cosine = z * 2.443315711809948e-5f - 1.388731625493765e-3f;
  cosine = (cosine * z + 4.166664568298827e-2f) * z * z - 0.5f * z + 1;
  return {sine, cosine, __builtin_convertvector(n, I)};
}
// The sine of x + `quarters` right angles.
inline V Sine(V x, Integer quarters) {
  const Turned t = TurnedBy(x);
  const I quadrant = t.n + quarters;
  const V y = (quadrant & 1) != 0 ? t.cosine : t.sine;
  return (quadrant & 2) != 0 ? -y : y;
}
inline V sin(V x) { return IsFar(x) ? each(x, std::sin) : Sine(x, 0); }
inline V cos(V x) { return IsFar(x) ? each(x, std::cos) : Sine(x, 1); }
inline V tan(V x) {
  if (IsFar(x)) return each(x, std::tan);
  const Turned t = TurnedBy(x);
  const I turned = (t.n & 1) != 0;
  return (turned ? -t.cosine : t.sine) / (turned ? t.sine : t.cosine);
}

constexpr Real kHalfPi = 1.57079632679489662f, kPi = 3.14159265358979324f;

// The arc sine of |x|, or, beyond a half, that of sqrt((1 - |x|) / 2), which is half of what it lacks of a right angle.
struct ArcSine {
  V angle;
  I is_beyond;
};
inline ArcSine ArcSineOf(V x) {
  const V a = abs(x);
  const I is_beyond = a > 0.5f;
  const V z = is_beyond ? 0.5f * (1 - a) : a * a, s = is_beyond ? sqrt(z) : a;
  V p = z * 4.2163199048e-2f + 2.4181311049e-2f;
  p = p * z + 4.5470025998e-2f;
  p = p * z + 7.4953002686e-2f;
  p = p * z + 1.6666752422e-1f;
  return {p * z * s + s, is_beyond};
}
inline V asin(V x) {
  const ArcSine arc = ArcSineOf(x);
  return CopySign(arc.is_beyond ? kHalfPi - (arc.angle + arc.angle) : arc.angle, x);
}
inline V acos(V x) {
  const ArcSine arc = ArcSineOf(x);
  const V twice = arc.angle + arc.angle;
  return arc.is_beyond ? (x < 0 ? kPi - twice : twice) : kHalfPi - CopySign(arc.angle, x);
}
inline V atan(V x) {
  const V a = abs(x);
  const I is_steep = a > 2.41421356237309505f, is_beyond = a > 0.414213562373095049f;
  const V t = is_steep ? -1 / a : is_beyond ? (a - 1) / (a + 1) : a, z = t * t;
  V p = z * 8.05374449538e-2f - 1.38776856032e-1f;
  p = p * z + 1.99777106478e-1f;
  p = p * z - 3.33329491539e-1f;
  const V from = is_steep ? Splat(kHalfPi) : is_beyond ? Splat(kHalfPi / 2) : Splat(0);
  return CopySign(from + (p * z * t + t), x);
}

constexpr Real kLogOf2 = 0.693147180559945309f;

inline V sinh(V x) {
  const V a = abs(x), e = expm1(a), root = exp(0.5f * a);  // e^a overflows before the result does
  return CopySign(a < 80 ? 0.5f * (e + e / (e + 1)) : 0.5f * root * root, x);
}
inline V cosh(V x) {
  const V a = abs(x), e = exp(a), root = exp(0.5f * a);
  return a < 80 ? 0.5f * (e + 1 / e) : 0.5f * root * root;
}
// Where squares leave nothing of 1 (and may overflow), log(2 |x|).
constexpr Real kFarOut = 1e4f;
inline V asinh(V x) {
  const V a = abs(x), square = a * a, near = log1p(a + square / (1 + sqrt(1 + square)));
  return CopySign(a < kFarOut ? near : log(a) + kLogOf2, x);
}
inline V acosh(V x) {
  const V t = x - 1, near = log1p(t + sqrt(t * (t + 2)));
  return x < 1 ? Splat(NAN) : x < kFarOut ? near : log(x) + kLogOf2;
}
inline V atanh(V x) {
  const V a = abs(x);
  return CopySign(0.5f * log1p((a + a) / (1 - a)), x);
}

// ---- of two operands ----

// The rest of |a| by |b| is exact in any lane whose quotient has so few bits that, rounded, it is at most one too large,
// and that its product with |b| is exact: in double with 29 bits, and where products are not rounded in float with 22.
// Other lanes, numbers that are not finite, and 0 are the library's.
inline V dividends_remainder(V a, V b) {
  const V x = abs(a), y = abs(b);
  V rest;
  I exact;
  if constexpr (kFused) {
    constexpr Real kMost = 4194304, kWhole = 8388608;  // 2^22, 2^23
    const V quotient = x / y;
    V whole = quotient + kWhole - kWhole;
    whole = whole > quotient ? whole - 1 : whole;
    rest = MultiplyAdd(-whole, y, x);
    rest = rest < 0 ? rest + y : rest;
    exact = (quotient < kMost) & (y < INFINITY);
  } else {
    typedef double Wide __attribute__((vector_size(sizeof(double) * kLanes)));
    constexpr double kMost = 536870912, kWhole = 4503599627370496;  // 2^29, 2^52
    const Wide wide_x = __builtin_convertvector(x, Wide), wide_y = __builtin_convertvector(y, Wide);
    const Wide quotient = wide_x / wide_y;
    Wide whole = quotient + kWhole - kWhole;
    whole = whole > quotient ? whole - 1 : whole;
    const Wide wide_rest = wide_x - whole * wide_y;
    rest = __builtin_convertvector(wide_rest < 0 ? wide_rest + wide_y : wide_rest, V);
    exact = __builtin_convertvector(quotient < kMost, I) & (y < INFINITY);
  }
  Integer all = -1;
  for (int i = 0; i < kLanes; ++i) all &= exact[i];
  return all == 0 ? each(a, b, std::fmod) : CopySign(rest, a);
}
inline V remainder(V a, V b) {
  const V r = dividends_remainder(a, b);
  const I differ = ((I)r ^ (I)b) < 0;
  return (r != 0) & differ ? r + b : r;
}
// The library's takes a few nanoseconds, in double and by tables: vectors of doubles gain nothing on it.
inline V pow(V a, V b) { return each(a, b, std::pow); }
