// Part of loops_body.h: normalisation of contiguous groups with a factor and a summand for each position.

void ScaleAndShift(const Real* x, const Real* gamma, const Real* beta, Real* y, int64_t n, Real mean, Real scale) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Store(y + i, (Load(x + i) - mean) * scale * Load(gamma + i) + Load(beta + i));
  }
  for (; i < n; ++i) y[i] = (x[i] - mean) * scale * gamma[i] + beta[i];
}

void AffineSums(const Real* dy, const Real* x, const Real* gamma, int64_t n, Real mean, double* sums) {
  TwoSums(
      n, sums,
      [=](int64_t i, V * a, V * b) __attribute__((always_inline)) {
        const V g = Load(dy + i) * Load(gamma + i);
        *a += g;
        *b += g * (Load(x + i) - mean);
      },
      [=](int64_t i) __attribute__((always_inline)) {
        const Real g = dy[i] * gamma[i];
        sums[0] += g;
        sums[1] += g * (x[i] - mean);
      });
}

void AffineGrad(const Real* dy, const Real* x, const Real* gamma, Real* dx, int64_t n, const Table::Channel& c,
                Real* dgamma, Real* dbeta) {
  const auto step = [&](auto g, auto v, auto factor, auto* to, auto* with, auto* sum) __attribute__((always_inline)) {
    const auto d = v - c.mean;
    *to = g * factor * c.scale + d * c.b + c.c;
    *with += g * d * c.scale;
    *sum += g;
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    V to, with = Load(dgamma + i), sum = Load(dbeta + i);
    step(Load(dy + i), Load(x + i), Load(gamma + i), &to, &with, &sum);
    Store(dx + i, to);
    Store(dgamma + i, with);
    Store(dbeta + i, sum);
  }
  for (; i < n; ++i) step(dy[i], x[i], gamma[i], dx + i, dgamma + i, dbeta + i);
}
