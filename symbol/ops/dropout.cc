#include "symbol/ops/dropout.h"

#include <algorithm>

#include "base/error.h"
#include "symbol/ops/rules.h"

namespace bindery {
namespace {

using rule::Value;

void CheckDropoutAttrs(const AnyAttrs& any) {
  const auto& attrs = any.get<DropoutAttrs>();
  if (!(attrs.p >= 0 && attrs.p < 1)) Throw<ModelError>("p must be at least 0 and less than 1, got {}", attrs.p);
  rule::CheckAxesAttr("axes", attrs.axes);
}

// The mask is uint8, of data's shape but for the axes along which a decision is shared: 1 there. From the mask data's
// shape follows if none is.
void InferMask(const DropoutAttrs& attrs, Value data, Value mask) {
  mask.SetDType(DType::kUInt8);
  if (!data.shape() && attrs.axes.empty() && mask.shape()) data.Set(*mask.shape());
  if (!data.shape()) return;
  Shape shape = *data.shape();
  for (int64_t axis : attrs.axes) shape.Set(rule::Axis(axis, shape), 1);
  mask.Set(shape);
  data.Carry(mask, [&](int axis) {
    const auto shared = [&](int64_t of_all) { return rule::Axis(of_all, shape) == axis; };
    return std::ranges::any_of(attrs.axes, shared) ? -1 : axis;
  });
}

void InferDropout(InferContext& c, Value mask) {
  rule::Same({c.in(0), c.out(0)});
  InferMask(c.attrs<DropoutAttrs>(), c.in(0), mask);
  rule::SameShape({c.in(0), c.out(0)});
  c.in(0).Carry(c.out(0));
  mask.Carry(c.out(0));  // in the gradient
}

}  // namespace

const OpDef& DropoutOp() {
  static const OpDef op = {
      .name = "Dropout",
      .doc = "y = x mask / (1 - p) with mask = 1 with probability 1 - p in training; y = x in prediction.",
      .attrs_type = &AttrsOf<DropoutAttrs>(),
      .outputs = {"output", Hidden("mask")},
      .infer = [](InferContext& c) { InferDropout(c, c.out(1)); },
      .check = CheckDropoutAttrs,
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        // dx = dy mask / (1 - p)
        return {DropoutGrad(g.output_grad(0), g.output(1), g.attrs<DropoutAttrs>())};
      },
      .inplace = {{0, 0}},
      .is_view =
          [](const ViewContext& c) {
            const auto& attrs = c.attrs.get<DropoutAttrs>();
            return (attrs.p == 0 || (!c.training && attrs.mode != DropoutMode::kAlways)) && !c.by_products;
          },
      .zero_to_zero = true,
      .is_random = true,
  };
  return op;
}

const OpDef& DropoutGradOp() {
  static const OpDef op = {
      .name = "DropoutGrad",
      .doc = "dx = dy mask / (1 - p); dx = dy where the forward pass was the identity.",
      .attrs_type = &AttrsOf<DropoutAttrs>(),
      .inputs = {"output_grad", "mask"},
      .infer = [](InferContext& c) { InferDropout(c, c.in(1)); },
      .check = CheckDropoutAttrs,
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        // Linear in dy, with the same factor.
        return {DropoutGrad(g.output_grad(0), g.input(1), g.attrs<DropoutAttrs>()), {}};
      },
      .inplace = {{0, 0}},
      .zero_to_zero = true,
  };
  return op;
}

}  // namespace bindery
