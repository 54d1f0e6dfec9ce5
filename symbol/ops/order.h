// The order of elements along an axis: TopK, Sort, ArgSort; what is accumulated along one: CumSum, CumProd; and Trilu.
#pragma once

#include "symbol/op_def.h"

namespace bindery {

struct TopKAttrs {
  int64_t k = 0;  // how many; 0: all
  int64_t axis = -1;
  bool largest = true;  // else the smallest
  bool sorted = true;   // else in any order
  DType dtype = DType::kInt64;
  static FieldList Fields() {
    using A = TopKAttrs;
    return {{"k", &A::k, "how many; 0: all"},
            {"axis", &A::axis, "axis along which they are sought"},
            {"largest", &A::largest, "the largest, or the smallest"},
            {"sorted", &A::sorted, "the first first"},
            {"dtype", &A::dtype, "element type of the indices"}};
  }
};
// data -> values, indices, both with k along the axis: the largest (smallest) first, of equal ones the first. A NaN is
// larger than any number.
const OpDef& TopKOp();
inline constexpr OpFunction<TopKAttrs> TopK{TopKOp};

struct SortAttrs {
  int64_t axis = -1;
  bool descending = false;
};
// The values, and the indices, of TopK of all.
Symbol Sort(const Symbol& data, const SortAttrs& attrs = {}, const std::string& name = {});
Symbol ArgSort(const Symbol& data, const SortAttrs& attrs = {}, const std::string& name = {});

struct ScanAttrs {
  int64_t axis = 0;
  bool exclusive = false;  // without the element itself
  bool reverse = false;    // from the last to the first
  static FieldList Fields() {
    using A = ScanAttrs;
    return {{"axis", &A::axis, "axis along which elements are accumulated"},
            {"exclusive", &A::exclusive, "without the element itself"},
            {"reverse", &A::reverse, "from the last to the first"}};
  }
};
// y_k = x_0 + ... + x_k along the axis, or their product; in double, of integers in 64 bits.
const OpDef& CumSumOp();
inline constexpr OpFunction<ScanAttrs> CumSum{CumSumOp};
const OpDef& CumProdOp();
inline constexpr OpFunction<ScanAttrs> CumProd{CumProdOp};
// (output gradient, data) -> data gradient, of zeros, too: dx_k = p_k s_k with p_k = x_0 ... x_(k-1) and
//   s_k = dy_k + x_(k+1) s_(k+1), or exclusive dy_(k+1) + x_(k+1) s_(k+1)
const OpDef& CumProdGradOp();
inline constexpr OpFunction<ScanAttrs, 2> CumProdGrad{CumProdGradOp};

struct TriluAttrs {
  int64_t k = 0;  // diagonals: above the main one if positive
  bool upper = true;
  static FieldList Fields() {
    return {{"k", &TriluAttrs::k, "the diagonal, above the main one if positive"},
            {"upper", &TriluAttrs::upper, "keep what is above it, or below"}};
  }
};
// Matrices (..., M, N) with zeros below (above) diagonal k: element (i, j) stays if j - i >= k (<= k).
const OpDef& TriluOp();
inline constexpr OpFunction<TriluAttrs> Trilu{TriluOp};

}  // namespace bindery
