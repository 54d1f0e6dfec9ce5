// At least one example of every built-in operator: attributes that differ from their defaults where they can, and
// shapes that fit. What walks over all operators starts from these.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/host_tensor.h"
#include "symbol/op_def.h"

namespace bindery {

struct OpExample {
  std::string label;
  const OpDef* op;
  AnyAttrs attrs;
  std::vector<Shape> inputs;    // of all inputs
  std::vector<int> batch_axes;  // of all inputs
};

const std::vector<OpExample>& OpExamples();

// What the inputs of an operator hold, by their places, where its attributes are numbers in them.
std::map<int, HostTensor> ExampleNumbers(const OpDef& op);

}  // namespace bindery
