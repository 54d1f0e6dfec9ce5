// Part of loops_body.h: products of matrices and vectors, and of tiles.

void MatrixVector(const Real* w, const Real* x, const Real* bias, Real* y, int64_t n, int64_t k) {
  const int64_t whole = k / kLanes * kLanes;
  const auto finish = [=](V sums, int64_t row) __attribute__((always_inline)) {
    Real sum = SumOf(sums);
    for (int64_t i = whole; i < k; ++i) sum += w[row * k + i] * x[i];
    y[row] = bias ? sum + bias[row] : sum;
  };
  int64_t row = 0;
  for (; row + 4 <= n; row += 4) {
    const Real* r = w + row * k;
    V s0 = Splat(0), s1 = s0, s2 = s0, s3 = s0;
    for (int64_t i = 0; i < whole; i += kLanes) {
      const V v = Load(x + i);
      s0 += Load(r + i) * v;
      s1 += Load(r + k + i) * v;
      s2 += Load(r + 2 * k + i) * v;
      s3 += Load(r + 3 * k + i) * v;
    }
    finish(s0, row);
    finish(s1, row + 1);
    finish(s2, row + 2);
    finish(s3, row + 3);
  }
  for (; row < n; ++row) {
    V s = Splat(0);
    for (int64_t i = 0; i < whole; i += kLanes) s += Load(w + row * k + i) * Load(x + i);
    finish(s, row);
  }
}

void VectorMatrix(const Real* dy, const Real* w, Real* dx, int64_t n, int64_t k) {
  for (int64_t i = 0; i < k; ++i) dx[i] = 0;
  int64_t row = 0;
  for (; row + 4 <= n; row += 4) {
    const Real* r = w + row * k;
    const Real d0 = dy[row], d1 = dy[row + 1], d2 = dy[row + 2], d3 = dy[row + 3];
    int64_t i = 0;
    for (; i + kLanes <= k; i += kLanes) {
      Store(dx + i, Load(dx + i) + ((Load(r + i) * d0 + Load(r + k + i) * d1) +
                                    (Load(r + 2 * k + i) * d2 + Load(r + 3 * k + i) * d3)));
    }
    for (; i < k; ++i) dx[i] += (r[i] * d0 + r[k + i] * d1) + (r[2 * k + i] * d2 + r[3 * k + i] * d3);
  }
  for (; row < n; ++row) Axpy(w + row * k, dx, k, dy[row]);
}

