// Loss heads other than SoftmaxOutput, sums and counts over devices for their divisors, the scale of losses, and
// BlockGrad.
#include "symbol/ops/loss.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "base/error.h"
#include "symbol/graph.h"
#include "symbol/ops/activation.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/heads.h"
#include "symbol/ops/reduce.h"
#include "symbol/ops/rules.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

using rule::Value;

constexpr const char* kHeadGradient = "a loss head's gradient is a convention, not a function of its output alone";

bool Always(const AnyAttrs&) { return true; }

// The label has as many elements as data: its shape, or for example (N) for data (N, 1). It may be of any type.
void InferRegression(InferContext& c) {
  const Value data = c.in(0), label = c.in(1), output = c.out(0);
  rule::Same({data, output});
  data.Carry(output);
  if (data.shape() && data.shape()->rank() < 1) throw ShapeError("expected data of 1 or more axes (N, ...), got ()");
  if (data.shape() && !label.shape() && c.may_assume()) label.Set(*data.shape());
  if (!data.shape() || !label.shape()) return;
  if (data.shape()->rank() == label.shape()->rank()) {
    rule::SameShape({data, label, output});
  } else if (data.Known() && label.Known() && data.shape()->Elements() != label.shape()->Elements()) {
    Throw<ShapeError>("data {} and label {} differ in their number of elements", *data.shape(), *label.shape());
  }
}

void CheckRegression(const AnyAttrs& any) {
  rule::CheckFinite("grad_scale", any.get<LinearRegressionOutputAttrs>().grad_scale);
}

// A head with a label, and its gradient, by the output and the label.
template <OpAttrs Attrs>
OpDef Head(std::string name, std::string doc, void (*infer)(InferContext&), void (*check)(const AnyAttrs&),
           const OpDef& (*grad)()) {
  return {
      .name = std::move(name),
      .doc = std::move(doc),
      .attrs_type = &AttrsOf<Attrs>(),
      .inputs = {"data", "label"},
      .infer = infer,
      .check = check,
      .gradient = [grad](const GradientContext& g) -> std::vector<Symbol> {
        if (!g.wants(0)) return {};
        return {Apply(grad(), g.attrs<Attrs>(), {g.output(0), g.input(1)}), {}};
      },
      .is_loss = Always,
      .inplace = {{0, 0}},
  };
}
template <OpAttrs Attrs>
OpDef HeadGrad(std::string name, std::string doc, void (*infer)(InferContext&), void (*check)(const AnyAttrs&)) {
  return {
      .name = std::move(name),
      .doc = std::move(doc),
      .attrs_type = &AttrsOf<Attrs>(),
      .inputs = {"output", "label"},
      .infer = infer,
      .check = check,
      .not_differentiable = kHeadGradient,
      .inplace = {{0, 0}},
  };
}

OpDef Regression(std::string name, std::string doc, const OpDef& (*grad)()) {
  return Head<LinearRegressionOutputAttrs>(std::move(name), std::move(doc), InferRegression, CheckRegression, grad);
}
OpDef RegressionGrad(std::string name, std::string doc) {
  return HeadGrad<LinearRegressionOutputAttrs>(std::move(name), std::move(doc), InferRegression, CheckRegression);
}

// (N, ...) classes of N samples
void InferSVM(InferContext& c) {
  const Value data = c.in(0), label = c.in(1), output = c.out(0);
  rule::Same({data, output});
  rule::ExpectFloat(data);
  data.Carry(output, [](int axis) { return axis == 0 ? 0 : -1; });
  if (!data.shape()) return;
  if (data.shape()->rank() < 2) Throw<ShapeError>("expected 2 or more axes (N, K, ...), got {}", *data.shape());
  label.Set({(*data.shape())[0]});
  if (label.shape()) data.Set(data.shape()->With(0, (*label.shape())[0]));
  rule::SameShape({data, output});
}

