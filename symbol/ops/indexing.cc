#include "symbol/ops/indexing.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "symbol/ops/indexing_rules.h"
#include "symbol/ops/numbers.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace rule {

// Nothing while k is not known. Throws ShapeError.
std::optional<IndexedAxes> AxesOf(const TakeAttrs& attrs, bool tuples, const Shape& data, const Shape& indices) {
  if (tuples && indices.rank() == 0) throw ShapeError("expected indices of 1 or more axes (..., k), got ()");
  IndexedAxes axes{.batch = static_cast<int>(attrs.batch_dims), .first = 0, .last = 0, .lead = indices.rank() - tuples};
  axes.first = std::max(rule::Axis(attrs.axis, data), axes.batch);
  if (axes.batch > axes.lead || axes.batch >= data.rank()) {
    Throw<ShapeError>("data {} and indices {} do not share {} first axes", data, indices, axes.batch);
  }
  const int64_t count = tuples ? indices[-1] : 1;
  if (count == kUnknownDim) return std::nullopt;
  if (count < 1 || count > data.rank() - axes.first) {
    Throw<ShapeError>("indices {} name {} axes, but data {} has {} from axis {} on", indices, count, data,
                      data.rank() - axes.first, axes.first);
  }
  if (count > 1 && attrs.padding != kNoIndex) throw ShapeError("padding is of single indices, not of several axes'");
  axes.last = axes.first + static_cast<int>(count);
  return axes;
}

namespace {

// An index needs something to point to.
void ExpectElements(IndexMode mode, const Shape& data, const Shape& indices, int first, int last) {
  if (mode == IndexMode::kSkip || mode == IndexMode::kZero || !indices.IsKnown() || indices.Elements() == 0) return;
  for (int axis = first; axis < last; ++axis) {
    if (data[axis] == 0) Throw<ShapeError>("there are no elements along axis {} of {}", axis, data);
  }
}

}  // namespace

std::optional<IndexedAxes> InferRows(const TakeAttrs& attrs, bool tuples, Value data, Value indices, Value rows) {
  if (data.shape()) Axis(attrs.axis, *data.shape());
  if (!data.shape() || !indices.shape()) return std::nullopt;
  const std::optional<IndexedAxes> axes = AxesOf(attrs, tuples, *data.shape(), *indices.shape());
  if (!axes) return std::nullopt;
  const int rank = data.shape()->rank() + axes->rank_change();
  if (rank > Shape::kMaxRank) {
    Throw<ShapeError>("data {} at indices {} has more than {} axes", *data.shape(), *indices.shape(), Shape::kMaxRank);
  }
  Shape merged = rule::Unknown(rank);
  for (int axis = 0; axis < indices.shape()->rank(); ++axis) {
    if (axes->RowOfIndices(axis) >= 0) merged.Set(axes->RowOfIndices(axis), (*indices.shape())[axis]);
  }
  rows.Set(merged);
  merged = rule::Unknown(rank);
  for (int axis = 0; axis < data.shape()->rank(); ++axis) {
    if (axes->RowOfData(axis) >= 0) merged.Set(axes->RowOfData(axis), (*data.shape())[axis]);
  }
  rows.Set(merged);
  merged = *rows.shape();
  Shape back = *data.shape(), back_indices = *indices.shape();
  for (int axis = 0; axis < back.rank(); ++axis) {
    if (axes->RowOfData(axis) >= 0) back.Set(axis, merged[axes->RowOfData(axis)]);
  }
  for (int axis = 0; axis < back_indices.rank(); ++axis) {
    if (axes->RowOfIndices(axis) >= 0) back_indices.Set(axis, merged[axes->RowOfIndices(axis)]);
  }
  data.Set(back);
  indices.Set(back_indices);
  ExpectElements(attrs.mode, back, back_indices, axes->first, axes->last);
  return axes;
}

void InferElements(IndexMode mode, int64_t along, Value data, Value indices, Value elements) {
  rule::SameShape({indices, elements});
  if (!rule::SameRank(data, indices)) return;
  rule::SameShape({indices, elements});
  const Shape &all = *data.shape(), &some = *indices.shape();
  if (all.rank() != some.rank()) Throw<ShapeError>("data {} and indices {} differ in their number of axes", all, some);
  const int axis = rule::Axis(along, all);
  for (int i = 0; i < all.rank(); ++i) {
    if (i == axis || all[i] == kUnknownDim || some[i] == kUnknownDim || some[i] <= all[i]) continue;
    Throw<ShapeError>("indices {} are beyond data {} along axis {}", some, all, i);
  }
  ExpectElements(mode, all, some, axis, axis + 1);
}

