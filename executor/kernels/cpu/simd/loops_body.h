// The loops of loops.h. Included by loops_*.cc after the vector math of a type, under that file's target pragma; no
// include guard, includes only its parts.

using Table = LoopsOf<Real>;

// Load and Store as arguments. (Classes, not lambdas: see UnaryLoop.)
struct LoadWhole {
  template <class E>
  [[gnu::always_inline]] V operator()(const E* p) const {
    return Load(p);
  }
};
struct StoreWhole {
  [[gnu::always_inline]] void operator()(Real* p, V v) const { Store(p, v); }
};

// ---- maps ----

template <class E, class F>
inline void Map(const E* x, E* y, int64_t n, F f) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(y + i, f(Load(x + i)));
  if (i < n) StorePart(y + i, n - i, f(LoadPart(x + i, n - i)));
}

template <class E, class F>
inline void Map2(const E* a, const E* b, E* y, int64_t n, F f) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(y + i, f(Load(a + i), Load(b + i)));
  if (i < n) StorePart(y + i, n - i, f(LoadPart(a + i, n - i), LoadPart(b + i, n - i)));
}

#include "executor/kernels/functions.h"

// A class, not a lambda: the function pointer that a lambda without captures converts to would not have the file's
// target.
template <class F>
void UnaryLoop(const Real* x, Real* y, int64_t n) {
  Map(x, y, n, F());
}
template <class F>
void BinaryLoop(const Real* a, const Real* b, Real* y, int64_t n) {
  Map2(a, b, y, n, F());
}
template <class F>
void BinaryScalarB(const Real* a, const Real* b, Real* y, int64_t n) {
  const V scalar = Splat(*b);
  Map(
      a, y, n, [scalar](V v) __attribute__((always_inline)) { return F()(v, scalar); });
}
template <class F>
void BinaryScalarA(const Real* a, const Real* b, Real* y, int64_t n) {
  const V scalar = Splat(*a);
  Map(
      b, y, n, [scalar](V v) __attribute__((always_inline)) { return F()(scalar, v); });
}

void AddReluGrad(const Real* g0, const Real* g1, const Real* y, Real* dx, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Store(dx + i, Load(y + i) > 0 ? Load(g0 + i) + Load(g1 + i) : Splat(0));
  }
  for (; i < n; ++i) dx[i] = y[i] > 0 ? g0[i] + g1[i] : 0;
}

// Between types of elements, one of them Real.
template <class From, class To>
void Convert(const From* x, To* y, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(y + i, Load(x + i));
  if (i < n) StorePart(y + i, n - i, LoadPart(x + i, n - i));
}

void Scale(const Real* x, Real* y, int64_t n, Real factor) {
  Map(
      x, y, n, [factor](V v) __attribute__((always_inline)) { return v * factor; });
}
void Axpy(const Real* x, Real* y, int64_t n, Real factor) {
  Map2(
      x, y, y, n, [factor](V a, V b) __attribute__((always_inline)) { return b + a * factor; });
}

// ---- sums: float within a chunk, double over chunks ----

constexpr int64_t kChunk = 64 * kLanes;

// Sum of f(i), f a vector of the elements from i on; `part` the same for fewer than kLanes elements.
template <class F, class P>
inline double SumOver(int64_t n, F f, P part) {
  double total = 0;
  int64_t i = 0;
  while (i + kLanes <= n) {
    const int64_t end = i + kChunk <= n ? i + kChunk : n;
    V s0 = Splat(0), s1 = s0, s2 = s0, s3 = s0;
    for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
      s0 += f(i);
      s1 += f(i + kLanes);
      s2 += f(i + 2 * kLanes);
      s3 += f(i + 3 * kLanes);
    }
    for (; i + kLanes <= end; i += kLanes) s0 += f(i);
    total += SumOf((s0 + s1) + (s2 + s3));
    if (end == n) break;
  }
  if (i < n) total += SumOf(part(i, n - i));
  return total;
}

double Sum(const Real* x, int64_t n) {
  return SumOver(
      n, [=](int64_t i) __attribute__((always_inline)) { return Load(x + i); },
      [=](int64_t i, int64_t m) __attribute__((always_inline)) { return LoadPart(x + i, m); });
}
double Dot(const Real* a, const Real* b, int64_t n) {
  return SumOver(
      n, [=](int64_t i) __attribute__((always_inline)) { return Load(a + i) * Load(b + i); },
      [=](int64_t i, int64_t m) __attribute__((always_inline)) { return LoadPart(a + i, m) * LoadPart(b + i, m); });
}
double ExpSum(const Real* x, int64_t n, Real shift) {
  const auto f = [=](int64_t i) __attribute__((always_inline)) { return exp(Load(x + i) - shift); };
  return SumOver(
      n, f, [=](int64_t i, int64_t m) __attribute__((always_inline)) {
        Real lanes[kLanes];
        Store(lanes, exp(LoadPart(x + i, m) - shift));
        return LoadPart(lanes, m);
      });
}

