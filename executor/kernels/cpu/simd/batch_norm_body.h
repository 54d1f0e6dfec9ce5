// Part of loops_body.h: the passes of batch normalisation over one channel's contiguous elements, and over rows of
// channels. Elements E are Real, or bfloat16 beside floats, which becomes floats in registers.

// Accumulates f(i) -> two vectors, in float within chunks and in double over them.
template <class F, class P>
inline void TwoSums(int64_t n, double* sums, F f, P part) {
  int64_t i = 0;
  while (i + kLanes <= n) {
    const int64_t end = i + kChunk <= n ? i + kChunk : n;
    V a0 = Splat(0), a1 = a0, b0 = a0, b1 = a0;
    for (; i + 2 * kLanes <= end; i += 2 * kLanes) {
      f(i, &a0, &b0);
      f(i + kLanes, &a1, &b1);
    }
    if (i + kLanes <= end) {
      f(i, &a0, &b0);
      i += kLanes;
    }
    sums[0] += SumOf(a0 + a1);
    sums[1] += SumOf(b0 + b1);
    if (end == n) break;
  }
  for (; i < n; ++i) part(i);
}

// The same for one vector of lanes over rows; f(row offset, &a, &b). Of the vector, lanes [begin, end) count.
template <class F>
inline void TwoRowSums(int64_t rows, int64_t stride, int64_t begin, int64_t end_of_lanes, double* first, double* second,
                       F f) {
  for (int64_t row = 0; row < rows;) {
    const int64_t end = row + 64 <= rows ? row + 64 : rows;
    V a0 = Splat(0), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
    for (; row + 4 <= end; row += 4) {
      f(row * stride, &a0, &b0);
      f((row + 1) * stride, &a1, &b1);
      f((row + 2) * stride, &a2, &b2);
      f((row + 3) * stride, &a3, &b3);
    }
    for (; row < end; ++row) f(row * stride, &a0, &b0);
    const V a = (a0 + a1) + (a2 + a3), b = (b0 + b1) + (b2 + b3);
    for (int64_t l = begin; l < end_of_lanes; ++l) {
      first[l] += a[l];
      second[l] += b[l];
    }
  }
}

template <class E>
void Moments(const E* x, int64_t n, Real shift, double* sums) {
  TwoSums(
      n, sums,
      [=](int64_t i, V * a, V * b) __attribute__((always_inline)) {
        const V d = Load(x + i) - shift;
        *a += d;
        *b += d * d;
      },
      [=](int64_t i) __attribute__((always_inline)) {
        const Real d = static_cast<Real>(x[i]) - shift;
        sums[0] += d;
        sums[1] += d * d;
      });
}

// f(first lane of the vector, first that counts, one after the last, load) for all lanes: the last vector may overlap
// the one before, and load() reads fewer lanes where there is not even one vector.
template <class F>
inline void ForLanes(int64_t lanes, F f) {
  int64_t l = 0;
  for (; l + kLanes <= lanes; l += kLanes) f(l, 0, kLanes, LoadWhole());
  if (l == lanes) return;
  if (lanes > kLanes) return f(lanes - kLanes, l + kLanes - lanes, kLanes, LoadWhole());
  f(
      0, 0, lanes, [lanes](const auto* p) __attribute__((always_inline)) { return LoadPart(p, lanes); });
}

template <class E>
void MomentsRows(const E* x, int64_t rows, int64_t stride, int64_t lanes, const Real* shift, double* sum,
                 double* square) {
  ForLanes(
      lanes, [=](int64_t l, int64_t begin, int64_t end, auto load) __attribute__((always_inline)) {
        const V s = load(shift + l);
        TwoRowSums(
            rows, stride, begin, end, sum + l,
            square + l, [=](int64_t at, V * a, V * b) __attribute__((always_inline)) {
              const V d = load(x + at + l) - s;
              *a += d;
              *b += d * d;
            });
      });
}