void CheckIndexedAxes(int64_t axis, int64_t batch_dims) {
  CheckAxisAttr("axis", axis);
  if (batch_dims >= 0 && batch_dims < Shape::kMaxRank) return;
  Throw<ModelError>("batch_dims must be from 0 to {}, got {}", Shape::kMaxRank - 1, batch_dims);
}

}  // namespace rule

namespace {

using rule::kReduced, rule::Value;

void InferTake(const TakeAttrs& attrs, bool tuples, Value data, Value indices, Value output) {
  rule::SameDType({data, output});
  const auto axes = rule::InferRows(attrs, tuples, data, indices, output);
  if (!axes) return;
  data.Carry(output, [&](int axis) { return axes->RowOfData(axis); });
  indices.Carry(output, [&](int axis) { return axes->RowOfIndices(axis); });
}

void InferGatherElements(InferContext& c) {
  const auto& attrs = c.attrs<GatherElementsAttrs>();
  const Value data = c.in(0), indices = c.in(1), output = c.out(0);
  rule::SameDType({data, output});
  rule::InferElements(attrs.mode, attrs.axis, data, indices, output);
  if (!data.shape()) return;
  const int along = rule::Axis(attrs.axis, *data.shape());
  data.Carry(output, [&](int axis) { return axis == along ? kReduced : axis; });
  indices.Carry(output);
}

void InferPick(InferContext& c) {
  const auto& attrs = c.attrs<PickAttrs>();
  const Value data = c.in(0), place = c.in(1), output = c.out(0);
  rule::SameDType({data, output});
  rule::SameShape({place, output});
  rule::InferAlongAxis(attrs.axis, attrs.keepdims, data, place, output);
  if (data.shape()) place.Carry(output);
}

void InferOneHot(InferContext& c) {
  const auto& attrs = c.attrs<OneHotAttrs>();
  const Value indices = c.in(0), output = c.out(0);
  output.SetDType(attrs.dtype);
  if (!indices.shape() && output.shape() && output.shape()->rank() > 0) {
    indices.Set(rule::Unknown(output.shape()->rank() - 1));
  }
  if (!indices.shape()) return;
  const Shape& shape = *indices.shape();
  if (shape.rank() == Shape::kMaxRank) Throw<ShapeError>("indices {} have no room for one more axis", shape);
  const int axis = rule::Axis(attrs.axis, rule::Unknown(shape.rank() + 1));
  output.Set(shape.Insert(axis, attrs.depth));
  indices.Set(output.shape()->Erase(axis));
  indices.Carry(output, [&](int own) { return own < axis ? own : own + 1; });
}

void InferEmbedding(InferContext& c) {
  const auto& attrs = c.attrs<EmbeddingAttrs>();
  const Value data = c.in(0), weight = c.in(1), output = c.out(0);
  weight.Set({attrs.input_dim, attrs.output_dim});
  rule::SameDType({weight, output});
  if (!data.shape() && output.shape() && output.shape()->rank() > 0) data.Set(output.shape()->Erase(-1));
  InferTake({.mode = attrs.mode}, false, weight, data, output);
}

void CheckTake(const AnyAttrs& any) {
  const auto& attrs = any.get<TakeAttrs>();
  rule::CheckIndexedAxes(attrs.axis, attrs.batch_dims);
  if (attrs.sparse_grad && (attrs.axis != 0 || attrs.batch_dims != 0)) {
    Throw<ModelError>("sparse_grad is of rows: expected axis 0 and batch_dims 0, got {} and {}", attrs.axis,
                      attrs.batch_dims);
  }
}

void CheckGatherND(const AnyAttrs& any) {
  CheckTake(any);
  if (any.get<TakeAttrs>().sparse_grad) throw ModelError("sparse_grad is of rows that single indices name: use Take");
}

void InferRowNumbers(InferContext& c) {  // where the samples are no longer shows
  c.out(0).SetDType(DType::kInt64);
  if (c.in(0).Known()) c.out(0).Set({c.in(0).shape()->Elements()});
}

// The gradient of what was taken, put back into zeros of data's shape.
ScatterAttrs PutBack(const TakeAttrs& a, const Extents& data) {
  return {.axis = a.axis,
          .batch_dims = a.batch_dims,
          .mode = a.mode,
          .reduction = ScatterReduction::kAdd,
          .padding = a.padding,
          .shape = rule::FixedParts(data),
          .batches = rule::BatchParts(data),
          .by_rows = a.sparse_grad};
}

// Indices seen as tuples of one.
Symbol AsTuples(const Symbol& indices, Extents shape) {
  shape.push_back({1, 0});
  return rule::ReshapeTo(indices, shape);
}

// Of so many rows; negative numbers count from the end.
WholeNumbers RowsUpTo(int64_t rows) { return WholeNumbers::UpTo(rows - 1, -rows); }

std::optional<WholeNumbers> AskedIndices(const AnyAttrs& any, std::span<const Shape> in) {
  const auto& attrs = any.get<TakeAttrs>();
  if (attrs.mode != IndexMode::kRaise) return std::nullopt;
  WholeNumbers range = RowsUpTo(in[0][static_cast<int>(attrs.axis)]);
  if (attrs.padding != kNoIndex) range.besides = static_cast<double>(attrs.padding);
  return range;
}

std::optional<WholeNumbers> AskedRows(const AnyAttrs& any, std::span<const Shape>) {
  const auto& attrs = any.get<EmbeddingAttrs>();
  return attrs.mode == IndexMode::kRaise ? std::optional(RowsUpTo(attrs.input_dim)) : std::nullopt;
}

OpDef Taking(std::string name, std::string doc, void (*infer)(InferContext&), void (*check)(const AnyAttrs&),
             std::vector<Symbol> (*gradient)(const GradientContext&)) {
  return {
      .name = std::move(name),
      .doc = std::move(doc),
      .attrs_type = &AttrsOf<TakeAttrs>(),
      .inputs = {"data", "indices"},
      .infer = infer,
      .check = check,
      .gradient = gradient,
  };
}

}  // namespace