void CheckSVM(const AnyAttrs& any) {
  rule::CheckFinite("margin", any.get<SVMOutputAttrs>().margin);
  rule::CheckFinite("regularization", any.get<SVMOutputAttrs>().regularization);
}

std::optional<WholeNumbers> AnyWhole(const AnyAttrs&, std::span<const Shape>) {
  constexpr double kMost = std::numeric_limits<double>::max();
  return WholeNumbers{.low = -kMost, .high = kMost};
}

void CheckMakeLoss(const AnyAttrs& any) {
  rule::CheckFinite("grad_scale", any.get<MakeLossAttrs>().grad_scale);
  rule::CheckFinite("valid_thresh", any.get<MakeLossAttrs>().valid_thresh);
}

// What a value is a sum of, each time a number of at most `most`: of entries that `ends` accepts, or that say no more.
template <class Ends>
std::vector<Entry> TermsOf(const Entry& value, double most, const Ends& ends) {
  std::vector<Entry> terms, rest = {value};
  std::set<const Node*> seen;
  while (!rest.empty()) {
    const Entry entry = rest.back();
    rest.pop_back();
    const Node& node = *entry.node;
    if (!seen.insert(&node).second) continue;
    const std::vector<Entry>& inputs = node.inputs();
    if (node.is_variable() || ends(entry)) {
      terms.push_back(entry);
    } else if (inputs.size() == 1 && node.op().is_view) {
      rest.push_back(inputs[0]);
    } else if (&node.op() == &Add.op() || &node.op() == &Sub.op()) {
      rest.insert(rest.end(), inputs.begin(), inputs.end());
    } else if (&node.op() == &Mul.op() || &node.op() == &Div.op()) {
      const std::optional<double> first = ScalarValue(*inputs[0].node), second = ScalarValue(*inputs[1].node);
      const bool divides = &node.op() == &Div.op(), scaled = second || (first && !divides);
      const double factor = divides ? 1 / second.value_or(1) : second.value_or(first.value_or(1));
      if (scaled && std::abs(factor) <= most) {
        rest.push_back(inputs[second ? 0 : 1]);
      } else {
        terms.push_back(entry);
      }
    } else {
      terms.push_back(entry);
    }
  }
  return terms;
}

bool CountsValid(const AnyAttrs& attrs) {
  return attrs.get<MakeLossGradAttrs>().normalization == Normalization::kValid;
}

}  // namespace

HeadKind HeadKindOf(const Node& head) {
  if (!IsLoss(head) || head.op().blocks_gradient) return HeadKind::kNoLoss;
  const OpDef* op = &head.op();
  if (op == &LinearRegressionOutputOp() || op == &MAERegressionOutputOp()) return HeadKind::kNumbers;
  if (op == &LogisticRegressionOutputOp()) return HeadKind::kTruths;
  if (op == &SVMOutputOp()) return HeadKind::kScores;
  return std::ranges::count(InputNames(head), "label") > 0 ? HeadKind::kClasses : HeadKind::kLoss;
}

std::optional<int> DegreeOfGradient(const Node& head) {
  if (HeadKindOf(head) != HeadKind::kNumbers) return std::nullopt;
  return &head.op() == &LinearRegressionOutputOp() ? 1 : 0;  // the difference; its sign
}

std::optional<Entry> SigmoidOf(const Entry& y) {
  const Node& node = *y.node;
  if (node.is_variable() || &node.op() != &ActivationOp()) return std::nullopt;
  if (node.attrs().get<ActivationAttrs>().type != ActivationType::kSigmoid) return std::nullopt;
  return node.inputs()[0];
}

std::string MergeRuleOf(const Entry& head) {
  const auto rule_of = [](const Entry& entry) {
    const auto rule = entry.node->annotations().find("merge");
    return rule == entry.node->annotations().end() ? std::string() : rule->second;
  };
  std::optional<std::string> rule;
  const auto is_annotated = [&](const Entry& entry) { return !rule_of(entry).empty(); };
  for (const Entry& term : TermsOf(head, std::numeric_limits<double>::infinity(), is_annotated)) {
    if (rule && *rule != rule_of(term)) return {};
    rule = rule_of(term);
  }
  return *rule;
}

