#include "symbol/ops/dropout.h"

#include "base/error.h"
#include "symbol/ops/common.h"

namespace bindery {
namespace {

void CheckAttrs(const AnyAttrs& any) {
  const auto& attrs = any.get<DropoutAttrs>();
  if (!(attrs.p >= 0 && attrs.p < 1)) Throw<ModelError>("p must be at least 0 and less than 1, got {}", attrs.p);
  rule::CheckAxesAttr("axes", attrs.axes);
}

// The mask's shape for a data shape.
Shape MaskShape(const DropoutAttrs& attrs, Shape data) {
  for (int64_t axis : attrs.axes) data.Set(rule::Axis(axis, data), 1);
  return data;
}

void InferDropout(InferContext& c) {
  const auto data = rule::Value::In(c, 0);
  rule::Alike({data, rule::Value::Out(c, 0)});
  if (data.shape()) c.SetOutput(1, MaskShape(c.attrs<DropoutAttrs>(), *data.shape()));
}

void InferDropoutGrad(InferContext& c) {
  const auto output_grad = rule::Value::In(c, 0);
  rule::Alike({output_grad, rule::Value::Out(c, 0)});
  if (output_grad.shape()) {
    c.SetInput(1, MaskShape(c.attrs<DropoutAttrs>(), *output_grad.shape()));
  } else if (c.attrs<DropoutAttrs>().axes.empty() && c.input(1)) {
    output_grad.Set(*c.input(1));
  }
}

void DropoutBatchAxis(BatchAxisContext& c) {
  const int axis = c.input_axes[0];
  c.output_axes = {axis, axis};
  if (axis < 0) return;
  for (int64_t shared : c.attrs<DropoutAttrs>().axes) {
    if (rule::Axis(shared, c.input_shapes[0]) == axis) c.output_axes[1] = -1;  // one decision for all samples
  }
}

}  // namespace

Symbol Dropout(const Symbol& data, const DropoutAttrs& attrs, const std::string& name) {
  return Apply(DropoutOp(), attrs, {data}, name);
}

Symbol DropoutGrad(const Symbol& output_grad, const Symbol& mask, const DropoutAttrs& attrs, const std::string& name) {
  return Apply(DropoutGradOp(), attrs, {output_grad, mask}, name);
}

const OpDef& DropoutOp() {
  static const OpDef op = {
      .name = "Dropout",
      .doc = "y = x mask / (1 - p) with mask = 1 with probability 1 - p in training; y = x in prediction.",
      .attrs_type = &AttrsOf<DropoutAttrs>(),
      .outputs = rule::Outputs({"output", "mask"}),
      .num_visible_outputs = [](const AnyAttrs&) { return 1; },
      .infer_shape = InferDropout,
      .infer_dtype =
          [](InferDTypeContext& c) {
            rule::AlikeDTypes(c, {0}, {0});
            c.SetOutput(1, DType::kUInt8);
          },
      .batch_axis = DropoutBatchAxis,
      .check = CheckAttrs,
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
      .inputs = rule::Inputs({"output_grad", "mask"}),
      .infer_shape = InferDropoutGrad,
      .infer_dtype =
          [](InferDTypeContext& c) {
            rule::AlikeDTypes(c, {0}, {0});
            c.SetInput(1, DType::kUInt8);
          },
      .check = CheckAttrs,
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
