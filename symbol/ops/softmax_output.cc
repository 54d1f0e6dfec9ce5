#include <limits>
#include <utility>

#include "base/error.h"
#include "symbol/ops/arrange.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/indexing.h"
#include "symbol/ops/loss.h"
#include "symbol/ops/reduce.h"
#include "symbol/ops/rules.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

using rule::Value;

void CheckSoftmaxOutputAttrs(const AnyAttrs& any) {
  const auto& attrs = any.get<SoftmaxOutputAttrs>();
  rule::CheckFinite("grad_scale", attrs.grad_scale);
  rule::CheckFinite("ignore_label", attrs.ignore_label);
  if (!(attrs.smooth_alpha >= 0 && attrs.smooth_alpha <= 1)) {
    Throw<ModelError>("smooth_alpha must be from 0 to 1, got {}", attrs.smooth_alpha);
  }
  if (attrs.multi_output && attrs.preserve_shape)
    throw ModelError("multi_output and preserve_shape exclude each other");
  for (const double weight : attrs.class_weights) rule::CheckNotNegative("class_weights", weight);
}

// The label's shape for class numbers: one per softmax.
Shape ClassNumbersShape(const SoftmaxOutputAttrs& attrs, const Shape& data) {
  if (attrs.preserve_shape) return data.Erase(-1);
  if (attrs.multi_output) return data.Erase(1);
  return {data[0]};
}

// Does what is known of the label say that it holds probabilities, of data's shape?
bool IsProbabilities(const SoftmaxOutputAttrs& attrs, const Shape& data, const Shape& label) {
  return label.rank() == data.rank() && label.rank() != ClassNumbersShape(attrs, data).rank();
}

int64_t Classes(const SoftmaxOutputAttrs& attrs, const Shape& data) {
  if (attrs.preserve_shape) return data[-1];
  return attrs.multi_output ? data[1] : rule::ProductFrom(data, 1);
}

void InferLabel(InferContext& c, Value data, Value label) {
  const auto& attrs = c.attrs<SoftmaxOutputAttrs>();
  if (!data.shape()) return;
  const Shape in = *data.shape();
  const int least = attrs.preserve_shape ? 1 : 2;
  if (in.rank() < least) {
    Throw<ShapeError>("expected data of {} or more axes {}, got {}", least,
                      attrs.preserve_shape ? "(..., K)" : "(N, K, ...)", in);
  }
  const int64_t classes = Classes(attrs, in);
  if (classes == 0) Throw<ShapeError>("data {} has no classes", in);
  if (classes == 1 && attrs.smooth_alpha != 0)
    Throw<ShapeError>("label smoothing needs 2 or more classes, got data {}", in);
  const auto weights = std::ssize(attrs.class_weights);
  if (weights > 0 && classes != kUnknownDim && weights != classes) {
    Throw<ShapeError>("{} class_weights for the {} classes of data {}", weights, classes, in);
  }

  if (label.shape() && IsProbabilities(attrs, in, *label.shape())) {
    if (attrs.use_ignore || attrs.normalization == Normalization::kValid || weights > 0) {
      throw ShapeError(
          "use_ignore, normalization valid and class_weights need class numbers, but the label has data's shape");
    }
    if (in.IsKnown() && label.shape()->IsKnown() && *label.shape() != in) {
      Throw<ShapeError>("label {} for data {}: expected {} of class numbers, or {} of probabilities", *label.shape(),
                        in, ClassNumbersShape(attrs, in), in);
    }
    rule::SameShape({data, label});
    return;
  }
  const bool of_positions = label.shape() && in.rank() > 2 && !attrs.preserve_shape && !attrs.multi_output &&
                            (*label.shape() == in.Erase(-1) || *label.shape() == in.Erase(1));
  if (of_positions) {
    Throw<ShapeError>(
        "data {} with label {}: classes of each position are asked for by preserve_shape, along the last axis, or by "
        "multi_output, along axis 1; without, a sample has one class, label {}",
        in, *label.shape(), ClassNumbersShape(attrs, in));
  }
  if (!label.shape() && !c.may_assume()) return;  // it may yet turn out to be probabilities
  label.Set(ClassNumbersShape(attrs, in));
  Shape back = in;
  const Shape numbers = *label.shape();
  if (attrs.preserve_shape) {
    back = numbers.Insert(numbers.rank(), in[-1]);
  } else if (attrs.multi_output) {
    back = numbers.Insert(1, in[1]);
  } else {
    back.Set(0, numbers[0]);
  }
  data.Set(back);
}

// Data and label -> output; of the gradient: output, label [, valid count] [, head gradient] -> data gradient.
void InferOutput(InferContext& c) {
  const Value data = c.in(0), output = c.out(0);
  rule::Same({data, output});
  InferLabel(c, data, c.in(1));  // of any type
  rule::SameShape({data, output});
  const auto& attrs = c.attrs<SoftmaxOutputAttrs>();
  data.Carry(output, [&](int axis) {  // a softmax over the batch mixes samples
    const bool inside = attrs.preserve_shape ? axis == data.shape()->rank() - 1
                        : attrs.multi_output ? axis == 1
                                             : axis > 0;
    return inside ? -1 : axis;
  });
}

