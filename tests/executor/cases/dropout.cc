#include "symbol/ops/dropout.h"

#include "tests/executor/cases/operator_cases.h"

namespace bindery {
namespace {

// Finite differences see the same mask every time: it depends on the step block and the node's name only.
OperatorCase DropoutCase(const std::string& name, const Shape& shape, const DropoutAttrs& attrs, int batch_axis = 0) {
  OperatorCase c{.name = name, .symbol = Dropout(Variable("x"), attrs, "drop"), .inputs = {{"x", AwayFromZero(shape)}}};
  if (batch_axis >= 0) c.batch_axes = {{"x", batch_axis}};
  return c;
}

}  // namespace

std::vector<OperatorCase> DropoutCases() {
  std::vector<OperatorCase> cases = {
      DropoutCase("half", {4, 7}, {}),
      DropoutCase("p 0.2", {3, 20, 2, 3}, {.p = 0.2}),
      DropoutCase("p 0", {4, 7}, {.p = 0}),
      DropoutCase("one decision per channel", {3, 5, 4, 2}, {.p = 0.4, .axes = {2, 3}}),
      DropoutCase("one decision for all samples", {6, 5}, {.p = 0.4, .axes = {0}}),
      DropoutCase("negative axis", {3, 5, 4}, {.p = 0.4, .axes = {-1}}),
      DropoutCase("batch on axis 1", {5, 4, 3}, {.p = 0.3}, 1),
      DropoutCase("no batch", {5, 4}, {.p = 0.3}, -1),
      DropoutCase("always", {5, 4}, {.p = 0.3, .mode = DropoutMode::kAlways}),
  };
  OperatorCase c = DropoutCase("prediction", {4, 7}, {});
  c.mode = Mode::kPredict;
  cases.push_back(c);
  c = DropoutCase("always, in prediction", {4, 7}, {.mode = DropoutMode::kAlways});
  c.mode = Mode::kPredict;
  cases.push_back(c);
  c = DropoutCase("far in a run", {4, 7}, {});
  c.step = {.seed = 0x123456789abcdefull, .step = (5ull << 32) + 3, .micro_batch = 2, .sample_offset = (3ll << 33) + 1};
  cases.push_back(c);
  return cases;
}

}  // namespace bindery
