#include "symbol/ops/reduce.h"

#include <cmath>

#include "symbol/ops/elementwise.h"
#include "symbol/ops/matmul.h"
#include "tests/executor/cases/operator_cases.h"

namespace bindery {

std::vector<OperatorCase> ReduceCases() {
  std::vector<OperatorCase> cases;
  const Symbol x = Variable("x");
  struct Operator {
    const char* name;
    const OpDef& (*op)();
  };
  struct Form {
    Shape shape;
    ReduceAttrs attrs;
  };
  const Form forms[] = {
      {{3, 4}, {}},
      {{3, 4}, {.keepdims = true}},
      {{3, 4}, {.axes = {0}}},
      {{3, 4}, {.axes = {1}}},
      {{3, 4}, {.axes = {-1}, .keepdims = true}},
      {{2, 3, 4}, {.axes = {1}}},
      {{2, 3, 4}, {.axes = {0, 2}}},
      {{2, 3, 4}, {.axes = {2, 0}, .keepdims = true}},
      {{2, 3, 4}, {.axes = {1}, .exclude = true}},
      {{2, 3, 4}, {.axes = {0, -1}, .keepdims = true, .exclude = true}},
      {{2, 20, 2, 3}, {.axes = {2, 3}}},
      {{2, 20, 2, 3}, {.axes = {1}, .keepdims = true}},
      {{2, 20, 2, 3}, {.axes = {0, 2, 3}}},
      {{5}, {}},
      {{1, 1}, {.axes = {0}}},
      {{70, 5}, {.axes = {1}}},  // more short rows than go side by side
      {{2, 35}, {.axes = {1}}},  // vectors of eight, a pair of them at once, and a rest: a loop over int8 lost some
      {{2, 48}, {.axes = {1}}},
      {{3, 4}, {.noop_with_empty_axes = true}},
  };
  for (const Operator& o : {Operator{"Sum", SumOp},
                            {"Mean", MeanOp},
                            {"Max", MaxOp},
                            {"Min", MinOp},
                            {"L1Norm", L1NormOp},
                            {"L2Norm", L2NormOp},
                            {"SumSquare", SumSquareOp},
                            {"LogSumExp", LogSumExpOp}}) {
    int number = 0;
    for (const Form& form : forms) {
      cases.push_back({.name = fmt::format("{} {}, form {}", o.name, form.shape, number++),
                       .symbol = Apply(o.op(), form.attrs, {x}, "y"),
                       .inputs = {{"x", Distinct(form.shape)}},
                       .terms = static_cast<double>(form.shape.Elements()),
                       .magnitude = 8});
    }
    cases.push_back({.name = std::string(o.name) + " of batched values",
                     .symbol = Apply(o.op(), ReduceAttrs{.axes = {1, 2}}, {x}, "y"),
                     .inputs = {{"x", Distinct({3, 2, 4})}},
                     .batch_axes = {{"x", 0}},
                     .terms = 24,
                     .magnitude = 8,
                     .wrong_shapes = {{{"x", {3, 2}}}}});
  }
  for (const ReduceAttrs& attrs : {ReduceAttrs{}, {.axes = {0}}, {.axes = {-1}, .keepdims = true}}) {
    cases.push_back({.name = fmt::format("Prod, {}", cases.size()),
                     .symbol = Prod(x, attrs, "y"),
                     .inputs = {{"x", AwayFromZero({4, 5}, 0.5, 1.5)}},
                     .terms = 20,
                     .magnitude = 1});
  }
  cases.push_back({.name = "Prod with 0",
                   .symbol = Prod(x, {.axes = {1}}, "y"),
                   .inputs = {{"x", Values({3, 3}, {0, 2, 3, 0, 0, 5, 1, 2, 3})}},
                   .magnitude = 6});
  cases.push_back({.name = "L2Norm of 0",
                   .symbol = L2Norm(x, {.axes = {1}}, "y"),
                   .inputs = {{"x", Values({2, 2}, {0, 0, 3, 4})}},
                   .gradient = [](const HostTensorMap& in, const std::vector<HostTensor>&) -> HostTensorMap {
                     const double dy = in.at("y_output_grad").At(1);
                     return {{"x", Values({2, 2}, {0, 0, dy * 3 / 5, dy * 4 / 5})}};
                   }});
  cases.push_back({.name = "LogSumExp of large numbers",
                   .symbol = LogSumExp(x, {.axes = {0}}, "y"),
                   .inputs = {{"x", Values({2, 4}, {1000, -1000, -INFINITY, INFINITY, 1000, -1000, -INFINITY, 0})}}});
  cases.back().wrt.emplace();
  cases.back().test_dtypes = {DType::kFloat32, DType::kFloat64};
  cases.push_back({.name = "LogSum",
                   .symbol = LogSum(x, {.axes = {1}}, "y"),
                   .inputs = {{"x", Uniform({3, 4}, 0.5, 2)}},
                   .terms = 4});
  cases.push_back({.name = "extremes of nothing",
                   .symbol = Group({Max(x, {.axes = {0}}), Min(x, {.axes = {0}}), Prod(x), LogSumExp(x), L2Norm(x)}),
                   .inputs = {{"x", HostTensor(DType::kFloat64, {0, 2})}},
                   .forward = [](const HostTensorMap&) -> std::vector<HostTensor> {
                     return {Values({2}, {-INFINITY, -INFINITY}), Values({2}, {INFINITY, INFINITY}), Values({}, {1}),
                             Values({}, {-INFINITY}), Values({}, {0})};
                   }});
  cases.back().wrt.emplace();
  cases.push_back({.name = "equal maxima share",
                   .symbol = Max(x, {.axes = {1}}, "y"),
                   .inputs = {{"x", Values({2, 3}, {1, 3, 3, 2, 2, 2})}},
                   .gradient = [](const HostTensorMap& in, const std::vector<HostTensor>&) -> HostTensorMap {
                     const HostTensor& dy = in.at("y_output_grad");
                     const double a = dy.At(0) / 2, b = dy.At(1) / 3;
                     return {{"x", Values({2, 3}, {0, a, a, b, b, b})}};
                   }});

  const Symbol a = Variable("a"), b = Variable("b");
  for (bool transpose_a : {false, true}) {
    for (bool transpose_b : {false, true}) {
      cases.push_back({.name = fmt::format("Dot, transposed {} {}", transpose_a, transpose_b),
                       .symbol = Dot(a, b, {.transpose_a = transpose_a, .transpose_b = transpose_b}, "y"),
                       .inputs = {{"a", Uniform(transpose_a ? Shape{4, 3} : Shape{3, 4})},
                                  {"b", Uniform(transpose_b ? Shape{5, 4} : Shape{4, 5})}},
                       .terms = 5,
                       .magnitude = 1,
                       .wrong_shapes = {{{"a", {3, 7}}, {"b", {4, 5}}}, {{"a", {3, 4, 1}}, {"b", {4, 5}}}}});
    }
  }
  cases.push_back({.name = "Dot of vectors",
                   .symbol = Dot(a, b, {}, "y"),
                   .inputs = {{"a", Uniform({6})}, {"b", Uniform({6}, 0, 2)}},
                   .terms = 6,
                   .magnitude = 1,
                   .wrong_shapes = {{{"a", {6}}, {"b", {7}}}}});
  return cases;
}

}  // namespace bindery