void InferOutputGrad(InferContext& c) {
  rule::Same({c.in(0), c.in(3), c.out(0)});
  InferOutput(c);
  c.in(2).Set({1});
  c.in(2).SetDType(DType::kFloat32);
}

// Of labels that are no probabilities.
std::optional<WholeNumbers> AskedLabels(const AnyAttrs& any, std::span<const Shape> in) {
  const auto& attrs = any.get<SoftmaxOutputAttrs>();
  if (in[1] == in[0]) return std::nullopt;
  WholeNumbers range = WholeNumbers::UpTo(Classes(attrs, in[0]) - 1);
  if (attrs.use_ignore) range.besides = attrs.ignore_label;
  return range;
}

bool CountsValid(const SoftmaxOutputAttrs& attrs) { return attrs.normalization == Normalization::kValid; }

// Of each label, is it no ignored one?
Symbol AreValid(const GradientContext& g) {
  const auto& attrs = g.attrs<SoftmaxOutputAttrs>();
  const double ignored = attrs.use_ignore ? attrs.ignore_label : std::numeric_limits<double>::quiet_NaN();  // none
  return NotEqual(Cast(g.input(1), {.dtype = DType::kFloat64}), ignored);
}

// What rows of the gradient are multiplied by: the weight of each label, over the sum of all devices' valid ones if
// that is the divisor; with axes of 1 for the classes.
Symbol FactorsOf(const GradientContext& g) {
  const auto& attrs = g.attrs<SoftmaxOutputAttrs>();
  const DType dtype = rule::StatisticsDType(g.dtype(0));
  HostTensor weights(dtype, {std::ssize(attrs.class_weights)});
  for (int64_t i = 0; i < weights.elements(); ++i) weights.Set(i, attrs.class_weights[static_cast<size_t>(i)]);
  // The gradient's kernel refuses labels of no class.
  Symbol factors = Take(Constant(std::move(weights)), g.input(1), {.mode = IndexMode::kClip});
  if (CountsValid(attrs)) {
    const Symbol sum = SumOverDevices(Sum(factors * Cast(AreValid(g), {.dtype = dtype})));
    factors = factors / Where(Greater(sum, 0.0), sum, 1.0);
  }
  const int rank = static_cast<int>(g.shape(0).size());
  std::vector<int64_t> axes = {attrs.preserve_shape ? rank - 1 : 1};
  while (!attrs.preserve_shape && !attrs.multi_output && std::ssize(axes) < rank - 1) axes.push_back(axes.back() + 1);
  return Cast(ExpandDims(factors, {.axes = axes}), {.dtype = g.dtype(0)});
}

// dx = (p - target) grad_scale / divisor, zero for ignored samples; times the head gradient if out_grad, and times the
// weights of labels.
std::vector<Symbol> Gradient(const GradientContext& g) {
  SoftmaxOutputAttrs attrs = g.attrs<SoftmaxOutputAttrs>();
  if (!g.wants(0) || (attrs.out_grad && g.output_grad(0).empty())) return {};
  std::vector<Symbol> inputs = {g.output(0), g.input(1)};
  const bool weighted = !std::exchange(attrs.class_weights, {}).empty();
  if (CountsValid(attrs)) {
    inputs.push_back(weighted ? Constant(HostTensor::From({1}, {1})) : CountOverDevices(AreValid(g)));
  }
  if (attrs.out_grad) inputs.push_back(g.output_grad(0));
  Symbol gradient = Apply(SoftmaxOutputGradOp(), attrs, std::move(inputs));
  if (weighted) gradient = gradient * FactorsOf(g);
  return {gradient, {}};
}

}  // namespace

const OpDef& SoftmaxOutputOp() {
  static const OpDef op = {
      .name = "SoftmaxOutput",
      .doc = "p = softmax(x); a loss head: dx = (p - target) grad_scale / divisor, times the weight of the label.",
      .attrs_type = &AttrsOf<SoftmaxOutputAttrs>(),
      .inputs = {"data", "label"},
      .infer = InferOutput,
      .asks = {{.input = "label", .range = AskedLabels, .in_training = true}},
      .check = CheckSoftmaxOutputAttrs,
      .gradient = Gradient,
      .is_loss = [](const AnyAttrs& attrs) { return !attrs.get<SoftmaxOutputAttrs>().out_grad; },
      .is_mean =
          [](const AnyAttrs& attrs) { return attrs.get<SoftmaxOutputAttrs>().normalization != Normalization::kNull; },
      .inplace = {{0, 0}},
  };
  return op;
}

const OpDef& SoftmaxOutputGradOp() {
  static const OpDef op = {
      .name = "SoftmaxOutputGrad",
      .doc =
          "dx = (p - target) grad_scale / divisor, zero for ignored samples; times the head gradient if there is one.",
      .attrs_type = &AttrsOf<SoftmaxOutputAttrs>(),
      .inputs = {"output", "label", Optional("valid_count", If(CountsValid)),
                 Optional("head_grad", If(&SoftmaxOutputAttrs::out_grad))},
      .infer = InferOutputGrad,
      .check = CheckSoftmaxOutputAttrs,
      .not_differentiable = "a loss head's gradient is a convention, not a function of its output alone",
      .inplace = {{0, 0}},
      .reads_step = true,
  };
  return op;
}

}  // namespace bindery
