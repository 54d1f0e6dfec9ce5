// BroadcastTo and SumTo, which are each other's gradients.
#include "base/error.h"
#include "symbol/infer.h"
#include "symbol/ops/broadcast.h"
#include "symbol/ops/common.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

using rule::Value;

void CheckAttrs(const AnyAttrs& any) {
  const auto& [shape, batches] = any.get<ToShapeAttrs>();
  if (shape.size() > Shape::kMaxRank) {
    Throw<ModelError>("shape has {} entries, more than the {} axes a shape can have", shape.size(), Shape::kMaxRank);
  }
  rule::CheckBatches("batches", batches, shape);
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] >= 0 || (!batches.empty() && batches[i] != 0)) continue;
    Throw<ModelError>("shape must have extents of 0 or more, got {}", rule::ToString(shape));
  }
}

Shape Target(InferContext& c) {
  const auto& [shape, batches] = c.attrs<ToShapeAttrs>();
  Shape target = rule::Unknown(static_cast<int>(shape.size()));
  for (int i = 0; i < target.rank(); ++i) target.Set(i, rule::ExtentAt(shape, batches, i, c.batch()));
  return target;
}

void InferBroadcastTo(InferContext& c) {
  const Shape target = Target(c);
  c.SetOutput(0, target);
  if (c.input(0) && !rule::StretchesTo(*c.input(0), target)) {
    Throw<ShapeError>("{} does not broadcast to {}", *c.input(0), target);
  }
}

void InferSumTo(InferContext& c) {
  const Shape target = Target(c);
  c.SetOutput(0, target);
  if (c.input(0) && !rule::StretchesTo(target, *c.input(0))) {
    Throw<ShapeError>("{} does not come from broadcasting {}", *c.input(0), target);
  }
}

// The axis that follows the batch; or where the samples were, aligned at the last axis, if there are as many.
void ToShapeBatchAxis(BatchAxisContext& c) {
  c.output_axes[0] = rule::FollowingAxis(c.attrs<ToShapeAttrs>().batches);
  if (c.output_axes[0] < 0) rule::BatchAligned(c);
}

OpDef ToShape(std::string name, std::string doc) {
  return {
      .name = std::move(name),
      .doc = std::move(doc),
      .attrs_type = &AttrsOf<ToShapeAttrs>(),
      .batch_axis = ToShapeBatchAxis,
      .check = CheckAttrs,
      .is_view = [](const ViewContext& c) { return c.input.shape == c.output.shape; },
      .zero_to_zero = true,
  };
}

}  // namespace

Symbol BroadcastTo(const Symbol& data, const ToShapeAttrs& attrs, const std::string& name) {
  return Apply(BroadcastToOp(), attrs, {data}, name);
}
Symbol SumTo(const Symbol& data, const ToShapeAttrs& attrs, const std::string& name) {
  return Apply(SumToOp(), attrs, {data}, name);
}

const OpDef& BroadcastToOp() {
  static const OpDef op = [] {
    OpDef def = ToShape("BroadcastTo", "data stretched to a shape: extents of 1 and missing first axes are repeated.");
    def.infer_shape = InferBroadcastTo;
    def.gradient = [](const GradientContext& g) -> std::vector<Symbol> {
      // dx = dy, summed over what was repeated
      return {rule::SumTo(g.output_grad(0), g.shape(0))};
    };
    return def;
  }();
  return op;
}

const OpDef& SumToOp() {
  static const OpDef op = [] {
    OpDef def = ToShape("SumTo", "data summed over the axes along which a tensor of the shape is stretched to data's.");
    def.infer_shape = InferSumTo;
    def.gradient = [](const GradientContext& g) -> std::vector<Symbol> {
      // dx = dy for every element that was added
      return {rule::BroadcastTo(g.output_grad(0), g.shape(0))};
    };
    return def;
  }();
  return op;
}

}  // namespace bindery