TakenRows RowsOf(const TakeAttrs& attrs, bool tuples, const Shape& data, const Shape& indices) {
  const rule::IndexedAxes axes = rule::AxesOf(attrs, tuples, data, indices).value();
  TakenRows rows{.batches = data.CountTo(axes.batch),
                 .outer = Shape(data.dims().subspan(axes.batch, axes.first - axes.batch)).Elements(),
                 .extent = 1,
                 .inner = data.CountFrom(axes.last),
                 .count = Shape(indices.dims().subspan(axes.batch, axes.lead - axes.batch)).Elements(),
                 .extents = {}};
  for (int axis = axes.first; axis < axes.last; ++axis) {
    rows.extents.push_back(data[axis]);
    rows.extent *= data[axis];
  }
  return rows;
}

const OpDef& TakeOp() {
  static const OpDef op = [] {
    OpDef take = Taking(
        "Take", "Along an axis, what indices name: y (b.., o.., j.., i..) = data[b.., o.., indices[b.., j..], i..].",
        [](InferContext& c) { InferTake(c.attrs<TakeAttrs>(), false, c.in(0), c.in(1), c.out(0)); }, CheckTake,
        [](const GradientContext& g) -> std::vector<Symbol> {
          if (!g.wants(0)) return {};
          return {PutND(AsTuples(g.input(1), g.shape(1)), g.output_grad(0), PutBack(g.attrs<TakeAttrs>(), g.shape(0))),
                  {}};
        });
    take.asks = {{.input = "indices", .range = AskedIndices, .of_parameter = true}};
    take.numbers = [](InferContext& c) {
      const auto& attrs = c.attrs<TakeAttrs>();
      const bool plain = attrs.batch_dims == 0 && attrs.mode == IndexMode::kRaise && attrs.padding == kNoIndex;
      if (plain) rule::TakeNumbers(c, attrs.axis);
    };
    return take;
  }();
  return op;
}

const OpDef& GatherNDOp() {
  static const OpDef op = Taking(
      "GatherND", "Along k axes, what tuples of indices name: y (b.., j.., i..) = data[b.., indices[b.., j..], i..].",
      [](InferContext& c) { InferTake(c.attrs<TakeAttrs>(), true, c.in(0), c.in(1), c.out(0)); }, CheckGatherND,
      [](const GradientContext& g) -> std::vector<Symbol> {
        if (!g.wants(0)) return {};
        return {PutND(g.input(1), g.output_grad(0), PutBack(g.attrs<TakeAttrs>(), g.shape(0))), {}};
      });
  return op;
}

const OpDef& GatherElementsOp() {
  static const OpDef op = {
      .name = "GatherElements",
      .doc = "Along an axis, the elements that indices name: y[o.., j, i..] = data[o.., indices[o.., j, i..], i..].",
      .attrs_type = &AttrsOf<GatherElementsAttrs>(),
      .inputs = {"data", "indices"},
      .infer = InferGatherElements,
      .check = rule::CheckAxis<GatherElementsAttrs>,
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        if (!g.wants(0)) return {};
        const auto& [axis, mode] = g.attrs<GatherElementsAttrs>();
        const ScatterAttrs attrs = PutBack({.axis = axis, .mode = mode}, g.shape(0));
        return {PutElements(g.input(1), g.output_grad(0), attrs), {}};
      },
  };
  return op;
}

