// Elements picked by index, and put back by index: Take, GatherND, GatherElements, Pick, Embedding; ScatterND,
// ScatterElements; OneHot; RowNumbers.
//
// Indices may be of any element type. What becomes of one that is outside the extent it counts in is each node's
// `mode`. Of a number that is not whole clip and wrap take the next below (0 of NaN), for the others it is outside.
#pragma once

#include <array>
#include <optional>

#include "symbol/op_def.h"

namespace bindery {

enum class IndexMode {
  kRaise,  // -n .. n-1, negative ones from the end, as in ONNX; else the step ends with a DataError that names the node
  kClip,   // the nearest there is: negative ones are 0
  kWrap,   // modulo n; of infinity 0
  kSkip,   // picks NaN (of integers 0), puts nothing; negative ones are outside
  kZero,   // picks 0, puts nothing; negative ones are outside
};
inline std::span<const EnumName> EnumNames(IndexMode*) {
  static constexpr std::array<EnumName, 5> names{{{0, "raise"}, {1, "clip"}, {2, "wrap"}, {3, "skip"}, {4, "zero"}}};
  return names;
}

inline constexpr int64_t kNoIndex = INT64_MIN;

struct TakeAttrs {
  int64_t axis = 0;        // the first that is indexed; not before batch_dims
  int64_t batch_dims = 0;  // first axes that data and indices share
  IndexMode mode = IndexMode::kRaise;
  int64_t padding = kNoIndex;  // a single index for which zeros are taken
  bool sparse_grad = false;    // of rows (axis 0, no batch_dims): see docs/sparse.md
  static FieldList Fields() {
    using A = TakeAttrs;
    return {{"axis", &A::axis, "first axis that is indexed"},
            {"batch_dims", &A::batch_dims, "first axes that data and indices share"},
            {"mode", &A::mode, "indices outside: raise, clip, wrap, skip, zero"},
            {"padding", &A::padding, "an index for which zeros are taken; default none"},
            {"sparse_grad", &A::sparse_grad, "keep a table's gradient by rows where that may be"}};
  }
};
// With B = batch_dims, data (b.., o.., n, i..) and indices (b.., j..), the axis n being `axis`:
//   y (b.., o.., j.., i..) = data[b.., o.., indices[b.., j..], i..]                    (ONNX' Gather with B = 0)
const OpDef& TakeOp();
inline constexpr OpFunction<TakeAttrs, 2> Take{TakeOp};
// The same with the last axis of the indices (b.., j.., k) counting in k axes of data, from `axis` on.
const OpDef& GatherNDOp();
inline constexpr OpFunction<TakeAttrs, 2> GatherND{GatherNDOp};

struct GatherElementsAttrs {
  int64_t axis = 0;
  IndexMode mode = IndexMode::kRaise;
  static FieldList Fields() {
    using A = GatherElementsAttrs;
    return {{"axis", &A::axis, "axis that is indexed"},
            {"mode", &A::mode, "indices outside: raise, clip, wrap, skip, zero"}};
  }
};
// y[o.., j, i..] = data[o.., indices[o.., j, i..], i..]: the indices' extents are at most data's along other axes.
const OpDef& GatherElementsOp();
inline constexpr OpFunction<GatherElementsAttrs, 2> GatherElements{GatherElementsOp};

struct PickAttrs {
  int64_t axis = 1;
  bool keepdims = false;
  IndexMode mode = IndexMode::kSkip;
  static FieldList Fields() {
    using A = PickAttrs;
    return {{"axis", &A::axis, "axis along which elements are counted"},
            {"keepdims", &A::keepdims, "keep it with extent 1"},
            {"mode", &A::mode, "places outside: raise, clip, wrap, skip, zero"}};
  }
};
// y[o.., i..] = data[o.., place[o.., i..], i..]; `place` has the output's shape.
const OpDef& PickOp();
inline constexpr OpFunction<PickAttrs, 2> Pick{PickOp};

// How what is put at a place joins what is there.
enum class ScatterReduction { kNone, kAdd, kMul, kMax, kMin };
inline std::span<const EnumName> EnumNames(ScatterReduction*) {
  static constexpr std::array<EnumName, 5> names{{{0, "none"}, {1, "add"}, {2, "mul"}, {3, "max"}, {4, "min"}}};
  return names;
}

struct ScatterAttrs {
  int64_t axis = 0, batch_dims = 0;  // as TakeAttrs has them
  IndexMode mode = IndexMode::kRaise;
  ScatterReduction reduction = ScatterReduction::kNone;
  int64_t padding = kNoIndex;                     // an index at which nothing is put
  std::vector<int64_t> shape = {}, batches = {};  // in the place of data: zeros of this shape (+ batches)
  bool by_rows = false;                           // a table's gradient: see AsRows
  static FieldList Fields() {
    using A = ScatterAttrs;
    return {{"axis", &A::axis, "first axis that is indexed"},
            {"batch_dims", &A::batch_dims, "first axes that data and indices share"},
            {"mode", &A::mode, "indices outside: raise, clip, wrap, skip, zero"},
            {"reduction", &A::reduction, "what is put replaces, or: add, mul, max, min"},
            {"padding", &A::padding, "an index at which nothing is put; default none"},
            {"shape", &A::shape, "there is no data but zeros of this shape"},
            {"batches", &A::batches, "batches added to each extent; default none"},
            {"by_rows", &A::by_rows, "a table's gradient, which may be kept by rows"}};
  }
};
// data with `updates`, of GatherND's (GatherElements') output's shape, put where GatherND (GatherElements) would take
// them. Several at one place are joined in the order in which they stand: without a reduction the last one stays.
const OpDef& ScatterNDOp();        // (data unless a shape is given, indices, updates) -> output
const OpDef& ScatterElementsOp();  // the same, without batch_dims and padding
inline constexpr OpFunction<ScatterAttrs, 3> ScatterND{ScatterNDOp};
inline constexpr OpFunction<ScatterAttrs, 3> ScatterElements{ScatterElementsOp};
inline constexpr OpFunction<ScatterAttrs, 2> PutND{ScatterNDOp};  // (indices, updates), into zeros
inline constexpr OpFunction<ScatterAttrs, 2> PutElements{ScatterElementsOp};

struct OneHotAttrs {
  int64_t depth = 1;
  int64_t axis = -1;  // of the output
  double on_value = 1, off_value = 0;
  bool from_end = false;  // negative indices count from the end, as in ONNX
  DType dtype = DType::kFloat32;
  static FieldList Fields() {
    using A = OneHotAttrs;
    return {{"depth", &A::depth, "extent of the new axis"},
            {"axis", &A::axis, "where it is in the output"},
            {"on_value", &A::on_value, "at the index"},
            {"off_value", &A::off_value, "elsewhere"},
            {"from_end", &A::from_end, "negative indices count from the end"},
            {"dtype", &A::dtype, "element type of the output"}};
  }
};
// on_value at the index along a new axis, off_value elsewhere, everywhere if the index is outside.
const OpDef& OneHotOp();
inline constexpr OpFunction<OneHotAttrs> OneHot{OneHotOp};

struct EmbeddingAttrs {
  int64_t input_dim = 1, output_dim = 1;
  int64_t padding_idx = kNoIndex;  // this row gets no gradient
  IndexMode mode = IndexMode::kRaise;
  bool sparse_grad = false;  // see docs/sparse.md
  static FieldList Fields() {
    using A = EmbeddingAttrs;
    return {{"input_dim", &A::input_dim, "rows of the weight"},
            {"output_dim", &A::output_dim, "their length"},
            {"padding_idx", &A::padding_idx, "a row that gets no gradient; default none"},
            {"mode", &A::mode, "indices outside: raise, clip, wrap, skip, zero"},
            {"sparse_grad", &A::sparse_grad, "keep the weight's gradient by rows where that may be"}};
  }
};
// data (...) of indices, weight (input_dim, output_dim) -> (..., output_dim): the rows of the weight. In the weight's
// gradient the rows of the output's are added in their order, so it has the same bits for any number of threads.
const OpDef& EmbeddingOp();
inline constexpr OpFunction<EmbeddingAttrs, 2> Embedding{EmbeddingOp};

struct RowNumbersAttrs {
  int64_t extent = 1;
  IndexMode mode = IndexMode::kRaise;
  int64_t padding = kNoIndex;
  static FieldList Fields() {
    using A = RowNumbersAttrs;
    return {{"extent", &A::extent, "rows of the table"},
            {"mode", &A::mode, "indices outside: raise, clip, wrap, skip, zero"},
            {"padding", &A::padding, "an index that names no row; default none"}};
  }
};
// indices (...) of any type -> (n) of int64: the row that each names, from 0 to extent - 1, or -1 for none.
const OpDef& RowNumbersOp();
inline constexpr OpFunction<RowNumbersAttrs> RowNumbers{RowNumbersOp};

// A table's gradient, known by rows: row numbers[i] of it is the sum of all rows[i] with that number, in their order.
struct RowsOfGradient {
  Symbol numbers, rows;  // RowNumbers (n); (n, elements of a row)
  Shape table;
};
// Of a gradient that Embedding or Take with `sparse_grad` sends back, and that nothing was added to. What only looks
// like one, in a file from a stranger say, need not have as many numbers as rows: VerifyPlan tells.
std::optional<RowsOfGradient> AsRows(const Symbol& gradient);

// What kernels need. data (batches, outer, extent, inner), rows (batches, outer, count, inner): row c is the one of
// data that the tuple of indices (batches, count, k) names, counting in `extents`, k of them, that `extent` is the
// product of.
struct TakenRows {
  int64_t batches, outer, extent, inner, count;
  std::vector<int64_t> extents;
};
// `tuples`: the last axis of indices is k. Throws ShapeError.
TakenRows RowsOf(const TakeAttrs& attrs, bool tuples, const Shape& data, const Shape& indices);

}  // namespace bindery
