// Flat loops over arrays of floats and of doubles, in the widest vectors that this processor has.
//
// The same source, loops_body.h, is compiled for both types in each of loops_baseline.cc, loops_avx2.cc and
// loops_avx512.cc; BestLoops() picks one table at run time, once, by what oneDNN may use (BINDERY_MAX_ISA and
// ONEDNN_MAX_CPU_ISA limit both). Every function is serial: parts of a team's loop call it. Unless told otherwise x and
// y may be the same array but must not overlap otherwise.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/dtype.h"
#include "executor/kernels/cpu/simd/integers.h"
#include "executor/kernels/native_functions.h"

namespace bindery::cpu {

// Pooling of `outputs` neighbours along a row, each of `lanes` values; the next one's window begins `step` further on
// in x. `offsets` are where the window's `count` taps lie in x, `taps` their numbers. `disjoint`: no element lies in two
// windows.
struct PoolRow {
  int64_t outputs, lanes, step, count;
  const int64_t* offsets;
  const int32_t* taps;
  bool disjoint = false;
};
struct DropoutKey {
  uint32_t k0, k1, c1, c2, c3;
};
// Of a convolution's windows: taps that lie one behind the other in the data, from `x` on. The first one's weights are
// at `w`, the others' behind it at equal steps.
struct TapRun {
  int32_t x, w, taps;
};

template <class Real>
struct LoopsOf {
  using PoolRow = cpu::PoolRow;
  using DropoutKey = cpu::DropoutKey;

  // y = f(x) and y = f(a, b), in the order of the lists in executor/kernels/functions.h. Gradients take (dy, y).
  using UnaryLoop = void (*)(const Real* x, Real* y, int64_t n);
  using BinaryLoop = void (*)(const Real* a, const Real* b, Real* y, int64_t n);
  using CurveLoop = void (*)(const Real* x, Real* y, int64_t n, Real a, Real b);
  using CurveGradLoop = void (*)(const Real* dy, const Real* x, Real* dx, int64_t n, Real a, Real b);

  const char* name;  // "avx2"
  int lanes;         // numbers in a vector
  std::array<UnaryLoop, native::UnaryFunctions::kSize> unary;
  std::array<UnaryLoop, native::ActivationFunctions::kSize> activation;
  std::array<BinaryLoop, native::BinaryFunctions::kSize> binary;
  std::array<BinaryLoop, native::ActivationGradFunctions::kSize> activation_grad;
  // With b[0] (a[0]) in place of every b (a).
  std::array<BinaryLoop, native::BinaryFunctions::kSize> binary_scalar_b, binary_scalar_a;

  std::array<CurveLoop, native::CurveFunctions::kSize> curve;
  std::array<CurveGradLoop, native::CurveFunctions::kSize> curve_grad;  // dy times the slope at x

  template <class F>
  UnaryLoop UnaryOf() const {
    constexpr size_t kIndex = native::UnaryFunctions::Find(F::kName);
    return unary[kIndex];
  }
  template <class F>
  BinaryLoop BinaryOf() const {
    constexpr size_t kIndex = native::BinaryFunctions::Find(F::kName);
    return binary[kIndex];
  }

  void (*add_relu_grad)(const Real* g0, const Real* g1, const Real* y, Real* dx, int64_t n);  // (g0 + g1) [y > 0]
  // From and to bfloat16, of floats only: rounded to the nearest even one, NaN stays NaN.
  struct Conversions {
    void (*widen)(const bfloat16* x, Real* y, int64_t n);
    void (*narrow)(const Real* x, bfloat16* y, int64_t n);
  };
  Conversions conversions;
  void (*scale)(const Real* x, Real* y, int64_t n, Real factor);
  double (*sum)(const Real* x, int64_t n);
  double (*exp_sum)(const Real* x, int64_t n, Real shift);  // sum e^(x - shift)
  double (*dot)(const Real* a, const Real* b, int64_t n);

