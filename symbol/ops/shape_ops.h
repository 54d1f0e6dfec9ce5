// Operators that only move elements: Identity, Flatten, Reshape, BroadcastTo, Transpose, Concat, Slice, Pad,
// SliceChannel, Cast; and SumTo, which undoes BroadcastTo.
//
// Extents and indices in their attributes may follow the batch: to entry i of a list `shape`, `begin` or `end` is added
// the batch's extent times entry i of `batches`, `begin_batches` or `end_batches`. Gradients use it, so that a graph
// with a gradient in fits every batch.
#pragma once

#include <optional>

#include "symbol/op_def.h"

namespace bindery {

const OpDef& IdentityOp();
inline constexpr OpFunction<NoAttrs> Identity{IdentityOp};
const OpDef& FlattenOp();  // (N, ...) -> (N, K)
inline constexpr OpFunction<NoAttrs> Flatten{FlattenOp};

struct ReshapeAttrs {
  std::vector<int64_t> shape = {};    // 0: the input's extent at this position; -1 (once): what remains
  std::vector<int64_t> batches = {};  // where one is not 0, 0 and -1 of `shape` mean nothing special
  bool allow_zero = false;            // 0 is an extent of 0
  static FieldList Fields() {
    return {{"shape", &ReshapeAttrs::shape, "0 keeps an extent, -1 takes the rest"},
            {"batches", &ReshapeAttrs::batches, "batches added to each extent; default none"},
            {"allow_zero", &ReshapeAttrs::allow_zero, "0 is an extent of 0"}};
  }
};
const OpDef& ReshapeOp();
inline constexpr OpFunction<ReshapeAttrs> Reshape{ReshapeOp};

struct ToShapeAttrs {
  std::vector<int64_t> shape = {}, batches = {};
  static FieldList Fields() {
    return {{"shape", &ToShapeAttrs::shape, "extents of the output"},
            {"batches", &ToShapeAttrs::batches, "batches added to each extent; default none"}};
  }
};
// As in NumPy: axes are aligned at the last, extents of 1 and missing axes are stretched.
const OpDef& BroadcastToOp();
inline constexpr OpFunction<ToShapeAttrs> BroadcastTo{BroadcastToOp};
// The sum over the axes along which a tensor of this shape would have been stretched to data's.
const OpDef& SumToOp();
inline constexpr OpFunction<ToShapeAttrs> SumTo{SumToOp};

struct TransposeAttrs {
  std::vector<int64_t> axes = {};  // output axis i is input axis axes[i]; empty: reversed
  static FieldList Fields() { return {{"axes", &TransposeAttrs::axes, "permutation; empty reverses"}}; }
};
const OpDef& TransposeOp();
inline constexpr OpFunction<TransposeAttrs> Transpose{TransposeOp};

struct ConcatAttrs {
  int64_t axis = 1;
  static FieldList Fields() { return {{"axis", &ConcatAttrs::axis, "axis along which inputs are joined"}}; }
};
const OpDef& ConcatOp();  // arg0, arg1, ... -> output
Symbol Concat(std::span<const Symbol> inputs, const ConcatAttrs& attrs = {}, const std::string& name = {});
Symbol Concat(std::initializer_list<Symbol> inputs, const ConcatAttrs& attrs = {}, const std::string& name = {});

struct SliceAttrs {
  // Per entry i, of axis axes[i] (empty axes: 0, 1, ...): indices begin[i], begin[i] + step[i], ... before end[i].
  // Negative begin/end count from the end; they are clamped to the extent; kSliceEnd as end means "to the end".
  std::vector<int64_t> begin = {}, end = {}, step = {}, axes = {};  // step empty: 1
  std::vector<int64_t> begin_batches = {}, end_batches = {};
  static FieldList Fields() {
    using A = SliceAttrs;
    return {{"begin", &A::begin, "first index per axis"},
            {"end", &A::end, "index after the last"},
            {"step", &A::step, "default 1; negative goes backward"},
            {"axes", &A::axes, "default 0, 1, ..."},
            {"begin_batches", &A::begin_batches, "batches added to each begin; default none"},
            {"end_batches", &A::end_batches, "batches added to each end; default none"}};
  }
};
inline constexpr int64_t kSliceEnd = INT64_MAX;
const OpDef& SliceOp();
inline constexpr OpFunction<SliceAttrs> Slice{SliceOp};
// Resolved, per axis of `data`: first index, step, number of indices.
struct SliceRange {
  int64_t begin, step, count;
};
// Throws ShapeError. `batch` is needed where indices follow it.
std::vector<SliceRange> SliceRanges(const SliceAttrs& attrs, const Shape& data, std::optional<int64_t> batch);

struct PadAttrs {
  // Per entry i, of axis axes[i] (empty axes: 0, 1, ...): how many of `value` before the first element, after the last,
  // and, less one, how far from element to element. Numbers that follow the batch count as 0 where they are negative.
  std::vector<int64_t> begin = {}, end = {}, step = {}, axes = {};  // step empty: 1
  double value = 0;
  std::vector<int64_t> begin_batches = {}, end_batches = {};
  static FieldList Fields() {
    using A = PadAttrs;
    return {{"begin", &A::begin, "how many before the first element, per axis"},
            {"end", &A::end, "how many after the last"},
            {"step", &A::step, "from element to element, default 1"},
            {"axes", &A::axes, "default 0, 1, ..."},
            {"value", &A::value, "what is put around the elements"},
            {"begin_batches", &A::begin_batches, "batches added to each begin; default none"},
            {"end_batches", &A::end_batches, "batches added to each end; default none"}};
  }
};
const OpDef& PadOp();
inline constexpr OpFunction<PadAttrs> Pad{PadOp};
// Where the elements of data stand in the output, per axis; throws ShapeError.
std::vector<SliceRange> PadRanges(const PadAttrs& attrs, const Shape& data, std::optional<int64_t> batch);

struct SliceChannelAttrs {
  int64_t num_outputs = 1;
  int64_t axis = 1;
  bool squeeze_axis = false;  // drop the axis (its extent must equal num_outputs)
  static FieldList Fields() {
    using A = SliceChannelAttrs;
    return {{"num_outputs", &A::num_outputs, "equal parts"},
            {"axis", &A::axis, "axis that is cut"},
            {"squeeze_axis", &A::squeeze_axis, "drop the axis"}};
  }
};
const OpDef& SliceChannelOp();  // data -> output0, output1, ...
inline constexpr OpFunction<SliceChannelAttrs> SliceChannel{SliceChannelOp};

struct CastAttrs {
  DType dtype = DType::kFloat32;
  static FieldList Fields() { return {{"dtype", &CastAttrs::dtype, "element type of the output"}}; }
};
const OpDef& CastOp();
inline constexpr OpFunction<CastAttrs> Cast{CastOp};

}  // namespace bindery
