// Flat loops over float arrays, in the widest vectors that this processor has.
//
// The same source, loops_body.h, is compiled three times (loops_baseline.cc, loops_avx2.cc, loops_avx512.cc);
// BestLoops() picks one table at run time, once, by what oneDNN may use (BINDERY_MAX_ISA and ONEDNN_MAX_CPU_ISA limit
// both). Every function is serial: parts of a team's loop call it. Unless told otherwise x and y may be the same array
// but must not overlap otherwise.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "executor/kernels/native_functions.h"

namespace bindery::cpu {

struct Loops {
  // y = f(x) and y = f(a, b), in the order of the lists in executor/kernels/functions.h. Gradients take (dy, y).
  using UnaryLoop = void (*)(const float* x, float* y, int64_t n);
  using BinaryLoop = void (*)(const float* a, const float* b, float* y, int64_t n);

  const char* name;  // "avx2"
  std::array<UnaryLoop, native::UnaryFunctions::kSize> unary;
  std::array<UnaryLoop, native::ActivationFunctions::kSize> activation;
  std::array<BinaryLoop, native::BinaryFunctions::kSize> binary;
  std::array<BinaryLoop, native::ActivationGradFunctions::kSize> activation_grad;
  // With b[0] (a[0]) in place of every b (a).
  std::array<BinaryLoop, native::BinaryFunctions::kSize> binary_scalar_b, binary_scalar_a;

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

  void (*add_relu_grad)(const float* g0, const float* g1, const float* y, float* dx, int64_t n);  // (g0 + g1) [y > 0]
  void (*add_to)(const float* x, double* sums, int64_t n);                                        // sums += x
  void (*max_to)(const float* x, float* y, int64_t n);                                            // y = max(y, x)
  void (*scale)(const float* x, float* y, int64_t n, float factor);
  double (*sum)(const float* x, int64_t n);
  float (*max)(const float* x, int64_t n);  // n >= 1; NaN if there is one
  double (*dot)(const float* a, const float* b, int64_t n);

  // Softmax over each of some rows, and over one its gradient: y_i (dy_i - sum_j dy_j y_j) * factor.
  // `inverse_temperature` scales x.
  void (*softmax)(const float* x, float* y, int64_t rows, int64_t n, float inverse_temperature);
  void (*softmax_grad)(const float* dy, const float* y, float* dx, int64_t n, float factor);
  // Over the middle axis of (n, inner), `inner` columns at once: every element of a column is `stride` further on.
  void (*softmax_columns)(const float* x, float* y, int64_t n, int64_t stride, int64_t inner,
                          float inverse_temperature);
  void (*softmax_grad_columns)(const float* dy, const float* y, float* dx, int64_t n, int64_t stride, int64_t inner,
                               float factor);

  // y[0..n) = w x for w (n, k), and dx[0..k) = dy w; each row of w is read once. `bias` may be null.
  void (*matrix_vector)(const float* w, const float* x, const float* bias, float* y, int64_t n, int64_t k);
  void (*vector_matrix)(const float* dy, const float* w, float* dx, int64_t n, int64_t k);
  void (*axpy)(const float* x, float* y, int64_t n, float factor);  // y += factor x

  // Batch normalisation. `stride` is the distance of rows, each of `lanes` channels.
  //   moments: sums of a contiguous array / of rows per lane: sum and sum of squares of (x - shift)
  //   grad_sums: sum g and sum g (x - mean), g = dy, or dy where (x - mean) scale + beta > 0 if `relu`
  //   normalize: y = (x - mean) scale + beta [, max 0]
  //   grad_input: dx = scale g + b (x - mean) + c
  // Contiguous arrays belong to one channel and take the constants of `c`; rows take one per lane.
  struct Channel {
    float mean, scale, beta, b, c;
  };
  struct Channels {
    const float *mean, *scale, *beta, *b, *c;
  };
  void (*moments)(const float* x, int64_t n, float shift, double* sums);
  void (*moments_rows)(const float* x, int64_t rows, int64_t stride, int64_t lanes, const float* shift, double* sum,
                       double* square);
  void (*grad_sums)(const float* dy, const float* x, int64_t n, const Channel& c, bool relu, double* sums);
  void (*grad_sums_rows)(const float* dy, const float* x, int64_t rows, int64_t stride, int64_t lanes,
                         const Channels& c, bool relu, double* sum, double* product);
  void (*normalize)(const float* x, float* y, int64_t n, const Channel& c, bool relu);
  void (*normalize_rows)(const float* x, float* y, int64_t rows, int64_t lanes, const Channels& c, bool relu);
  void (*grad_input)(const float* dy, const float* x, float* dx, int64_t n, const Channel& c, bool relu);
  void (*grad_input_rows)(const float* dy, const float* x, float* dx, int64_t rows, int64_t lanes, const Channels& c,
                          bool relu);

  // Dropout, see dropout.cc: the decisions of elements [first, first + n) of one sample, `first` a multiple of 4.
  struct DropoutKey {
    uint32_t k0, k1, c1, c2, c3;
  };
  void (*dropout_mask)(const DropoutKey& key, int64_t first, int64_t n, uint32_t threshold, uint8_t* mask);
  void (*masked_scale)(const float* x, const uint8_t* mask, float* y, int64_t n, float factor);  // y = x mask factor

  // Pooling of `outputs` neighbours along a row, each of `lanes` values; the next one's window begins `step` further on
  // in x. `offsets` are where the window's `count` taps lie in x, `taps` their numbers. Gradients add to dx.
  struct PoolRow {
    int64_t outputs, lanes, step, count;
    const int64_t* offsets;
    const int32_t* taps;
  };
  void (*max_pool)(const PoolRow& row, const float* x, float* y,
                   uint8_t* index);  // index: number of the winner; may be null
  void (*max_pool_wide)(const PoolRow& row, const float* x, float* y, int32_t* index);
  void (*max_pool_grad)(const PoolRow& row, const float* dy, const uint8_t* index, float* dx);
  void (*max_pool_grad_wide)(const PoolRow& row, const float* dy, const int32_t* index, float* dx);
  void (*average_pool)(const PoolRow& row, const float* x, float* y, float scale);
  void (*average_pool_grad)(const PoolRow& row, const float* dy, float* dx, float scale);
};

const Loops& BestLoops();

const Loops& BaselineLoops();
const Loops& Avx2Loops();
const Loops& Avx512Loops();

}  // namespace bindery::cpu