  // Reductions, all in double: of a row, and of rows into results side by side, results = results joined with x.
  struct Joining {
    double (*row)(const Real* x, int64_t n);
    void (*to)(const Real* x, double* results, int64_t n);
  };
  Joining magnitudes, squares, products;                   // sum |x|, sum x^2, and the product
  void (*add_to)(const Real* x, double* sums, int64_t n);  // sums += x
  // The largest and the smallest: NaN if there is one.
  Real (*max)(const Real* x, int64_t n);  // n >= 1
  Real (*min)(const Real* x, int64_t n);
  void (*max_to)(const Real* x, Real* y, int64_t n);  // y = max(y, x)
  void (*min_to)(const Real* x, Real* y, int64_t n);

  // Softmax over each of some rows, and over one its gradient: y_i (dy_i - sum_j dy_j y_j) * factor.
  // `inverse_temperature` scales x.
  void (*softmax)(const Real* x, Real* y, int64_t rows, int64_t n, Real inverse_temperature);
  void (*softmax_grad)(const Real* dy, const Real* y, Real* dx, int64_t n, Real factor);
  // Over the middle axis of (n, inner), `inner` columns at once: every element of a column is `stride` further on.
  void (*softmax_columns)(const Real* x, Real* y, int64_t n, int64_t stride, int64_t inner, Real inverse_temperature);
  void (*softmax_grad_columns)(const Real* dy, const Real* y, Real* dx, int64_t n, int64_t stride, int64_t inner,
                               Real factor);

  // y[0..n) = w x for w (n, k), and dx[0..k) = dy w; each row of w is read once. `bias` may be null.
  void (*matrix_vector)(const Real* w, const Real* x, const Real* bias, Real* y, int64_t n, int64_t k);
  void (*vector_matrix)(const Real* dy, const Real* w, Real* dx, int64_t n, int64_t k);
  void (*axpy)(const Real* x, Real* y, int64_t n, Real factor);  // y += factor x
  // y (rows, columns) += a (rows, depth) b (depth, columns), in order of depth. Rows of b and y are kTile apart and may
  // be read and written up to their ends beyond `columns`, which is at most kTile; a lies as told.
  static constexpr int64_t kTile = 64;
  struct Product {
    const Real* a;
    int64_t a_row, a_column;
    const Real* b;
    Real* y;
    int64_t rows, depth, columns = kTile;
  };
  void (*add_products)(const Product& p);

  // Batch normalisation of elements E. `stride` is the distance of rows, each of `lanes` channels.
  //   moments: sums of a contiguous array / of rows per lane: sum and sum of squares of (x - shift)
  //   grad_sums: sum g and sum g (x - mean), g = dy, or dy where (x - mean) scale + beta > 0 if `relu`
  //   normalize: y = (x - mean) scale + beta [, max 0]
  //   grad_input: dx = scale g + b (x - mean) + c; where b is 0, as of statistics that are given, any x may be there
  // Contiguous arrays belong to one channel and take the constants of `c`; rows take one per lane.
  struct Channel {
    Real mean, scale, beta, b, c;
  };
  struct Channels {
    const Real *mean, *scale, *beta, *b, *c;
  };
  template <class E>
  struct ChannelLoops {
    void (*moments)(const E* x, int64_t n, Real shift, double* sums);
    void (*moments_rows)(const E* x, int64_t rows, int64_t stride, int64_t lanes, const Real* shift, double* sum,
                         double* square);
    void (*grad_sums)(const E* dy, const E* x, int64_t n, const Channel& c, bool relu, double* sums);
    void (*grad_sums_rows)(const E* dy, const E* x, int64_t rows, int64_t stride, int64_t lanes, const Channels& c,
                           bool relu, double* sum, double* product);
    void (*normalize)(const E* x, E* y, int64_t n, const Channel& c, bool relu);
    void (*normalize_rows)(const E* x, E* y, int64_t rows, int64_t lanes, const Channels& c, bool relu);
    void (*grad_input)(const E* dy, const E* x, E* dx, int64_t n, const Channel& c, bool relu);
    void (*grad_input_rows)(const E* dy, const E* x, E* dx, int64_t rows, int64_t lanes, const Channels& c, bool relu);
  };
  ChannelLoops<Real> channels;
  ChannelLoops<bfloat16> bfloat16_channels;  // of floats only
  template <class E>
  const ChannelLoops<E>& ChannelsOf() const {
    if constexpr (std::is_same_v<E, bfloat16>) return bfloat16_channels;
    if constexpr (std::is_same_v<E, Real>) return channels;
  }

