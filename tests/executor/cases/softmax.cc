#include "symbol/ops/softmax.h"

#include <utility>

#include "tests/executor/cases/operator_cases.h"

namespace bindery {

std::vector<OperatorCase> SoftmaxCases() {
  std::vector<OperatorCase> cases;
  const auto add = [&](const std::string& name, const HostTensor& x, const SoftmaxAttrs& attrs) {
    cases.push_back({.name = name,
                     .symbol = Softmax(Variable("x"), attrs, "y"),
                     .inputs = {{"x", x}},
                     .batch_axes = {{"x", 0}},
                     .tolerance = 4,
                     .magnitude = 0.5});
  };
  add("last axis", Uniform({4, 7}, -5, 5), {});
  add("axis 0", Uniform({4, 7}, -5, 5), {.axis = 0});
  add("axis 1 of 3", Uniform({2, 5, 3}, -3, 3), {.axis = 1});
  add("channels", Uniform({2, 20, 2, 2}, -3, 3), {.axis = 1});
  add("last axis of 4", Uniform({2, 3, 2, 5}, -3, 3), {.axis = -1});
  add("spatial axis of 4", Uniform({2, 3, 4, 2}, -3, 3), {.axis = 2});
  add("temperature", Uniform({3, 6}, -3, 3), {.temperature = 2.5});
  add("one element", Uniform({3, 1}), {});
  add("a vector", Uniform({6}), {});
  add("large numbers", Values({2, 4}, {1000, 1001, 999, 1000.5, -1000, -1001, -1002, -999}), {});
  cases.back().batch_axes.clear();
  cases.back().test_dtypes = {DType::kFloat32, DType::kFloat64};

  for (const int64_t axis : {0, 1, 2, -1}) {
    cases.push_back({.name = fmt::format("logarithm along axis {}", axis),
                     .symbol = LogSoftmax(Variable("x"), {.axis = axis}, "y"),
                     .inputs = {{"x", Uniform({2, 5, 3}, -4, 4)}},
                     .terms = 5,
                     .tolerance = 4,
                     .magnitude = 1});
    cases.push_back({.name = fmt::format("hardmax along axis {}", axis),
                     .symbol = Hardmax(Variable("x"), {.axis = axis}, "y"),
                     .inputs = {{"x", Integers({2, 5, 3}, -2, 2)}}});  // with ties
  }
  cases.push_back({.name = "logarithm of large numbers",
                   .symbol = LogSoftmax(Variable("x"), {}, "y"),
                   .inputs = {{"x", Values({2, 4}, {1000, 1001, 999, 1000.5, -1000, -1001, -1002, -999})}},
                   .test_dtypes = {DType::kFloat32, DType::kFloat64},
                   .tolerance = 4,
                   .magnitude = 1});
  for (const auto& [name, shape] : {std::pair{"long", Shape{2, 45}}, {"many", Shape{70, 4}}}) {
    cases.push_back({.name = fmt::format("logarithm of {} rows", name),
                     .symbol = LogSoftmax(Variable("x"), {}, "y"),
                     .inputs = {{"x", Uniform(shape, -4, 4)}},
                     .terms = static_cast<double>(shape[1]),
                     .tolerance = 4,
                     .magnitude = 1});
  }
  const Symbol dy = Variable("dy"), y = Variable("y");
  cases.push_back({.name = "logarithm, gradient",
                   .symbol = LogSoftmaxGrad(dy, y, {.axis = 1}, "dx"),
                   .inputs = {{"dy", Uniform({2, 5, 3})}, {"y", Uniform({2, 5, 3}, -3, -0.5)}},
                   .terms = 5,
                   .tolerance = 4,
                   .magnitude = 2});
  return cases;
}

}  // namespace bindery
