// Reads the ONNX project's operator tests (Debian's libonnx-testdata): a model, the values fed to it and the values
// that it must give.
#pragma once

#include <string>
#include <vector>

#include "base/host_tensor.h"
#include "executor/kernel.h"

namespace bindery {

struct OnnxTest {
  std::string model;  // the file's content
  HostTensorMap feeds = {};
  std::vector<HostTensor> expected = {};  // in the order of the model's outputs
  Mode mode = Mode::kPredict;             // in which batch-norm and dropout do what the file says
};

// Reads <folder>/model.onnx and <folder>/test_data_set_0. Throws Error for element types and values we have none of.
OnnxTest ReadOnnxTest(const std::string& folder);

}  // namespace bindery