  // Normalisation of a group with parameters by position. affine: y = (x - mean) scale gamma + beta; affine_sums: sum g
  // and sum g (x - mean), g = dy gamma; affine_grad: dx = scale g + b (x - mean) + c, and to dgamma and dbeta are added
  // dy (x - mean) scale and dy.
  void (*affine)(const Real* x, const Real* gamma, const Real* beta, Real* y, int64_t n, Real mean, Real scale);
  void (*affine_sums)(const Real* dy, const Real* x, const Real* gamma, int64_t n, Real mean, double* sums);
  void (*affine_grad)(const Real* dy, const Real* x, const Real* gamma, Real* dx, int64_t n, const Channel& c,
                      Real* dgamma, Real* dbeta);

  // The decisions of elements [first, first + n) of one sample, `first` a multiple of 4; see dropout.cc.
  void (*dropout_mask)(const DropoutKey& key, int64_t first, int64_t n, uint32_t threshold, uint8_t* mask);
  void (*masked_scale)(const Real* x, const uint8_t* mask, Real* y, int64_t n, Real factor);  // y = x mask factor

  // Pooling, see PoolRow. Gradients add to dx; of windows that are disjoint they are written there.
  void (*max_pool)(const PoolRow& row, const Real* x, Real* y,
                   uint8_t* index);  // index: number of the winner; may be null
  void (*max_pool_wide)(const PoolRow& row, const Real* x, Real* y, int32_t* index);
  void (*max_pool_grad)(const PoolRow& row, const Real* dy, const uint8_t* index, Real* dx);
  void (*max_pool_grad_wide)(const PoolRow& row, const Real* dy, const int32_t* index, Real* dx);
  void (*average_pool)(const PoolRow& row, const Real* x, Real* y, Real scale);
  void (*average_pool_grad)(const PoolRow& row, const Real* dy, Real* dx, Real scale);

  // A direct convolution, null for doubles: y = bias + addend + the sum of x w over the taps, of all windows, `rows` x
  // `places` of them, that have these taps, for `vectors` vectors, 1 to 3, of output channels. `runs`: where the first
  // window's taps lie in x and in w, there w_step from each other; `columns`, w_vectors and y_vectors: where vectors
  // begin in `bias`, in w, in y and in `addend`, which lies as y and may be y. Both may be null.
  struct WindowSums {
    const Real *x, *w, *bias, *addend;
    Real* y;
    int64_t rows, x_row, y_row;
    int64_t places, x_step, y_step;
    const TapRun* runs;
    int64_t run_count, w_step;
    int64_t vectors;
    const int32_t *columns, *w_vectors, *y_vectors;
  };
  void (*convolve)(const WindowSums& p);
  // Of a direct convolution, the gradient of weights, null for doubles: to row numbers[t] of `sums`, of `vectors`
  // vectors, 1 to 3, of output channels, is added that of tap t, the sum of x dy over all windows, `samples` x `rows` x
  // `places` of them, that have these `taps`. x_taps: where tap t of the first window lies in x; y_vectors: where
  // vectors begin in dy.
  struct WindowGradients {
    const Real *x, *dy;
    int64_t samples, x_sample, y_sample;
    int64_t rows, x_row, y_row;
    int64_t places, x_step, y_step;
    int64_t taps;
    const int32_t *x_taps, *numbers;
    int64_t vectors;
    const int32_t* y_vectors;
    Real* sums;
    int64_t sums_step;
    Real* bias_sums;  // to which dy is added; may be null
  };
  void (*convolve_grad)(const WindowGradients& p);

