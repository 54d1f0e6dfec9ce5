// BroadcastTo and SumTo, which are each other's gradients.
#include "base/error.h"
#include "symbol/infer.h"
#include "symbol/ops/broadcast.h"
#include "symbol/ops/numbers.h"
#include "symbol/ops/rules.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

void CheckToShapeAttrs(const AnyAttrs& any) {
  const auto& [shape, batches] = any.get<ToShapeAttrs>();
  rule::CheckExtentsAttr({shape, batches});
}

// The batch is along the axis that follows it; or where the samples were, aligned at the last axis, if there are as
// many.
void InferToShape(InferContext& c, bool broadcasts) {
  const auto& [shape, batches] = c.attrs<ToShapeAttrs>();
  const rule::ExtentList list{shape, batches};
  const rule::Value data = c.in(0), output = c.out(0);
  rule::SameDType({data, output});
  const Shape target = rule::ShapeAt(list, c.batch());
  output.Set(target);
  if (!data.shape()) return;
  if (broadcasts && !rule::StretchesTo(*data.shape(), target)) {
    Throw<ShapeError>("{} does not broadcast to {}", *data.shape(), target);
  }
  if (!broadcasts && !rule::StretchesTo(target, *data.shape())) {
    Throw<ShapeError>("{} does not come from broadcasting {}", *data.shape(), target);
  }
  if (list.FirstFollowing() >= 0) return c.PlaceBatch(0, list.FirstFollowing());
  rule::CarryAligned(data, output);
}

OpDef ToShape(std::string name, std::string doc, bool broadcasts,
              Symbol (*back)(const Symbol& grad, const Extents& shape)) {
  return {
      .name = std::move(name),
      .doc = std::move(doc),
      .attrs_type = &AttrsOf<ToShapeAttrs>(),
      .infer = [broadcasts](InferContext& c) { InferToShape(c, broadcasts); },
      .check = CheckToShapeAttrs,
      .gradient = [back](const GradientContext& g) { return std::vector{back(g.output_grad(0), g.shape(0))}; },
      .numbers = broadcasts ? rule::NumbersRule(rule::BroadcastNumbers) : nullptr,
      .is_view = [](const ViewContext& c) { return c.input.shape == c.output.shape; },
      .zero_to_zero = true,
  };
}

}  // namespace

const OpDef& BroadcastToOp() {  // dx = dy, summed over what was repeated
  static const OpDef op = ToShape(
      "BroadcastTo", "data stretched to a shape: extents of 1 and missing first axes are repeated.", true, rule::SumTo);
  return op;
}

const OpDef& SumToOp() {  // dx = dy for every element that was added
  static const OpDef op =
      ToShape("SumTo", "data summed over the axes along which a tensor of the shape is stretched to data's.", false,
              [](const Symbol& dy, const Extents& shape) { return rule::BroadcastTo(dy, shape); });
  return op;
}

}  // namespace bindery