// Two vectors, from column j on, of each of kRows rows from row i on.
template <int kRows>
inline void AddStrip(const Table::Product& p, int64_t i, int64_t j) {
  const Real *a = p.a + i * p.a_row, *b = p.b + j;
  Real* y = p.y + i * Table::kTile + j;
  V sums[kRows][2];
  for (int r = 0; r < kRows; ++r) {
    sums[r][0] = Load(y + r * Table::kTile);
    sums[r][1] = Load(y + r * Table::kTile + kLanes);
  }
  for (int64_t k = 0; k < p.depth; ++k, a += p.a_column, b += Table::kTile) {
    const V b0 = Load(b), b1 = Load(b + kLanes);
    for (int r = 0; r < kRows; ++r) {
      const V factor = Splat(a[r * p.a_row]);
      sums[r][0] = MultiplyAdd(factor, b0, sums[r][0]);
      sums[r][1] = MultiplyAdd(factor, b1, sums[r][1]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    Store(y + r * Table::kTile, sums[r][0]);
    Store(y + r * Table::kTile + kLanes, sums[r][1]);
  }
}
void AddProducts(const Table::Product& p) {
  for (int64_t j = 0; j < p.columns; j += 2 * kLanes) {
    int64_t i = 0;
    for (; i + 4 <= p.rows; i += 4) AddStrip<4>(p, i, j);
    for (; i < p.rows; ++i) AddStrip<1>(p, i, j);
  }
}

// ---- strips: see Table::Strip ----

// kRows rows of whole vectors.
template <int kRows, int kVectors>
void MultiplyRows(const Table::Strip& p) {
  constexpr std::make_integer_sequence<int, kRows> kAllRows;
  constexpr std::make_integer_sequence<int, kVectors> kAllVectors;
  V sums[kRows * kVectors];
  ForEachOf(kAllRows, [&](auto r) __attribute__((always_inline)) {
    ForEachOf(kAllVectors, [&](auto v) __attribute__((always_inline)) {
      sums[r * kVectors + v] = Load(p.begin + r * p.begin_row + v * kLanes);
    });
  });
  // A pointer for three rows each: the other two are one and two steps further, which an address can say.
  constexpr int kThrees = (kRows + 2) / 3;
  constexpr std::make_integer_sequence<int, kThrees> kAllThrees;
  const int64_t a_row = p.a_row;
  const Real *a[kThrees], *b = p.b;
  ForEachOf(kAllThrees, [&](auto i) __attribute__((always_inline)) { a[i] = p.a + 3 * i * a_row; });
  constexpr int kSteps = 2;  // of the depth, in an iteration
  // Where a layer's weights fit into no near cache, those of the steps and strips that follow are asked for this far
  // ahead; with AVX-512 that made no difference.
  constexpr int64_t kAhead = 6144 / sizeof(Real);
  const auto add = [&](auto k) __attribute__((always_inline)) {
    V factors[kVectors];
    ForEachOf(kAllVectors, [&](auto v) __attribute__((always_inline)) {
      factors[v] = Load(b + (k * kVectors + v) * kLanes);
    });
    if constexpr (!kManyRegisters) __builtin_prefetch(b + k * kVectors * kLanes + kAhead);
    ForEachOf(kAllRows, [&](auto r) __attribute__((always_inline)) {
      const V factor = Splat(a[r / 3][r % 3 * a_row + k]);
      ForEachOf(kAllVectors, [&](auto v) __attribute__((always_inline)) {
        sums[r * kVectors + v] = MultiplyAdd(factor, factors[v], sums[r * kVectors + v]);
      });
    });
  };
  const auto advance = [&](int k) __attribute__((always_inline)) {
    b += k * kVectors * kLanes;
    ForEachOf(kAllThrees, [&](auto i) __attribute__((always_inline)) {
      a[i] += k;
      __asm__("" : "+r"(a[i]));  // else g++ computes all addresses before the loop, more than there are registers
    });
  };
  int64_t rest = p.depth;
  for (; rest >= kSteps; rest -= kSteps) {
    ForEachOf(std::make_integer_sequence<int, kSteps>(), add);
    advance(kSteps);
  }
  for (; rest > 0; --rest) {
    add(std::integral_constant<int, 0>());
    advance(1);
  }
  Real* y = p.y;
  const int64_t y_row = p.y_row;
  ForEachOf(kAllRows, [&](auto r) __attribute__((always_inline)) {
    ForEachOf(kAllVectors, [&](auto v) __attribute__((always_inline)) {
      Store(y + r * y_row + v * kLanes, sums[r * kVectors + v]);
    });
  });
}
// All rows, in blocks of about the same height.
template <int kVectors, int... kRows>
inline void MultiplyBlocks(Table::Strip p, std::integer_sequence<int, kRows...>) {
  constexpr void (*kBlocks[])(const Table::Strip&) = {MultiplyRows<kRows + 1, kVectors>...};
  constexpr int64_t kMost = sizeof...(kRows);
  alignas(V) static constexpr Real kZeros[kVectors * kLanes] = {};
  if (!p.begin) {
    p.begin = kZeros;
    p.begin_row = 0;
  }
  for (int64_t blocks = (p.rows + kMost - 1) / kMost; blocks > 0; --blocks) {
    const int64_t rows = (p.rows + blocks - 1) / blocks;
    kBlocks[rows - 1](p);
    p.a += rows * p.a_row;
    p.y += rows * p.y_row;
    p.begin += rows * p.begin_row;
    p.rows -= rows;
  }
}
void MultiplyStrip(const Table::Strip& p) {
  constexpr std::make_integer_sequence<int, kManyRegisters ? 12 : 6> kRows;
  if (p.vectors == 2) {
    MultiplyBlocks<2>(p, kRows);
  } else {
    MultiplyBlocks<1>(p, kRows);
  }
}

// ---- products of a transposed matrix: see Table::Transposed ----

// kRows rows of kVectors vectors.
template <int kRows, int kVectors>
void MultiplyTransposedRows(const Table::Transposed& p) {
  constexpr std::make_integer_sequence<int, kRows> kAllRows;
  constexpr std::make_integer_sequence<int, kVectors> kAllVectors;
  V sums[kRows * kVectors];
  ForEachOf(std::make_integer_sequence<int, kRows * kVectors>(), [&](auto i) __attribute__((always_inline)) {
    sums[i] = Splat(0);
  });
  const Real *a = p.a, *b = p.b;
  for (int64_t rest = p.depth; rest > 0; --rest, a += p.a_row, b += p.b_row) {
    V factors[kVectors];
    ForEachOf(kAllVectors, [&](auto v) __attribute__((always_inline)) { factors[v] = Load(b + v * kLanes); });
    ForEachOf(kAllRows, [&](auto r) __attribute__((always_inline)) {
      const V factor = Splat(a[r]);
      ForEachOf(kAllVectors, [&](auto v) __attribute__((always_inline)) {
        sums[r * kVectors + v] = MultiplyAdd(factor, factors[v], sums[r * kVectors + v]);
      });
    });
  }
  Real* const y = p.y;
  const int64_t y_row = p.y_row;
  ForEachOf(kAllRows, [&](auto r) __attribute__((always_inline)) {
    ForEachOf(kAllVectors, [&](auto v) __attribute__((always_inline)) {
      Store(y + r * y_row + v * kLanes, sums[r * kVectors + v]);
    });
  });
}
// All rows of kVectors vectors, in blocks of about the same height.
template <int kVectors, int... kRows>
inline void MultiplyTransposedBlocks(Table::Transposed p, std::integer_sequence<int, kRows...>) {
  constexpr void (*kBlocks[])(const Table::Transposed&) = {MultiplyTransposedRows<kRows + 1, kVectors>...};
  constexpr int64_t kMost = sizeof...(kRows);
  for (int64_t blocks = (p.rows + kMost - 1) / kMost; blocks > 0; --blocks) {
    const int64_t rows = (p.rows + blocks - 1) / blocks;
    kBlocks[rows - 1](p);
    p.a += rows;
    p.y += rows * p.y_row;
    p.rows -= rows;
  }
}
void MultiplyTransposed(const Table::Transposed& all) {
  Table::Transposed p = all;
  const auto advance = [&](int64_t vectors) __attribute__((always_inline)) {
    p.b += vectors * kLanes;
    p.y += vectors * kLanes;
    p.vectors -= vectors;
  };
  if constexpr (kManyRegisters) {
    for (; p.vectors >= 4; advance(4)) MultiplyTransposedBlocks<4>(p, std::make_integer_sequence<int, 4>());
  }
  constexpr std::make_integer_sequence<int, kManyRegisters ? 8 : 6> kRows;
  for (; p.vectors >= 2; advance(2)) MultiplyTransposedBlocks<2>(p, kRows);
  if (p.vectors > 0) MultiplyTransposedBlocks<1>(p, kRows);
}
