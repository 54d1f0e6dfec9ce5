#include "symbol/ops/batch_norm.h"

#include <algorithm>

#include "base/error.h"
#include "symbol/ops/batch_norm_rules.h"
#include "symbol/ops/common.h"
#include "symbol/ops/elementwise.h"

namespace bindery {

namespace rule {

void CheckBatchNorm(const AnyAttrs& any) {
  const auto& attrs = any.get<BatchNormAttrs>();
  CheckFinite("eps", attrs.eps);
  if (!(attrs.eps > 0)) Throw<ModelError>("eps must be above 0, got {}", attrs.eps);
  if (!(attrs.momentum >= 0 && attrs.momentum <= 1))
    Throw<ModelError>("momentum must be from 0 to 1, got {}", attrs.momentum);
  CheckAxisAttr("axis", attrs.axis);
  if (attrs.sync && attrs.relu) throw ModelError("relu and sync do not go together: put Relu after the operator");
}

void InferChannels(const BatchNormAttrs& attrs, Value data, std::initializer_list<Value> per_channel) {
  Alike(per_channel);
  const Value& first = *per_channel.begin();
  if (!data.shape()) {
    for (const Value& value : per_channel) value.Set({kUnknownDim});
    return;
  }
  const int axis = Axis(attrs.axis, *data.shape());
  for (const Value& value : per_channel) value.Set({(*data.shape())[axis]});
  data.Set(data.shape()->With(axis, (*first.shape())[0]));
}

void BatchNormDTypes(InferDTypeContext& c, const BatchNormTypes& types) {
  const auto listed = [](const std::vector<int>& list, int i) {
    return std::find(list.begin(), list.end(), i) != list.end();
  };
  if (types.state_input >= 0) c.SetInput(types.state_input, DType::kUInt8);
  if (types.state_output >= 0) c.SetOutput(types.state_output, DType::kUInt8);
  // Data's type is that of any value like it. Parameters of float64 belong to data of float64; float32 says nothing.
  std::optional<DType> data;
  for (int i : types.data_inputs) data = data ? data : c.input(i);
  for (int i : types.data_outputs) data = data ? data : c.output(i);
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (!data && c.input(i) == DType::kFloat64) data = DType::kFloat64;
  }
  if (!data) return;
  const DType statistics = StatisticsDType(*data);
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (i != types.state_input) c.SetInput(i, listed(types.data_inputs, i) ? *data : statistics);
  }
  for (int i = 0; i < c.num_outputs(); ++i) {
    if (i != types.state_output) c.SetOutput(i, listed(types.data_outputs, i) ? *data : statistics);
  }
}

std::vector<std::string> BatchNormOutputs(const BatchNormAttrs& attrs) {
  if (attrs.relu) return {"output", "mean", "var", "state"};
  return {"output", "mean", "var"};
}

std::vector<StateUpdate> MoveRunning(const UpdateContext& c, const Symbol& statistics, int mean) {
  const auto moved =
      ApplyAll(MoveStatisticsOp(), c.attrs<BatchNormAttrs>(), {statistics, c.state(mean), c.state(mean + 1)}, "moved");
  return {{mean, moved[0]}, {mean + 1, moved[1]}};
}

void RefuseStatisticsGradient(const GradientContext& g) {
  if (!g.output_grad(1).empty() || !g.output_grad(2).empty()) {
    Throw<ModelError>("BatchNorm \"{}\": the outputs mean and var have no gradient; put BlockGrad behind them",
                      g.name());
  }
}

}  // namespace rule

namespace {

using rule::Value;

void InferBatchNorm(InferContext& c) {
  const auto& attrs = c.attrs<BatchNormAttrs>();
  rule::Alike({Value::In(c, 0), Value::Out(c, 0)});
  rule::InferChannels(
      attrs, Value::In(c, 0),
      {Value::In(c, 1), Value::In(c, 2), Value::In(c, 3), Value::In(c, 4), Value::Out(c, 1), Value::Out(c, 2)});
  rule::Alike({Value::In(c, 0), Value::Out(c, 0)});
  if (attrs.relu) c.SetOutput(3, {1});
}

// Inputs: output gradient, data, mean, var, gamma [, state]. Outputs: data, gamma, beta gradients.
void InferBatchNormGrad(InferContext& c) {
  const auto& attrs = c.attrs<BatchNormAttrs>();
  rule::Alike({Value::In(c, 0), Value::In(c, 1), Value::Out(c, 0)});
  rule::InferChannels(attrs, Value::In(c, 1),
                      {Value::In(c, 2), Value::In(c, 3), Value::In(c, 4), Value::Out(c, 1), Value::Out(c, 2)});
  rule::Alike({Value::In(c, 0), Value::In(c, 1), Value::Out(c, 0)});
  if (attrs.relu) c.SetInput(5, {1});
}

// With n = elements per channel, x^ = (x - mean) / sqrt(var + eps), g = dy (zeroed where relu cut):
//   dbeta = sum g;  dgamma = sum g x^ (0 if fix_gamma);  dx = gamma / sqrt(var + eps) (g - dbeta / n - x^ sum(g x^) /
//   n)
// and with use_global_stats dx = gamma / sqrt(var + eps) g. The mean and variance depend on x: that is the rest of dx.
std::vector<Symbol> BatchNormGradient(const GradientContext& g) {
  const auto& attrs = g.attrs<BatchNormAttrs>();
  rule::RefuseStatisticsGradient(g);
  if (attrs.sync && !attrs.use_global_stats) {
    Throw<ModelError>("BatchNorm \"{}\": sync has to be expanded before gradients are taken (ExpandComposites)",
                      g.name());
  }
  std::vector<Symbol> inputs = {g.output_grad(0), g.input(0), g.output(1), g.output(2), g.input(1)};
  if (attrs.relu) inputs.push_back(g.output(3));
  const auto grads = ApplyAll(BatchNormGradOp(), attrs, std::move(inputs));
  return {grads[0], grads[1], grads[2], {}, {}};
}

// The devices' statistics are merged, each counting by its elements, and move the running values.
std::vector<StateUpdate> BatchNormUpdates(const UpdateContext& c) {
  const auto& attrs = c.attrs<BatchNormAttrs>();
  if (attrs.use_global_stats) return {};
  const Extents shape = c.shape(0);
  int64_t count = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (static_cast<int64_t>(i) != (attrs.axis < 0 ? attrs.axis + static_cast<int64_t>(shape.size()) : attrs.axis))
      count *= shape[i].fixed;
  }
  const Symbol local = Apply(BatchStatisticsOp(), BatchStatisticsAttrs{count}, {c.output(1), c.output(2)}, "local");
  return rule::MoveRunning(c, Apply(MergeStatisticsOp(), {}, {local}, "merged"), 3);
}

