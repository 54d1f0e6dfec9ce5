// What kernels of products of matrices and of patches, and pooling are launched with (args.h).
#pragma once

#include <tuple>

#include "executor/kernels/cuda/args.h"

extern "C" const unsigned long long bindery_cuda_product[];

namespace bindery::cuda {

// What slides over up to three axes of a sample (channels, in...): window p of (out...) has tap k at p stride - pad +
// k dilate. Missing axes have extent 1.
struct Slide {
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1};
  int64_t stride[3] = {1, 1, 1}, dilate[3] = {1, 1, 1}, pad[3] = {};
  int64_t inputs = 1, outputs = 1, taps = 1;  // their products
  Divisor per_in[3] = {}, per_out[3] = {}, per_kernel[3] = {}, per_stride[3] = {};
  Divisor per_inputs = {}, per_outputs = {}, per_taps = {};
};

// How element (row, column) of a matrix is found.
enum class Form : int32_t {
  kPlain,      // row * row_stride + column / period * period_stride + column % period * column_stride
  kPatches,    // row (channel, tap), column (sample, output): the input that the tap meets, or 0
  kPositions,  // its transpose
  kMet,        // row (channel, tap), column (sample, input): the output of the channel whose tap meets it, or 0
};
struct Matrix {
  Source source = {};
  Form form = {};
  int64_t row_stride = 0, column_stride = 1, period_stride = 0;
  Divisor period = Divisor(INT64_MAX);
  int64_t sample_stride = 0;  // of the slides' tensor
};

// c (m, n) = f(a (m, k) b (k, n) + bias + addend) for each index of a grid of products. 256 threads a block.
//
// A sum of many products is taken by parts, so that its error does not grow with k: in a thread by kFold steps, and where
// there are too few tiles for a GPU, by `splits` of split_k each, which different blocks put into `partial` (splits,
// products, m, n) and ProductEndArgs adds, in order.
struct ProductArgs {
  static constexpr const char* kName = "bindery_product";
  static constexpr const unsigned long long* kImage = bindery_cuda_product;
  static constexpr int kThreads = 256, kTile = 64, kStep = 16, kOwn = 4;  // kOwn^2 elements a thread
  static constexpr int kFold = 16;
  int64_t m = 0, n = 0, k = 0;
  Grid products = {};
  Strides a_strides = {}, b_strides = {}, c_strides = {};
  Matrix a = {}, b = {};
  Matrix c = {};  // plain: where its elements go
  Target out = {};
  Source bias = {};
  int32_t bias_by_row = 0;  // of all products' rows, one after another; else by column
  Source addend = {};       // lies as `out` does
  int32_t activation = -1;  // its place in ActivationFunctions
  Slide slide = {};
  int32_t numbers = 0;  // integers: all in double, saturated
  int64_t splits = 1, split_k = 0;
  void* partial = nullptr;  // of what is computed with
  void Addresses(const auto& visit) { VisitIn(visit, a.source, b.source, bias, addend, out, partial); }
  constexpr int64_t tiles() const { return (m + kTile - 1) / kTile * ((n + kTile - 1) / kTile) * products.n; }
  constexpr int64_t elements() const { return m * n * products.n; }
};
struct ProductEndArgs : ProductArgs {
  static constexpr const char* kName = "bindery_product_end";
};

// Pooling of planes: x -> y [, where in its plane the largest is]; or (dy [, that]) -> dx.
struct PoolArgs {
  static constexpr const char* kName = "bindery_pool";
  static constexpr const unsigned long long* kImage = bindery_cuda_product;
  int32_t max = 0, grad = 0, count_padding = 0;
  Slide slide = {};
  int64_t padded[3] = {1, 1, 1};  // where the padding at the end ends
  int64_t n = 0;                  // elements of the output
  Source in = {};
  Target out = {};
  int32_t* winners = nullptr;
  void Addresses(const auto& visit) { VisitIn(visit, in, out, winners); }
};

using ProductImage = std::tuple<ProductArgs, ProductEndArgs, PoolArgs>;

}  // namespace bindery::cuda
