// Part of loops_body.h: direct convolution and the gradients of its weights. See Table::WindowSums and WindowGradients.
// Sums stay in registers: as many as there are, but for those of the weights or output gradients and of a factor.

constexpr bool kManyRegisters = kBytes == 64;  // 32; else 16
constexpr int PlacesAtOnce(int vectors) {
  constexpr int kFew[] = {8, 6, 4}, kMany[] = {16, 12, 8};
  return (kManyRegisters ? kMany : kFew)[vectors - 1];
}

template <int kVectors, int kPlaces>
inline void ConvolvePlaces(const Table::WindowSums& p, const Real* x, Real* y) {
  V sums[kPlaces][kVectors];
  for (int v = 0; v < kVectors; ++v) {
    const V begin = p.bias ? Load(p.bias + p.columns[v]) : Splat(0);
    for (int i = 0; i < kPlaces; ++i) sums[i][v] = begin;
  }
  if (p.addend) {
    const Real* const addend = p.addend + (y - p.y);
    for (int i = 0; i < kPlaces; ++i) {
      for (int v = 0; v < kVectors; ++v) sums[i][v] += Load(addend + i * p.y_step + p.y_vectors[v]);
    }
  }
  for (int64_t t = 0; t < p.taps; ++t) {
    const Real *const w = p.w + p.w_taps[p.numbers[t]], *at = x + p.x_taps[t];
    V weights[kVectors];
    for (int v = 0; v < kVectors; ++v) weights[v] = Load(w + p.w_vectors[v]);
    for (int i = 0; i < kPlaces; ++i, at += p.x_step) {
      const V factor = Splat(*at);
      for (int v = 0; v < kVectors; ++v) sums[i][v] = MultiplyAdd(factor, weights[v], sums[i][v]);
    }
  }
  for (int i = 0; i < kPlaces; ++i) {
    for (int v = 0; v < kVectors; ++v) Store(y + i * p.y_step + p.y_vectors[v], sums[i][v]);
  }
}
// The last places of a row are computed with some before them once more, unless y was an addend before.
template <int kVectors>
void ConvolveRows(const Table::WindowSums& p) {
  constexpr int kPlaces = PlacesAtOnce(kVectors), kFewPlaces = 4;
  for (int64_t row = 0; row < p.rows; ++row) {
    const Real* const x = p.x + row * p.x_row;
    Real* const y = p.y + row * p.y_row;
    int64_t i = 0;
    for (; i + kPlaces <= p.places; i += kPlaces)
      ConvolvePlaces<kVectors, kPlaces>(p, x + i * p.x_step, y + i * p.y_step);
    if (i < p.places && p.places >= kPlaces && !p.addend) {
      i = p.places - kPlaces;
      ConvolvePlaces<kVectors, kPlaces>(p, x + i * p.x_step, y + i * p.y_step);
      continue;
    }
    for (; i + kFewPlaces <= p.places; i += kFewPlaces) {
      ConvolvePlaces<kVectors, kFewPlaces>(p, x + i * p.x_step, y + i * p.y_step);
    }
    for (; i < p.places; ++i) ConvolvePlaces<kVectors, 1>(p, x + i * p.x_step, y + i * p.y_step);
  }
}
void Convolve(const Table::WindowSums& p) {
  if (p.vectors == 1) ConvolveRows<1>(p);
  if (p.vectors == 2) ConvolveRows<2>(p);
  if (p.vectors == 3) ConvolveRows<3>(p);
}

// Taps that are summed up at once for so many vectors; each has a pointer of its own.
constexpr int TapsAtOnce(int vectors) {
  constexpr int kFew[] = {8, 6, 4}, kMany[] = {8, 8, 6};
  return (kManyRegisters ? kMany : kFew)[vectors - 1];
}

template <int kVectors, int kTaps>
inline void AddTapGradients(const Table::WindowGradients& p, int64_t first) {
  V sums[kTaps][kVectors];
  for (int t = 0; t < kTaps; ++t) {
    for (int v = 0; v < kVectors; ++v) sums[t][v] = Splat(0);
  }
  const int64_t x_step = p.x_step, y_step = p.y_step, end = p.places * y_step;
  for (int64_t sample = 0; sample < p.samples; ++sample) {
    for (int64_t row = 0; row < p.rows; ++row) {
      const Real *x[kTaps], *dy[kVectors];
      for (int t = 0; t < kTaps; ++t) x[t] = p.x + sample * p.x_sample + row * p.x_row + p.x_taps[first + t];
      for (int v = 0; v < kVectors; ++v) dy[v] = p.dy + sample * p.y_sample + row * p.y_row + p.y_vectors[v];
      for (int64_t i = 0, j = 0; j < end; i += x_step, j += y_step) {
        V gradients[kVectors];
        for (int v = 0; v < kVectors; ++v) gradients[v] = Load(dy[v] + j);
        for (int t = 0; t < kTaps; ++t) {
          const V factor = Splat(x[t][i]);
          for (int v = 0; v < kVectors; ++v) sums[t][v] = MultiplyAdd(factor, gradients[v], sums[t][v]);
        }
      }
    }
  }
  for (int t = 0; t < kTaps; ++t) {
    Real* const to = p.sums + p.numbers[first + t] * p.sums_step;
    for (int v = 0; v < kVectors; ++v) Store(to + v * kLanes, Load(to + v * kLanes) + sums[t][v]);
  }
}
template <int kVectors>
inline void AddBiasGradients(const Table::WindowGradients& p) {
  for (int v = 0; v < kVectors; ++v) {
    V sum = Splat(0), next = Splat(0);
    for (int64_t sample = 0; sample < p.samples; ++sample) {
      for (int64_t row = 0; row < p.rows; ++row) {
        const Real* dy = p.dy + sample * p.y_sample + row * p.y_row + p.y_vectors[v];
        int64_t i = 0;
        for (; i + 2 <= p.places; i += 2, dy += 2 * p.y_step) {
          sum += Load(dy);
          next += Load(dy + p.y_step);
        }
        if (i < p.places) sum += Load(dy);
      }
    }
    Store(p.bias_sums + v * kLanes, Load(p.bias_sums + v * kLanes) + (sum + next));
  }
}
// Those from `first` on, so many at most.
template <int kVectors, int kTaps>
void AddLastTaps(const Table::WindowGradients& p, int64_t first) {
  if (p.taps - first == kTaps) return AddTapGradients<kVectors, kTaps>(p, first);
  if constexpr (kTaps > 1) AddLastTaps<kVectors, kTaps - 1>(p, first);
}
template <int kVectors>
void AddGradients(const Table::WindowGradients& p) {
  if (p.bias_sums) AddBiasGradients<kVectors>(p);
  constexpr int kTaps = TapsAtOnce(kVectors);
  int64_t t = 0;
  for (; t + kTaps <= p.taps; t += kTaps) AddTapGradients<kVectors, kTaps>(p, t);
  AddLastTaps<kVectors, kTaps - 1>(p, t);
}
void ConvolveGrad(const Table::WindowGradients& p) {
  if (p.vectors == 1) AddGradients<1>(p);
  if (p.vectors == 2) AddGradients<2>(p);
  if (p.vectors == 3) AddGradients<3>(p);
}
