// The body of integers.h, included inside a namespace that has Sums, a vector of kSums sums of 32 bits; Zero();
// Pairs(weights), kSums pairs of weights widened to 16 bits; Pair(x), the two elements at x in every place;
// AddProducts(sums, a, b), which adds the products of each pair; Store(sums, p); and kMostRows. No include guard.

constexpr int64_t kVectors = kPanel / kSums;

template <int kRows>
void Products(const IntegerProducts& p) {
  Sums sums[kRows][kVectors];
  for (auto& row : sums) {
    for (Sums& sum : row) sum = Zero();
  }
  const int16_t* rows[kRows];
  for (int r = 0; r < kRows; ++r) rows[r] = p.rows[r];
  const int8_t* w = p.weights;
  for (int64_t run = 0; run < p.runs; ++run) {
    const int64_t begin = p.offsets[run], end = begin + 2 * p.pairs;
    for (int64_t k = begin; k < end; k += 2, w += 2 * kPanel) {
      Sums weights[kVectors];
      for (int64_t v = 0; v < kVectors; ++v) weights[v] = Pairs(w + 2 * kSums * v);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        const Sums x = Pair(rows[r] + k);
        for (int64_t v = 0; v < kVectors; ++v) sums[r][v] = AddProducts(sums[r][v], x, weights[v]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int64_t v = 0; v < kVectors; ++v) Store(sums[r][v], p.sums + r * kPanel + v * kSums);
  }
}

inline void Results(const int32_t* sums, const IntegerResults& results, float* y) {
  for (int64_t i = 0; i < kPanel; ++i) y[i] = static_cast<float>(sums[i]) * results.scale[i] + results.bias[i];
  if (!results.relu) return;
  for (int64_t i = 0; i < kPanel; ++i) y[i] = y[i] < 0 ? 0 : y[i];
}

void Floats(const int32_t* sums, const IntegerResults& results, float* y, int64_t n) {
  if (n == kPanel) return Results(sums, results, y);
  float all[kPanel];
  Results(sums, results, all);
  for (int64_t i = 0; i < n; ++i) y[i] = all[i];
}

// Bounds are whole, so that rounding may come after them; and near enough to 0 for the sum that rounds to even.
void Bytes(const int32_t* sums, const IntegerResults& results, uint8_t* y, int64_t n) {
  constexpr float kRounds = 12582912;  // 1.5 2^23
  float all[kPanel];
  Results(sums, results, all);
  const float low = results.low - results.output_zero, high = results.high - results.output_zero;
  int32_t whole[kPanel];
  for (int64_t i = 0; i < kPanel; ++i) {
    float q = all[i] / results.output_scale;
    q = q != q ? -results.output_zero : q;
    q = q < low ? low : q;
    q = q > high ? high : q;
    whole[i] = static_cast<int32_t>((q + kRounds) - kRounds + results.output_zero);
  }
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<uint8_t>(whole[i]);
}

template <class T>
void Widen(const T* x, int16_t* y, int64_t n, int zero) {
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<int16_t>(x[i] - zero);
}

template <int... kRows>
constexpr IntegerLoops TableOf(std::integer_sequence<int, kRows...>) {
  return {kMostRows, {Products<kRows + 1>...}, Floats, Bytes, Widen<uint8_t>, Widen<int8_t>};
}
constexpr IntegerLoops kTable = TableOf(std::make_integer_sequence<int, kMostRows>());