#include "executor/kernels/cpu/simd/reduce_body.h"

// Sum of f(0) to f(n - 1), lane by lane, by parts: a sum of thousands of terms in turn would lose digits.
template <class F>
inline V InParts(int64_t n, F f) {
  constexpr int64_t kPart = 64;
  V total = Splat(0);
  for (int64_t k = 0; k < n;) {
    const int64_t end = k + kPart <= n ? k + kPart : n;
    V part = Splat(0);
    for (; k < end; ++k) part += f(k);
    total += part;
  }
  return total;
}

// ---- softmax ----

inline void SoftmaxRow(const Real* x, Real* y, int64_t n, Real inverse_temperature) {
  const Real max = Extreme<fn::Maximum>(x, n);
  const auto f = [=](V v) __attribute__((always_inline)) { return exp((v - max) * inverse_temperature); };
  const V sums = InParts(
      n / kLanes, [=](int64_t k) __attribute__((always_inline)) {
        const V e = f(Load(x + k * kLanes));
        Store(y + k * kLanes, e);
        return e;
      });
  Real sum = SumOf(sums);
  int64_t i = n / kLanes * kLanes;
  if (i < n) {
    StorePart(y + i, n - i, f(LoadPart(x + i, n - i)));
    for (; i < n; ++i) sum += y[i];
  }
  Scale(y, y, n, 1 / sum);
}

// Rows shorter than a few vectors: the exponentials of many rows are taken together.
inline void SoftmaxShortRows(const Real* x, Real* y, int64_t rows, int64_t n, Real inverse_temperature) {
  for (int64_t row = 0; row < rows; ++row) {
    const Real max = Extreme<fn::Maximum>(x + row * n, n);
    for (int64_t i = row * n; i < (row + 1) * n; ++i) y[i] = (x[i] - max) * inverse_temperature;
  }
  UnaryLoop<fn::Exp>(y, y, rows * n);
  for (int64_t row = 0; row < rows; ++row) {
    Real sum = 0;
    for (int64_t i = row * n; i < (row + 1) * n; ++i) sum += y[i];
    const Real inverse = 1 / sum;
    for (int64_t i = row * n; i < (row + 1) * n; ++i) y[i] *= inverse;
  }
}

void Softmax(const Real* x, Real* y, int64_t rows, int64_t n, Real inverse_temperature) {
  constexpr int64_t kTile = 1024;  // stays in the nearest cache
  if (n < 4 * kLanes) {
    const int64_t step = kTile / n;
    for (int64_t row = 0; row < rows; row += step) {
      SoftmaxShortRows(x + row * n, y + row * n, step < rows - row ? step : rows - row, n, inverse_temperature);
    }
    return;
  }
  for (int64_t row = 0; row < rows; ++row) SoftmaxRow(x + row * n, y + row * n, n, inverse_temperature);
}

void SoftmaxGrad(const Real* dy, const Real* y, Real* dx, int64_t n, Real factor) {
  const Real sum = static_cast<Real>(Dot(dy, y, n));
  Map2(
      dy, y, dx, n, [=](V g, V p) __attribute__((always_inline)) { return p * (g - sum) * factor; });
}

// f(column, load, store) for every vector of columns, the last perhaps a part of one.
template <class F>
inline void ForColumns(int64_t inner, F f) {
  int64_t i = 0;
  for (; i + kLanes <= inner; i += kLanes) f(i, LoadWhole(), StoreWhole());
  if (i < inner) {
    const int64_t m = inner - i;
    f(
        i, [m](const Real* p) __attribute__((always_inline)) { return LoadPart(p, m); },
        [m](Real * p, V v) __attribute__((always_inline)) { StorePart(p, m, v); });
  }
}

void SoftmaxColumns(const Real* x, Real* y, int64_t n, int64_t stride, int64_t inner, Real inverse_temperature) {
  ForColumns(
      inner, [=](int64_t i, auto load, auto store) __attribute__((always_inline)) {
        V max = load(x + i);
        for (int64_t k = 1; k < n; ++k) {
          const V v = load(x + k * stride + i);
          max = ((v > max) | (v != v)) ? v : max;
        }
        const V inverse = 1 / InParts(
                                  n, [=](int64_t k) __attribute__((always_inline)) {
                                    const V e = exp((load(x + k * stride + i) - max) * inverse_temperature);
                                    store(y + k * stride + i, e);
                                    return e;
                                  });
        for (int64_t k = 0; k < n; ++k) store(y + k * stride + i, load(y + k * stride + i) * inverse);
      });
}

void SoftmaxGradColumns(const Real* dy, const Real* y, Real* dx, int64_t n, int64_t stride, int64_t inner,
                        Real factor) {
  ForColumns(
      inner, [=](int64_t i, auto load, auto store) __attribute__((always_inline)) {
        const V sum = InParts(
            n, [=](int64_t k)
                   __attribute__((always_inline)) { return load(dy + k * stride + i) * load(y + k * stride + i); });
        for (int64_t k = 0; k < n; ++k) {
          const int64_t at = k * stride + i;
          store(dx + at, load(y + at) * (load(dy + at) - sum) * factor);
        }
      });
}

