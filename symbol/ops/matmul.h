// Products of many matrices at once, as NumPy's matmul; Dot, of two matrices or two vectors; and Gemm, which scales and
// adds.
#pragma once

#include <vector>

#include "symbol/op_def.h"
#include "symbol/ops/elementwise.h"

namespace bindery {

struct MatMulAttrs {
  bool transpose_a = false, transpose_b = false;
  static FieldList Fields() {
    return {{"transpose_a", &MatMulAttrs::transpose_a, "use a^T, of the last two axes"},
            {"transpose_b", &MatMulAttrs::transpose_b, "use b^T, of the last two axes"}};
  }
};

// (..., M, K) x (..., K, N) -> (..., M, N): the axes before the last two stretch as those of element-wise operands do.
// A vector as `a` is a row and as `b` a column, whose axis is gone from the output; it cannot be transposed. A batch
// stays unless it is along K.
const OpDef& MatMulOp();
inline constexpr OpFunction<MatMulAttrs, 2> MatMul{MatMulOp};

// (M, K) x (K, N) -> (M, N), MatMul's; (K) x (K) -> (1). Of two vectors the first is a row and the second a column, and
// a transposed one is the other; so (1) x (K)^T -> (K) and (K)^T x (1) -> (K). Both transposed would be an outer
// product: refused.
using DotAttrs = MatMulAttrs;
const OpDef& DotOp();
inline constexpr OpFunction<DotAttrs, 2> Dot{DotOp};

struct GemmAttrs {
  double alpha = 1, beta = 1;
  bool transpose_a = false, transpose_b = false;
};
// alpha op(a) op(b) + beta c, as BLAS and ONNX have it; c, which stretches to the product's shape, may be empty.
Symbol Gemm(const Symbol& a, const Symbol& b, const Symbol& c, const GemmAttrs& attrs = {},
            const std::string& name = {});

// All that a kernel needs: op(a) (m, k) times op(b) (k, n), for each index of a batch. Throws ShapeError if the
// operands do not fit.
struct MatMulAxis {
  int64_t extent, a, b;  // and how far the operands' next matrices are, in elements; 0: the same again
};
struct MatMulForm {
  int64_t m, n, k;
  std::vector<MatMulAxis> batch;
};
MatMulForm FormOf(const MatMulAttrs& attrs, const Shape& a, const Shape& b);

}  // namespace bindery
