// What metrics and checks are made of (Pick is in indexing.h): which element along an axis, and what is to be told of all elements of a tensor.
// None has a gradient.
#pragma once

#include <limits>

#include "symbol/op_def.h"

namespace bindery {

struct PlaceAttrs {
  int64_t axis = 1;
  static FieldList Fields() { return {{"axis", &PlaceAttrs::axis, "axis along which elements are counted"}}; }
};
struct ArgAttrs {
  int64_t axis = 1;
  bool keepdims = false;
  bool select_last_index = false;  // of equal elements
  static FieldList Fields() {
    using A = ArgAttrs;
    return {{"axis", &A::axis, "axis along which elements are counted"},
            {"keepdims", &A::keepdims, "keep it with extent 1"},
            {"select_last_index", &A::select_last_index, "of equal elements the last, not the first"}};
  }
};
// The place of the first of the largest (smallest) elements, int64; a NaN is larger (smaller) than any number.
const OpDef& ArgMaxOp();
inline constexpr OpFunction<ArgAttrs> ArgMax{ArgMaxOp};
const OpDef& ArgMinOp();
inline constexpr OpFunction<ArgAttrs> ArgMin{ArgMinOp};
// The axis is gone from the output, of int64. `place` has the output's shape and any type.
// How many elements come before the one at a place when the largest come first, and of equal ones the first. All,
// where that is none or an element is NaN.
const OpDef& RankOfOp();
inline constexpr OpFunction<PlaceAttrs, 2> RankOf{RankOfOp};

// All elements as an ExactSum (base/exact_sum.h): its pieces (3), float64.
const OpDef& SumExactlyOp();
inline constexpr OpFunction<NoAttrs> SumExactly{SumExactlyOp};

struct FirstOutsideAttrs {
  double low = std::numeric_limits<double>::lowest(), high = std::numeric_limits<double>::max();  // what is finite
  bool whole = false;       // only whole numbers are inside
  bool use_ignore = false;  // and this one
  double ignore = -1;
  static FieldList Fields() {
    using A = FirstOutsideAttrs;
    return {{"low", &A::low, "the least"},
            {"high", &A::high, "the most"},
            {"whole", &A::whole, "only whole numbers"},
            {"use_ignore", &A::use_ignore, "let `ignore` pass"},
            {"ignore", &A::ignore, "a number that passes"}};
  }
};
// The first element, in C order, that is not from `low` to `high`: its place and value (2), float64; or -1 and 0.
const OpDef& FirstOutsideOp();
inline constexpr OpFunction<FirstOutsideAttrs> FirstOutside{FirstOutsideOp};

}  // namespace bindery
