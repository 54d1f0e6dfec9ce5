#include "symbol/ops/normalize.h"

#include "base/error.h"
#include "symbol/compose.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/reduce.h"
#include "symbol/ops/rules.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

using rule::Value;

void CheckNormalize(const AnyAttrs& any) {
  const auto& attrs = any.get<NormalizeAttrs>();
  rule::CheckAxisAttr("axis", attrs.axis);
  rule::CheckAtLeast("groups", attrs.groups, -1);
  rule::CheckNotNegative("eps", attrs.eps);
}

// From the axis on a group, whose shape the parameters have.
void InferByAxis(int64_t first_axis, Value data, std::initializer_list<Value> parameters,
                 std::initializer_list<Value> statistics) {
  const int first = rule::Axis(first_axis, *data.shape());
  for (const Value& parameter : parameters) {
    parameter.Set(Shape(data.shape()->dims().subspan(first)));
    if (!parameter.shape()) continue;
    Shape known = *data.shape();
    for (int axis = first; axis < known.rank(); ++axis) known.Set(axis, (*parameter.shape())[axis - first]);
    data.Set(known);
  }
  Shape ones = *data.shape();
  for (int axis = first; axis < ones.rank(); ++axis) ones.Set(axis, 1);
  for (const Value& value : statistics) value.Set(ones);
}

void InferByChannel(int64_t groups, Value data, std::initializer_list<Value> parameters,
                    std::initializer_list<Value> statistics) {
  if (data.shape()->rank() < 2) Throw<ShapeError>("expected 2 or more axes (N, C, ...), got {}", *data.shape());
  for (const Value& parameter : parameters) {
    parameter.Set({(*data.shape())[1]});
    if (parameter.shape()) data.Set(data.shape()->With(1, (*parameter.shape())[0]));
  }
  const int64_t channels = (*data.shape())[1];
  if (groups > 0 && channels != kUnknownDim && channels % groups != 0) {
    Throw<ShapeError>("{} channels are not divisible by groups {}", channels, groups);
  }
  for (const Value& value : statistics) value.Set({(*data.shape())[0], groups > 0 ? groups : channels});
}

// One rule for the operator and its gradient: `output` is the output or its gradient.
void InferNormalize(const NormalizeAttrs& attrs, Value data, Value output, std::initializer_list<Value> parameters,
                    std::initializer_list<Value> statistics) {
  rule::Same({data, output});
  for (const Value& parameter : parameters) rule::SameDType({data, parameter});
  rule::ExpectFloat(data);
  if (data.dtype()) {
    for (const Value& value : statistics) value.SetDType(rule::StatisticsDType(*data.dtype()));
  }
  if (!data.shape()) return;
  attrs.groups == 0 ? InferByAxis(attrs.axis, data, parameters, statistics)
                    : InferByChannel(attrs.groups, data, parameters, statistics);
  rule::Same({data, output});
}

// Groups of samples that stay apart.
void CarryNormalize(const NormalizeAttrs& attrs, Value data, Value to) {
  if (!data.shape()) return;
  const int first = attrs.groups == 0 ? rule::Axis(attrs.axis, *data.shape()) : 1;
  data.Carry(to, [first](int axis) { return axis < first ? axis : -1; });
}

void CheckLRN(const AnyAttrs& any) {
  const auto& attrs = any.get<LRNAttrs>();
  rule::CheckAtLeast("size", attrs.size, 1);
  rule::CheckFinite("alpha", attrs.alpha);
  rule::CheckFinite("beta", attrs.beta);
  rule::CheckFinite("bias", attrs.bias);
  if (attrs.bias <= 0 || attrs.alpha < 0) {
    Throw<ModelError>("bias must be above 0 and alpha not below, got {} and {}", attrs.bias, attrs.alpha);
  }
}

void InferLRN(InferContext& c) {
  rule::AllAlike(c);
  const Value data = c.in(c.num_inputs() - 1);
  rule::ExpectFloat(data);
  if (!data.shape()) return;
  if (data.shape()->rank() < 2) Throw<ShapeError>("expected 2 or more axes (N, C, ...), got {}", *data.shape());
  data.Carry(c.out(0), [](int axis) { return axis == 1 ? -1 : axis; });
}

void CheckStandardize(const AnyAttrs& any) {
  const auto& attrs = any.get<StandardizeAttrs>();
  rule::CheckAxesAttr("axes", attrs.axes);
  rule::CheckNotNegative("eps", attrs.eps);
}

std::vector<Symbol> ComposeStandardize(const ComposeContext& c) {
  const auto& attrs = c.attrs<StandardizeAttrs>();
  const std::optional<DType> dtype = c.dtypes[0];
  // A type that is not known yet may follow from what is behind: it is handed on.
  const bool is_narrow = dtype && rule::StatisticsDType(*dtype) != *dtype;
  const ReduceAttrs over{.axes = attrs.axes, .keepdims = true};
  Symbol x = is_narrow ? Cast(c.inputs[0], {.dtype = rule::StatisticsDType(*dtype)}) : c.inputs[0];
  if (attrs.center) x = x - Mean(x, over);
  const Symbol root = Sqrt((attrs.sum ? Sum(Square(x), over) : Mean(Square(x), over)) + attrs.eps);
  if (!is_narrow) return {Div(x, root, c.name)};
  return {Cast(x / root, {.dtype = *dtype}, c.name)};
}

}  // namespace

