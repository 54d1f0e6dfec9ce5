// Sums of several operands and to an operand's shape; zeros and constants.
#include "base/error.h"
#include "symbol/ops/activation.h"
#include "symbol/ops/broadcast.h"
#include "symbol/ops/common.h"
#include "symbol/ops/elementwise.h"

namespace bindery {
namespace {

void InferSumLike(InferContext& c) {
  const auto like = rule::Value::In(c, 1);
  rule::Alike({like, rule::Value::Out(c, 0)});
  if (like.shape() && c.input(0) && !rule::StretchesTo(*like.shape(), *c.input(0))) {
    Throw<ShapeError>("{} does not come from broadcasting {}", *c.input(0), *like.shape());
  }
}

const ConstantAttrs& Checked(const ConstantAttrs& attrs) {
  if (attrs.value == nullptr) throw ModelError("value is missing");
  return attrs;
}

}  // namespace

bool ConstantAttrs::operator==(const ConstantAttrs& other) const {
  return value == other.value || (value != nullptr && other.value != nullptr && *value == *other.value);
}

Symbol Constant(HostTensor value, const std::string& name) {
  return Apply(ConstantOp(), ConstantAttrs{std::make_shared<const HostTensor>(std::move(value))}, {}, name);
}

const OpDef& AddNOp() {
  static const OpDef op = {
      .name = "AddN",
      .doc = "arg0 + arg1 + ..., in order; one shape.",
      .inputs = rule::AnyNumberOfInputs,
      .infer_shape = rule::AllAlike,
      .batch_axis = rule::BatchAligned,
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        // Each gets dy.
        return std::vector<Symbol>(g.num_inputs(), g.output_grad(0));
      },
      .inplace = {{0, 0}},
      .zero_to_zero = true,
  };
  return op;
}

const OpDef& AddReluOp() {
  static const OpDef op = {
      .name = "AddRelu",
      .doc = "max(0, a + b) of one shape. Made by fusion.",
      .inputs = rule::Inputs({"a", "b"}),
      .infer_shape = rule::AllAlike,
      .batch_axis = rule::BatchAligned,
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        // da = db = dy [y > 0]
        const Symbol grad = Apply(ActivationGradOp(), ActivationAttrs{ActivationType::kRelu},
                                  {g.output_grad(0), g.output(0)}, g.NameFor("relu"));
        return {grad, grad};
      },
      .inplace = {{0, 0}, {1, 0}},
      .zero_to_zero = true,
  };
  return op;
}

const OpDef& AddReluGradOp() {
  static const OpDef op = {
      .name = "AddReluGrad",
      .doc = "(g0 + g1) [output > 0] of one shape. Made by fusion.",
      .inputs = rule::Inputs({"g0", "g1", "output"}),
      .infer_shape = rule::AllAlike,
      .batch_axis = rule::BatchedAs(2),
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        // dg0 = dg1 = dx [output > 0]; nothing for the output, as relu' is piecewise constant.
        const Symbol grad = Apply(ActivationGradOp(), ActivationAttrs{ActivationType::kRelu},
                                  {g.output_grad(0), g.input(2)}, g.NameFor("relu"));
        return {grad, grad, {}};
      },
      .inplace = {{0, 0}, {1, 0}, {2, 0}},
      .zero_to_zero = true,
  };
  return op;
}

const OpDef& SumLikeOp() {
  static const OpDef op = {
      .name = "SumLike",
      .doc = "data summed over the axes along which `like` was broadcast to data's shape.",
      .inputs = rule::Inputs({"data", "like"}),
      .shape_only = {1},
      .infer_shape = InferSumLike,
      .batch_axis = rule::BatchedAs(1),
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        // ddata = dy stretched to data's shape
        const Symbol zeros = Apply(ZerosLikeOp(), {}, {g.input(0)}, g.NameFor("zeros"));
        return {Add(g.output_grad(0), zeros, g.NameFor("data")), {}};
      },
      // is_view stays false: it is one only if the shapes are equal, which the executor sees for itself.
      .zero_to_zero = true,
  };
  return op;
}

const OpDef& ZerosLikeOp() {
  static const OpDef op = {
      .name = "ZerosLike",
      .doc = "Zeros of the shape and type of `like`.",
      .inputs = rule::Inputs({"like"}),
      .shape_only = {0},
      .infer_shape = rule::AllAlike,
      .gradient = [](const GradientContext&) -> std::vector<Symbol> { return {}; },  // a constant
      .zero_to_zero = true,
  };
  return op;
}

const OpDef& ConstantOp() {
  static const OpDef op = {
      .name = "Constant",
      .doc = "A tensor given with the model.",
      .attrs_type = &AttrsOf<ConstantAttrs>(),
      .inputs = rule::Inputs({}),
      .infer_shape = [](InferContext& c) { c.SetOutput(0, Checked(c.attrs<ConstantAttrs>()).value->shape()); },
      .infer_dtype = [](InferDTypeContext& c) { c.SetOutput(0, Checked(c.attrs<ConstantAttrs>()).value->dtype()); },
      .batch_axis = rule::NotBatched,
      .check = [](const AnyAttrs& attrs) { Checked(attrs.get<ConstantAttrs>()); },
      .gradient = [](const GradientContext&) -> std::vector<Symbol> { return {}; },  // no inputs
  };
  return op;
}

}  // namespace bindery
