// vector_math.h for doubles, the library's functions lane by lane; no include guard either.

#include "executor/kernels/cpu/simd/vector_math.h"

inline V exp(V x) { return each(x, std::exp); }
inline V log(V x) { return each(x, std::log); }
inline V expm1(V x) { return each(x, std::expm1); }
inline V log1p(V x) { return each(x, std::log1p); }
inline V sin(V x) { return each(x, std::sin); }
inline V cos(V x) { return each(x, std::cos); }
inline V erf(V x) { return each(x, std::erf); }
inline V tanh(V x) { return each(x, std::tanh); }
inline V normal_part(V x) { return each(x * -0.70710678118654752, std::erfc) * 0.5; }
inline V sigmoid(V x) { return 1 / (1 + exp(-x)); }
inline V softrelu(V x) { return Max0(x) + log1p(exp(-abs(x))); }
inline V one_minus_exp(V y) { return -expm1(-y); }
