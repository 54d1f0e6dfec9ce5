#include "symbol/ops/normalize.h"

#include "tests/executor/cases/operator_cases.h"

namespace bindery {
namespace {

OperatorCase NormalizeCase(const std::string& name, const Shape& shape, const Shape& parameters,
                           const NormalizeAttrs& attrs) {
  OperatorCase c{.name = name,
                 .symbol = Normalize(Variable("x"), attrs, "y"),
                 .inputs = {{"x", Uniform(shape, -2, 3)}},
                 .batch_axes = {{"x", 0}},
                 .terms = static_cast<double>(shape.Elements()),
                 .tolerance = 4,
                 .magnitude = 1};
  if (attrs.scale) c.inputs["y_gamma"] = Uniform(parameters, 0.5, 2);
  if (attrs.shift) c.inputs["y_beta"] = Uniform(parameters);
  if (attrs.output_statistics) c.wrt.emplace();  // they have no gradient
  return c;
}

}  // namespace

std::vector<OperatorCase> NormalizeCases() {
  std::vector<OperatorCase> cases;
  const Symbol x = Variable("x");
  const auto add = [&](const std::string& name, const Shape& shape, const Shape& parameters,
                       const NormalizeAttrs& attrs) { cases.push_back(NormalizeCase(name, shape, parameters, attrs)); };
  add("layer norm", {4, 7}, {7}, {});
  cases.back().wrong_shapes = {{{"x", {4, 7}}, {"y_gamma", {6}}}, {{"x", {4, 7}}, {"y_beta", {4, 7}}}};
  add("layer norm of 35 columns", {3, 35}, {35}, {});
  add("layer norm of 2 axes", {3, 4, 5}, {4, 5}, {.axis = 1, .eps = 0.01});
  add("layer norm of all axes", {4, 5}, {4, 5}, {.axis = -2});
  cases.back().batch_axes.clear();
  add("layer norm of many rows", {130, 3}, {3}, {.eps = 0.1});
  add("layer norm of a vector", {9}, {9}, {.axis = 0});
  cases.back().batch_axes.clear();
  add("layer norm without parameters", {2, 3, 5}, {}, {.scale = false, .shift = false});
  add("layer norm with gamma", {2, 3, 5}, {5}, {.shift = false});
  add("layer norm with beta", {2, 3, 5}, {5}, {.scale = false});
  add("layer norm of one element", {3, 1}, {1}, {.eps = 0.5});
  add("layer norm and statistics", {2, 3, 5}, {3, 5}, {.axis = 1, .output_statistics = true});
  add("RMS norm", {4, 7}, {7}, {.center = false, .shift = false});
  add("RMS norm with beta", {2, 20, 2, 3}, {3}, {.center = false});
  add("group norm", {2, 4, 3}, {4}, {.groups = 2});
  cases.back().wrong_shapes = {{{"x", {2, 5, 3}}}, {{"x", {2, 4, 3}}, {"y_gamma", {2}}}};
  add("group norm of images", {2, 20, 2, 3}, {20}, {.groups = 5});
  add("group norm of all channels", {3, 6, 2}, {6}, {.groups = 1});
  add("group norm without positions", {3, 6}, {6}, {.groups = 2});
  add("group norm and statistics", {2, 4, 3}, {4}, {.groups = 2, .output_statistics = true});
  add("instance norm", {3, 4, 5}, {4}, {.groups = -1});
  add("instance norm of images", {2, 20, 3, 2}, {20}, {.groups = -1, .eps = 0.01});
  add("instance norm with beta", {3, 4, 5}, {4}, {.groups = -1, .scale = false});
  // Far from zero, where a sum of squares would lose what the mean takes away.
  add("layer norm of 1000 and a bit", {4, 7}, {7}, {});
  for (int64_t i = 0; i < 28; ++i) cases.back().inputs["x"].Set(i, 1000 + static_cast<double>(i * 5 % 11) / 8);
  cases.back().test_dtypes = {DType::kFloat32, DType::kFloat64};
  cases.back().magnitude = 64;  // the mean is known to 3e-5 in float32, and to 1e-13 in the reference's double

  for (const auto& [name, symbol] : {std::pair{"instance", L2Normalization(x, L2Mode::kInstance, 1e-10, "y")},
                                     {"channel", L2Normalization(x, L2Mode::kChannel, 1e-10, "y")},
                                     {"spatial", L2Normalization(x, L2Mode::kSpatial, 1e-10, "y")},
                                     {"mean and variance", MeanVarianceNormalization(x, {0, 2, 3}, 1e-9, "y")}}) {
    cases.push_back({.name = fmt::format("L2 normalization, {}", name),
                     .symbol = symbol,
                     .inputs = {{"x", AwayFromZero({3, 4, 2, 3})}},
                     .terms = 24,
                     .tolerance = 8,
                     .magnitude = 1});
  }
  for (const LRNAttrs& attrs : {LRNAttrs{.alpha = 0.5}, LRNAttrs{.size = 2, .alpha = 0.3, .beta = 0.5, .bias = 2},
                                LRNAttrs{.size = 100, .alpha = 3}, LRNAttrs{.size = 1, .beta = -1}}) {
    for (const Shape& shape : {Shape{2, 7, 3, 2}, Shape{3, 4}, Shape{1, 20, 300}}) {
      cases.push_back({.name = fmt::format("LRN of {} with windows of {}", shape, attrs.size),
                       .symbol = LRN(x, attrs, "y"),
                       .inputs = {{"x", Uniform(shape, -2, 2)}},
                       .batch_axes = {{"x", 0}},
                       .terms = 7,
                       .tolerance = 4,
                       .magnitude = 1,
                       .large = shape.Elements() > 1000});
    }
  }
  return cases;
}

}  // namespace bindery
