// Products of matrices: one form for everything that multiplies, with bias and activation as epilogue.
//
// float32 is oneDNN's, where oneDNN can, and bfloat16 on CPUs with units for it; the rest is multiplied here, tile by
// tile: integers in 64 bits, which wrap around. Sums here are taken in order of k, whatever the number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "executor/kernels/cpu/accumulator.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/activation.h"
#include "symbol/ops/matmul.h"

namespace bindery::cpu {

// An input of a kernel seen as a matrix, or as several: how far the next row and the next column are, in elements.
struct GemmOperand {
  int input;
  int64_t row, column;
  // Columns may go on elsewhere after so many.
  int64_t split = std::numeric_limits<int64_t>::max(), next_part = 0;
};

struct GemmSpec {
  int64_t m, n, k;
  GemmOperand a = {}, b = {};                         // (m, k) and (k, n)
  int bias = -1;                                      // an input; -1: none
  ActivationType activation = ActivationType::kNone;  // of the result
  std::vector<MatMulAxis> batch = {};                 // the products are one after another in output 0, each row by row
  bool bias_of_rows = false;  // of all rows of the products along the last axis of the batch; else of columns
  int64_t products() const {
    int64_t count = 1;
    for (const MatMulAxis& axis : batch) count *= axis.extent;
    return count;
  }
  double work() const {
    return static_cast<double>(products()) * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

// Output 0 = activation(a b + bias). nullopt for other 16-bit floats, and for integers with an activation.
MaybeKernel Gemm(const KernelSpec& spec, const GemmSpec& gemm);

// The same by our own loops, for a `b` that no strides describe.
inline constexpr int64_t kGemmTile = 64;
struct TilePart {
  int64_t product, row, rows, column, columns;
};
// Copies a part of a matrix into a tile, whose rows are kGemmTile elements long.
template <class T>
using TileLoader = std::function<void(const Arguments&, const TilePart&, Accumulator<T>* tile)>;
template <class T>
MaybeKernel OwnGemm(const KernelSpec& spec, const GemmSpec& gemm, TileLoader<T> load_b);

// f.operator()<T>() for types that OwnGemm has.
template <class F>
MaybeKernel OfGemmTypes(DType dtype, const F& f) {
  return Dispatch(dtype, [&]<class T>() -> MaybeKernel {
    if constexpr (std::is_arithmetic_v<T>) return f.template operator()<T>();
    return std::nullopt;
  });
}

}  // namespace bindery::cpu
