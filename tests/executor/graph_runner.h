// Runs a graph node by node, straight from the kernel tables, and watches what each kernel does with memory: no byte
// written outside its outputs and scratch, inputs left alone, every element written, padding zero, the same bits when
// run again and when run in place. Violations are gtest failures that name the node and its kernel.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/device.h"
#include "base/host_tensor.h"
#include "executor/kernel.h"
#include "symbol/symbol.h"

namespace bindery {

// The format in which values of 3 to 5 axes are offered to kernels; which may take another.
enum class Layout { kPlain, kChannelsLast, kBlocked8, kBlocked16 };
const char* ToString(Layout layout);
Format FormatOf(Layout layout, const Shape& shape);  // plain where the layout does not apply

struct RunOptions {
  Mode mode = Mode::kTrain;
  KernelPolicy policy = KernelPolicy::kFast;
  int threads = 1;
  Layout layout = Layout::kPlain;
  StepBlock step = {};
  std::map<std::string, int> batch_axes = {};
  bool watch = true;   // false: only compute
  Device device = {};  // whose kernels run; elsewhere than on a CPU on copies of all that they use
};

struct RunResult {
  std::vector<HostTensor> outputs;                     // of the symbol, plain
  std::map<std::string, std::string> implementations;  // node name -> kernel
  std::map<std::string, std::string> operators;        // node name -> operator; of nodes as they run
};
// `inputs` by variable name: shapes and dtypes are taken from them.
RunResult RunGraph(const Symbol& symbol, const HostTensorMap& inputs, const RunOptions& options);

}  // namespace bindery
