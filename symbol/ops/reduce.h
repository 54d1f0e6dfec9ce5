// Reductions over axes: Sum, Mean, Max.  And Dot, the product of matrices.
#pragma once

#include "symbol/op_def.h"

namespace bindery {

struct ReduceAttrs {
  std::vector<int64_t> axes = {};  // empty: all
  bool keepdims = false;           // keep reduced axes with extent 1
  bool exclude = false;            // reduce all axes but the given
  static constexpr auto Fields() {
    using A = ReduceAttrs;
    return std::tuple{Field{"axes", &A::axes, "axes to reduce; empty: all"},
                      Field{"keepdims", &A::keepdims, "keep them with extent 1"},
                      Field{"exclude", &A::exclude, "reduce all others"}};
  }
};
// No axes left gives shape (), a scalar. The mean of nothing is NaN, the sum 0; the maximum of nothing is an error.
const OpDef& SumOp();
inline constexpr OpFunction<ReduceAttrs> Sum{SumOp};
const OpDef& MeanOp();
inline constexpr OpFunction<ReduceAttrs> Mean{MeanOp};
const OpDef& MaxOp();
inline constexpr OpFunction<ReduceAttrs> Max{MaxOp};
// Which axes of a data shape are reduced, as a bit mask; throws ShapeError.
uint32_t ReducedAxes(const ReduceAttrs& attrs, const Shape& data);

struct DotAttrs {
  bool transpose_a = false, transpose_b = false;
  static constexpr auto Fields() {
    return std::tuple{Field{"transpose_a", &DotAttrs::transpose_a, "use a^T"},
                      Field{"transpose_b", &DotAttrs::transpose_b, "use b^T"}};
  }
};
// (M, K) x (K, N) -> (M, N); (K) x (K) -> (1). Of two vectors the first is a row and the second a column, and a
// transposed one is the other; so (1) x (K)^T -> (K) and (K)^T x (1) -> (K), which are the inner product's gradients.
// Both transposed would be an outer product: refused.
const OpDef& DotOp();
inline constexpr OpFunction<DotAttrs, 2> Dot{DotOp};
// op(a) is (m, k) and op(b) is (k, n), of vectors too: all that a kernel needs. Throws ShapeError if they do not fit.
struct DotSizes {
  int64_t m, k, n;
};
DotSizes ProductSizes(const DotAttrs& attrs, const Shape& a, const Shape& b);

}  // namespace bindery
