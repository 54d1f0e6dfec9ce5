// BatchNorm, and the parts of which its synchronised form and the moving of running values are made: statistics of each
// device's share, merged over all devices, then used by each.
#include "symbol/ops/batch_norm.h"

#include "base/error.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/loss.h"
#include "symbol/ops/rules.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

using rule::Value;

constexpr const char* kNoSecond = "second derivatives of batch normalisation are not provided";
constexpr const char* kIncluded = "the gradient of BatchNormNormalize includes it";
constexpr const char* kRunning = "running statistics have no gradient";

void CheckBatchNorm(const AnyAttrs& any) {
  const auto& attrs = any.get<BatchNormAttrs>();
  rule::CheckFinite("eps", attrs.eps);
  if (!(attrs.eps > 0)) Throw<ModelError>("eps must be above 0, got {}", attrs.eps);
  if (!(attrs.momentum >= 0 && attrs.momentum <= 1))
    Throw<ModelError>("momentum must be from 0 to 1, got {}", attrs.momentum);
  rule::CheckAxisAttr("axis", attrs.axis);
  if (attrs.sync && attrs.relu) throw ModelError("relu and sync do not go together: put Relu after the operator");
}

// Data of one type and shape, with C channels; parameters and statistics of them, (C) each; and matrices of these,
// (rows, C). All but data are float64 for data of float64, else float32, which says nothing of data.
struct Matrix {
  Value value;
  int rows;
};
void InferPerChannel(const BatchNormAttrs& attrs, std::initializer_list<Value> data,
                     std::initializer_list<Value> vectors, std::initializer_list<Matrix> matrices = {}) {
  std::optional<DType> dtype;
  const auto for_each_statistic = [&](const auto& f) {
    for (const Value& value : vectors) f(value, 0);
    for (const Matrix& matrix : matrices) f(matrix.value, matrix.rows);
  };
  for (const Value& value : data) dtype = dtype ? dtype : value.dtype();
  for_each_statistic([&](const Value& value, int) {
    if (!dtype && value.dtype() == DType::kFloat64) dtype = DType::kFloat64;
  });
  for (const Value& value : data) {
    if (dtype) value.SetDType(*dtype);
  }
  for_each_statistic([&](const Value& value, int) {
    if (dtype) value.SetDType(rule::StatisticsDType(*dtype));
  });

  rule::SameShape(data);
  const std::optional<Shape> shape = data.size() == 0 ? std::nullopt : data.begin()->shape();
  const int axis = shape ? rule::Axis(attrs.axis, *shape) : -1;
  int64_t channels = shape ? (*shape)[axis] : kUnknownDim;
  for_each_statistic([&](const Value& value, int rows) {
    value.Set(rows == 0 ? Shape{channels} : Shape{rows, channels});
    channels = (*value.shape())[-1];
  });
  for_each_statistic([&](const Value& value, int rows) {
    value.Set(rows == 0 ? Shape{channels} : Shape{rows, channels});
  });
  for (const Value& value : data) {
    if (shape) value.Set(shape->With(axis, channels));
  }
}

// The running values at inputs `mean` and `mean` + 1, moved by the statistics of all devices.
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

// With n = elements per channel, x^ = (x - mean) / sqrt(var + eps), g = dy (zeroed where relu cut):
//   dbeta = sum g;  dgamma = sum g x^ (0 if fix_gamma);  dx = gamma / sqrt(var + eps) (g - dbeta / n - x^ sum(g x^) /
//   n)
// and with use_global_stats dx = gamma / sqrt(var + eps) g. The mean and variance depend on x: that is the rest of dx.
std::vector<Symbol> BatchNormGradient(const GradientContext& g) {
  const auto& attrs = g.attrs<BatchNormAttrs>();
  RefuseStatisticsGradient(g);
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
  if (attrs.use_global_stats || attrs.known) return {};
  const Extents shape = c.shape(0);
  int64_t count = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (static_cast<int64_t>(i) != (attrs.axis < 0 ? attrs.axis + static_cast<int64_t>(shape.size()) : attrs.axis))
      count *= shape[i].fixed;
  }
  const Symbol local = Apply(BatchStatisticsOp(), BatchStatisticsAttrs{count}, {c.output(1), c.output(2)}, "local");
  return MoveRunning(c, Apply(MergeStatisticsOp(), {}, {local}, "merged"), 3);
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

