// Shapes as tensors, and operators whose attributes are numbers in tensors: an exported network computes shapes like
// data, x.view(x.size(0), -1). All such numbers are known when a graph is bound, as long as they follow from constants
// and from shapes (OpDef::numbers); nothing of it is left in what is bound. On several devices each sees the shapes of
// its share of the batch, and what follows the batch follows each share; so the extent of the batch can be a shape there,
// but not data: a sum divided by it would be another on each number of devices. That is refused.
#pragma once

#include <initializer_list>
#include <string_view>

#include "symbol/op_def.h"

namespace bindery {

struct ShapeArrayAttrs {
  int64_t begin = 0, end = INT64_MAX;  // of the axes: as in Slice, negative ones count from the end, clamped
  static FieldList Fields() {
    return {{"begin", &ShapeArrayAttrs::begin, "first axis"}, {"end", &ShapeArrayAttrs::end, "axis after the last"}};
  }
};
const OpDef& ShapeArrayOp();  // (axes), int64
inline constexpr OpFunction<ShapeArrayAttrs> ShapeArray{ShapeArrayOp};
const OpDef& SizeArrayOp();  // the number of elements: (), int64
inline constexpr OpFunction<NoAttrs> SizeArray{SizeArrayOp};
std::vector<int64_t> ListExtents(const ShapeArrayAttrs& attrs, const Shape& data);

// begin, begin + step, ... before end: (max(0, ceil((end - begin) / step))), each begin + i step in the output's type.
struct RangeAttrs {
  double begin = 0, end = 0, step = 1;
  DType dtype = DType::kFloat32;
  static FieldList Fields() {
    using A = RangeAttrs;
    return {{"begin", &A::begin, "the first number"},
            {"end", &A::end, "what is not reached"},
            {"step", &A::step, "from number to number; negative goes down"},
            {"dtype", &A::dtype, "element type of the output"}};
  }
};
Symbol Range(const RangeAttrs& attrs, const std::string& name = {});
const OpDef& RangeOp();  // no inputs
int64_t CountOf(const RangeAttrs& attrs);

// Operators that take attributes from inputs behind their own, in the order of `fields`; the attributes of these names
// are ignored. A list's is a tensor of one axis, a number's has one element.
struct ByNumbers {
  const char* name;      // "ReshapeBy"
  const OpDef& (*of)();  // what it is made of
  std::initializer_list<const char*> fields;
  void (*dtypes)(InferContext&) = nullptr;  // where outputs are not of input 0's type
};
// A row of the table in shape_of.cc by its operator's name; throws ModelError if there is none.
const OpDef& ByNumbersOp(std::string_view name);
std::span<const OpDef& (*const)()> ByNumbersOps();

// A function of such an operator: ReshapeBy({data, shape}, ReshapeAttrs{.allow_zero = true}).
struct ByNumbersFunction {
  const char* of;
  const OpDef& op() const { return ByNumbersOp(of); }
  Symbol operator()(std::vector<Symbol> inputs, const std::string& name = {}) const;  // default attributes
  Symbol operator()(std::vector<Symbol> inputs, AnyAttrs attrs, const std::string& name = {}) const {
    return Apply(op(), std::move(attrs), std::move(inputs), name);
  }
};
inline constexpr ByNumbersFunction ReshapeBy{"ReshapeBy"};              // data, shape
inline constexpr ByNumbersFunction BroadcastToBy{"BroadcastToBy"};      // data, shape
inline constexpr ByNumbersFunction SliceBy{"SliceBy"};                  // data, begin, end, axes, step
inline constexpr ByNumbersFunction PadBy{"PadBy"};                      // data, begin, end: of PadWith
inline constexpr ByNumbersFunction RangeBy{"RangeBy"};                  // begin, end, step
inline constexpr ByNumbersFunction ExpandDimsBy{"ExpandDimsBy"};        // data, axes
inline constexpr ByNumbersFunction SqueezeBy{"SqueezeBy"};              // data, axes
inline constexpr ByNumbersFunction ExpandBy{"ExpandBy"};                // data, shape
inline constexpr ByNumbersFunction TileBy{"TileBy"};                    // data, repeats
inline constexpr ByNumbersFunction SplitBy{"SplitBy"};                  // data, sizes
inline constexpr ByNumbersFunction CenterCropPadBy{"CenterCropPadBy"};  // data, shape
inline constexpr ByNumbersFunction TopKBy{"TopKBy"};                    // data, k
inline constexpr ByNumbersFunction OneHotBy{"OneHotBy"};                // indices, depth
inline constexpr ByNumbersFunction ResizeBy{"ResizeBy"};                // data, scales, sizes, roi: () where not given
inline constexpr ByNumbersFunction AffineGridBy{"AffineGridBy"};        // theta, sizes

}  // namespace bindery
