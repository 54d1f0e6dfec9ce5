// What is put by index: ScatterND and ScatterElements.
#include "base/error.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/indexing_rules.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

using rule::kReduced, rule::Value;

TakeAttrs RowAttrs(const ScatterAttrs& a) { return {a.axis, a.batch_dims, a.mode, a.padding}; }

// (data unless a shape is given, updates) -> output; true if the batch's place is told.
bool InferScattered(InferContext& c, Value data, Value updates, Value output) {
  const auto& attrs = c.attrs<ScatterAttrs>();
  rule::SameDType({data, updates, output});
  rule::SameShape({data, output});
  if (attrs.shape.empty()) return false;
  const rule::ExtentList list{attrs.shape, attrs.batches};
  output.Set(rule::ShapeAt(list, c.batch()));
  if (list.FirstFollowing() < 0) return false;
  c.PlaceBatch(0, list.FirstFollowing());
  return true;
}

void InferScatterND(InferContext& c) {
  const Value data = c.in(0), indices = c.in(1), updates = c.in(2), output = c.out(0);
  const bool placed = InferScattered(c, data, updates, output);
  const auto axes = rule::InferRows(RowAttrs(c.attrs<ScatterAttrs>()), true, output, indices, updates);
  rule::SameShape({data, output});
  if (!axes || placed) return;
  data.Carry(output, [&](int axis) { return axes->RowOfData(axis) < 0 ? kReduced : axis; });
  indices.Carry(output, [&](int axis) { return axis < axes->batch ? axis : kReduced; });
  updates.Carry(output, [&](int axis) { return axes->DataOfRow(axis); });
}

void InferScatterElements(InferContext& c) {
  const auto& attrs = c.attrs<ScatterAttrs>();
  const Value data = c.in(0), indices = c.in(1), updates = c.in(2), output = c.out(0);
  const bool placed = InferScattered(c, data, updates, output);
  rule::InferElements(attrs.mode, attrs.axis, output, indices, updates);
  rule::SameShape({data, output});
  if (!output.shape() || placed) return;
  const int along = rule::Axis(attrs.axis, *output.shape());
  const auto kept = [&](int axis) { return axis == along ? kReduced : axis; };
  for (const Value& value : {data, indices, updates}) value.Carry(output, kept);
}

void CheckScatter(const AnyAttrs& any) {
  const auto& attrs = any.get<ScatterAttrs>();
  rule::CheckIndexedAxes(attrs.axis, attrs.batch_dims);
  rule::CheckExtentsAttr({attrs.shape, attrs.batches});
  if (!attrs.shape.empty() && attrs.reduction > ScatterReduction::kAdd) {
    throw ModelError("with a shape in the place of data the reduction must be none or add");
  }
}

void CheckScatterElements(const AnyAttrs& any) {
  CheckScatter(any);
  const auto& attrs = any.get<ScatterAttrs>();
  if (attrs.batch_dims != 0) Throw<ModelError>("batch_dims must be 0, got {}", attrs.batch_dims);
  if (attrs.padding != kNoIndex) Throw<ModelError>("there is no padding here, got {}", attrs.padding);
}

// What a scatter did not put has no gradient.
IndexMode Back(IndexMode mode) { return mode == IndexMode::kSkip ? IndexMode::kZero : mode; }