#include "executor/kernels/cpu/simd/batch_norm_body.h"
#include "executor/kernels/cpu/simd/convolution_body.h"
#include "executor/kernels/cpu/simd/curve_body.h"
#include "executor/kernels/cpu/simd/dropout_body.h"
#include "executor/kernels/cpu/simd/matrix_body.h"
#include "executor/kernels/cpu/simd/normalize_body.h"
#include "executor/kernels/cpu/simd/pooling_body.h"
#include "executor/kernels/cpu/simd/recurrent_body.h"
#include "executor/kernels/cpu/simd/winograd_body.h"

// ---- the table ----

template <class... F>
constexpr std::array<Table::UnaryLoop, sizeof...(F)> UnaryTable(FunctionList<F...>) {
  return {UnaryLoop<F>...};
}
template <class... F>
constexpr std::array<Table::BinaryLoop, sizeof...(F)> BinaryTable(FunctionList<F...>) {
  return {BinaryLoop<F>...};
}
template <class... F>
constexpr std::array<Table::BinaryLoop, sizeof...(F)> ScalarBTable(FunctionList<F...>) {
  return {BinaryScalarB<F>...};
}
template <class... F>
constexpr std::array<Table::BinaryLoop, sizeof...(F)> ScalarATable(FunctionList<F...>) {
  return {BinaryScalarA<F>...};
}

template <class E>
constexpr Table::ChannelLoops<E> ChannelTable() {
  if constexpr (sizeof(E) < sizeof(float) && sizeof(Real) > sizeof(float)) {
    return {};
  } else {
    return {Moments<E>,   MomentsRows<E>,   GradSums<E>,  GradSumsRows<E>,
            Normalize<E>, NormalizeRows<E>, GradInput<E>, GradInputRows<E>};
  }
}

template <class E>
constexpr Table::Conversions ConversionTable() {
  if constexpr (std::is_same_v<E, float>) {
    return {Convert<bfloat16, E>, Convert<E, bfloat16>};
  } else {
    return {};
  }
}

constexpr Table TableOf(const char* name) {
  return {
      .name = name,
      .lanes = kLanes,
      .unary = UnaryTable(UnaryFunctions()),
      .activation = UnaryTable(ActivationFunctions()),
      .binary = BinaryTable(BinaryFunctions()),
      .activation_grad = BinaryTable(ActivationGradFunctions()),
      .binary_scalar_b = ScalarBTable(BinaryFunctions()),
      .binary_scalar_a = ScalarATable(BinaryFunctions()),
      .curve = CurveTable(CurveFunctions()),
      .curve_grad = CurveGradTable(CurveFunctions()),
      .add_relu_grad = AddReluGrad,
      .conversions = ConversionTable<Real>(),
      .scale = Scale,
      .sum = Sum,
      .exp_sum = ExpSum,
      .dot = Dot,
      .magnitudes = {JoinRow<Magnitudes>, JoinTo<Magnitudes>},
      .squares = {JoinRow<Squares>, JoinTo<Squares>},
      .products = {JoinRow<Products>, JoinTo<Products>},
      .add_to = JoinTo<Sums>,
      .max = Extreme<fn::Maximum>,
      .min = Extreme<fn::Minimum>,
      .max_to = ExtremeTo<fn::Maximum>,
      .min_to = ExtremeTo<fn::Minimum>,
      .softmax = Softmax,
      .softmax_grad = SoftmaxGrad,
      .softmax_columns = SoftmaxColumns,
      .softmax_grad_columns = SoftmaxGradColumns,
      .matrix_vector = MatrixVector,
      .vector_matrix = VectorMatrix,
      .axpy = Axpy,
      .add_products = AddProducts,
      .channels = ChannelTable<Real>(),
      .bfloat16_channels = ChannelTable<bfloat16>(),
      .affine = ScaleAndShift,
      .affine_sums = AffineSums,
      .affine_grad = AffineGrad,
      .dropout_mask = DropoutMask,
      .masked_scale = MaskedScale,
      .max_pool = MaxPool,
      .max_pool_wide = MaxPool,
      .max_pool_grad = MaxPoolGrad,
      .max_pool_grad_wide = MaxPoolGrad,
      .average_pool = AveragePool,
      .average_pool_grad = AveragePoolGrad,
      .convolve = ConvolveOf<Real>(),
      .convolve_grad = ConvolveGradOf<Real>(),
      .lstm = LstmStep,
      .lstm_grad = LstmStepGrad,
      .gru = GruStep,
      .gru_grad = GruStepGrad,
      .winograd_2 = {WinogradData<2>, WinogradWeights<2>, WinogradResults<2>},
      .winograd_4 = {WinogradData<4>, WinogradWeights<4>, WinogradResults<4>},
      .multiply_strip = MultiplyStrip,
      .multiply_transposed = MultiplyTransposed,
  };
}
