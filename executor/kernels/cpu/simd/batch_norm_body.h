// Part of loops_body.h: the passes of batch normalisation over one channel's contiguous elements, and over rows of channels.

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

// The same for one vector of lanes over rows; f(row offset, &a, &b).
template <class F>
inline void TwoRowSums(int64_t rows, int64_t stride, int64_t lanes, double* first, double* second, F f) {
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
    for (int64_t l = 0; l < lanes; ++l) {
      first[l] += a[l];
      second[l] += b[l];
    }
  }
}

void Moments(const float* x, int64_t n, float shift, double* sums) {
  TwoSums(
      n, sums,
      [=](int64_t i, V* a, V* b) __attribute__((always_inline)) {
        const V d = Load(x + i) - shift;
        *a += d;
        *b += d * d;
      },
      [=](int64_t i) __attribute__((always_inline)) {
        const float d = x[i] - shift;
        sums[0] += d;
        sums[1] += d * d;
      });
}

void MomentsRows(const float* x, int64_t rows, int64_t stride, int64_t lanes, const float* shift, double* sum, double* square) {
  int64_t l = 0;
  for (; l + kLanes <= lanes; l += kLanes) {
    const V s = Load(shift + l);
    TwoRowSums(rows, stride, kLanes, sum + l, square + l, [=](int64_t at, V* a, V* b) __attribute__((always_inline)) {
      const V d = Load(x + at + l) - s;
      *a += d;
      *b += d * d;
    });
  }
  if (l < lanes) {
    const V s = LoadPart(shift + l, lanes - l);
    TwoRowSums(rows, stride, lanes - l, sum + l, square + l, [=](int64_t at, V* a, V* b) __attribute__((always_inline)) {
      const V d = LoadPart(x + at + l, lanes - l) - s;
      *a += d;
      *b += d * d;
    });
  }
}

// What relu lets through. The same operations as Normalize, so that both agree on the sign.
template <bool kRelu>
inline V Passed(V dy, V centred, V scale, V beta) {
  if constexpr (kRelu) return centred * scale + beta > 0 ? dy : Splat(0);
  return dy;
}

template <bool kRelu>
inline void GradSumsOf(const float* dy, const float* x, int64_t n, const Loops::Channel& c, double* sums) {
  const V scale = Splat(c.scale), beta = Splat(c.beta);
  const float mean = c.mean;
  const auto add = [=](V g, V v, V* a, V* b) __attribute__((always_inline)) {
    const V centred = v - mean;
    const V passed = Passed<kRelu>(g, centred, scale, beta);
    *a += passed;
    *b += passed * centred;
  };
  TwoSums(
      n, sums, [=](int64_t i, V* a, V* b) __attribute__((always_inline)) { add(Load(dy + i), Load(x + i), a, b); },
      [=](int64_t i) __attribute__((always_inline)) {
        V a = Splat(0), b = a;
        add(Splat(dy[i]), Splat(x[i]), &a, &b);
        sums[0] += a[0];
        sums[1] += b[0];
      });
}
void GradSums(const float* dy, const float* x, int64_t n, const Loops::Channel& c, bool relu, double* sums) {
  relu ? GradSumsOf<true>(dy, x, n, c, sums) : GradSumsOf<false>(dy, x, n, c, sums);
}

template <bool kRelu>
inline void GradSumsRowsOf(const float* dy, const float* x, int64_t rows, int64_t stride, int64_t lanes, const Loops::Channels& c,
                           double* sum, double* product) {
  ForColumns(lanes, [=](int64_t l, auto load, auto) __attribute__((always_inline)) {
    const V mean = load(c.mean + l), scale = load(c.scale + l), beta = load(c.beta + l);
    const int64_t width = lanes - l < kLanes ? lanes - l : kLanes;
    TwoRowSums(rows, stride, width, sum + l, product + l, [=](int64_t at, V* a, V* b) __attribute__((always_inline)) {
      const V centred = load(x + at + l) - mean;
      const V passed = Passed<kRelu>(load(dy + at + l), centred, scale, beta);
      *a += passed;
      *b += passed * centred;
    });
  });
}
void GradSumsRows(const float* dy, const float* x, int64_t rows, int64_t stride, int64_t lanes, const Loops::Channels& c, bool relu,
                  double* sum, double* product) {
  relu ? GradSumsRowsOf<true>(dy, x, rows, stride, lanes, c, sum, product)
       : GradSumsRowsOf<false>(dy, x, rows, stride, lanes, c, sum, product);
}

