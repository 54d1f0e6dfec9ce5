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

struct Winner {
  V value;
  I tap;
};
// Ties go to the left; NaN wins. Without branches, which data decide.
[[gnu::always_inline]] inline Winner Better(const Winner& left, const Winner& right) {
  const I stays = (left.value >= right.value) | (left.value != left.value);
  return {stays ? left.value : right.value, stays ? left.tap : right.tap};
}
// Of taps [kFirst, kFirst + kCount). In pairs: one after another, each comparison would wait for the one before.
template <int kFirst, int kCount>
[[gnu::always_inline]] inline Winner WinnerOf(const Real* from, const int64_t* offsets, const int32_t* taps) {
  if constexpr (kCount == 1) {
    return {Load(from + offsets[kFirst]), I{} + taps[kFirst]};
  } else {
    constexpr int kLeft = kCount / 2;
    return Better(WinnerOf<kFirst, kLeft>(from, offsets, taps),
                  WinnerOf<kFirst + kLeft, kCount - kLeft>(from, offsets, taps));
  }
}

// kTaps: as many as the row has, or 0 for any number.
template <int kTaps, class Index>
void MaxPoolOf(const Table::PoolRow& given, const Real* x, Real* y, Index* index) {
  // Copies: what is written might be the lists, as far as the compiler knows.
  const Table::PoolRow row = given;
  int64_t offsets[kTaps + 1];
  int32_t taps[kTaps + 1];
  for (int t = 0; t < kTaps; ++t) {
    offsets[t] = row.offsets[t];
    taps[t] = row.taps[t];
  }
  ForPooled(
      row,
      [&](int64_t output, int64_t l, I) __attribute__((always_inline)) {
        const Real* from = x + output * row.step + l;
        Winner winner;
        if constexpr (kTaps > 0) {
          winner = WinnerOf<0, kTaps>(from, offsets, taps);
        } else {
          winner = WinnerOf<0, 1>(from, row.offsets, row.taps);
          for (int64_t t = 1; t < row.count; ++t) {
            winner = Better(winner, WinnerOf<0, 1>(from, row.offsets + t, row.taps + t));
          }
        }
        Store(y + output * row.lanes + l, winner.value);
        if (index) StoreIndex(index + output * row.lanes + l, winner.tap);
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
void MaxPool(const Table::PoolRow& row, const Real* x, Real* y, Index* index) {
  if (row.count == 4) return MaxPoolOf<4>(row, x, y, index);  // 2 x 2
  if (row.count == 9) return MaxPoolOf<9>(row, x, y, index);  // 3 x 3
  MaxPoolOf<0>(row, x, y, index);
}

template <bool kDisjoint>
[[gnu::always_inline]] inline void PutGradient(Real* dx, V g) {
  Store(dx, kDisjoint ? g : Load(dx) + g);
}
template <bool kDisjoint>
[[gnu::always_inline]] inline void PutGradient(Real* dx, Real g) {
  *dx = kDisjoint ? g : *dx + g;
}

template <bool kDisjoint, class Index>
void MaxPoolGradOf(const Table::PoolRow& row, const Real* dy, const Index* index, Real* dx) {
  ForPooled(
      row,
      [&](int64_t output, int64_t l, I keep) __attribute__((always_inline)) {
        const int64_t at = output * row.lanes + l;
        const V g = kDisjoint ? Load(dy + at) : keep ? Load(dy + at) : Splat(0);
        const I winner = LoadIndex(index + at);
        Real* to = dx + output * row.step + l;
        for (int64_t t = 0; t < row.count; ++t) {
          PutGradient<kDisjoint>(to + row.offsets[t], winner == row.taps[t] ? g : Splat(0));
        }
      },
      [&](int64_t output, int64_t l) __attribute__((always_inline)) {
        const int64_t at = output * row.lanes + l;
        Real* to = dx + output * row.step + l;
        for (int64_t t = 0; t < row.count; ++t) {
          const bool wins = row.taps[t] == static_cast<int32_t>(index[at]);
          if (kDisjoint || wins) PutGradient<kDisjoint>(to + row.offsets[t], wins ? dy[at] : 0);
        }
      });
}
template <class Index>
void MaxPoolGrad(const Table::PoolRow& row, const Real* dy, const Index* index, Real* dx) {
  (row.disjoint ? MaxPoolGradOf<true, Index> : MaxPoolGradOf<false, Index>)(row, dy, index, dx);
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

template <bool kDisjoint>
void AveragePoolGradOf(const Table::PoolRow& row, const Real* dy, Real* dx, Real scale) {
  ForPooled(
      row,
      [&](int64_t output, int64_t l, I keep) __attribute__((always_inline)) {
        const V scaled = Load(dy + output * row.lanes + l) * scale;
        const V g = kDisjoint ? scaled : keep ? scaled : Splat(0);
        for (int64_t t = 0; t < row.count; ++t) {
          PutGradient<kDisjoint>(dx + output * row.step + l + row.offsets[t], g);
        }
      },
      [&](int64_t output, int64_t l) __attribute__((always_inline)) {
        const Real g = dy[output * row.lanes + l] * scale;
        for (int64_t t = 0; t < row.count; ++t) PutGradient<kDisjoint>(dx + output * row.step + l + row.offsets[t], g);
      });
}
void AveragePoolGrad(const Table::PoolRow& row, const Real* dy, Real* dx, Real scale) {
  (row.disjoint ? AveragePoolGradOf<true> : AveragePoolGradOf<false>)(row, dy, dx, scale);
}
