#include <utility>

#include "symbol/ops/elementwise.h"
#include "tests/executor/cases/operator_cases.h"

namespace bindery {
namespace {

// Operands are taken from `low` to `high`, around 0 if these are opposite.
struct Row {
  const char* op;
  double low, high;
  bool is_step = false;  // piecewise constant: no gradient
};
const Row kRows[] = {
    {"Negative", -2, 2},    {"Abs", -2, 2},        {"Sign", -2, 2, true},  {"Square", -2, 2},      {"Sqrt", 0.3, 3},
    {"Reciprocal", 0.3, 3}, {"Exp", -2, 2},        {"Expm1", -1, 1},       {"Log", 0.3, 3},        {"Log1p", -0.5, 2},
    {"Floor", -3, 3, true}, {"Ceil", -3, 3, true}, {"Round", -3, 3, true}, {"Trunc", -3, 3, true}, {"Erf", -1.5, 1.5},
    {"Sin", -2, 2},         {"Cos", -2, 2},        {"Tan", -1, 1},         {"Asin", -0.8, 0.8},    {"Acos", -0.8, 0.8},
    {"Atan", -2, 2},        {"Sinh", -1.5, 1.5},   {"Cosh", -1.5, 1.5},    {"Asinh", -2, 2},       {"Acosh", 1.3, 3},
    {"Atanh", -0.8, 0.8},   {"Not", -2, 2, true},  {"IsNaN", -2, 2, true}, {"IsInf", -2, 2, true},
};

const Shape kShapes[] = {{3, 5}, {2, 20, 2, 3}, {1}};

}  // namespace

std::vector<OperatorCase> UnaryCases() {
  std::vector<OperatorCase> cases;
  const Symbol x = Variable("x");
  for (const Shape& shape : kShapes) {
    const std::pair<const char*, Symbol> with_numbers[] = {{"x + c", x - 1.25},  {"x - c", x - -1.25},
                                                           {"c - x", -1.25 - x}, {"x c", x * -1.25},
                                                           {"x / c", x / -1.25}, {"c / x", -1.25 / x}};
    for (const auto& [name, symbol] : with_numbers) {
      cases.push_back({.name = fmt::format("{} {}", name, shape),
                       .symbol = symbol,
                       .inputs = {{"x", AwayFromZero(shape)}},
                       .batch_axes = {{"x", 0}},
                       .magnitude = 1});
    }
    for (const Row& row : kRows) {
      HostTensor x_value =
          row.low == -row.high ? AwayFromZero(shape, row.high / 10, row.high) : Uniform(shape, row.low, row.high);
      cases.push_back({.name = fmt::format("{} {}", row.op, shape),
                       .symbol = Apply(FindOp(row.op), {}, {x}, "y"),
                       .inputs = {{"x", std::move(x_value)}},
                       .batch_axes = {{"x", 0}},
                       .tolerance = row.is_step ? 1.0 : 4.0,  // gradients are rounded several times
                       .magnitude = row.is_step ? 0.0 : 1.0});
      if (row.is_step) cases.back().wrt.emplace();
    }
    const HostTensor constant = Uniform(shape).Cast(DType::kFloat32);
    cases.push_back({.name = fmt::format("Constant {}", shape),
                     .symbol = x + Constant(constant, "c"),
                     .inputs = {{"x", Uniform(shape, 1, 2)}},
                     .dtypes = {{"x", DType::kFloat32}},  // the constant's
                     .test_dtypes = {DType::kFloat32},
                     .wrt = std::vector<std::string>{}});
  }
  for (const DType dtype : {DType::kInt8, DType::kInt32, DType::kInt64, DType::kUInt16}) {
    cases.push_back({.name = fmt::format("BitNot of {}", dtype),
                     .symbol = BitNot(x, "y"),
                     .inputs = {{"x", Integers({3, 5}, dtype == DType::kUInt16 ? 0 : -9, 100)}},
                     .dtypes = {{"x", dtype}},
                     .batch_axes = {{"x", 0}}});
  }
  cases.push_back({.name = "Sign of zeros",
                   .symbol = Apply(Sign.op(), {}, {x}, "y"),
                   .inputs = {{"x", Values({4}, {0, -0.0, 3, -2})}},
                   .wrt = std::vector<std::string>{},
                   .forward = [](const HostTensorMap&) -> std::vector<HostTensor> {
                     return {Values({4}, {0, 0, 1, -1})};
                   }});
  cases.push_back({.name = "an expression of scalars",
                   .symbol = 1.0 / (2.0 - (x * 0.5 + 3.0) / 4.0) - 1.0,
                   .inputs = {{"x", Uniform({2, 3})}},
                   .test_dtypes = {DType::kFloat32, DType::kFloat64},  // what lies between is rounded, and cancels
                   .tolerance = 4,
                   .magnitude = 1});
  return cases;
}

}  // namespace bindery
