#include "symbol/ops/activation.h"

#include "symbol/ops/curve.h"
#include "tests/executor/cases/operator_cases.h"

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

  // No element lies where a curve is bent.
  const std::pair<const char*, Symbol> curves[] = {{"leaky_relu", LeakyRelu(x, 0.25, "y")},
                                                   {"elu", Elu(x, 1.5, "y")},
                                                   {"selu", Selu(x)},
                                                   {"celu", Celu(x, 0.75, "y")},
                                                   {"gelu", Gelu(x, "y")},
                                                   {"gelu_tanh", GeluTanh(x, "y")},
                                                   {"swish", Swish(x, 1.5, "y")},
                                                   {"hard_sigmoid", HardSigmoid(x, 0.3, 0.45, "y")},
                                                   {"hard_swish", HardSwish(x, "y")},
                                                   {"hard_tanh", HardTanh(x, -1.25, 2.5, "y")},
                                                   {"thresholded_relu", ThresholdedRelu(x, 0.8, "y")},
                                                   {"shrink", Shrink(x, 0.7, 0.25, "y")},
                                                   {"mish", Mish(x, "y")},
                                                   {"smooth_l1", SmoothL1(x, 0.8, "y")}};
  for (const auto& [name, curve] : curves) {
    for (const Shape& shape : {Shape{3, 5}, Shape{2, 20, 2, 3}, Shape{}}) {
      cases.push_back({.name = fmt::format("{} {}", name, shape),
                       .symbol = curve,
                       .inputs = {{"x", AwayFromZero(shape, 0.1, 5)}},
                       .tolerance = 2,  // slopes have 1 - s, s near 1, times x and more
                       .magnitude = 1});
      if (shape.rank() > 0) cases.back().batch_axes = {{"x", 0}};
    }
    const CurveAttrs attrs = curve.entry().node->attrs().get<CurveAttrs>();
    cases.push_back({.name = fmt::format("{} gradient", name),
                     .symbol = Apply(CurveGradOp(), attrs, {dy, x}, "grad"),
                     .inputs = {{"dy", Uniform({3, 5})}, {"x", AwayFromZero({3, 5}, 0.1, 5)}},
                     .tolerance = 4,  // of second derivatives, which are graphs
                     .magnitude = 1,
                     .wrong_shapes = {{{"dy", {3, 5}}, {"x", {3, 6}}}}});
  }
  return cases;
}

}  // namespace bindery
