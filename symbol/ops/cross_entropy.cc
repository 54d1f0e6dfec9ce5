#include "symbol/ops/cross_entropy.h"

#include "base/error.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/loss.h"
#include "symbol/ops/reduce.h"
#include "symbol/ops/rules.h"

namespace bindery {
namespace {

using rule::Value;

void CheckCrossEntropyAttrs(const AnyAttrs& any) {
  const auto& attrs = any.get<CrossEntropyAttrs>();
  rule::CheckAxisAttr("axis", attrs.axis);
  rule::CheckFinite("ignore_label", attrs.ignore_label);
  if (!(attrs.label_smoothing >= 0 && attrs.label_smoothing <= 1)) {
    Throw<ModelError>("label_smoothing must be from 0 to 1, got {}", attrs.label_smoothing);
  }
}

// `of_labels` have data's shape without the axis, and not 16 bits, in which their sum would be lost; the labels may
// have any type.
void InferLosses(const CrossEntropyAttrs& attrs, Value data, Value label, Value weight,
                 std::initializer_list<Value> of_labels) {
  rule::ExpectFloat(data);
  rule::SameDType({data, weight});
  for (const Value& value : of_labels) {
    if (data.dtype()) {
      value.SetDType(rule::StatisticsDType(*data.dtype()));
    } else if (value.dtype() && SizeOf(*value.dtype()) < 4) {
      Throw<ShapeError>("losses are float32 or float64, got {}", *value.dtype());
    }
  }
  if (!data.shape()) return;
  const int axis = rule::Axis(attrs.axis, *data.shape());
  if ((*data.shape())[axis] == 0) Throw<ShapeError>("data {} has no classes", *data.shape());
  label.Set(data.shape()->Erase(axis));
  if (label.shape()) data.Set(label.shape()->Insert(axis, (*data.shape())[axis]));
  for (const Value& value : of_labels) value.Set(data.shape()->Erase(axis));
  weight.Set({(*data.shape())[axis]});
  if (weight.shape()) data.Set(data.shape()->With(axis, (*weight.shape())[0]));
}

void InferForward(InferContext& c) {
  const auto& attrs = c.attrs<CrossEntropyAttrs>();
  InferLosses(attrs, c.in(0), c.in(1), c.in(2), {c.out(0), c.out(1), c.out(2), c.out(3)});
  if (!c.in(0).shape()) return;
  const int along = rule::Axis(attrs.axis, *c.in(0).shape());
  for (int i = 0; i < 4; ++i) {
    c.in(0).Carry(c.out(i), [along](int axis) { return axis == along ? -1 : axis - (axis > along); });
  }
}

void InferBackward(InferContext& c) {
  const auto& attrs = c.attrs<CrossEntropyAttrs>();
  rule::Same({c.in(1), c.out(0)});
  InferLosses(attrs, c.in(1), c.in(2), c.in(3), {c.in(0), c.in(4), c.in(5)});
  rule::Same({c.in(1), c.out(0)});
  if (!c.in(1).shape()) return;
  const int along = rule::Axis(attrs.axis, *c.in(1).shape());
  c.in(1).Carry(c.out(0), [along](int axis) { return axis == along ? -1 : axis; });
}

Symbol Reduced(const Symbol& data, const Symbol& label, const CrossEntropyAttrs& attrs, LossReduction reduction,
               const Symbol& class_weight, const std::string& name) {
  std::vector<Symbol> inputs = {data, label};
  if (attrs.use_weight) inputs.push_back(class_weight);
  const bool each = reduction == LossReduction::kNone;
  const Symbol losses = Apply(CrossEntropyOp(), attrs, std::move(inputs), each || name.empty() ? name : name + "_each");
  if (each) return losses[0];
  const Symbol reduced = reduction == LossReduction::kSum ? Sum(losses[0], {}, name)
                                                          : Div(Sum(losses[0]), SumOverDevices(Sum(losses[1])), name);
  const Symbol merged = reduced.WithAnnotation("merge", "sum");
  return reduction == LossReduction::kMean ? merged.WithAnnotation("is_mean", "true") : merged;
}

std::optional<WholeNumbers> AskedClasses(const AnyAttrs& any, std::span<const Shape> in) {
  const auto& attrs = any.get<CrossEntropyAttrs>();
  WholeNumbers range = WholeNumbers::UpTo(in[0][static_cast<int>(attrs.axis)] - 1);
  if (attrs.use_ignore) range.besides = attrs.ignore_label;
  return range;
}

}  // namespace

Symbol SoftmaxCrossEntropy(const Symbol& data, const Symbol& label, CrossEntropyAttrs attrs, LossReduction reduction,
                           const Symbol& class_weight, const std::string& name) {
  attrs.use_weight = attrs.use_weight || !class_weight.empty();
  return Reduced(data, label, attrs, reduction, class_weight, name);
}

Symbol NegativeLogLikelihood(const Symbol& data, const Symbol& label, CrossEntropyAttrs attrs, LossReduction reduction,
                             const Symbol& class_weight, const std::string& name) {
  attrs.log_input = true;
  return SoftmaxCrossEntropy(data, label, attrs, reduction, class_weight, name);
}

const OpDef& CrossEntropyOp() {
  static const OpDef op = {
      .name = "CrossEntropy",
      .doc = "loss = (1 - a) w[label] -lp[label] + a / K sum_k w_k -lp_k, lp the logarithm of softmax(data).",
      .attrs_type = &AttrsOf<CrossEntropyAttrs>(),
      .inputs = {"data", "label", Optional("class_weight", If(&CrossEntropyAttrs::use_weight))},
      .outputs = {"loss", "weight", Hidden(Optional("maximum", Unless(&CrossEntropyAttrs::log_input))),
                  Optional("log_sum", Unless(&CrossEntropyAttrs::log_input))},
      .infer = InferForward,
      .asks = {{.input = "label", .range = AskedClasses}},
      .check = CheckCrossEntropyAttrs,
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        // See CrossEntropyGrad; of data alone.
        const auto& attrs = g.attrs<CrossEntropyAttrs>();
        std::vector<Symbol> gradients(g.num_inputs());
        if (g.output_grad(0).empty() || !g.wants(0)) return gradients;
        std::vector<Symbol> inputs = {g.output_grad(0), g.input(0), g.input(1)};
        if (attrs.use_weight) inputs.push_back(g.input(2));
        if (!attrs.log_input) inputs.insert(inputs.end(), {g.output(2), g.output(3)});
        gradients[0] = Apply(CrossEntropyGradOp(), attrs, std::move(inputs));
        return gradients;
      },
  };
  return op;
}

const OpDef& CrossEntropyGradOp() {
  static const OpDef op = {
      .name = "CrossEntropyGrad",
      .doc =
          "With the target t_k = (1 - a) w[label] [k = label] + a / K w_k: dx_k = dy (sum t softmax(data)_k - t_k), or "
          "-dy t_k with log_input.",
      .attrs_type = &AttrsOf<CrossEntropyAttrs>(),
      .inputs = {"output_grad", "data", "label", Optional("class_weight", If(&CrossEntropyAttrs::use_weight)),
                 Optional("maximum", Unless(&CrossEntropyAttrs::log_input)),
                 Optional("log_sum", Unless(&CrossEntropyAttrs::log_input))},
      .infer = InferBackward,
      .check = CheckCrossEntropyAttrs,
      .not_differentiable = "the second derivative of a cross entropy is not provided",
      .inplace = {{1, 0}},
  };
  return op;
}

}  // namespace bindery
