// Part of loops_body.h: direct convolution and the gradients of its weights. See Table::WindowSums and WindowGradients.
// Sums stay in registers: as many as there are, but for those of the weights or output gradients and of a factor.

constexpr bool kManyRegisters = kBytes == 64;  // 32; else 16
constexpr int PlacesAtOnce(int vectors) {
  constexpr int kFew[] = {8, 6, 4}, kMany[] = {16, 12, 8};
  return (kManyRegisters ? kMany : kFew)[vectors - 1];
}

// f of the constants 0 to n - 1. Where loops stand within each other, g++ keeps an array in registers only if it sees
// none but constant indices from the beginning.
template <int... kIndex, class F>
[[gnu::always_inline]] inline void ForEachOf(std::integer_sequence<int, kIndex...>, F f) {
  (f(std::integral_constant<int, kIndex>()), ...);
}

// Taps one after the other, each for all places.
struct EachTap {
  template <int kVectors, int... kPlace>
  [[gnu::always_inline]] static void Add(const TapRun& run, const Real* x, int64_t x_step, const Real* const* w,
                                         int64_t w_step, V* sums, std::integer_sequence<int, kPlace...> places) {
    constexpr std::make_integer_sequence<int, kVectors> kAllVectors;
    const Real *first = x + run.x, *const last = first + run.taps;
    for (int64_t at_w = run.w; first < last; ++first, at_w += w_step) {
      V weights[kVectors];
      ForEachOf(kAllVectors, [&](auto v) __attribute__((always_inline)) { weights[v] = Load(w[v] + at_w); });
      const Real* at = first;
      ForEachOf(places, [&](auto i) __attribute__((always_inline)) {
        const V factor = Splat(*at);
        at += x_step;
        ForEachOf(kAllVectors, [&](auto v) __attribute__((always_inline)) {
          sums[i * kVectors + v] = MultiplyAdd(factor, weights[v], sums[i * kVectors + v]);
        });
      });
    }
  }
};
// With one vector of filters that way reads a factor for each multiplication, and loads bound it. Where taps of three
// neighbouring places are a run (stride 1; of several blocks of channels they are not), those of one channel are taken
// at once: what is read for one place is a factor of the two before it, too.
struct NeighbouringTaps {
  static constexpr int kNeighbours = 3;
  static bool AreAll(const Table::WindowSums& p) {
    for (int64_t i = 0; i < p.run_count; ++i) {
      if (p.runs[i].taps != kNeighbours * p.x_step) return false;
    }
    return true;
  }
  template <int kVectors, int... kPlace>
  [[gnu::always_inline]] static void Add(const TapRun& run, const Real* x, int64_t x_step, const Real* const* w,
                                         int64_t w_step, V* sums, std::integer_sequence<int, kPlace...>) {
    static_assert(kVectors == 1);
    constexpr int kPlaces = sizeof...(kPlace);
    constexpr std::make_integer_sequence<int, kNeighbours> kAllTaps;
    constexpr std::make_integer_sequence<int, kPlaces + kNeighbours - 1> kAllFactors;
    const Real *first = x + run.x, *const last = first + x_step, *at_w = w[0] + run.w;
    const int64_t w_neighbour = x_step * w_step;
    for (; first < last; ++first, at_w += w_step) {
      V weights[kNeighbours];
      ForEachOf(kAllTaps, [&](auto t) __attribute__((always_inline)) { weights[t] = Load(at_w + t * w_neighbour); });
      const Real* at = first;
      ForEachOf(kAllFactors, [&](auto i) __attribute__((always_inline)) {
        const V factor = Splat(*at);
        at += x_step;
        ForEachOf(kAllTaps, [&](auto t) __attribute__((always_inline)) {
          constexpr int kTo = i - t;
          if constexpr (kTo >= 0 && kTo < kPlaces) sums[kTo] = MultiplyAdd(factor, weights[t], sums[kTo]);
        });
      });
    }
  }
};

