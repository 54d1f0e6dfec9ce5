#include "symbol/ops/softmax.h"
#include "tests/executor/operator_cases.h"

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
  return cases;
}

}  // namespace bindery