  // One step of a recurrent cell for one sample, n hidden units: x of the data and `product` of the state before make
  // the gates, which are clipped to [-clip, clip] before their functions; see symbol/ops/recurrent.h. Gates of an LSTM
  // are in the order i, f, g, o, those of a GRU r, z, n; `saved` (the first null: not wanted) keeps them. Peepholes, i,
  // f, o, may be null.
  struct Lstm {
    std::array<const Real*, 4> x, product;
    std::array<const Real*, 3> peephole;
    const Real* cell;
    Real clip;
    bool coupled;
    std::array<Real*, 4> saved;
    Real *next_cell, *output;
  };
  // What clipped gates are at most and at least, of the type that they were saved in: such get no gradient. NaN: any
  // may have one.
  struct GateEnds {
    Real low, high;
  };
  // dc is that of the cell after the step and becomes that of the cell before it.
  struct LstmGrad {
    std::array<const Real*, 4> saved;
    std::array<const Real*, 3> peephole;
    const Real *cell, *dh;
    GateEnds sigmoids, tanhs;
    bool coupled;
    std::array<Real*, 4> dx;
    Real* dc;
  };
  // Where the gates r and z are ready, they are in `product`, the third of which is that of r times the state; else it
  // is the state's and times r. saved[3] is that factor of n's weights, or that product.
  struct Gru {
    std::array<const Real*, 3> x, product;
    const Real* before;  // the state
    Real clip;
    bool gates_are_ready;
    std::array<Real*, 4> saved;
    Real* output;
  };
  // dh becomes the part of the gradient of the state before that goes through no weights. Without `d_product`, the
  // gradient of product[2], that of r remains to be found.
  struct GruGrad {
    std::array<const Real*, 4> saved;
    const Real* before;
    GateEnds sigmoids, tanhs;
    std::array<Real*, 3> dx;
    Real *d_product, *dh;
  };
  void (*lstm)(const Lstm& step, int64_t n);
  void (*lstm_grad)(const LstmGrad& step, int64_t n);
  void (*gru)(const Gru& step, int64_t n);
  void (*gru_grad)(const GruGrad& step, int64_t n);

  // Winograd's convolution of 3 x 3 weights, stride 1: tiles of m x m results of each channel, m = 2 or 4, from n x n
  // data, n = m + 2, which overlap, by one product of matrices for each of n x n transformed places.
  //   data: a tile of all channels -> a row of channels at each place, `place` apart; zero beyond the plane
  //   weights: w (3, 3, vector) -> a vector at each place
  //   results: their products with data at all places -> a tile of y, plus bias and addend, which may be null
  struct WinogradTile {
    int64_t first_row, last_row, first_column, last_column;  // what of the tile lies in the plane
    int64_t row, column;                                     // of the plane: steps
    int64_t channels, block, block_step;                     // see Channels of direct_windows.h
    int64_t place;
  };
  struct Winograd {
    void (*data)(const WinogradTile& tile, const Real* x, Real* to);
    void (*weights)(const Real* w, Real* to, int64_t place);
    void (*results)(const WinogradTile& tile, const Real* from, const Real* bias, const Real* addend, Real* y);
  };
  Winograd winograd_2, winograd_4;

  // y (rows, columns) = begin + a (rows, depth) b (depth, columns), in order of depth, for one or two vectors of
  // columns, which are all of b: sums stay in registers. `begin` may be null, which is zero, or y itself.
  struct Strip {
    const Real* a;
    int64_t a_row;
    const Real* b;
    Real* y;
    int64_t y_row;
    int64_t rows, depth, vectors;
    const Real* begin = nullptr;
    int64_t begin_row = 0;
  };
  void (*multiply_strip)(const Strip& p);

  // y (rows, columns) = a^T b, of a (depth, rows) and b (depth, columns), in order of depth: sums stay in registers.
  struct Transposed {
    const Real* a;
    int64_t a_row;
    const Real* b;
    int64_t b_row;
    Real* y;
    int64_t y_row;
    int64_t rows, depth, vectors;
  };
  void (*multiply_transposed)(const Transposed& p);
};

using Loops = LoopsOf<float>;

struct LoopSet {
  LoopsOf<float> floats;
  LoopsOf<double> doubles;
  IntegerLoops integers;
};
const LoopSet& BestLoopSet();
const IntegerLoops& BestIntegers();
template <class Real = float>
const LoopsOf<Real>& BestLoops() {
  if constexpr (std::is_same_v<Real, double>) return BestLoopSet().doubles;
  if constexpr (std::is_same_v<Real, float>) return BestLoopSet().floats;
}

const LoopSet& BaselineLoops();
const LoopSet& Avx2Loops();
const LoopSet& Avx512Loops();
const IntegerLoops& VnniIntegers();

}  // namespace bindery::cpu
