#include <memory>

#include "symbol/ops/elementwise.h"
#include "tests/executor/operator_cases.h"

namespace bindery {
namespace {

struct Operator {
  const char* name;
  const OpDef& (*op)();
};

const Shape kShapes[] = {{3, 5}, {2, 20, 2, 3}, {1}};

}  // namespace

std::vector<OperatorCase> UnaryCases() {
  std::vector<OperatorCase> cases;
  const Symbol x = Variable("x");
  for (const Shape& shape : kShapes) {
    for (const Operator& o : {Operator{"AddScalar", AddScalarOp},
                              {"SubScalar", SubScalarOp},
                              {"RSubScalar", RSubScalarOp},
                              {"MulScalar", MulScalarOp},
                              {"DivScalar", DivScalarOp},
                              {"RDivScalar", RDivScalarOp}}) {
      cases.push_back({.name = fmt::format("{} {}", o.name, shape),
                       .symbol = Apply(o.op(), ScalarAttrs{-1.25}, {x}, "y"),
                       .inputs = {{"x", AwayFromZero(shape)}},
                       .batch_axes = {{"x", 0}},
                       .magnitude = 1});
    }
    for (const Operator& o :
         {Operator{"Negative", NegativeOp}, {"Exp", ExpOp}, {"Square", SquareOp}, {"Abs", AbsOp}, {"Sign", SignOp}}) {
      cases.push_back({.name = fmt::format("{} {}", o.name, shape),
                       .symbol = Apply(o.op(), {}, {x}, "y"),
                       .inputs = {{"x", AwayFromZero(shape, 0.2, 2)}},
                       .batch_axes = {{"x", 0}}});
      if (std::string(o.name) == "Sign") cases.back().wrt.emplace();  // a step: no gradient
    }
    for (const Operator& o : {Operator{"Log", LogOp}, {"Sqrt", SqrtOp}}) {
      cases.push_back({.name = fmt::format("{} {}", o.name, shape),
                       .symbol = Apply(o.op(), {}, {x}, "y"),
                       .inputs = {{"x", Uniform(shape, 0.3, 3)}},
                       .batch_axes = {{"x", 0}}});
    }
    const HostTensor constant = Uniform(shape).Cast(DType::kFloat32);
    cases.push_back({.name = fmt::format("Constant {}", shape),
                     .symbol = x + Constant(constant, "c"),
                     .inputs = {{"x", Uniform(shape, 1, 2)}},
                     .dtypes = {{"x", DType::kFloat32}},  // the constant's
                     .test_dtypes = {DType::kFloat32},
                     .wrt = std::vector<std::string>{}});
  }
  cases.push_back({.name = "Sign of zeros",
                   .symbol = Apply(SignOp(), {}, {x}, "y"),
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
