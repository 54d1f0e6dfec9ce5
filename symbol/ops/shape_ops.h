// Operators that only move elements: Identity, Flatten, Reshape, Transpose, Concat, Slice, SliceChannel, Cast.
#pragma once

#include "symbol/op_def.h"

namespace bindery {

Symbol Identity(const Symbol& data, const std::string& name = {});
Symbol Flatten(const Symbol& data, const std::string& name = {});  // (N, ...) -> (N, K)

struct ReshapeAttrs {
  std::vector<int64_t> shape = {};  // 0: the input's extent at this position; -1 (once): what remains
  static constexpr auto Fields() {
    return std::tuple{Field{"shape", &ReshapeAttrs::shape, "0 keeps an extent, -1 takes the rest"}};
  }
  bool operator==(const ReshapeAttrs&) const = default;
};
Symbol Reshape(const Symbol& data, const ReshapeAttrs& attrs, const std::string& name = {});

struct TransposeAttrs {
  std::vector<int64_t> axes = {};  // output axis i is input axis axes[i]; empty: reversed
  static constexpr auto Fields() {
    return std::tuple{Field{"axes", &TransposeAttrs::axes, "permutation; empty reverses"}};
  }
  bool operator==(const TransposeAttrs&) const = default;
};
Symbol Transpose(const Symbol& data, const TransposeAttrs& attrs = {}, const std::string& name = {});

struct ConcatAttrs {
  int64_t axis = 1;
  int64_t num_args = 0;  // in ConcatGrad alone: the number of its outputs
  static constexpr auto Fields() {
    return std::tuple{Field{"axis", &ConcatAttrs::axis, "axis along which inputs are joined"},
                      Field{"num_args", &ConcatAttrs::num_args, "arguments, in ConcatGrad alone"}};
  }
  bool operator==(const ConcatAttrs&) const = default;
};
Symbol Concat(std::span<const Symbol> inputs, const ConcatAttrs& attrs = {}, const std::string& name = {});
Symbol Concat(std::initializer_list<Symbol> inputs, const ConcatAttrs& attrs = {}, const std::string& name = {});

struct SliceAttrs {
  // Per entry i, of axis axes[i] (empty axes: 0, 1, ...): indices begin[i], begin[i] + step[i], ... before end[i].
  // Negative begin/end count from the end; they are clamped to the extent; kSliceEnd as end means "to the end".
  std::vector<int64_t> begin = {}, end = {}, step = {}, axes = {};  // step empty: 1
  static constexpr auto Fields() {
    using A = SliceAttrs;
    return std::tuple{Field{"begin", &A::begin, "first index per axis"}, Field{"end", &A::end, "index after the last"},
                      Field{"step", &A::step, "default 1; negative goes backward"},
                      Field{"axes", &A::axes, "default 0, 1, ..."}};
  }
  bool operator==(const SliceAttrs&) const = default;
};
inline constexpr int64_t kSliceEnd = INT64_MAX;
Symbol Slice(const Symbol& data, const SliceAttrs& attrs, const std::string& name = {});
// Resolved, per axis of `data`: first index, step, number of indices.
struct SliceRange {
  int64_t begin, step, count;
};
std::vector<SliceRange> SliceRanges(const SliceAttrs& attrs, const Shape& data);  // throws ShapeError

struct SliceChannelAttrs {
  int64_t num_outputs = 1;
  int64_t axis = 1;
  bool squeeze_axis = false;  // drop the axis (its extent must equal num_outputs)
  static constexpr auto Fields() {
    using A = SliceChannelAttrs;
    return std::tuple{Field{"num_outputs", &A::num_outputs, "equal parts"}, Field{"axis", &A::axis, "axis that is cut"},
                      Field{"squeeze_axis", &A::squeeze_axis, "drop the axis"}};
  }
  bool operator==(const SliceChannelAttrs&) const = default;
};
Symbol SliceChannel(const Symbol& data, const SliceChannelAttrs& attrs,
                    const std::string& name = {});  // num_outputs outputs

struct CastAttrs {
  DType dtype = DType::kFloat32;
  static constexpr auto Fields() { return std::tuple{Field{"dtype", &CastAttrs::dtype, "element type of the output"}}; }
  bool operator==(const CastAttrs&) const = default;
};
Symbol Cast(const Symbol& data, const CastAttrs& attrs, const std::string& name = {});

const OpDef& IdentityOp();
const OpDef& FlattenOp();
const OpDef& ReshapeOp();
const OpDef& TransposeOp();
const OpDef& ConcatOp();  // arg0, arg1, ... -> output
const OpDef& SliceOp();
const OpDef& SliceChannelOp();  // data -> output0, output1, ...
const OpDef& CastOp();
const OpDef& ReshapeLikeOp();  // (data, like: shape only) -> data with like's shape; a view
const OpDef& ConcatGradOp();   // (output gradient, arg0: shape only, ...) -> one gradient per argument; ConcatAttrs
const OpDef& SliceGradOp();  // (output gradient, data: shape only) -> data's shape, zero outside the slice; SliceAttrs
const OpDef& SliceChannelGradOp();  // (gradient of output0, ...) -> data gradient; SliceChannelAttrs
const OpDef& CastLikeOp();          // (data, like: shape only) -> data with like's dtype

}  // namespace bindery
