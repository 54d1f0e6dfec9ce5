// Small networks and comparisons for the tests of modules.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "executor/data_parallel_executor_group.h"
#include "symbol/ops.h"
#include "tests/executor/group_helpers.h"
#include "tests/host_tensors.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "train/module/replicated_module.h"

namespace bindery {

// data (N, 4) -> (N, 3)
inline Symbol Mlp() {
  const Symbol x = Tanh(FullyConnected(Variable("data"), {.num_hidden = 5}, "fc1"));
  return FullyConnected(x, {.num_hidden = 3}, "fc2");
}

inline ModuleOptions MlpOptions(std::vector<Device> devices, int64_t samples = 8) {
  return {.devices = std::move(devices), .inputs = DataDesc{"data", {samples, 4}}, .threads_per_device = 1};
}

// One value for each sample: its loss. scores (N, 3), label (N).
inline Symbol Criterion() { return MakeLoss(SoftmaxCrossEntropy(Variable("scores"), Variable("label")), {}, "loss"); }

// data (N, 2, 4, 4) -> (N, 3); batch-norm goes by what each replica has.
inline Symbol ConvNet() {
  Symbol x = Convolution(Variable("data"), {.num_filter = 16, .kernel = {3, 3}, .pad = {1, 1}}, "conv1");
  x = Relu(BatchNorm(x, {}, "bn1"));
  x = Convolution(x, {.num_filter = 16, .kernel = {3, 3}, .pad = {1, 1}}, "conv2");
  return FullyConnected(x, {.num_hidden = 3}, "fc");
}

inline double MostDifferent(const Values& a, const Values& b) {
  EXPECT_EQ(a.Form(), b.Form());
  const std::vector<Array> left = a.Leaves(), right = b.Leaves();
  double largest = 0;
  for (size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(left[i].empty(), right[i].empty());
    if (!left[i].empty()) largest = std::max(largest, MaxAbsDiff(left[i].ToHost(), right[i].ToHost()));
  }
  return largest;
}

inline HostTensorMap GradientsOf(ReplicatedModule& module) {
  HostTensorMap gradients;
  for (const std::string& name : module.param_names()) gradients[name] = module.GetGradient(name);
  return gradients;
}

inline HostTensor Times(HostTensor values, double factor) {
  for (int64_t i = 0; i < values.elements(); ++i) values.Set(i, values.At(i) * factor);
  return values;
}

inline Tensor On(const std::shared_ptr<Engine>& engine, Device device, const HostTensor& values) {
  const Tensor tensor(engine, device, values.dtype(), values.shape());
  tensor.CopyFrom(values);
  return tensor;
}

}  // namespace bindery
