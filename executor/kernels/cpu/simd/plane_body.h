// Part of loops_body.h: convolution of planes. See Table::PlaneProducts and PlaneGradients. Sums stay in registers, twelve
// of sixteen.

// Vectors along rows: where they begin; the last of a row ends with it, so it may overlap the one before.
struct RowVectors {
  int64_t rows, columns, each;  // vectors of a row
  RowVectors(int64_t of_rows, int64_t of_columns)
      : rows(of_rows), columns(of_columns), each((of_columns + kLanes - 1) / kLanes) {}
  int64_t count() const { return rows * each; }
  int64_t row(int64_t vector) const { return vector / each; }
  int64_t column(int64_t vector) const {
    const int64_t begin = vector % each * kLanes, last = columns - kLanes;
    return begin < last ? begin : last;
  }
  int64_t overlap(int64_t vector) const { return vector % each * kLanes - column(vector); }  // lanes
};
inline V WithoutFirst(V v, int64_t lanes) {
  Real values[kLanes];
  Store(values, v);
  for (int64_t i = 0; i < lanes; ++i) values[i] = 0;
  return Load(values);
}

template <int kFilters, int kVectors>
inline void AddPlaneProducts(const Table::PlaneProducts& p, const RowVectors& at, int64_t filter, int64_t vector) {
  V sums[kFilters][kVectors];
  const Real* x[kVectors];
  for (int v = 0; v < kVectors; ++v) x[v] = p.x + at.row(vector + v) * p.x_row + at.column(vector + v);
  for (int f = 0; f < kFilters; ++f) {
    const V bias = Splat(p.bias ? p.bias[filter + f] : 0);
    for (int v = 0; v < kVectors; ++v) sums[f][v] = bias;
  }
  for (int64_t t = 0; t < p.terms; ++t) {
    const Real* const w = p.w + p.w_terms[t] + filter;
    V values[kVectors];
    for (int v = 0; v < kVectors; ++v) values[v] = Load(x[v] + p.x_terms[t]);
    for (int f = 0; f < kFilters; ++f) {
      const V factor = Splat(w[f]);
      for (int v = 0; v < kVectors; ++v) sums[f][v] = MultiplyAdd(factor, values[v], sums[f][v]);
    }
  }
  for (int f = 0; f < kFilters; ++f) {
    for (int v = 0; v < kVectors; ++v) {
      Real* const y = p.y + p.y_filters[filter + f] + at.row(vector + v) * p.y_row + at.column(vector + v);
      if (!p.add) {
        Store(y, sums[f][v]);
      } else {
        const int64_t overlap = at.overlap(vector + v);
        Store(y, Load(y) + (overlap == 0 ? sums[f][v] : WithoutFirst(sums[f][v], overlap)));
      }
    }
  }
}
template <int kFilters>
inline void AddPlaneFilters(const Table::PlaneProducts& p, const RowVectors& at, int64_t filter) {
  constexpr int kAtOnce = kFilters > 4 ? 2 : kFilters > 2 ? 3 : 4;
  int64_t vector = 0;
  for (; vector + kAtOnce <= at.count(); vector += kAtOnce) AddPlaneProducts<kFilters, kAtOnce>(p, at, filter, vector);
  for (; vector < at.count(); ++vector) AddPlaneProducts<kFilters, 1>(p, at, filter, vector);
}
void PlaneProducts(const Table::PlaneProducts& p) {
  const RowVectors at(p.rows, p.columns);
  int64_t filter = 0;
  for (; filter + 6 <= p.filters; filter += 6) AddPlaneFilters<6>(p, at, filter);
  for (; filter + 4 <= p.filters; filter += 4) AddPlaneFilters<4>(p, at, filter);
  for (; filter + 2 <= p.filters; filter += 2) AddPlaneFilters<2>(p, at, filter);
  for (; filter < p.filters; ++filter) AddPlaneFilters<1>(p, at, filter);
}

template <int kFilters, int kTaps>
inline void AddPlaneGradients(const Table::PlaneGradients& p, int64_t filter, int64_t tap) {
  V sums[kFilters][kTaps];
  for (int f = 0; f < kFilters; ++f) {
    for (int t = 0; t < kTaps; ++t) sums[f][t] = Splat(0);
  }
  const int64_t whole = p.columns / kLanes * kLanes, last = p.columns - kLanes;
  for (int64_t sample = 0; sample < p.samples; ++sample) {
    const Real *x = p.x + sample * p.x_sample, *dy = p.dy + sample * p.y_sample + filter * p.y_plane;
    for (int64_t row = 0; row < p.rows; ++row, x += p.x_row, dy += p.y_row) {
      const auto add = [&](int64_t column, int64_t overlap) __attribute__((always_inline)) {
        V values[kTaps];
        for (int t = 0; t < kTaps; ++t) values[t] = Load(x + p.x_taps[tap + t] + column);
        for (int f = 0; f < kFilters; ++f) {
          V gradient = Load(dy + f * p.y_plane + column);
          if (overlap > 0) gradient = WithoutFirst(gradient, overlap);
          for (int t = 0; t < kTaps; ++t) sums[f][t] = MultiplyAdd(gradient, values[t], sums[f][t]);
        }
      };
      for (int64_t column = 0; column < whole; column += kLanes) add(column, 0);
      if (whole < p.columns) add(last, whole - last);
    }
  }
  for (int t = 0; t < kTaps; ++t) {
    for (int f = 0; f < kFilters; ++f) p.sums[p.numbers[tap + t] + filter + f] += SumOf(sums[f][t]);
  }
}
template <int kFilters>
inline void AddPlaneTaps(const Table::PlaneGradients& p, int64_t filter) {
  int64_t tap = 0;
  for (; tap + 3 <= p.taps && tap + 4 != p.taps; tap += 3) AddPlaneGradients<kFilters, 3>(p, filter, tap);
  for (; tap + 2 <= p.taps; tap += 2) AddPlaneGradients<kFilters, 2>(p, filter, tap);
  for (; tap < p.taps; ++tap) AddPlaneGradients<kFilters, 1>(p, filter, tap);
}
void PlaneGradients(const Table::PlaneGradients& p) {
  int64_t filter = 0;
  for (; filter + 4 <= p.filters; filter += 4) AddPlaneTaps<4>(p, filter);
  for (; filter + 2 <= p.filters; filter += 2) AddPlaneTaps<2>(p, filter);
  for (; filter < p.filters; ++filter) AddPlaneTaps<1>(p, filter);
}
