// vector_math.h for doubles, the library's functions lane by lane; no include guard either.

#include "executor/kernels/cpu/simd/vector_math.h"

inline V exp(V x) { return each(x, std::exp); }
inline V log(V x) { return each(x, std::log); }
inline V expm1(V x) { return each(x, std::expm1); }
inline V log1p(V x) { return each(x, std::log1p); }
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
inline V erf(V x) { return each(x, std::erf); }
inline V tanh(V x) { return each(x, std::tanh); }
inline V normal_part(V x) { return each(x * -0.70710678118654752, std::erfc) * 0.5; }
inline V sigmoid(V x) { return 1 / (1 + exp(-x)); }
inline V softrelu(V x) { return Max0(x) + log1p(exp(-abs(x))); }
inline V one_minus_exp(V y) { return -expm1(-y); }
inline V pow(V a, V b) { return each(a, b, std::pow); }
inline V dividends_remainder(V a, V b) { return each(a, b, std::fmod); }
inline V remainder(V a, V b) { return each(a, b, native::remainder<Real>); }