const OpDef& PickOp() {
  static const OpDef op = {
      .name = "Pick",
      .doc = "Along an axis, the element at a place: y[o.., i..] = data[o.., place[o.., i..], i..].",
      .attrs_type = &AttrsOf<PickAttrs>(),
      .inputs = {"data", "place"},
      .infer = InferPick,
      .check = rule::CheckAxis<PickAttrs>,
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        if (!g.wants(0)) return {};
        const auto& attrs = g.attrs<PickAttrs>();
        const Extents data = g.shape(0);
        Extents kept = data;
        const int axis = rule::Axis(attrs.axis, rule::Unknown(static_cast<int>(data.size())));
        kept[axis] = {1, 0};
        return {PutElements(rule::ReshapeTo(g.input(1), kept), rule::ReshapeTo(g.output_grad(0), kept),
                            PutBack({.axis = axis, .mode = attrs.mode}, data)),
                {}};
      },
  };
  return op;
}

const OpDef& OneHotOp() {
  static const OpDef op = {
      .name = "OneHot",
      .doc = "on_value at the index along a new axis, off_value elsewhere.",
      .attrs_type = &AttrsOf<OneHotAttrs>(),
      .inputs = {"indices"},
      .infer = InferOneHot,
      .check =
          [](const AnyAttrs& any) {
            rule::CheckAtLeast("depth", any.get<OneHotAttrs>().depth, 0);
            rule::CheckAxisAttr("axis", any.get<OneHotAttrs>().axis);
          },
      .gradient = rule::NoGradient,  // constant but for jumps
  };
  return op;
}

const OpDef& EmbeddingOp() {
  static const OpDef op = {
      .name = "Embedding",
      .doc = "The rows of the weight that data names: y (..., h) = weight[data[...], h].",
      .attrs_type = &AttrsOf<EmbeddingAttrs>(),
      .inputs = {"data", "weight"},
      .infer = InferEmbedding,
      .asks = {{.input = "data", .range = AskedRows}},
      .check =
          [](const AnyAttrs& any) {
            const auto& attrs = any.get<EmbeddingAttrs>();
            rule::CheckAtLeast("input_dim", attrs.input_dim, 1);
            rule::CheckAtLeast("output_dim", attrs.output_dim, 1);
            const int64_t padding = attrs.padding_idx;
            if (padding != kNoIndex && (padding >= attrs.input_dim || padding < -attrs.input_dim)) {
              Throw<ModelError>("padding_idx {} is none of {} rows", padding, attrs.input_dim);
            }
          },
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        // dweight[r] = the sum of dy over the positions whose index is r, in their order
        if (!g.wants(1)) return {};
        const auto& attrs = g.attrs<EmbeddingAttrs>();
        return {{},
                PutND(AsTuples(g.input(0), g.shape(0)), g.output_grad(0),
                      PutBack({.mode = attrs.mode, .padding = attrs.padding_idx, .sparse_grad = attrs.sparse_grad},
                              g.shape(1)))};
      },
  };
  return op;
}

const OpDef& RowNumbersOp() {
  static const OpDef op = {
      .name = "RowNumbers",
      .doc = "Which row of a table each index names, in one list; -1: none.",
      .attrs_type = &AttrsOf<RowNumbersAttrs>(),
      .inputs = {"indices"},
      .infer = InferRowNumbers,
      .check = [](const AnyAttrs& any) { rule::CheckAtLeast("extent", any.get<RowNumbersAttrs>().extent, 1); },
      .gradient = rule::NoGradient,  // constant but for jumps
  };
  return op;
}

std::optional<RowsOfGradient> AsRows(const Symbol& gradient) {
  const Node& node = *gradient.entry().node;
  if (node.is_variable() || &node.op() != &ScatterNDOp()) return std::nullopt;
  const auto& attrs = node.attrs().get<ScatterAttrs>();
  const bool of_rows = attrs.by_rows && attrs.axis == 0 && attrs.batch_dims == 0;
  if (!of_rows || attrs.reduction != ScatterReduction::kAdd) return std::nullopt;
  if (!attrs.batches.empty() || node.inputs().size() != 2) return std::nullopt;
  const Shape table(attrs.shape);
  if (table.Elements() == 0) return std::nullopt;
  const RowNumbersAttrs numbers{.extent = table[0], .mode = attrs.mode, .padding = attrs.padding};
  return RowsOfGradient{
      .numbers = RowNumbers(Symbol(node.inputs()[0]), numbers, node.name() + "_numbers"),
      .rows = Reshape(Symbol(node.inputs()[1]), {.shape = {-1, table.CountFrom(1)}}, node.name() + "_rows"),
      .table = table};
}

}  // namespace bindery
