// Expresses a model of the ONNX operator tests in our operators. For tests only; one function per ONNX operator.
#pragma once

#include <set>
#include <string>

#include "executor/kernel.h"
#include "symbol/symbol.h"
#include "tests/executor/onnx_reader.h"

namespace bindery {

struct ImportedOnnx {
  Symbol symbol;         // its outputs in the model's order
  HostTensorMap values;  // of its variables
  Mode mode = Mode::kPredict;
};
// Throws Error where our operators have no such case, with the reason.
ImportedOnnx ImportOnnx(const OnnxTest& test);

// The ONNX operators that are known here at all.
std::set<std::string> KnownOnnxOperators();

}  // namespace bindery