void Normalize(const float* x, float* y, int64_t n, const Loops::Channel& c, bool relu) {
  const V mean = Splat(c.mean), scale = Splat(c.scale), beta = Splat(c.beta);
  if (relu) {
    Map(x, y, n, [=](V v) __attribute__((always_inline)) { return Max0((v - mean) * scale + beta); });
  } else {
    Map(x, y, n, [=](V v) __attribute__((always_inline)) { return (v - mean) * scale + beta; });
  }
}

template <bool kRelu>
inline void GradInputOf(const float* dy, const float* x, float* dx, int64_t n, const Loops::Channel& channel) {
  const V mean = Splat(channel.mean), scale = Splat(channel.scale), beta = Splat(channel.beta), b = Splat(channel.b), c = Splat(channel.c);
  Map2(dy, x, dx, n, [=](V g, V v) __attribute__((always_inline)) {
    const V centred = v - mean;
    return scale * Passed<kRelu>(g, centred, scale, beta) + b * centred + c;
  });
}
void GradInput(const float* dy, const float* x, float* dx, int64_t n, const Loops::Channel& c, bool relu) {
  relu ? GradInputOf<true>(dy, x, dx, n, c) : GradInputOf<false>(dy, x, dx, n, c);
}

// Calls f(offset of the vector, lane of its first element, load, store) for rows of `lanes`, all rows of one vector of
// lanes first where a row is one vector (blocked formats: the constants stay in registers), else row by row.
template <class F>
inline void ForRows(int64_t rows, int64_t lanes, F f) {
  if (lanes == kLanes) {
    for (int64_t row = 0; row < rows; ++row) f(row * kLanes, 0, Load, Store);
    return;
  }
  for (int64_t row = 0; row < rows; ++row) {
    ForColumns(lanes, [=](int64_t l, auto load, auto store) __attribute__((always_inline)) { f(row * lanes + l, l, load, store); });
  }
}

void NormalizeRows(const float* x, float* y, int64_t rows, int64_t lanes, const Loops::Channels& c, bool relu) {
  if (relu) {
    ForRows(rows, lanes, [=](int64_t at, int64_t l, auto load, auto store) __attribute__((always_inline)) {
      store(y + at, Max0((load(x + at) - load(c.mean + l)) * load(c.scale + l) + load(c.beta + l)));
    });
  } else {
    ForRows(rows, lanes, [=](int64_t at, int64_t l, auto load, auto store) __attribute__((always_inline)) {
      store(y + at, (load(x + at) - load(c.mean + l)) * load(c.scale + l) + load(c.beta + l));
    });
  }
}

template <bool kRelu>
inline void GradInputRowsOf(const float* dy, const float* x, float* dx, int64_t rows, int64_t lanes, const Loops::Channels& c) {
  ForRows(rows, lanes, [=](int64_t at, int64_t l, auto load, auto store) __attribute__((always_inline)) {
    const V centred = load(x + at) - load(c.mean + l);
    const V scale = load(c.scale + l);
    const V passed = Passed<kRelu>(load(dy + at), centred, scale, load(c.beta + l));
    store(dx + at, scale * passed + load(c.b + l) * centred + load(c.c + l));
  });
}
void GradInputRows(const float* dy, const float* x, float* dx, int64_t rows, int64_t lanes, const Loops::Channels& c, bool relu) {
  relu ? GradInputRowsOf<true>(dy, x, dx, rows, lanes, c) : GradInputRowsOf<false>(dy, x, dx, rows, lanes, c);
}