const Node* MeanOverSamples(const Graph& graph, const NodeTypes& types, const Entry& head) {
  const bool makes = !head.node->is_variable() && &head.node->op() == &MakeLossOp();
  if (makes && std::abs(head.node->attrs().get<MakeLossAttrs>().grad_scale) > 1) return nullptr;
  const auto is_batched = [&](const Entry& entry) {
    return types[graph.IndexOf(entry.node)][entry.output].batch_axis >= 0;
  };
  const auto ends = [&](const Entry& entry) {
    return is_batched(entry) || std::ranges::any_of(entry.node->inputs(), is_batched);
  };
  for (const Entry& term : TermsOf(head, 1, ends)) {
    const bool loses = !term.node->is_variable() && !is_batched(term) && ends(term);
    if (loses && &term.node->op() == &MeanOp()) return term.node.get();
  }
  return nullptr;
}

Symbol CountOverDevices(const Symbol& truth) {
  return SumOverDevices(Reshape(Sum(Cast(truth, {.dtype = DType::kFloat32})), {.shape = {1}}));
}

const OpDef& SumOverDevicesOp() {
  static const OpDef op = {
      .name = "SumOverDevices",
      .doc = "The sum of x over all devices, in device order: the same on each.",
      .infer = rule::AllAlike,
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        // Each device's x is in every device's sum: dx = the sum of dy over all devices.
        return {SumOverDevices(g.output_grad(0))};
      },
      .zero_to_zero = true,
      .across_devices = AcrossDevices::kSum,
  };
  return op;
}

const OpDef& LinearRegressionOutputOp() {
  static const OpDef op = rule::View(
      Regression("LinearRegressionOutput", "y = x; a loss head: dx = (x - label) grad_scale / (elements per sample).",
                 LinearRegressionOutputGradOp));
  return op;
}
const OpDef& LogisticRegressionOutputOp() {
  static const OpDef op =
      Regression("LogisticRegressionOutput",
                 "y = 1 / (1 + e^-x); a loss head: dx = (y - label) grad_scale / (elements per sample).",
                 LinearRegressionOutputGradOp);
  return op;
}
const OpDef& MAERegressionOutputOp() {
  static const OpDef op = rule::View(
      Regression("MAERegressionOutput", "y = x; a loss head: dx = sign(x - label) grad_scale / (elements per sample).",
                 MAERegressionOutputGradOp));
  return op;
}
const OpDef& LinearRegressionOutputGradOp() {
  static const OpDef op =
      RegressionGrad("LinearRegressionOutputGrad", "dx = (output - label) grad_scale / (elements per sample).");
  return op;
}
const OpDef& MAERegressionOutputGradOp() {
  static const OpDef op =
      RegressionGrad("MAERegressionOutputGrad", "dx = sign(output - label) grad_scale / (elements per sample).");
  return op;
}

const OpDef& SVMOutputOp() {
  static const OpDef op = [] {
    OpDef head = rule::View(Head<SVMOutputAttrs>(
        "SVMOutput",
        "y = x; a loss head: of each class a hinge, max(0, margin - x) at the label, max(0, margin + x) elsewhere.",
        InferSVM, CheckSVM, SVMOutputGradOp));
    head.asks = {{.input = "label", .range = AnyWhole, .in_training = true}};
    return head;
  }();
  return op;
}

const OpDef& SVMOutputGradOp() {
  static const OpDef op = HeadGrad<SVMOutputAttrs>(
      "SVMOutputGrad",
      "With h = max(0, margin - x) at the label, where s = -1, else max(0, margin + x), s = 1: dx = 2 s h "
      "regularization, or s [h > 0] regularization with use_linear.",
      InferSVM, CheckSVM);
  return op;
}

