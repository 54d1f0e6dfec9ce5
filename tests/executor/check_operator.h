// CheckOperator: everything that must hold for an operator, proved from one description of a case.
//
//   CheckOperator({.name = "relu", .symbol = Relu(Variable("x")), .inputs = {{"x", AwayFromZero({3, 5})}}});
//
// For float32, float64, bfloat16 and float16: both kernel tables, 1 and 2 threads (and 3 if the case is large), plain,
// channels-last and blocked inputs give what the reference kernels give in double on the rounded inputs, within the
// rounding of the results and of sums in float (double for float64), which grows with the square root of their terms;
// every kernel keeps the rules of tests/executor/graph_runner.h. The gradient (as the graph that Gradient() returns) is
// what central finite differences in double say for a random head gradient, or what a formula says. Wrong shapes fail
// with ShapeError, any near shapes fail so or run; gradients made for one batch run with others, of no samples too;
// saving and loading gives the same graph.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/device.h"
#include "base/host_tensor.h"
#include "executor/kernel.h"
#include "symbol/infer.h"
#include "symbol/symbol.h"
#include "tests/executor/values.h"

namespace bindery {

struct OperatorCase {
  std::string name = {};
  Symbol symbol = {};
  HostTensorMap inputs = {};                   // float64 values of all variables
  std::map<std::string, DType> dtypes = {};    // of variables that do not follow from the first one's
  std::map<std::string, int> batch_axes = {};  // by variable; empty: nothing is batched
  Mode mode = Mode::kTrain;
  StepBlock step = {.seed = 7, .step = 3, .batch_size = 4};
  std::vector<DType> test_dtypes = {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16};

  double terms = 1;      // in the longest sum
  double tolerance = 1;  // factor, where an operator is known to lose more
  double magnitude = 0;  // of what cancels in sums that come out small
  double stored = 0;  // of what a gradient's graph stores in the dtype on the way, where that is more than its result

  // Whose gradients are checked; by default every argument of a float type that `dtypes` does not name.
  std::optional<std::vector<std::string>> wrt = {};
  // The gradients by variable name, instead of finite differences; for heads that have others. Computed in double.
  std::function<HostTensorMap(const HostTensorMap& inputs, const std::vector<HostTensor>& outputs)> gradient = {};
  // The outputs, where a second opinion is at hand.
  std::function<std::vector<HostTensor>(const HostTensorMap& inputs)> forward = {};

  // Too large for anything but comparing kernels: no finite differences, no other shapes.
  bool large = false;

  std::vector<ShapeMap> wrong_shapes = {};  // all must fail with ShapeError; unnamed variables are free
};

void CheckOperator(const OperatorCase& c);
void CheckOperators(const std::vector<OperatorCase>& cases);
// The kernels of another device alone, in the case's types: they give what the reference kernels give.
void CheckKernelsOn(Device device, const OperatorCase& c);

// Expects that the fast table has a kernel for every node of a case in every dtype that its operators take: these. On
// a GPU only those of integers and bool are tried, which its kernels may decline.
std::set<DType> CheckNativeKernels(const OperatorCase& c, Device device = Cpu());

// The operators that a case runs, gradients included, by name.
std::vector<std::string> OperatorsIn(const OperatorCase& c);
// Those of them that the fast table takes in float32, plain or blocked; and those of which it declines a node.
std::vector<std::string> FastOperatorsIn(const OperatorCase& c);
std::vector<std::string> SlowOperatorsIn(const OperatorCase& c);

}  // namespace bindery