// The normalised value, in one rounding where the instructions have one: said explicitly, because what relu cuts off
// going forward must be what it cuts off going backward, bit for bit, however the compiler treats the two places.
inline V Affine(V centred, V scale, V beta) { return MultiplyAdd(centred, scale, beta); }

// What relu lets through.
template <bool kRelu>
inline V Passed(V dy, V centred, V scale, V beta) {
  if constexpr (kRelu) return Affine(centred, scale, beta) > 0 ? dy : Splat(0);
  return dy;
}

template <bool kRelu, class E>
inline void GradSumsOf(const E* dy, const E* x, int64_t n, const Table::Channel& c, double* sums) {
  const V scale = Splat(c.scale), beta = Splat(c.beta);
  const Real mean = c.mean;
  const auto add = [=](V g, V v, V * a, V * b) __attribute__((always_inline)) {
    const V centred = v - mean;
    const V passed = Passed<kRelu>(g, centred, scale, beta);
    *a += passed;
    *b += passed * centred;
  };
  TwoSums(
      n, sums, [=](int64_t i, V * a, V * b) __attribute__((always_inline)) { add(Load(dy + i), Load(x + i), a, b); },
      [=](int64_t i) __attribute__((always_inline)) {
        V a = Splat(0), b = a;
        add(Splat(static_cast<Real>(dy[i])), Splat(static_cast<Real>(x[i])), &a, &b);
        sums[0] += a[0];
        sums[1] += b[0];
      });
}
template <class E>
void GradSums(const E* dy, const E* x, int64_t n, const Table::Channel& c, bool relu, double* sums) {
  relu ? GradSumsOf<true>(dy, x, n, c, sums) : GradSumsOf<false>(dy, x, n, c, sums);
}

template <bool kRelu, class E>
inline void GradSumsRowsOf(const E* dy, const E* x, int64_t rows, int64_t stride, int64_t lanes,
                           const Table::Channels& c, double* sum, double* product) {
  ForLanes(
      lanes, [=](int64_t l, int64_t begin, int64_t end, auto load) __attribute__((always_inline)) {
        const V mean = load(c.mean + l), scale = load(c.scale + l), beta = load(c.beta + l);
        TwoRowSums(
            rows, stride, begin, end, sum + l,
            product + l, [=](int64_t at, V * a, V * b) __attribute__((always_inline)) {
              const V centred = load(x + at + l) - mean;
              const V passed = Passed<kRelu>(load(dy + at + l), centred, scale, beta);
              *a += passed;
              *b += passed * centred;
            });
      });
}
template <class E>
void GradSumsRows(const E* dy, const E* x, int64_t rows, int64_t stride, int64_t lanes,
                  const Table::Channels& c, bool relu, double* sum, double* product) {
  relu ? GradSumsRowsOf<true>(dy, x, rows, stride, lanes, c, sum, product)
       : GradSumsRowsOf<false>(dy, x, rows, stride, lanes, c, sum, product);
}

template <bool kRelu>
inline V Normalized(V x, V mean, V scale, V beta) {
  const V y = Affine(x - mean, scale, beta);
  if constexpr (kRelu) return Max0(y);
  return y;
}

template <class E>
void Normalize(const E* x, E* y, int64_t n, const Table::Channel& c, bool relu) {
  const V mean = Splat(c.mean), scale = Splat(c.scale), beta = Splat(c.beta);
  if (relu) {
    Map(
        x, y, n, [=](V v) __attribute__((always_inline)) { return Normalized<true>(v, mean, scale, beta); });
  } else {
    Map(
        x, y, n, [=](V v) __attribute__((always_inline)) { return Normalized<false>(v, mean, scale, beta); });
  }
}

template <bool kRelu>
inline V InputGradient(V dy, V x, V mean, V scale, V beta, V b, V c) {
  const V centred = x - mean;
  return scale * Passed<kRelu>(dy, centred, scale, beta) + (b != 0 ? b * centred : Splat(0)) + c;
}