const OpDef& MakeLossOp() {
  static const OpDef op = rule::View({
      .name = "MakeLoss",
      .doc = "y = x; a loss head: dx = grad_scale / divisor everywhere.",
      .attrs_type = &AttrsOf<MakeLossAttrs>(),
      .infer = rule::Like(0),
      .check = CheckMakeLoss,
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        const auto& attrs = g.attrs<MakeLossAttrs>();
        std::vector<Symbol> inputs;
        if (attrs.normalization == Normalization::kValid) {
          const Symbol above = Greater(Cast(g.input(0), {.dtype = DType::kFloat64}), attrs.valid_thresh);
          inputs.push_back(CountOverDevices(above));
        }
        const MakeLossGradAttrs grad{attrs.grad_scale, attrs.normalization, g.dtype(0)};
        return {rule::BroadcastTo(Apply(MakeLossGradOp(), grad, std::move(inputs)), g.shape(0))};
      },
      .is_loss = Always,
      .is_mean = [](const AnyAttrs& attrs) { return attrs.get<MakeLossAttrs>().normalization != Normalization::kNull; },
  });
  return op;
}

const OpDef& MakeLossGradOp() {
  static const OpDef op = {
      .name = "MakeLossGrad",
      .doc = "grad_scale / divisor, a scalar: the gradient of every element.",
      .attrs_type = &AttrsOf<MakeLossGradAttrs>(),
      .inputs = {Optional("valid_count", CountsValid)},
      .infer =
          [](InferContext& c) {
            c.out(0).Set({});
            c.out(0).SetDType(c.attrs<MakeLossGradAttrs>().dtype);
            c.in(0).Set({1});
            c.in(0).SetDType(DType::kFloat32);
          },
      .check = [](const AnyAttrs& any) { rule::CheckFinite("grad_scale", any.get<MakeLossGradAttrs>().grad_scale); },
      .not_differentiable = kHeadGradient,
      .reads_step = true,
  };
  return op;
}

const OpDef& ScaleLossOp() {
  static const OpDef op = rule::View({
      .name = "ScaleLoss",
      .doc = "y = x; the gradient is dy times the loss scale of the step.",
      .infer = rule::Like(0),
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        return {g.output_grad(0) * Apply(LossScaleOp(), {}, {})};
      },
  });
  return op;
}

const OpDef& LossScaleOp() {
  static const OpDef op = {
      .name = "LossScale",
      .doc = "The loss scale of the step, in the element type of what it is combined with.",
      .inputs = {},
      .infer = [](InferContext& c) { c.out(0).Set({}); },  // of any type
      .gradient = rule::NoGradient,
      .reads_step = true,
  };
  return op;
}

Symbol ScaleLosses(const Symbol& symbol) {
  return Rewrite(symbol, [](const NodePtr& node, const std::vector<Entry>& inputs) -> std::vector<Entry> {
    if (!IsLoss(*node) || node->op().blocks_gradient) return {};
    const std::vector<std::string> names = InputNames(*node);
    std::vector<Entry> scaled = inputs;
    for (size_t i = 0; i < scaled.size(); ++i) {
      const Node& input = *inputs[i].node;
      if (names[i] == "label" || (!input.is_variable() && &input.op() == &ScaleLossOp())) continue;
      scaled[i] = ScaleLoss(Symbol(inputs[i]), fmt::format("{}_scaled_{}", node->name(), names[i])).entry();
    }
    return scaled == inputs ? std::vector<Entry>() : OutputsOf(WithInputs(*node, std::move(scaled)));
  });
}

const OpDef& BlockGradOp() {
  static const OpDef op = rule::View({
      .name = "BlockGrad",
      .doc = "y = x; no gradient passes.",
      .infer = rule::Like(0),
      .gradient = rule::NoGradient,
      .is_loss = Always,  // as a head it asks for no head gradient
      .blocks_gradient = true,
  });
  return op;
}

}  // namespace bindery
