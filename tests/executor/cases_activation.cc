#include "symbol/ops/activation.h"
#include "tests/executor/operator_cases.h"

namespace bindery {

std::vector<OperatorCase> ActivationCases() {
  std::vector<OperatorCase> cases;
  const Symbol x = Variable("x"), dy = Variable("dy"), y = Variable("y");
  for (ActivationType type : {ActivationType::kRelu, ActivationType::kSigmoid, ActivationType::kTanh,
                              ActivationType::kSoftRelu, ActivationType::kSoftSign}) {
    const std::string name = EnumNames(&type)[static_cast<int>(type)].name;
    cases.push_back({.name = name,
                     .symbol = Activation(x, {.type = type}, "act"),
                     .inputs = {{"x", AwayFromZero({3, 5}, 0.1, 4)}},
                     .batch_axes = {{"x", 0}}});
    cases.push_back({.name = name + " of 20 channels",  // not a multiple of any block
                     .symbol = Activation(x, {.type = type}, "act"),
                     .inputs = {{"x", AwayFromZero({2, 20, 2, 3}, 0.1, 4)}},
                     .batch_axes = {{"x", 0}}});
    cases.push_back({.name = name + " of a scalar",
                     .symbol = Activation(x, {.type = type}, "act"),
                     .inputs = {{"x", Values({}, {0.75})}}});
    // The gradient alone, differentiated once more; y lies in the range of the function and off the kinks.
    cases.push_back({.name = name + " gradient",
                     .symbol = Apply(ActivationGradOp(), ActivationAttrs{type}, {dy, y}, "grad"),
                     .inputs = {{"dy", Uniform({3, 5})}, {"y", Uniform({3, 5}, 0.1, 0.9)}},
                     .wrong_shapes = {{{"dy", {3, 5}}, {"y", {3, 6}}}}});
  }
  return cases;
}

}  // namespace bindery
