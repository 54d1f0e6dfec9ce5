#include "symbol/ops/batch_norm.h"

#include "symbol/ops/activation.h"
#include "tests/executor/cases/operator_cases.h"

namespace bindery {
namespace {

OperatorCase BatchNormCase(const std::string& name, const Shape& shape, const BatchNormAttrs& attrs,
                           bool all_outputs = false) {
  const Shape channels{shape[static_cast<int>(attrs.axis)]};
  const Symbol bn = BatchNorm(Variable("x"), attrs, "bn");
  OperatorCase c{.name = name,
                 .symbol = attrs.output_mean_var && !all_outputs ? bn[0] : bn,
                 .inputs = {{"x", Uniform(shape, -2, 3)},
                            {"bn_gamma", Uniform(channels, 0.5, 2)},
                            {"bn_beta", Uniform(channels, -1, 1)},
                            {"bn_running_mean", Uniform(channels, -1, 1)},
                            {"bn_running_var", Uniform(channels, 0.5, 2)}},
                 .batch_axes = {{"x", 0}},
                 .terms = static_cast<double>(shape.Elements() / channels[0]),
                 .tolerance = 4,
                 .magnitude = 1};
  if (all_outputs) c.wrt.emplace();  // no gradient passes through mean and var
  return c;
}

// An operator of the synchronised form by itself, without a gradient of its own.
OperatorCase PartCase(const std::string& name, const OpDef& op, const AnyAttrs& attrs, std::vector<Symbol> inputs,
                      HostTensorMap values) {
  return {.name = name,
          .symbol = Apply(op, attrs, std::move(inputs), "part"),
          .inputs = std::move(values),
          .terms = 24,
          .tolerance = 4,
          .magnitude = 1,
          .wrt = std::vector<std::string>{}};
}

}  // namespace

std::vector<OperatorCase> BatchNormCases() {
  std::vector<OperatorCase> cases = {
      BatchNormCase("fixed gamma", {6, 3}, {}),
      BatchNormCase("gamma", {6, 3}, {.fix_gamma = false}),
      BatchNormCase("images", {3, 5, 4, 2}, {.fix_gamma = false}),
      BatchNormCase("16 channels", {2, 16, 3, 3}, {.fix_gamma = false}),
      BatchNormCase("20 channels", {2, 20, 3, 3}, {.eps = 1e-2, .fix_gamma = false}),
      BatchNormCase("signals", {4, 3, 5}, {.fix_gamma = false}),
      BatchNormCase("volumes", {2, 3, 2, 3, 2}, {.fix_gamma = false}),
      BatchNormCase("last axis", {3, 4, 5}, {.fix_gamma = false, .axis = -1}),
      BatchNormCase("axis 2", {3, 4, 5, 2}, {.fix_gamma = false, .axis = 2}),
      BatchNormCase("running values in training", {6, 5, 2, 2}, {.fix_gamma = false, .use_global_stats = true}),
      BatchNormCase("running values, fixed gamma", {6, 3}, {.use_global_stats = true}),
      BatchNormCase("mean and variance", {4, 5, 2, 2}, {.fix_gamma = false, .output_mean_var = true}, true),
      BatchNormCase("mean and variance, first output", {4, 5, 2, 2}, {.fix_gamma = false, .output_mean_var = true}),
      BatchNormCase("with relu", {4, 5, 3, 2}, {.fix_gamma = false, .relu = true}),
      BatchNormCase("with relu, 20 channels", {2, 20, 3, 3}, {.relu = true}),
      BatchNormCase("with relu, 2 axes", {8, 3}, {.fix_gamma = false, .relu = true}),
      BatchNormCase("sync", {4, 5, 3, 2}, {.fix_gamma = false, .sync = true}),
      BatchNormCase("sync, fixed gamma", {6, 3}, {.sync = true}),
      BatchNormCase("sync, 20 channels", {2, 20, 3, 3}, {.fix_gamma = false, .sync = true}),
      BatchNormCase("sync, last axis", {3, 4, 5}, {.fix_gamma = false, .axis = -1, .sync = true}),
  };
  cases[2].wrong_shapes = {{{"x", {3, 5, 4, 2}}, {"bn_gamma", {4}}},
                           {{"x", {3, 5, 4, 2}}, {"bn_beta", {5, 1}}},
                           {{"x", {3, 5, 4, 2}}, {"bn_running_mean", {4}}}};
  // Variances come out right far from zero, and where the first sample says nothing about the others.
  HostTensor far = Uniform({4, 20, 5, 5}, 999, 1001), silent = Uniform({4, 20, 5, 5}, 4, 6);
  for (int64_t i = 0; i < silent.elements() / 4; ++i) silent.Set(i, 0);
  for (const auto& [name, x] : {std::pair{"variance far from zero", far}, {"a first sample of zeros", silent}}) {
    OperatorCase c = BatchNormCase(name, x.shape(), {.fix_gamma = false, .output_mean_var = true}, true);
    c.symbol = c.symbol[2];  // the variance
    c.inputs["x"] = x;
    c.test_dtypes = {DType::kFloat32};
    c.tolerance = 1;
    c.magnitude = 0;
    cases.push_back(c);
  }

  for (bool relu : {false, true}) {
    OperatorCase predict =
        BatchNormCase(relu ? "prediction with relu" : "prediction", {3, 20, 2, 2}, {.fix_gamma = false, .relu = relu});
    predict.mode = Mode::kPredict;
    predict.wrt.emplace();
    cases.push_back(predict);
  }
  OperatorCase predict = BatchNormCase("prediction, sync", {3, 5, 2, 2}, {.fix_gamma = false, .sync = true});
  predict.mode = Mode::kPredict;
  predict.wrt.emplace();
  cases.push_back(predict);

  // Not every gradient is asked for: the others' outputs are null pointers.
  for (const char* name : {"x", "bn_gamma", "bn_beta"}) {
    for (bool sync : {false, true}) {
      cases.push_back(BatchNormCase(fmt::format("gradient of {} alone{}", name, sync ? ", sync" : ""), {3, 20, 2, 2},
                                    {.fix_gamma = false, .sync = sync}));
      cases.back().wrt = std::vector<std::string>{name};
    }
  }

  const BatchNormAttrs attrs{.fix_gamma = false};
  const Symbol x = Variable("x"), dy = Variable("dy"), gamma = Variable("gamma"), s = Variable("s"),
               sums = Variable("sums");
  const HostTensor statistics = Values({3, 3}, {24, 24, 24, 0.1, -0.2, 0.3, 24, 48, 12});
  cases.push_back(PartCase("statistics", BatchNormStatisticsOp(), attrs, {x}, {{"x", Uniform({4, 3, 3, 2}, -2, 2)}}));
  cases.push_back(PartCase("merge", MergeStatisticsOp(), {}, {s}, {{"s", statistics}}));
  cases.push_back(PartCase("batch statistics", BatchStatisticsOp(), BatchStatisticsAttrs{24}, {x, s},
                           {{"x", Values({3}, {0.1, -0.2, 0.3})}, {"s", Values({3}, {1, 2, 0.5})}}));
  cases.push_back(PartCase("move", MoveStatisticsOp(), attrs, {s, x, dy},
                           {{"s", statistics}, {"x", Uniform({3})}, {"dy", Uniform({3}, 0.5, 2)}}));
  cases.push_back(PartCase("sums", BatchNormGradSumsOp(), attrs, {dy, x, s},
                           {{"dy", Uniform({4, 3, 3, 2})}, {"x", Uniform({4, 3, 3, 2}, -2, 2)}, {"s", statistics}}));
  cases.push_back(PartCase("input gradient", BatchNormGradInputOp(), attrs, {dy, x, gamma, s, sums},
                           {{"dy", Uniform({4, 3, 3, 2})},
                            {"x", Uniform({4, 3, 3, 2}, -2, 2)},
                            {"gamma", Uniform({3}, 0.5, 2)},
                            {"s", statistics},
                            {"sums", Uniform({2, 3}, -5, 5)}}));
  return cases;
}

}  // namespace bindery