template <class Taps, int kVectors, int kPlaces>
void ConvolvePlaces(const Table::WindowSums& p, const Real* x, Real* y) {
  constexpr std::make_integer_sequence<int, kVectors> kAllVectors;
  constexpr std::make_integer_sequence<int, kPlaces> kAllPlaces;
  V sums[kPlaces * kVectors];
  ForEachOf(kAllVectors, [&](auto v) __attribute__((always_inline)) {
    const V begin = p.bias ? Load(p.bias + p.columns[v]) : Splat(0);
    ForEachOf(kAllPlaces, [&](auto i) __attribute__((always_inline)) { sums[i * kVectors + v] = begin; });
  });
  if (p.addend) {
    const Real* const addend = p.addend + (y - p.y);
    ForEachOf(kAllPlaces, [&](auto i) __attribute__((always_inline)) {
      ForEachOf(kAllVectors, [&](auto v) __attribute__((always_inline)) {
        sums[i * kVectors + v] += Load(addend + i * p.y_step + p.y_vectors[v]);
      });
    });
  }
  const Real* w[kVectors];
  ForEachOf(kAllVectors, [&](auto v) __attribute__((always_inline)) { w[v] = p.w + p.w_vectors[v]; });
  const int64_t x_step = p.x_step, w_step = p.w_step;
  for (const TapRun *run = p.runs, *const end = run + p.run_count; run < end; ++run) {
    Taps::template Add<kVectors>(*run, x, x_step, w, w_step, sums, kAllPlaces);
  }
  ForEachOf(kAllPlaces, [&](auto i) __attribute__((always_inline)) {
    ForEachOf(kAllVectors, [&](auto v) __attribute__((always_inline)) {
      Store(y + i * p.y_step + p.y_vectors[v], sums[i * kVectors + v]);
    });
  });
}
// A row in parts of about the same size, each of as many places as registers hold at most.
template <class Taps, int kVectors, int... kIndex>
void ConvolveRows(const Table::WindowSums& p, std::integer_sequence<int, kIndex...>) {
  using Part = void (*)(const Table::WindowSums&, const Real*, Real*);
  static constexpr Part kParts[] = {nullptr, ConvolvePlaces<Taps, kVectors, kIndex + 1>...};  // by their places
  constexpr int64_t kMostPlaces = sizeof...(kIndex);
  const int64_t parts = (p.places + kMostPlaces - 1) / kMostPlaces;
  const int64_t fewest = p.places / parts, with_more = p.places % parts;
  for (int64_t row = 0; row < p.rows; ++row) {
    const Real* x = p.x + row * p.x_row;
    Real* y = p.y + row * p.y_row;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t places = fewest + (part < with_more ? 1 : 0);
      kParts[places](p, x, y);
      x += places * p.x_step;
      y += places * p.y_step;
    }
  }
}
template <int kVectors>
void ConvolveVectors(const Table::WindowSums& p) {
  constexpr std::make_integer_sequence<int, PlacesAtOnce(kVectors)> kPlaces;
  if constexpr (kVectors == 1 && kManyRegisters) {  // with 16 registers it was no faster
    if (NeighbouringTaps::AreAll(p)) return ConvolveRows<NeighbouringTaps, kVectors>(p, kPlaces);
  }
  ConvolveRows<EachTap, kVectors>(p, kPlaces);
}
template <class>
void Convolve(const Table::WindowSums& p) {
  if (p.vectors == 1) ConvolveVectors<1>(p);
  if (p.vectors == 2) ConvolveVectors<2>(p);
  if (p.vectors == 3) ConvolveVectors<3>(p);
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
template <class>
void ConvolveGrad(const Table::WindowGradients& p) {
  if (p.vectors == 1) AddGradients<1>(p);
  if (p.vectors == 2) AddGradients<2>(p);
  if (p.vectors == 3) AddGradients<3>(p);
}

// There are none of doubles.
template <class R>
constexpr auto ConvolveOf() -> void (*)(const Table::WindowSums&) {
  if constexpr (std::is_same_v<R, float>) return Convolve<R>;
  return nullptr;
}
template <class R>
constexpr auto ConvolveGradOf() -> void (*)(const Table::WindowGradients&) {
  if constexpr (std::is_same_v<R, float>) return ConvolveGrad<R>;
  return nullptr;
}
