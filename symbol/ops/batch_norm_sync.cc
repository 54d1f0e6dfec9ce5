// The parts of which synchronised batch normalisation and the moving of running values are made: statistics of each
// device's share, merged over all devices, then used by each.
#include "symbol/ops/batch_norm.h"
#include "symbol/ops/batch_norm_rules.h"
#include "symbol/ops/common.h"
#include "symbol/ops/loss.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

using rule::Value;

// A matrix of `rows` rows by channels, as of statistics, against data.
void InferPerChannelRows(const BatchNormAttrs& attrs, Value data, Value matrix, int rows) {
  matrix.Set({rows, kUnknownDim});
  if (!data.shape()) return;
  const int axis = rule::Axis(attrs.axis, *data.shape());
  matrix.Set({rows, (*data.shape())[axis]});
  data.Set(data.shape()->With(axis, (*matrix.shape())[1]));
}

void InferNormalize(InferContext& c) {
  const auto& attrs = c.attrs<BatchNormAttrs>();
  const Value data = Value::In(c, 0);
  rule::Alike({data, Value::Out(c, 0)});
  InferPerChannelRows(attrs, data, Value::In(c, 3), 3);
  rule::InferChannels(
      attrs, data,
      {Value::In(c, 1), Value::In(c, 2), Value::In(c, 4), Value::In(c, 5), Value::Out(c, 1), Value::Out(c, 2)});
  rule::Alike({data, Value::Out(c, 0)});
}

// Row `row` of the sums (2, C), as (C).
Symbol SumsRow(const Symbol& sums, int64_t row) {
  return Reshape(Slice(sums, {.begin = {row}, .end = {row + 1}, .axes = {0}}), {.shape = {-1}});
}

// With all sums over every device's samples, n their number per channel:
//   dx = gamma / sqrt(var + eps) (g - sum g / n - x^ sum(g x^) / n);  dbeta = sum g, dgamma = sum g x^ over this
//   device's
// samples alone, as all parameters' gradients are summed over devices later. Nothing flows into the statistics: that
// mean and variance depend on x is in dx.
std::vector<Symbol> NormalizeGradient(const GradientContext& g) {
  const auto& attrs = g.attrs<BatchNormAttrs>();
  rule::RefuseStatisticsGradient(g);
  const Symbol &dy = g.output_grad(0), data = g.input(0), gamma = g.input(1), statistics = g.input(3);
  std::vector<Symbol> result(6);
  const Symbol sums = Apply(BatchNormGradSumsOp(), attrs, {dy, data, statistics});
  if (g.wants(0)) result[0] = Apply(BatchNormGradInputOp(), attrs, {dy, data, gamma, statistics, SumOverDevices(sums)});
  if (g.wants(1) && !attrs.fix_gamma) result[1] = SumsRow(sums, 1);
  if (g.wants(2)) result[2] = SumsRow(sums, 0);
  return result;
}

}  // namespace

const OpDef& BatchNormStatisticsOp() {
  static const OpDef op = {
      .name = "BatchNormStatistics",
      .doc = "Per channel: count, mean and M2 = sum (x - mean)^2, as (3, C).",
      .attrs_type = &AttrsOf<BatchNormAttrs>(),
      .outputs = rule::Outputs({"statistics"}),
      .infer_shape =
          [](InferContext& c) { InferPerChannelRows(c.attrs<BatchNormAttrs>(), Value::In(c, 0), Value::Out(c, 0), 3); },
      .infer_dtype =
          [](InferDTypeContext& c) {
            if (!c.input(0) && c.output(0) == DType::kFloat64) c.SetInput(0, DType::kFloat64);
            rule::BatchNormDTypes(c, {.data_inputs = {0}});
          },
      .batch_axis = rule::NotBatched,
      .check = rule::CheckBatchNorm,
      .not_differentiable = "the gradient of BatchNormNormalize includes it",
  };
  return op;
}

const OpDef& MergeStatisticsOp() {
  static const OpDef op = {
      .name = "MergeStatistics",
      .doc =
          "Statistics of all devices, in device order (Chan et al.): n = sum n_d, mean = sum n_d mean_d / n, "
          "M2 = sum M2_d + sum n_d (mean_d - mean)^2.",
      .inputs = rule::Inputs({"statistics"}),
      .outputs = rule::Outputs({"statistics"}),
      .infer_shape =
          [](InferContext& c) {
            c.SetInput(0, {3, kUnknownDim});
            rule::AllAlike(c);
          },
      .batch_axis = rule::NotBatched,
      .not_differentiable = "the gradient of BatchNormNormalize includes it",
      .across_devices = AcrossDevices::kGather,
  };
  return op;
}

const OpDef& BatchStatisticsOp() {
  static const OpDef op = {
      .name = "BatchStatistics",
      .doc = "Per channel: count, mean and M2 = count var, as (3, C).",
      .attrs_type = &AttrsOf<BatchStatisticsAttrs>(),
      .inputs = rule::Inputs({"mean", "var"}),
      .outputs = rule::Outputs({"statistics"}),
      .infer_shape =
          [](InferContext& c) {
            rule::Alike({Value::In(c, 0), Value::In(c, 1)});
            c.SetOutput(0, {3, c.input(0) ? (*c.input(0))[0] : kUnknownDim});
          },
      .batch_axis = rule::NotBatched,
      .not_differentiable = "running statistics have no gradient",
  };
  return op;
}

