// Part of loops_body.h: pooling of rows of outputs whose windows have the same taps. See Table::PoolRow.

template <class Index>
inline I LoadIndex(const Index* p) {
  typedef Index Indices __attribute__((vector_size(kLanes * sizeof(Index))));
  Indices index;
  __builtin_memcpy(&index, p, sizeof index);
  return __builtin_convertvector(index, I);
}
template <class Index>
inline void StoreIndex(Index* p, I index) {
  typedef Index Indices __attribute__((vector_size(kLanes * sizeof(Index))));
  const Indices indices = __builtin_convertvector(index, Indices);
  __builtin_memcpy(p, &indices, sizeof indices);
}

// f(output, lane, keep) for vectors of lanes; the last may overlap the one before, `keep` is then zero in the lanes
// that were done. g(output, lane) for single lanes, where there are fewer than a vector.
template <class F, class G>
inline void ForPooled(const Table::PoolRow& row, F f, G g) {
  const int64_t tail = row.lanes % kLanes;
  I fresh{};
  for (int i = 0; i < kLanes; ++i) fresh[i] = i >= kLanes - tail ? -1 : 0;
  for (int64_t output = 0; output < row.outputs; ++output) {
    if (row.lanes < kLanes) {
      for (int64_t l = 0; l < row.lanes; ++l) g(output, l);
      continue;
    }
    for (int64_t l = 0; l + kLanes <= row.lanes; l += kLanes) f(output, l, I{} - 1);
    if (tail) f(output, row.lanes - kLanes, fresh);
  }
}

// Ties go to the first tap; NaN wins.
template <class Index>
void MaxPool(const Table::PoolRow& row, const Real* x, Real* y, Index* index) {
  ForPooled(
      row,
      [&](int64_t output, int64_t l, I) __attribute__((always_inline)) {
        const Real* from = x + output * row.step + l;
        V best = Load(from + row.offsets[0]);
        I winner = I{} + row.taps[0];
        for (int64_t t = 1; t < row.count; ++t) {
          const V next = Load(from + row.offsets[t]);
          const I wins = (next > best) | ((next != next) & (best == best));
          best = wins ? next : best;
          winner = wins ? I{} + row.taps[t] : winner;
        }
        Store(y + output * row.lanes + l, best);
        if (index) StoreIndex(index + output * row.lanes + l, winner);
      },
      [&](int64_t output, int64_t l) __attribute__((always_inline)) {
        const Real* from = x + output * row.step + l;
        Real best = from[row.offsets[0]];
        int32_t winner = row.taps[0];
        for (int64_t t = 1; t < row.count; ++t) {
          const Real next = from[row.offsets[t]];
          if (next > best || (next != next && best == best)) {
            best = next;
            winner = row.taps[t];
          }
        }
        y[output * row.lanes + l] = best;
        if (index) index[output * row.lanes + l] = static_cast<Index>(winner);
      });
}

template <class Index>
void MaxPoolGrad(const Table::PoolRow& row, const Real* dy, const Index* index, Real* dx) {
  ForPooled(
      row,
      [&](int64_t output, int64_t l, I keep) __attribute__((always_inline)) {
        const int64_t at = output * row.lanes + l;
        const V g = keep ? Load(dy + at) : Splat(0);
        const I winner = LoadIndex(index + at);
        Real* to = dx + output * row.step + l;
        for (int64_t t = 0; t < row.count; ++t) {
          Real* tap = to + row.offsets[t];
          Store(tap, Load(tap) + (winner == row.taps[t] ? g : Splat(0)));
        }
      },
      [&](int64_t output, int64_t l) __attribute__((always_inline)) {
        const int64_t at = output * row.lanes + l;
        for (int64_t t = 0; t < row.count; ++t) {
          if (row.taps[t] == static_cast<int32_t>(index[at])) dx[output * row.step + l + row.offsets[t]] += dy[at];
        }
      });
}

void AveragePool(const Table::PoolRow& row, const Real* x, Real* y, Real scale) {
  ForPooled(
      row,
      [&](int64_t output, int64_t l, I) __attribute__((always_inline)) {
        const Real* from = x + output * row.step + l;
        const V sum = InParts(
            row.count, [ =, &row ](int64_t t) __attribute__((always_inline)) { return Load(from + row.offsets[t]); });
        Store(y + output * row.lanes + l, sum * scale);
      },
      [&](int64_t output, int64_t l) __attribute__((always_inline)) {
        double sum = 0;
        for (int64_t t = 0; t < row.count; ++t) sum += x[output * row.step + l + row.offsets[t]];
        y[output * row.lanes + l] = static_cast<Real>(sum * scale);
      });
}

void AveragePoolGrad(const Table::PoolRow& row, const Real* dy, Real* dx, Real scale) {
  ForPooled(
      row,
      [&](int64_t output, int64_t l, I keep) __attribute__((always_inline)) {
        const V g = keep ? Load(dy + output * row.lanes + l) * scale : Splat(0);
        for (int64_t t = 0; t < row.count; ++t) {
          Real* tap = dx + output * row.step + l + row.offsets[t];
          Store(tap, Load(tap) + g);
        }
      },
      [&](int64_t output, int64_t l) __attribute__((always_inline)) {
        const Real g = dy[output * row.lanes + l] * scale;
        for (int64_t t = 0; t < row.count; ++t) dx[output * row.step + l + row.offsets[t]] += g;
      });
}