// The output by the mean and variance that forward has found, in the places of running values that have moved by then.
std::vector<Symbol> AgainByStatistics(const NodeContext& c, const OpDef& op) {
  auto attrs = c.attrs<BatchNormAttrs>();
  attrs.known = true;
  std::vector<Symbol> inputs;
  const int running = c.num_inputs() - 2;
  for (int i = 0; i < running; ++i) inputs.push_back(c.input(i));
  inputs.push_back(c.output(1));
  inputs.push_back(c.output(2));
  std::vector<Symbol> outputs = ApplyAll(op, attrs, std::move(inputs), c.name());
  for (size_t o = 1; o < outputs.size(); ++o) outputs[o] = {};  // small: kept
  return outputs;
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
  RefuseStatisticsGradient(g);
  const Symbol &dy = g.output_grad(0), data = g.input(0), gamma = g.input(1), statistics = g.input(3);
  std::vector<Symbol> result(6);
  const Symbol sums = Apply(BatchNormGradSumsOp(), attrs, {dy, data, statistics});
  if (g.wants(0)) result[0] = Apply(BatchNormGradInputOp(), attrs, {dy, data, gamma, statistics, SumOverDevices(sums)});
  if (g.wants(1) && !attrs.fix_gamma) result[1] = SumsRow(sums, 1);
  if (g.wants(2)) result[2] = SumsRow(sums, 0);
  return result;
}

// States; in the places of those that recomputation knows are the batch's mean and variance, which are none.
Slot Running(const char* name) {
  Slot slot = Auxiliary(name);
  slot.present = Unless(&BatchNormAttrs::known);
  return slot;
}
Slot Known(const char* name) { return Optional(name, If(&BatchNormAttrs::known)); }

Slot ShownMean() { return Hidden("mean", Unless(&BatchNormAttrs::output_mean_var)); }  // and what follows it

}  // namespace

const OpDef& BatchNormOp() {
  static const OpDef op = {
      .name = "BatchNorm",
      .doc =
          "y = gamma (x - mean) / sqrt(var + eps) + beta per channel, by the batch's mean and biased variance in "
          "training, by the running ones in prediction.",
      .attrs_type = &AttrsOf<BatchNormAttrs>(),
      .inputs = {"data", "gamma", "beta", Running("running_mean"), Running("running_var"), Known("mean"), Known("var")},
      .outputs = {"output", ShownMean(), "var", Hidden(Optional("state", If(&BatchNormAttrs::relu)))},
      .infer =
          [](InferContext& c) {
            const int mean = c.attrs<BatchNormAttrs>().known ? 5 : 3;
            InferPerChannel(c.attrs<BatchNormAttrs>(), {c.in(0), c.out(0)},
                            {c.in(1), c.in(2), c.in(mean), c.in(mean + 1), c.out(1), c.out(2)});
            rule::State(c.out(3));  // which elements relu cut
            c.in(0).Carry(c.out(0));
          },
      .check = CheckBatchNorm,
      .gradient = BatchNormGradient,
      .adapt = Adapted,
      .updates = BatchNormUpdates,
      .again = [](const NodeContext& c) { return AgainByStatistics(c, BatchNormOp()); },
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
      .inputs = {"output_grad", "data", "mean", "var", "gamma", Optional("state", If(&BatchNormAttrs::relu))},
      .outputs = {"data_grad", "gamma_grad", "beta_grad"},
      .infer =
          [](InferContext& c) {
            InferPerChannel(c.attrs<BatchNormAttrs>(), {c.in(0), c.in(1), c.out(0)},
                            {c.in(2), c.in(3), c.in(4), c.out(1), c.out(2)});
            rule::State(c.in(5));
            c.in(1).Carry(c.out(0));
          },
      .check = CheckBatchNorm,
      .not_differentiable = kNoSecond,
      .inplace = {{0, 0}},
  };
  return op;
}

const OpDef& BatchNormStatisticsOp() {
  static const OpDef op = {
      .name = "BatchNormStatistics",
      .doc = "Per channel: count, mean and M2 = sum (x - mean)^2, as (3, C).",
      .attrs_type = &AttrsOf<BatchNormAttrs>(),
      .outputs = {"statistics"},
      .infer =
          [](InferContext& c) {
            InferPerChannel(c.attrs<BatchNormAttrs>(), {c.in(0)}, {}, {{c.out(0), 3}});
          },
      .check = CheckBatchNorm,
      .not_differentiable = kIncluded,
  };
  return op;
}

const OpDef& MergeStatisticsOp() {
  static const OpDef op = {
      .name = "MergeStatistics",
      .doc =
          "Statistics of all devices, in device order (Chan et al.): n = sum n_d, mean = sum n_d mean_d / n, "
          "M2 = sum M2_d + sum n_d (mean_d - mean)^2.",
      .inputs = {"statistics"},
      .outputs = {"statistics"},
      .infer =
          [](InferContext& c) {
            c.in(0).Set({3, kUnknownDim});
            rule::AllAlike(c);
          },
      .not_differentiable = kIncluded,
      .across_devices = AcrossDevices::kGather,
  };
  return op;
}

