#include <array>

#include "symbol/ops/elementwise.h"
#include "tests/executor/cases/operator_cases.h"

namespace bindery {
namespace {

struct Operands {
  Shape a, b;
};

Symbol Binary(const OpDef& op) { return Apply(op, {}, {Variable("a"), Variable("b")}, "y"); }

double TermsOf(const Operands& shapes) {  // the gradient of a stretched operand is a sum
  return static_cast<double>(std::max(shapes.a.Elements(), shapes.b.Elements()));
}

}  // namespace

std::vector<OperatorCase> BinaryCases() {
  std::vector<OperatorCase> cases;
  const Operands operands[] = {
      {{3, 4}, {3, 4}},
      {{7}, {7}},
      {{2, 20, 2, 3}, {2, 20, 2, 3}},  // not a multiple of any block
      {{2, 3, 4}, {1}},
      {{1}, {2, 3}},
      {{}, {2, 3}},
      {{2, 3, 4}, {4}},
      {{2, 3, 4}, {3, 1}},
      {{2, 1, 4}, {3, 1}},
      {{2, 20, 2, 3}, {1, 20, 1, 1}},  // per channel
      {{2, 20, 2, 3}, {20, 1, 1}},
      {{2, 3, 2, 2}, {2, 3, 1, 1}},
      {{2, 1, 2, 2}, {2, 20, 2, 2}},
      {{2, 2, 2, 2, 2}, {1, 2, 1, 2, 1}},
  };
  for (const char* op : {"Add", "Sub", "Mul", "Div", "Mod", "Fmod", "PRelu", "Power", "Maximum", "Minimum", "Less",
                         "LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual", "And", "Or", "Xor"}) {
    const std::string name = op;
    const bool is_step = name.ends_with("Equal") || name == "Less" || name == "Greater" || name == "And" ||
                         name == "Or" || name == "Xor";
    for (const Operands& shapes : operands) {
      OperatorCase c{.name = fmt::format("{} {} {}", name, shapes.a, shapes.b),
                     .symbol = Binary(FindOp(name)),
                     .inputs = {{"a", AwayFromZero(shapes.a)}, {"b", AwayFromZero(shapes.b, 0.4, 1.9)}},
                     .terms = TermsOf(shapes),
                     .magnitude = 1};
      if (name == "Power") {
        c.inputs["a"] = Uniform(shapes.a, 0.4, 1.9);
        c.tolerance = 4;
        // What lies between is rounded, and cancels when it is summed.
        if (shapes.a != shapes.b) c.test_dtypes = {DType::kFloat32, DType::kFloat64};
      }
      // A quotient that is rounded to the next whole number has another remainder.
      if (name == "Mod" || name == "Fmod") c.test_dtypes = {DType::kFloat32, DType::kFloat64};
      if (shapes.a.rank() > 0 && shapes.b.rank() == shapes.a.rank() && shapes.a[0] == shapes.b[0]) {
        c.batch_axes = {{"a", 0}, {"b", 0}};
      }
      if (is_step) c.wrt.emplace();  // a step: no gradient
      cases.push_back(std::move(c));
    }
    cases.back().wrong_shapes = {{{"a", {2, 3}}, {"b", {2, 4}}}, {{"a", {2, 3}}, {"b", {2}}}};
  }
  for (const BinaryFunction& f : {BitAnd, BitOr, BitXor, ShiftLeft, ShiftRight}) {
    const bool shifts = std::string(f.of).starts_with("Shift");
    for (const DType dtype : {DType::kInt8, DType::kInt32, DType::kInt64, DType::kUInt8, DType::kUInt32}) {
      const int64_t low = dtype == DType::kUInt8 || dtype == DType::kUInt32 ? 0 : -3;
      for (const Operands& shapes : {operands[0], operands[3], operands[9]}) {
        cases.push_back(
            {.name = fmt::format("{} of {} {} {}", f.of, dtype, shapes.a, shapes.b),
             .symbol = Binary(f.op()),
             .inputs = {{"a", Integers(shapes.a, low, 15)}, {"b", Integers(shapes.b, low, shifts ? 3 : 15)}},
             .dtypes = {{"a", dtype}, {"b", dtype}}});
      }
    }
  }
  const Symbol a = Variable("a"), b = Variable("b"), c = Variable("c");
  cases.push_back({.name = "shifts by more bits than there are",
                   .symbol = Group({ShiftLeft(a, b, "y"), ShiftRight(a, b, "z")}),
                   .inputs = {{"a", Values({5}, {3, -3, -7, 5, 1})}, {"b", Values({5}, {31, 32, 100, -1, 2})}},
                   .dtypes = {{"a", DType::kInt32}, {"b", DType::kInt32}},
                   .forward = [](const HostTensorMap&) -> std::vector<HostTensor> {
                     return {Values({5}, {-2147483648.0, 0, 0, 0, 4}), Values({5}, {0, -1, -1, 0, 0})};
                   }});
  cases.push_back({.name = "means of many",
                   .symbol = Group({MeanOf(std::array{a, b, c}, "mean"), Fold(Maximum, std::array{a, b, c}, "most")}),
                   .inputs = {{"a", Uniform({2, 3})}, {"b", AwayFromZero({3}, 1.1, 2)}, {"c", Uniform({2, 1}, 3, 4)}},
                   .terms = 6,
                   .magnitude = 1});
  for (const BinaryFunction& f : {GreaterEqual, LessEqual}) {
    cases.push_back({.name = std::string(f.of) + " of equal numbers",
                     .symbol = Binary(f.op()),
                     .inputs = {{"a", Values({4}, {1, 2, 3, -0.0})}, {"b", Values({4}, {1, 3, 2, 0})}},
                     .wrt = std::vector<std::string>{},
                     .forward = [less = f.of == LessEqual.of](const HostTensorMap&) -> std::vector<HostTensor> {
                       return {less ? Values({4}, {1, 1, 0, 1}) : Values({4}, {1, 0, 1, 1})};
                     }});
  }

  for (const auto& [c, a, b] : {std::array<Shape, 3>{Shape{2, 20, 2, 3}, {2, 20, 2, 3}, {2, 20, 2, 3}},
                                {Shape{7}, {}, {7}},
                                {Shape{}, {3, 4}, {3, 4}},
                                {Shape{2, 3, 4}, {}, {}},
                                {Shape{2, 1, 4}, {3, 1}, {2, 3, 4}},
                                {Shape{20, 1, 1}, {2, 20, 2, 3}, {2, 1, 2, 3}}}) {
    cases.push_back({.name = fmt::format("Where {} {} {}", c, a, b),
                     .symbol = Where(Variable("c"), Variable("a"), Variable("b"), "y"),
                     .inputs = {{"c", Integers(c, 0, 1)}, {"a", Uniform(a)}, {"b", Uniform(b)}},
                     .dtypes = {{"c", DType::kBool}},
                     .terms = 240,
                     .magnitude = 1});
  }
  cases.back().wrong_shapes = {{{"c", {2}}, {"a", {2, 3}}, {"b", {2, 3}}}};
  cases.push_back({.name = "Clip",
                   .symbol = Clip(Variable("x"), -0.5, 0.5),
                   .inputs = {{"x", Values({2, 3}, {-2, -0.4, 0.1, 0.4, 0.9, 3})}}});

  for (int n : {1, 2, 3, 5}) {
    OperatorCase c{.name = fmt::format("sum of {}", n), .terms = static_cast<double>(n), .magnitude = 1};
    std::vector<Symbol> inputs;
    for (int i = 0; i < n; ++i) {
      const std::string name = fmt::format("x{}", i);
      inputs.push_back(Variable(name));
      HostTensor value = Uniform({2, 20, 2, 2});
      for (int64_t k = 0; k < value.elements(); ++k) value.Set(k, value.At(k) * (i + 1));
      c.inputs[name] = value;
      c.batch_axes[name] = 0;
    }
    c.symbol = Apply(AddNOp(), {}, inputs, "y");
    if (n > 1) c.wrong_shapes = {{{"x0", {2, 3}}, {"x1", {2, 4}}}};
    cases.push_back(std::move(c));
  }

  for (const Shape& shape : {Shape{3, 5}, Shape{2, 20, 2, 3}}) {
    cases.push_back({.name = fmt::format("AddRelu {}", shape),
                     .symbol = Binary(AddRelu.op()),
                     .inputs = {{"a", AwayFromZero(shape, 0.5, 1)}, {"b", Uniform(shape, -0.4, 0.4)}},
                     .batch_axes = {{"a", 0}, {"b", 0}}});
    cases.push_back({.name = fmt::format("AddReluGrad {}", shape),
                     .symbol = Apply(AddReluGradOp(), {}, {Variable("a"), Variable("b"), Variable("y")}, "dx"),
                     .inputs = {{"a", Uniform(shape)}, {"b", Uniform(shape, -0.7, 0.5)}, {"y", AwayFromZero(shape)}},
                     .batch_axes = {{"a", 0}, {"b", 0}, {"y", 0}},
                     .wrt = std::vector<std::string>{}});
  }
  return cases;
}

}  // namespace bindery