// A scatter's gradients, of data and of updates, u, by the operators that take and put at its indices. Where several
// updates replace each other, each is taken for the last.
std::vector<Symbol> ScatterGradient(const GradientContext& g, const std::function<Symbol(const Symbol&)>& take,
                                    const std::function<Symbol(const Symbol&, const Symbol&, ScatterReduction)>& put) {
  using enum ScatterReduction;
  const auto& attrs = g.attrs<ScatterAttrs>();
  const bool has_data = attrs.shape.empty();
  const int last = g.num_inputs() - 1;
  const bool wants_data = has_data && g.wants(0), wants_updates = g.wants(last);
  const Symbol &dy = g.output_grad(0), &data = g.input(0), &u = g.input(last), &y = g.output(0);
  const DType dtype = g.output_dtype(0);
  const auto zeros = [&](int like) { return rule::Zeros(g.shape(like), dtype); };
  const auto number = [&](const Symbol& truth) { return Cast(truth, {.dtype = dtype}); };
  Symbol d_data, d_updates;
  switch (attrs.reduction) {
    case kNone:
      if (wants_data) d_data = put(dy, zeros(last), kNone);
      if (wants_updates) d_updates = take(dy);
      break;
    case kAdd:
      if (wants_data) d_data = dy;
      if (wants_updates) d_updates = take(dy);
      break;
    case kMul:
      // y = data * (product of u). At every u the others' product is what is not 0 of all, without u, times the others
      // that are 0: none (1), one, which its own derivative needs, or more, 0 with their first derivatives.
      if (wants_data) d_data = dy * put(zeros(0) + 1.0, u, kMul);
      if (wants_updates) {
        const Symbol is_zero = Equal(u, 0.0), factor = Where(is_zero, 1.0, u);
        const auto others = [&](const Symbol& x) { return take(put(zeros(0), x, kAdd)) - x; };
        const Symbol count = others(number(is_zero)), zero = others(Where(is_zero, u, 0.0));
        const Symbol of_zeros = Where(Equal(count, 0.0), 1.0, Where(Equal(count, 1.0), zero, 0.0));
        d_updates = take(dy) * (take(put(data, factor, kMul)) / factor) * of_zeros;
      }
      break;
    case kMax:
    case kMin: {
      // Those that are equal to y share dy.
      const Symbol wins = number(Equal(u, take(y))), stays = number(Equal(data, y));
      const Symbol share = dy / Maximum(put(stays, wins, kAdd), 1.0);
      if (wants_data) d_data = share * stays;
      if (wants_updates) d_updates = take(share) * wins;
      break;
    }
  }
  std::vector<Symbol> gradients(g.num_inputs());
  if (has_data) gradients[0] = d_data;
  gradients[last] = d_updates;
  return gradients;
}

bool HasData(const ScatterAttrs& attrs) { return attrs.shape.empty(); }

OpDef Scatter(std::string name, std::string doc, void (*infer)(InferContext&), void (*check)(const AnyAttrs&),
              std::vector<Symbol> (*gradient)(const GradientContext&)) {
  return {
      .name = std::move(name),
      .doc = std::move(doc),
      .attrs_type = &AttrsOf<ScatterAttrs>(),
      .inputs = {Optional("data", If(HasData)), "indices", "updates"},
      .infer = infer,
      .check = check,
      .gradient = gradient,
  };
}

}  // namespace

const OpDef& ScatterNDOp() {
  static const OpDef op = Scatter(
      "ScatterND", "data with updates at what tuples of indices name; several at one place are joined in order.",
      InferScatterND, CheckScatter, [](const GradientContext& g) {
        const auto& attrs = g.attrs<ScatterAttrs>();
        const Symbol& indices = g.input(g.num_inputs() - 2);
        return ScatterGradient(
            g,
            [&](const Symbol& x) {
              TakeAttrs take = RowAttrs(attrs);
              take.mode = Back(take.mode);
              return GatherND(x, indices, take);
            },
            [&](const Symbol& data, const Symbol& updates, ScatterReduction reduction) {
              ScatterAttrs put = attrs;
              put.reduction = reduction;
              return ScatterND(data, indices, updates, put);
            });
      });
  return op;
}

const OpDef& ScatterElementsOp() {
  static const OpDef op = Scatter(
      "ScatterElements", "data with updates at the elements that indices name along an axis; see ScatterND.",
      InferScatterElements, CheckScatterElements, [](const GradientContext& g) {
        const auto& attrs = g.attrs<ScatterAttrs>();
        const Symbol& indices = g.input(g.num_inputs() - 2);
        return ScatterGradient(
            g,
            [&](const Symbol& x) { return GatherElements(x, indices, {.axis = attrs.axis, .mode = Back(attrs.mode)}); },
            [&](const Symbol& data, const Symbol& updates, ScatterReduction reduction) {
              ScatterAttrs put = attrs;
              put.reduction = reduction;
              return ScatterElements(data, indices, updates, put);
            });
      });
  return op;
}

}  // namespace bindery
