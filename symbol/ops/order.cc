#include "symbol/ops/order.h"

#include "base/error.h"
#include "symbol/ops/indexing.h"
#include "symbol/ops/rules.h"

namespace bindery {
namespace {

using rule::Value;

// Along the axis samples are mixed.
void CarryBeside(Value from, Value to, int axis) {
  from.Carry(to, [=](int own) { return own == axis ? -1 : own; });
}

void InferTopK(InferContext& c) {
  const auto& attrs = c.attrs<TopKAttrs>();
  const Value data = c.in(0), values = c.out(0), indices = c.out(1);
  rule::SameDType({data, values});
  indices.SetDType(attrs.dtype);
  rule::SameShape({values, indices});
  if (!rule::SameRank(data, values)) return;
  const int axis = rule::Axis(attrs.axis, *data.shape());
  const int64_t extent = (*data.shape())[axis];
  if (extent != kUnknownDim && attrs.k > extent) {
    Throw<ShapeError>("there are no {} elements along axis {} of {}", attrs.k, axis, *data.shape());
  }
  values.Set(data.shape()->With(axis, attrs.k == 0 ? extent : attrs.k));
  rule::SameShape({values, indices});
  data.Set(attrs.k == 0 ? *values.shape() : values.shape()->With(axis, extent));
  CarryBeside(data, values, axis);
  CarryBeside(data, indices, axis);
}

// Data is the last input, also of a gradient.
void InferScan(InferContext& c) {
  rule::AllAlike(c);
  const Value data = c.in(c.num_inputs() - 1);
  if (data.shape()) CarryBeside(data, c.out(0), rule::Axis(c.attrs<ScanAttrs>().axis, *data.shape()));
}

void InferTrilu(InferContext& c) {
  rule::AllAlike(c);
  const Value data = c.in(0);
  if (!data.shape()) return;
  const int rank = data.shape()->rank();
  if (rank < 2) Throw<ShapeError>("expected 2 or more axes (..., M, N), got {}", *data.shape());
  data.Carry(c.out(0), [&](int axis) { return axis < rank - 2 ? axis : -1; });
}

OpDef Scan(std::string name, std::string doc, Slots inputs) {
  return {.name = std::move(name),
          .doc = std::move(doc),
          .attrs_type = &AttrsOf<ScanAttrs>(),
          .inputs = std::move(inputs),
          .infer = InferScan,
          .check = rule::CheckAxis<ScanAttrs>};
}

}  // namespace

Symbol Sort(const Symbol& data, const SortAttrs& attrs, const std::string& name) {
  return TopK(data, {.axis = attrs.axis, .largest = attrs.descending}, name)[0];
}
Symbol ArgSort(const Symbol& data, const SortAttrs& attrs, const std::string& name) {
  return TopK(data, {.axis = attrs.axis, .largest = attrs.descending}, name)[1];
}

const OpDef& TopKOp() {
  static const OpDef op = {
      .name = "TopK",
      .doc = "Along an axis the k largest or smallest elements, and where they are.",
      .attrs_type = &AttrsOf<TopKAttrs>(),
      .outputs = {"values", "indices"},
      .infer = InferTopK,
      .check =
          [](const AnyAttrs& any) {
            const auto& attrs = any.get<TopKAttrs>();
            rule::CheckAtLeast("k", attrs.k, 0);
            rule::CheckAxisAttr("axis", attrs.axis);
            if (attrs.dtype != DType::kInt64 && attrs.dtype != DType::kInt32) {
              Throw<ModelError>("dtype must be int64 or int32, got {}", attrs.dtype);
            }
          },
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        // Each value's goes back to where it was.
        if (g.output_grad(0).empty()) return {};
        const Extents data = g.shape(0);
        return {PutElements(
            g.output(1), g.output_grad(0),
            {.axis = g.attrs<TopKAttrs>().axis, .shape = rule::FixedParts(data), .batches = rule::BatchParts(data)})};
      },
  };
  return op;
}

const OpDef& CumSumOp() {
  static const OpDef op = [] {
    OpDef def = Scan("CumSum", "The sum of all elements up to each along an axis.", {"data"});
    def.gradient = [](const GradientContext& g) -> std::vector<Symbol> {
      // x_k is in y_k and those behind it.
      ScanAttrs back = g.attrs<ScanAttrs>();
      back.reverse = !back.reverse;
      return {CumSum(g.output_grad(0), back)};
    };
    return def;
  }();
  return op;
}

const OpDef& CumProdOp() {
  static const OpDef op = [] {
    OpDef def = Scan("CumProd", "The product of all elements up to each along an axis.", {"data"});
    def.gradient = [](const GradientContext& g) -> std::vector<Symbol> {
      return {CumProdGrad(g.output_grad(0), g.input(0), g.attrs<ScanAttrs>())};
    };
    return def;
  }();
  return op;
}

const OpDef& CumProdGradOp() {
  static const OpDef op = [] {
    OpDef def =
        Scan("CumProdGrad", "dx_k = x_0 ... x_(k-1) s_k, s_k = dy_k + x_(k+1) s_(k+1).", {"output_grad", "data"});
    def.not_differentiable = "the second derivative of a product of many is not provided";
    return def;
  }();
  return op;
}

const OpDef& TriluOp() {
  static const OpDef op = {
      .name = "Trilu",
      .doc = "Matrices with zeros below or above a diagonal.",
      .attrs_type = &AttrsOf<TriluAttrs>(),
      .infer = InferTrilu,
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        return {Trilu(g.output_grad(0), g.attrs<TriluAttrs>())};
      },
  };
  return op;
}

}  // namespace bindery
