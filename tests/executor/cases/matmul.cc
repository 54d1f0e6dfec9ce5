#include "symbol/ops/matmul.h"

#include "tests/executor/cases/operator_cases.h"

namespace bindery {

std::vector<OperatorCase> MatMulCases() {
  std::vector<OperatorCase> cases;
  const Symbol a = Variable("a"), b = Variable("b");
  const auto add = [&](const std::string& name, const Symbol& symbol, const Shape& left, const Shape& right) {
    cases.push_back({.name = name,
                     .symbol = symbol,
                     .inputs = {{"a", Uniform(left)}, {"b", Uniform(right)}},
                     .terms = 24,
                     .magnitude = 1});
  };
  const Shape shapes[][2] = {{{3, 4}, {4, 5}},
                             {{2, 3, 4}, {2, 4, 5}},
                             {{2, 3, 4}, {4, 5}},
                             {{3, 4}, {2, 4, 5}},
                             {{2, 1, 3, 4}, {3, 4, 1}},
                             {{1, 2, 3, 4}, {3, 1, 4, 5}},
                             {{2, 1, 2, 3, 4}, {2, 1, 1, 4, 5}}};
  const auto swapped = [](Shape shape, bool swap) {
    const int64_t rows = shape[-2], columns = shape[-1];
    return swap ? shape.With(-2, columns).With(-1, rows) : shape;
  };
  for (bool transpose_a : {false, true}) {
    for (bool transpose_b : {false, true}) {
      for (const auto& [left, right] : shapes) {
        add(fmt::format("MatMul of {} and {}, transposed {} {}", left, right, transpose_a, transpose_b),
            MatMul(a, b, {transpose_a, transpose_b}, "y"), swapped(left, transpose_a), swapped(right, transpose_b));
      }
    }
  }
  cases[1].batch_axes = {{"a", 0}, {"b", 0}};
  cases[2].batch_axes = {{"a", 0}};
  cases[2].wrong_shapes = {{{"a", {2, 3, 4}}, {"b", {5, 4}}}, {{"a", {2, 3, 4}}, {"b", {3, 4, 5}}}};
  cases[3].batch_axes = {{"b", 0}};
  add("MatMul of a row", MatMul(a, b, {}, "y"), {4}, {2, 3, 4, 5});
  add("MatMul of a column", MatMul(a, b, {}, "y"), {2, 3, 4}, {4});
  cases.back().batch_axes = {{"a", 0}};
  add("MatMul of a transposed matrix and a column", MatMul(a, b, {.transpose_a = true}, "y"), {2, 4, 3}, {4});
  add("MatMul of a row and a transposed matrix", MatMul(a, b, {.transpose_b = true}, "y"), {4}, {3, 4});
  add("MatMul of vectors", MatMul(a, b, {}, "y"), {4}, {4});
  cases.back().wrong_shapes = {{{"a", {4}}, {"b", {3}}}, {{"a", {}}, {"b", {3}}}};
  const Symbol c = Variable("c");
  add("Gemm", Gemm(a, b, c, {.alpha = 0.5, .beta = 2, .transpose_a = true, .transpose_b = true}, "y"), {4, 3}, {5, 4});
  cases.back().inputs["c"] = Uniform({3, 1});
  add("Gemm without a summand", Gemm(a, b, {}, {.alpha = -1}, "y"), {3, 4}, {4, 5});
  add("Gemm with a row", Gemm(a, b, c, {}, "y"), {3, 4}, {4, 5});
  cases.back().inputs["c"] = Uniform({5});
  return cases;
}

}  // namespace bindery