const OpDef& BatchStatisticsOp() {
  static const OpDef op = {
      .name = "BatchStatistics",
      .doc = "Per channel: count, mean and M2 = count var, as (3, C).",
      .attrs_type = &AttrsOf<BatchStatisticsAttrs>(),
      .inputs = {"mean", "var"},
      .outputs = {"statistics"},
      .infer =
          [](InferContext& c) {
            rule::SameDTypes(c);
            InferPerChannel({}, {}, {c.in(0), c.in(1)}, {{c.out(0), 3}});
          },
      .not_differentiable = kRunning,
  };
  return op;
}

const OpDef& MoveStatisticsOp() {
  static const OpDef op = {
      .name = "MoveStatistics",
      .doc = "running = momentum running + (1 - momentum) batch, of mean and biased variance M2 / count.",
      .attrs_type = &AttrsOf<BatchNormAttrs>(),
      .inputs = {"statistics", "running_mean", "running_var"},
      .outputs = {"running_mean", "running_var"},
      .infer =
          [](InferContext& c) {
            rule::SameDTypes(c);
            InferPerChannel({}, {}, {c.in(1), c.in(2), c.out(0), c.out(1)}, {{c.in(0), 3}});
          },
      .check = CheckBatchNorm,
      .not_differentiable = kRunning,
      .inplace = {{1, 0}, {2, 1}},
  };
  return op;
}

const OpDef& BatchNormNormalizeOp() {
  static const OpDef op = {
      .name = "BatchNormNormalize",
      .doc =
          "y = gamma (x - mean) / sqrt(M2 / count + eps) + beta by the statistics given in training, by the running "
          "ones in prediction; also mean and var.",
      .attrs_type = &AttrsOf<BatchNormAttrs>(),
      .inputs = {"data", "gamma", "beta", "statistics", Running("running_mean"), Running("running_var"), Known("mean"),
                 Known("var")},
      .outputs = {"output", ShownMean(), "var"},
      .infer =
          [](InferContext& c) {
            const int mean = c.attrs<BatchNormAttrs>().known ? 6 : 4;
            InferPerChannel(c.attrs<BatchNormAttrs>(), {c.in(0), c.out(0)},
                            {c.in(1), c.in(2), c.in(mean), c.in(mean + 1), c.out(1), c.out(2)}, {{c.in(3), 3}});
            c.in(0).Carry(c.out(0));
          },
      .check = CheckBatchNorm,
      .gradient = NormalizeGradient,
      .updates =
          [](const UpdateContext& c) {
            return c.attrs<BatchNormAttrs>().known ? std::vector<StateUpdate>() : MoveRunning(c, c.input(3), 4);
          },
      .again = [](const NodeContext& c) { return AgainByStatistics(c, BatchNormNormalizeOp()); },
      .inplace = {{0, 0}},
  };
  return op;
}

const OpDef& BatchNormGradSumsOp() {
  static const OpDef op = {
      .name = "BatchNormGradSums",
      .doc = "Per channel: sum g and sum g x^, as (2, C), with g = dy and x^ = (x - mean) / sqrt(var + eps).",
      .attrs_type = &AttrsOf<BatchNormAttrs>(),
      .inputs = {"output_grad", "data", "statistics"},
      .outputs = {"sums"},
      .infer =
          [](InferContext& c) {
            InferPerChannel(c.attrs<BatchNormAttrs>(), {c.in(0), c.in(1)}, {}, {{c.in(2), 3}, {c.out(0), 2}});
          },
      .check = CheckBatchNorm,
      .not_differentiable = kNoSecond,
  };
  return op;
}

const OpDef& BatchNormGradInputOp() {
  static const OpDef op = {
      .name = "BatchNormGradInput",
      .doc = "dx = gamma / sqrt(var + eps) (g - sum g / n - x^ sum(g x^) / n), sums and n over all devices.",
      .attrs_type = &AttrsOf<BatchNormAttrs>(),
      .inputs = {"output_grad", "data", "gamma", "statistics", "sums"},
      .infer =
          [](InferContext& c) {
            InferPerChannel(c.attrs<BatchNormAttrs>(), {c.in(0), c.in(1), c.out(0)}, {c.in(2)},
                            {{c.in(3), 3}, {c.in(4), 2}});
            c.in(1).Carry(c.out(0));
          },
      .check = CheckBatchNorm,
      .not_differentiable = kNoSecond,
      .inplace = {{0, 0}},
  };
  return op;
}

}  // namespace bindery
