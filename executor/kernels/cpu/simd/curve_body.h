// Part of loops_body.h: curves, functions of one number that two numbers bend, and their slopes.

template <class F>
void CurveLoop(const Real* x, Real* y, int64_t n, Real a, Real b) {
  const V va = Splat(a), vb = Splat(b);
  Map(
      x, y, n, [=](V v) __attribute__((always_inline)) { return F()(v, va, vb); });
}
template <class F>
void CurveGradLoop(const Real* dy, const Real* x, Real* dx, int64_t n, Real a, Real b) {
  const V va = Splat(a), vb = Splat(b);
  Map2(
      dy, x, dx, n, [=](V g, V v) __attribute__((always_inline)) { return g * F().slope(v, va, vb); });
}

template <class... F>
constexpr std::array<Table::CurveLoop, sizeof...(F)> CurveTable(FunctionList<F...>) {
  return {CurveLoop<F>...};
}
template <class... F>
constexpr std::array<Table::CurveGradLoop, sizeof...(F)> CurveGradTable(FunctionList<F...>) {
  return {CurveGradLoop<F>...};
}