template <bool kRelu, class E>
inline void GradInputOf(const E* dy, const E* x, E* dx, int64_t n, const Table::Channel& channel) {
  const V mean = Splat(channel.mean), scale = Splat(channel.scale), beta = Splat(channel.beta), b = Splat(channel.b),
          c = Splat(channel.c);
  Map2(
      dy, x, dx,
      n, [=](V g, V v) __attribute__((always_inline)) { return InputGradient<kRelu>(g, v, mean, scale, beta, b, c); });
}
template <class E>
void GradInput(const E* dy, const E* x, E* dx, int64_t n, const Table::Channel& c, bool relu) {
  relu ? GradInputOf<true>(dy, x, dx, n, c) : GradInputOf<false>(dy, x, dx, n, c);
}

// Rows of `lanes`, y = f(load, lane) where load(p) reads a vector of an input: vector by vector, the constants of all
// lanes in registers if a row is one vector (blocked formats). Where the last vector of a row overlaps the one before,
// it is computed before that is stored, so y may be x.
template <class E, class F, class G>
inline void ForRows(int64_t rows, int64_t lanes, E* y, F f, G part) {
  if (lanes == kLanes) {
    for (int64_t row = 0; row < rows; ++row) Store(y + row * kLanes, f(row * kLanes, 0));
    return;
  }
  const int64_t whole = lanes / kLanes * kLanes;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t at = row * lanes;
    if (whole == 0) {
      StorePart(y + at, lanes, part(at, lanes));
      continue;
    }
    const int64_t tail = lanes - kLanes;
    const V last = f(at + tail, tail);
    for (int64_t l = 0; l < whole; l += kLanes) Store(y + at + l, f(at + l, l));
    Store(y + at + tail, last);
  }
}

template <bool kRelu, class E>
inline void NormalizeRowsOf(const E* x, E* y, int64_t rows, int64_t lanes, const Table::Channels& c) {
  ForRows(
      rows, lanes, y,
      [=](int64_t at, int64_t l) __attribute__((always_inline)) {
        return Normalized<kRelu>(Load(x + at), Load(c.mean + l), Load(c.scale + l), Load(c.beta + l));
      },
      [=](int64_t at, int64_t n) __attribute__((always_inline)) {
        return Normalized<kRelu>(LoadPart(x + at, n), LoadPart(c.mean, n), LoadPart(c.scale, n), LoadPart(c.beta, n));
      });
}
template <class E>
void NormalizeRows(const E* x, E* y, int64_t rows, int64_t lanes, const Table::Channels& c, bool relu) {
  relu ? NormalizeRowsOf<true>(x, y, rows, lanes, c) : NormalizeRowsOf<false>(x, y, rows, lanes, c);
}

template <bool kRelu, class E>
inline void GradInputRowsOf(const E* dy, const E* x, E* dx, int64_t rows, int64_t lanes,
                            const Table::Channels& c) {
  ForRows(
      rows, lanes, dx,
      [=](int64_t at, int64_t l) __attribute__((always_inline)) {
        return InputGradient<kRelu>(Load(dy + at), Load(x + at), Load(c.mean + l), Load(c.scale + l), Load(c.beta + l),
                                    Load(c.b + l), Load(c.c + l));
      },
      [=](int64_t at, int64_t n) __attribute__((always_inline)) {
        return InputGradient<kRelu>(LoadPart(dy + at, n), LoadPart(x + at, n), LoadPart(c.mean, n),
                                    LoadPart(c.scale, n), LoadPart(c.beta, n), LoadPart(c.b, n), LoadPart(c.c, n));
      });
}
template <class E>
void GradInputRows(const E* dy, const E* x, E* dx, int64_t rows, int64_t lanes, const Table::Channels& c,
                   bool relu) {
  relu ? GradInputRowsOf<true>(dy, x, dx, rows, lanes, c) : GradInputRowsOf<false>(dy, x, dx, rows, lanes, c);
}