const OpDef& MoveStatisticsOp() {
  static const OpDef op = {
      .name = "MoveStatistics",
      .doc = "running = momentum running + (1 - momentum) batch, of mean and biased variance M2 / count.",
      .attrs_type = &AttrsOf<BatchNormAttrs>(),
      .inputs = rule::Inputs({"statistics", "running_mean", "running_var"}),
      .outputs = rule::Outputs({"running_mean", "running_var"}),
      .infer_shape =
          [](InferContext& c) {
            rule::Alike({Value::In(c, 1), Value::In(c, 2), Value::Out(c, 0), Value::Out(c, 1)});
            c.SetInput(0, {3, c.input(1) ? (*c.input(1))[0] : kUnknownDim});
            if (c.input(0)) Value::In(c, 1).Set({(*c.input(0))[1]});
            rule::Alike({Value::In(c, 1), Value::In(c, 2), Value::Out(c, 0), Value::Out(c, 1)});
          },
      .batch_axis = rule::NotBatched,
      .check = rule::CheckBatchNorm,
      .not_differentiable = "running statistics have no gradient",
      .inplace = {{1, 0}, {2, 1}},
  };
  return op;
}

const OpDef& BatchNormNormalizeOp() {
  static const OpDef op = {
      .name = "BatchNormNormalize",
      .doc =
          "y = gamma (x - mean) / sqrt(M2 / count + eps) + beta by the statistics given in training, by the running "
          "ones in "
          "prediction; also mean and var.",
      .attrs_type = &AttrsOf<BatchNormAttrs>(),
      .inputs = rule::Inputs({"data", "gamma", "beta", "statistics", "running_mean", "running_var"}),
      .outputs = rule::Outputs({"output", "mean", "var"}),
      .num_visible_outputs = [](const AnyAttrs& attrs) { return attrs.get<BatchNormAttrs>().output_mean_var ? 3 : 1; },
      .auxiliary = {"running_mean", "running_var"},
      .infer_shape = InferNormalize,
      .infer_dtype = [](InferDTypeContext& c) { rule::BatchNormDTypes(c, {.data_inputs = {0}, .data_outputs = {0}}); },
      .batch_axis = rule::BatchedAs(0),
      .check = rule::CheckBatchNorm,
      .gradient = NormalizeGradient,
      .updates = [](const UpdateContext& c) { return rule::MoveRunning(c, c.input(3), 4); },
      .inplace = {{0, 0}},
  };
  return op;
}

const OpDef& BatchNormGradSumsOp() {
  static const OpDef op = {
      .name = "BatchNormGradSums",
      .doc = "Per channel: sum g and sum g x^, as (2, C), with g = dy and x^ = (x - mean) / sqrt(var + eps).",
      .attrs_type = &AttrsOf<BatchNormAttrs>(),
      .inputs = rule::Inputs({"output_grad", "data", "statistics"}),
      .outputs = rule::Outputs({"sums"}),
      .infer_shape =
          [](InferContext& c) {
            const auto& attrs = c.attrs<BatchNormAttrs>();
            rule::Alike({Value::In(c, 0), Value::In(c, 1)});
            InferPerChannelRows(attrs, Value::In(c, 1), Value::In(c, 2), 3);
            InferPerChannelRows(attrs, Value::In(c, 1), Value::Out(c, 0), 2);
            rule::Alike({Value::In(c, 0), Value::In(c, 1)});
          },
      .infer_dtype =
          [](InferDTypeContext& c) {
            rule::BatchNormDTypes(c, {.data_inputs = {0, 1}});
          },
      .batch_axis = rule::NotBatched,
      .check = rule::CheckBatchNorm,
      .not_differentiable = "second derivatives of batch normalisation are not provided",
  };
  return op;
}

const OpDef& BatchNormGradInputOp() {
  static const OpDef op = {
      .name = "BatchNormGradInput",
      .doc = "dx = gamma / sqrt(var + eps) (g - sum g / n - x^ sum(g x^) / n), sums and n over all devices.",
      .attrs_type = &AttrsOf<BatchNormAttrs>(),
      .inputs = rule::Inputs({"output_grad", "data", "gamma", "statistics", "sums"}),
      .infer_shape =
          [](InferContext& c) {
            const auto& attrs = c.attrs<BatchNormAttrs>();
            const Value data = Value::In(c, 1);
            rule::Alike({Value::In(c, 0), data, Value::Out(c, 0)});
            InferPerChannelRows(attrs, data, Value::In(c, 3), 3);
            InferPerChannelRows(attrs, data, Value::In(c, 4), 2);
            rule::InferChannels(attrs, data, {Value::In(c, 2)});
            rule::Alike({Value::In(c, 0), data, Value::Out(c, 0)});
          },
      .infer_dtype =
          [](InferDTypeContext& c) {
            rule::BatchNormDTypes(c, {.data_inputs = {0, 1}, .data_outputs = {0}});
          },
      .batch_axis = rule::BatchedAs(1),
      .check = rule::CheckBatchNorm,
      .not_differentiable = "second derivatives of batch normalisation are not provided",
      .inplace = {{0, 0}},
  };
  return op;
}

}  // namespace bindery
