// Reads the ONNX project's operator tests (Debian's libonnx-testdata): a model, the values fed to it and the values
// that it must give. For tests only: what it cannot read it refuses with a reason.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/host_tensor.h"

namespace bindery {

struct OnnxNode {
  std::string op, name;
  std::vector<std::string> inputs, outputs;  // "" where an optional one is left out
  std::map<std::string, int64_t> ints = {};
  std::map<std::string, double> floats = {};
  std::map<std::string, std::string> strings = {};
  std::map<std::string, std::vector<int64_t>> int_lists = {};
  std::map<std::string, HostTensor> tensors = {};

  int64_t Int(const std::string& key, int64_t otherwise) const;
  double Float(const std::string& key, double otherwise) const;
  std::string String(const std::string& key, const std::string& otherwise) const;
  std::vector<int64_t> Ints(const std::string& key) const;  // empty if absent
  bool HasInput(size_t i) const { return i < inputs.size() && !inputs[i].empty(); }
};

struct OnnxModel {
  int64_t opset = 0;  // of the default domain
  std::vector<OnnxNode> nodes;
  HostTensorMap initializers;
  std::vector<std::string> inputs, outputs;  // inputs: those that are fed
};

struct OnnxTest {
  OnnxModel model;
  HostTensorMap feeds;
  std::vector<HostTensor> expected;  // in the order of model.outputs
};

// The operators of a model, sorted, without repetition; also of models that cannot be read otherwise.
std::vector<std::string> OnnxOperators(const std::string& folder);
// Reads <folder>/model.onnx and <folder>/test_data_set_0. Throws Error for element types and values we have none of.
OnnxTest ReadOnnxTest(const std::string& folder);

}  // namespace bindery
