// CheckOperator: everything that must hold for an operator, proved from one description of a case.
//
//   CheckOperator({.name = "relu", .symbol = Relu(Variable("x")), .inputs = {{"x", AwayFromZero({3, 5})}}});
//
// For float32, float64, bfloat16 and float16: both kernel tables, 1 and 2 threads, plain, channels-last and blocked inputs
// give what the reference kernels give in double on the rounded inputs, within a tolerance that grows with the square root
// of the terms of a sum; every kernel keeps the rules of tests/executor/graph_runner.h. The gradient (as the graph that
// Gradient() returns) is what central finite differences in double say for a random head gradient, or what a formula
// says. Wrong shapes fail with ShapeError, any near shapes fail so or run; batches of no samples run; saving and loading
// gives the same graph.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/host_tensor.h"
#include "executor/kernel.h"
#include "symbol/infer.h"
#include "symbol/symbol.h"

namespace bindery {

struct OperatorCase {
  std::string name = {};
  Symbol symbol = {};
  HostTensorMap inputs = {};                            // float64 values of all variables
  std::map<std::string, DType> dtypes = {};             // of variables that do not follow from the first one's
  std::map<std::string, int> batch_axes = {};           // by variable; empty: nothing is batched
  Mode mode = Mode::kTrain;
  StepBlock step = {.seed = 7, .step = 3, .batch_size = 4};
  std::vector<DType> test_dtypes = {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16};

  double terms = 1;                                     // in the longest sum
  double tolerance = 1;                                 // factor, where an operator is known to lose more
  double magnitude = 0;                                 // of what cancels in sums that come out small

  // Whose gradients are checked; by default every argument of a float type that `dtypes` does not name.
  std::optional<std::vector<std::string>> wrt = {};
  // The gradients by variable name, instead of finite differences; for heads that have others. Computed in double.
  std::function<HostTensorMap(const HostTensorMap& inputs, const std::vector<HostTensor>& outputs)> gradient = {};
  // The outputs, where a second opinion is at hand.
  std::function<std::vector<HostTensor>(const HostTensorMap& inputs)> forward = {};

  std::vector<ShapeMap> wrong_shapes = {};              // all must fail with ShapeError; unnamed variables are free
};

void CheckOperator(const OperatorCase& c);
void CheckOperators(const std::vector<OperatorCase>& cases);

// The operators that a case runs, gradients included, by name.
std::vector<std::string> OperatorsIn(const OperatorCase& c);

// Values of inputs, float64, the same in every run: a function of kind, shape and range.
HostTensor Uniform(const Shape& shape, double low = -1, double high = 1);
HostTensor AwayFromZero(const Shape& shape, double least = 0.2, double most = 1.5);   // of both signs
HostTensor Distinct(const Shape& shape);                                              // a shuffle of -3, -2.875, -2.75, ...
HostTensor Values(const Shape& shape, std::initializer_list<double> values);
HostTensor Integers(const Shape& shape, int64_t low, int64_t high);                   // low <= value <= high

// |actual - expected| <= tolerance everywhere, and equal shapes and, if asked, dtypes; reports the worst element.
void ExpectNear(const HostTensor& actual, const HostTensor& expected, double tolerance, const std::string& what);

}  // namespace bindery