// BatchNormStatistics -> MergeStatistics -> BatchNormNormalize, which keeps the node's name.
std::vector<Symbol> ExpandSync(const NodePtr& node) {
  auto attrs = node->attrs().get<BatchNormAttrs>();
  if (!attrs.sync || attrs.use_global_stats) return {};
  attrs.sync = false;
  std::vector<Symbol> inputs;
  for (const Entry& entry : node->inputs()) inputs.emplace_back(entry);
  const Symbol local = Apply(BatchNormStatisticsOp(), attrs, {inputs[0]}, node->name() + "_statistics");
  const Symbol merged = Apply(MergeStatisticsOp(), {}, {local}, node->name() + "_merged");
  return ApplyAll(BatchNormNormalizeOp(), attrs, {inputs[0], inputs[1], inputs[2], merged, inputs[3], inputs[4]},
                  node->name());
}

// A layer whose own parameters are all fixed keeps and uses its running statistics; `sync` means nothing on one device
// and in prediction.
AnyAttrs Adapted(const AnyAttrs& any, const BindContext& c) {
  auto attrs = any.get<BatchNormAttrs>();
  if (c.fixed[2] && (attrs.fix_gamma || c.fixed[1])) attrs.use_global_stats = true;
  if (c.devices == 1 || !c.training || attrs.use_global_stats) attrs.sync = false;
  return attrs;
}

}  // namespace

Symbol BatchNorm(const Symbol& data, const BatchNormAttrs& attrs, const std::string& name) {
  return Apply(BatchNormOp(), attrs, {data}, name);
}

const OpDef& BatchNormOp() {
  static const OpDef op = {
      .name = "BatchNorm",
      .doc =
          "y = gamma (x - mean) / sqrt(var + eps) + beta per channel, by the batch's mean and biased variance in "
          "training, "
          "by the running ones in prediction.",
      .attrs_type = &AttrsOf<BatchNormAttrs>(),
      .inputs = rule::Inputs({"data", "gamma", "beta", "running_mean", "running_var"}),
      // The state (which elements relu cut) has a nominal shape: its kernels give it an opaque format of their size.
      .outputs = [](const AnyAttrs& attrs) { return rule::BatchNormOutputs(attrs.get<BatchNormAttrs>()); },
      .num_visible_outputs = [](const AnyAttrs& attrs) { return attrs.get<BatchNormAttrs>().output_mean_var ? 3 : 1; },
      .auxiliary = {"running_mean", "running_var"},
      .infer_shape = InferBatchNorm,
      .infer_dtype =
          [](InferDTypeContext& c) {
            const bool relu = c.attrs<BatchNormAttrs>().relu;
            rule::BatchNormDTypes(c, {.data_inputs = {0}, .data_outputs = {0}, .state_output = relu ? 3 : -1});
          },
      .batch_axis = rule::BatchedAs(0),
      .check = rule::CheckBatchNorm,
      .gradient = BatchNormGradient,
      .adapt = Adapted,
      .updates = BatchNormUpdates,
      .expand = ExpandSync,
      .inplace = {{0, 0}},
  };
  return op;
}

const OpDef& BatchNormGradOp() {
  static const OpDef op = {
      .name = "BatchNormGrad",
      .doc =
          "dbeta = sum g, dgamma = sum g x^, dx = gamma / sqrt(var + eps) (g - dbeta / n - x^ sum(g x^) / n); "
          "with use_global_stats dx = gamma / sqrt(var + eps) g.",
      .attrs_type = &AttrsOf<BatchNormAttrs>(),
      .inputs = [](const AnyAttrs& attrs, int) -> std::vector<std::string> {
        if (attrs.get<BatchNormAttrs>().relu) return {"output_grad", "data", "mean", "var", "gamma", "state"};
        return {"output_grad", "data", "mean", "var", "gamma"};
      },
      .outputs = rule::Outputs({"data_grad", "gamma_grad", "beta_grad"}),
      .infer_shape = InferBatchNormGrad,
      .infer_dtype =
          [](InferDTypeContext& c) {
            const bool relu = c.attrs<BatchNormAttrs>().relu;
            rule::BatchNormDTypes(c, {.data_inputs = {0, 1}, .data_outputs = {0}, .state_input = relu ? 5 : -1});
          },
      .batch_axis = rule::BatchedAs(1),
      .check = rule::CheckBatchNorm,
      .not_differentiable = "second derivatives of batch normalisation are not provided",
      .inplace = {{0, 0}},
  };
  return op;
}

}  // namespace bindery
