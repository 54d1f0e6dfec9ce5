// Part of loops_body.h: convolution of planes. See Table::PlaneProducts. Sums stay in registers, twelve
// of sixteen.

inline V WithoutFirst(V v, int64_t lanes) {
  Real values[kLanes];
  Store(values, v);
  for (int64_t i = 0; i < lanes; ++i) values[i] = 0;
  return Load(values);
}

// A vector of places along a row. The last one of a row ends with it, so it may overlap the one before in some lanes.
struct RowVector {
  int64_t x, y, overlap;
};
struct RowVectors {
  int64_t columns, x_row, y_row, row = 0, begin = 0;
  RowVector Next() {
    const int64_t last = columns - kLanes, column = begin < last ? begin : last;
    const RowVector vector = {row * x_row + column, row * y_row + column, begin - column};
    begin += kLanes;
    if (begin >= columns) {
      begin = 0;
      ++row;
    }
    return vector;
  }
};

template <int kFilters, int kVectors>
inline void AddPlaneProducts(const Table::PlaneProducts& p, int64_t filter, const RowVector* at) {
  V sums[kFilters][kVectors];
  const Real *x[kVectors], *w = p.w + filter * p.w_filter;
  for (int v = 0; v < kVectors; ++v) x[v] = p.x + at[v].x;
  for (int f = 0; f < kFilters; ++f) {
    const V bias = Splat(p.bias ? p.bias[filter + f] : 0);
    for (int v = 0; v < kVectors; ++v) sums[f][v] = bias;
  }
  const int64_t w_filter = p.w_filter;
  const int32_t *x_terms = p.x_terms, *w_terms = p.w_terms;
  for (int64_t t = 0, end = p.terms; t < end; ++t) {
    const Real* const factors = w + w_terms[t];
    V values[kVectors];
    for (int v = 0; v < kVectors; ++v) values[v] = Load(x[v] + x_terms[t]);
    for (int f = 0; f < kFilters; ++f) {
      const V factor = Splat(factors[f * w_filter]);
      for (int v = 0; v < kVectors; ++v) sums[f][v] = MultiplyAdd(factor, values[v], sums[f][v]);
    }
  }
  for (int f = 0; f < kFilters; ++f) {
    Real* const y = p.y + p.y_filters[filter + f];
    for (int v = 0; v < kVectors; ++v) {
      if (!p.add) {
        Store(y + at[v].y, sums[f][v]);
      } else {
        const V sum = at[v].overlap == 0 ? sums[f][v] : WithoutFirst(sums[f][v], at[v].overlap);
        Store(y + at[v].y, Load(y + at[v].y) + sum);
      }
    }
  }
}
template <int kFilters>
inline void AddPlaneFilters(const Table::PlaneProducts& p, int64_t filter) {
  constexpr int kAtOnce = kFilters > 4 ? 2 : kFilters > 2 ? 3 : 4;
  RowVectors vectors{p.columns, p.x_row, p.y_row};
  int64_t left = p.rows * ((p.columns + kLanes - 1) / kLanes);
  RowVector at[kAtOnce];
  for (; left >= kAtOnce; left -= kAtOnce) {
    for (RowVector& vector : at) vector = vectors.Next();
    AddPlaneProducts<kFilters, kAtOnce>(p, filter, at);
  }
  for (; left > 0; --left) {
    at[0] = vectors.Next();
    AddPlaneProducts<kFilters, 1>(p, filter, at);
  }
}
void PlaneProducts(const Table::PlaneProducts& p) {
  int64_t filter = 0;
  for (; filter + 6 <= p.filters; filter += 6) AddPlaneFilters<6>(p, filter);
  for (; filter + 4 <= p.filters; filter += 4) AddPlaneFilters<4>(p, filter);
  for (; filter + 2 <= p.filters; filter += 2) AddPlaneFilters<2>(p, filter);
  for (; filter < p.filters; ++filter) AddPlaneFilters<1>(p, filter);
}
