// Part of loops_body.h: convolution of 3 x 3 weights by Winograd's minimal filtering. See Table::Winograd.
//
// For one axis, m results y of n = m + 2 data d and three weights g are A'((G g) * (B'd)), * element by element, so n
// products in place of 3 m. With both axes a tile of n x n data is transformed along columns and rows, and so are
// weights and results. B', G and A' for the points 0, 1, -1 and infinity (m = 2), and 2 and -2 besides (m = 4).

template <int kResults>
struct Filtering;

template <>
struct Filtering<2> {
  static void Data(const V* d, V* t) {
    t[0] = d[0] - d[2];
    t[1] = d[1] + d[2];
    t[2] = d[2] - d[1];
    t[3] = d[1] - d[3];
  }
  static void Weights(const V* g, V* t) {
    const V ends = (g[0] + g[2]) * Real{0.5}, middle = g[1] * Real{0.5};
    t[0] = g[0];
    t[1] = ends + middle;
    t[2] = ends - middle;
    t[3] = g[2];
  }
  static void Results(const V* t, V* y) {
    y[0] = t[0] + t[1] + t[2];
    y[1] = t[1] - t[2] - t[3];
  }
};

template <>
struct Filtering<4> {
  static void Data(const V* d, V* t) {
    const V even = d[4] - d[2] * Real{4}, odd = d[3] - d[1] * Real{4};
    const V far_even = d[4] - d[2], far_odd = (d[3] - d[1]) * Real{2};
    t[0] = d[0] * Real{4} - d[2] * Real{5} + d[4];
    t[1] = even + odd;
    t[2] = even - odd;
    t[3] = far_even + far_odd;
    t[4] = far_even - far_odd;
    t[5] = d[1] * Real{4} - d[3] * Real{5} + d[5];
  }
  static void Weights(const V* g, V* t) {
    constexpr Real kSixth = Real{1} / 6, kTwelfth = Real{1} / 12, kTwentyFourth = Real{1} / 24;
    const V ends = (g[0] + g[2]) * -kSixth, middle = g[1] * kSixth;
    const V far_ends = g[0] * kTwentyFourth + g[2] * kSixth, far_middle = g[1] * kTwelfth;
    t[0] = g[0] * Real{0.25};
    t[1] = ends - middle;
    t[2] = ends + middle;
    t[3] = far_ends + far_middle;
    t[4] = far_ends - far_middle;
    t[5] = g[2];
  }
  static void Results(const V* t, V* y) {
    const V sum = t[1] + t[2], difference = t[1] - t[2], far_sum = t[3] + t[4], far_difference = t[3] - t[4];
    y[0] = t[0] + sum + far_sum;
    y[1] = difference + far_difference * Real{2};
    y[2] = sum + far_sum * Real{4};
    y[3] = difference + far_difference * Real{8} + t[5];
  }
};

template <int kResults>
void WinogradData(const Table::WinogradTile& p, const Real* x, Real* to) {
  constexpr int kSide = kResults + 2;
  const bool whole = p.first_row == 0 && p.last_row == kSide && p.first_column == 0 && p.last_column == kSide;
  for (int64_t c = 0; c < p.channels; c += kLanes, to += kLanes) {
    const Real* const from = x + c / p.block * p.block_step + c % p.block;
    V half[kSide][kSide];  // transposed
    for (int j = 0; j < kSide; ++j) {
      V column[kSide], transformed[kSide];
      if (whole) {
        for (int i = 0; i < kSide; ++i) column[i] = Load(from + i * p.row + j * p.column);
      } else {
        for (int i = 0; i < kSide; ++i) {
          const bool inside = i >= p.first_row && i < p.last_row && j >= p.first_column && j < p.last_column;
          column[i] = inside ? Load(from + i * p.row + j * p.column) : Splat(0);
        }
      }
      Filtering<kResults>::Data(column, transformed);
      for (int i = 0; i < kSide; ++i) half[i][j] = transformed[i];
    }
    for (int i = 0; i < kSide; ++i) {
      V transformed[kSide];
      Filtering<kResults>::Data(half[i], transformed);
      for (int j = 0; j < kSide; ++j) Store(to + (i * kSide + j) * p.place, transformed[j]);
    }
  }
}

// w: three rows of three weights, each a vector.
template <int kResults>
void WinogradWeights(const Real* w, Real* to, int64_t place) {
  constexpr int kSide = kResults + 2;
  V half[kSide][3];
  for (int j = 0; j < 3; ++j) {
    V column[3], transformed[kSide];
    for (int i = 0; i < 3; ++i) column[i] = Load(w + (i * 3 + j) * kLanes);
    Filtering<kResults>::Weights(column, transformed);
    for (int i = 0; i < kSide; ++i) half[i][j] = transformed[i];
  }
  for (int i = 0; i < kSide; ++i) {
    V transformed[kSide];
    Filtering<kResults>::Weights(half[i], transformed);
    for (int j = 0; j < kSide; ++j) Store(to + (i * kSide + j) * place, transformed[j]);
  }
}

template <int kResults>
void WinogradResults(const Table::WinogradTile& p, const Real* from, const Real* bias, const Real* addend, Real* y) {
  constexpr int kSide = kResults + 2;
  for (int64_t c = 0; c < p.channels; c += kLanes, from += kLanes) {
    const int64_t at = c / p.block * p.block_step + c % p.block;
    V half[kResults][kSide];
    for (int j = 0; j < kSide; ++j) {
      V column[kSide], transformed[kResults];
      for (int i = 0; i < kSide; ++i) column[i] = Load(from + (i * kSide + j) * p.place);
      Filtering<kResults>::Results(column, transformed);
      for (int i = 0; i < kResults; ++i) half[i][j] = transformed[i];
    }
    const V offset = bias ? Load(bias + c) : Splat(0);
    for (int i = 0; i < p.last_row; ++i) {
      V transformed[kResults];
      Filtering<kResults>::Results(half[i], transformed);
      for (int j = 0; j < p.last_column; ++j) {
        const int64_t element = at + i * p.row + j * p.column;
        V result = transformed[j] + offset;
        if (addend) result += Load(addend + element);
        Store(y + element, result);
      }
    }
  }
}
