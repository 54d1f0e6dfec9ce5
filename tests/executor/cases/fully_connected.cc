#include "symbol/ops/fully_connected.h"

#include "tests/executor/cases/operator_cases.h"

namespace bindery {
namespace {

OperatorCase FullyConnectedCase(const std::string& name, const Shape& data, const FullyConnectedAttrs& attrs) {
  const int64_t k = attrs.flatten ? data.CountFrom(1) : data[-1];
  OperatorCase c{.name = name,
                 .symbol = FullyConnected(Variable("x"), attrs, "fc"),
                 .inputs = {{"x", Uniform(data)}, {"fc_weight", Uniform({attrs.num_hidden, k}, -0.5, 0.5)}},
                 .batch_axes = {{"x", 0}},
                 .terms = static_cast<double>(k + data.Elements() / k)};
  if (!attrs.no_bias) c.inputs["fc_bias"] = Uniform({attrs.num_hidden}, 1, 2);
  return c;
}

}  // namespace

std::vector<OperatorCase> FullyConnectedCases() {
  std::vector<OperatorCase> cases = {
      FullyConnectedCase("vectors", {4, 6}, {.num_hidden = 5}),
      FullyConnectedCase("without bias", {4, 6}, {.num_hidden = 5, .no_bias = true}),
      FullyConnectedCase("one sample", {1, 7}, {.num_hidden = 3}),
      FullyConnectedCase("one output", {5, 7}, {.num_hidden = 1}),
      FullyConnectedCase("one input", {5, 1}, {.num_hidden = 3}),
      FullyConnectedCase("wider", {6, 33}, {.num_hidden = 17}),
      FullyConnectedCase("many outputs of many inputs", {9, 40}, {.num_hidden = 33}),
      FullyConnectedCase("last axis, many of many", {2, 7, 40},
                         {.num_hidden = 19, .flatten = false, .activation = ActivationType::kTanh}),
      FullyConnectedCase("flattened images", {3, 4, 2, 3}, {.num_hidden = 5}),
      FullyConnectedCase("flattened images, 16 channels", {2, 16, 2, 2}, {.num_hidden = 8}),
      FullyConnectedCase("flattened images, 20 channels", {2, 20, 1, 2}, {.num_hidden = 16}),
      FullyConnectedCase("last axis", {2, 3, 4}, {.num_hidden = 5, .flatten = false}),
      FullyConnectedCase("last axis, without bias", {2, 3, 2, 4}, {.num_hidden = 3, .no_bias = true, .flatten = false}),
  };
  cases[0].wrong_shapes = {{{"x", {4, 6}}, {"fc_weight", {5, 7}}},
                           {{"x", {4, 6}}, {"fc_weight", {4, 6}}},
                           {{"x", {4, 6}}, {"fc_bias", {6}}},
                           {{"x", {4, 6}}, {"fc_bias", {5, 1}}}};
  cases[11].wrong_shapes = {{{"x", {2, 3, 4}}, {"fc_weight", {5, 12}}}};
  for (ActivationType type : {ActivationType::kRelu, ActivationType::kSigmoid, ActivationType::kTanh,
                              ActivationType::kSoftRelu, ActivationType::kSoftSign}) {
    cases.push_back(FullyConnectedCase(std::string("with ") + EnumNames(&type)[static_cast<int>(type)].name, {4, 6},
                                       {.num_hidden = 5, .activation = type}));
    cases.back().tolerance = 2;
  }
  // Not every gradient is asked for: the others' outputs are null pointers.
  for (const char* name : {"x", "fc_weight", "fc_bias"}) {
    cases.push_back(FullyConnectedCase(std::string("gradient of ") + name + " alone", {4, 6}, {.num_hidden = 5}));
    cases.back().wrt = std::vector<std::string>{name};
  }
  return cases;
}

}  // namespace bindery
