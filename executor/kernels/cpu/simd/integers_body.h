// The body of integers.h, included inside a namespace that has Element, of the data; Sums, a vector of kSums sums of 32
// bits; Groups(weights), kSums groups of weights as products take them; Everywhere(bits), 32 bits in every place;
// AddProducts(sums, data, weights), which adds the products of each group; and kMostRows. No include guard.

constexpr int64_t kTaps = 4 / sizeof(Element);

inline Sums Load(const int32_t* p) {
  Sums sums;
  std::memcpy(&sums, p, sizeof sums);
  return sums;
}
inline void Store(Sums sums, int32_t* p) { std::memcpy(p, &sums, sizeof sums); }

// The group of elements at x in every place.
inline Sums Group(const char* x) {
  int32_t bits;
  std::memcpy(&bits, x, sizeof bits);
  return Everywhere(bits);
}

template <int kRows, int64_t kVectors>
void Products(const IntegerProducts& p) {
  Sums sums[kRows][kVectors];
  for (auto& row : sums) {
    for (int64_t v = 0; v < kVectors; ++v) row[v] = Load(p.begin + v * kSums);
  }
  const char* rows[kRows];
  for (int r = 0; r < kRows; ++r) rows[r] = static_cast<const char*>(p.rows[r]);
  const int8_t* w = p.weights;
  for (int64_t run = 0; run < p.runs; ++run) {
    const int64_t begin = p.offsets[run], end = begin + 4 * p.groups;
    for (int64_t k = begin; k < end; k += 4, w += kTaps * kPanel) {
      Sums weights[kVectors];
      for (int64_t v = 0; v < kVectors; ++v) weights[v] = Groups(w + kTaps * kSums * v);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        const Sums x = Group(rows[r] + k);
        for (int64_t v = 0; v < kVectors; ++v) sums[r][v] = AddProducts(sums[r][v], x, weights[v]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int64_t v = 0; v < kVectors; ++v) Store(sums[r][v], p.sums + r * kPanel + v * kSums);
  }
}

void Begin(const int8_t* weights, int64_t groups, int zero, int32_t* sums) {
  constexpr int64_t kVectors = kPanel / kSums;
  Sums all[kVectors] = {};
  // Where elements are less their zero point, 0 stands for 0.
  if (zero != 0) {
    const Sums ones = Everywhere(kTaps == 4 ? 0x01010101 : 0x00010001);
    for (const int8_t* const end = weights + groups * kTaps * kPanel; weights < end; weights += kTaps * kPanel) {
      for (int64_t v = 0; v < kVectors; ++v) all[v] = AddProducts(all[v], ones, Groups(weights + kTaps * kSums * v));
    }
  }
  for (int64_t v = 0; v < kVectors; ++v) Store(all[v], sums + v * kSums);
  for (int64_t i = 0; i < kPanel; ++i) sums[i] *= -zero;
}

inline void ResultsOf(const int32_t* __restrict sums, const IntegerResults& results, float* __restrict y) {
  const float* const scale = results.scale;
  const float* const bias = results.bias;
  for (int64_t i = 0; i < kPanel; ++i) y[i] = static_cast<float>(sums[i]) * scale[i] + bias[i];
  if (!results.relu) return;
  for (int64_t i = 0; i < kPanel; ++i) y[i] = y[i] < 0 ? 0 : y[i];
}

void Floats(const int32_t* sums, const IntegerResults& results, int64_t rows, float* y) {
  for (int64_t row = 0; row < rows; ++row, sums += kPanel, y += results.step) {
    if (results.outputs == kPanel) {
      ResultsOf(sums, results, y);
      continue;
    }
    float all[kPanel];
    ResultsOf(sums, results, all);
    for (int64_t i = 0; i < results.outputs; ++i) y[i] = all[i];
  }
}

// Bounds are whole, so that rounding may come after them; and near enough to 0 for the sum that rounds to even.
inline int32_t WholeOf(float x, const IntegerScale& to) {
  constexpr float kRounds = 12582912;  // 1.5 2^23
  const float low = to.low - to.zero, high = to.high - to.zero;
  float q = x / to.scale;
  q = q != q ? -to.zero : q;
  q = q < low ? low : q;
  q = q > high ? high : q;
  return static_cast<int32_t>((q + kRounds) - kRounds + to.zero);
}

void Quantize(const float* __restrict x, const IntegerScale& given, int64_t n, uint8_t* __restrict y) {
  const IntegerScale to = given;
  int64_t i = 0;
  for (; i + kPanel <= n; i += kPanel) {
    for (int64_t k = 0; k < kPanel; ++k) y[i + k] = static_cast<uint8_t>(WholeOf(x[i + k], to));
  }
  for (; i < n; ++i) y[i] = static_cast<uint8_t>(WholeOf(x[i], to));
}

void Bytes(const int32_t* sums, const IntegerResults& results, int64_t rows, uint8_t* y) {
  float all[kMostRows * kPanel];
  uint8_t whole[kMostRows * kPanel];
  int64_t done = 0;
  do ResultsOf(sums + done * kPanel, results, all + done * kPanel);
  while (++done < rows);
  Quantize(all, results.to, rows * kPanel, whole);
  for (int64_t row = 0; row < rows; ++row, y += results.step) {
    if (results.outputs == kPanel) {
      std::memcpy(y, whole + row * kPanel, kPanel);
    } else {
      for (int64_t i = 0; i < results.outputs; ++i) y[i] = whole[row * kPanel + i];
    }
  }
}

template <class T>
void Elements(const T* __restrict x, void* to, int64_t n, int zero) {
  Element* __restrict y = static_cast<Element*>(to);
  for (int64_t i = 0; i < n; ++i) y[i] = ElementOf<Element>(x[i], zero);
}

template <int... kRows>
constexpr IntegerLoops TableOfRows(std::integer_sequence<int, kRows...>) {
  constexpr int64_t kWhole = kPanel / kSums, kHalf = kWhole > 1 ? kWhole / 2 : 1;
  return {.taps = kTaps,
          .most_rows = kMostRows,
          .products = {Products<kRows + 1, kWhole>...},
          .half_products = {Products<kRows + 1, kHalf>...},
          .begin = Begin,
          .floats = Floats,
          .bytes = Bytes,
          .quantize = Quantize,
          .load_unsigned = Elements<uint8_t>,
          .load_signed = Elements<int8_t>};
}
constexpr IntegerLoops Table() { return TableOfRows(std::make_integer_sequence<int, kMostRows>()); }