Symbol L2Normalization(const Symbol& data, L2Mode mode, double eps, const std::string& name) {
  if (mode == L2Mode::kChannel) {
    return Standardize(data, {.axes = {1}, .eps = eps, .center = false, .sum = true}, name);
  }
  const int64_t axis = mode == L2Mode::kInstance ? 1 : 2;
  return Normalize(data, {.axis = axis, .eps = eps, .center = false, .sum = true, .scale = false, .shift = false},
                   name);
}

Symbol MeanVarianceNormalization(const Symbol& data, const std::vector<int64_t>& axes, double eps,
                                 const std::string& name) {
  return Standardize(data, {.axes = axes, .eps = eps * eps}, name);
}

const OpDef& NormalizeOp() {
  static const OpDef op = {
      .name = "Normalize",
      .doc = "y = (x - m) / sqrt(mean (x - m)^2 + eps) gamma + beta, with the mean m of a group of elements.",
      .attrs_type = &AttrsOf<NormalizeAttrs>(),
      .inputs = {"data", Optional("gamma", If(&NormalizeAttrs::scale)), Optional("beta", If(&NormalizeAttrs::shift))},
      .outputs = {"output", Hidden("mean", Unless(&NormalizeAttrs::output_statistics)), "inverse"},
      .infer =
          [](InferContext& c) {
            const auto& attrs = c.attrs<NormalizeAttrs>();
            InferNormalize(attrs, c.in(0), c.out(0), {c.in(1), c.in(2)}, {c.out(1), c.out(2)});
            for (int i = 0; i < 3; ++i) CarryNormalize(attrs, c.in(0), c.out(i));
          },
      .check = CheckNormalize,
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        // See NormalizeGrad. The statistics have none.
        const auto& attrs = g.attrs<NormalizeAttrs>();
        if (g.output_grad(0).empty()) return {};
        std::vector<Symbol> inputs = {g.output_grad(0), g.input(0), g.output(1), g.output(2)};
        if (attrs.scale) inputs.push_back(g.input(1));
        return ApplyAll(NormalizeGradOp(), attrs, std::move(inputs));
      },
      .inplace = {{0, 0}},
  };
  return op;
}

const OpDef& NormalizeGradOp() {
  static const OpDef op = {
      .name = "NormalizeGrad",
      .doc =
          "With g = dy gamma and x^ = (x - m) r: dx = r (g - mean g - x^ mean(g x^)), dgamma = sum dy x^, dbeta = "
          "sum dy; without `center` there is no mean g, with `sum` no division of the other.",
      .attrs_type = &AttrsOf<NormalizeAttrs>(),
      .inputs = {"output_grad", "data", "mean", "inverse", Optional("gamma", If(&NormalizeAttrs::scale))},
      .outputs = {"data_grad", Optional("gamma_grad", If(&NormalizeAttrs::scale)),
                  Optional("beta_grad", If(&NormalizeAttrs::shift))},
      .infer =
          [](InferContext& c) {
            const auto& attrs = c.attrs<NormalizeAttrs>();
            rule::Same({c.in(1), c.out(0)});
            InferNormalize(attrs, c.in(1), c.in(0), {c.in(4), c.out(1), c.out(2)}, {c.in(2), c.in(3)});
            rule::Same({c.in(1), c.out(0)});
            CarryNormalize(attrs, c.in(1), c.out(0));
          },
      .check = CheckNormalize,
      .not_differentiable = "the second derivative of a normalisation is not provided",
      .inplace = {{0, 0}},
  };
  return op;
}

const OpDef& StandardizeOp() {
  static const OpDef op = Composed("Standardize", "(x - m) / sqrt(mean (x - m)^2 + eps), with the mean m over axes.",
                                   &AttrsOf<StandardizeAttrs>(), ComposeStandardize, CheckStandardize);
  return op;
}

const OpDef& LRNOp() {
  static const OpDef op = {
      .name = "LRN",
      .doc = "y = x s^-beta, s = bias + alpha / size sum x^2 over neighbouring channels.",
      .attrs_type = &AttrsOf<LRNAttrs>(),
      .infer = InferLRN,
      .check = CheckLRN,
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        return {Apply(LRNGradOp(), g.attrs<LRNAttrs>(), {g.output_grad(0), g.input(0)})};
      },
      .zero_to_zero = true,
  };
  return op;
}

const OpDef& LRNGradOp() {
  static const OpDef op = {
      .name = "LRNGrad",
      .doc =
          "dx_c = dy_c s_c^-beta - 2 alpha beta / size x_c sum dy_k x_k s_k^(-beta-1) over the k whose windows have c.",
      .attrs_type = &AttrsOf<LRNAttrs>(),
      .inputs = {"output_grad", "data"},
      .infer = InferLRN,
      .check = CheckLRN,
      .not_differentiable = "the second derivative of a normalisation is not provided",
  };
  return op;
}

}  // namespace bindery
