// Nets with placements for the tests of groups that have such, and what compares these with others.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/placed_executor_group.h"
#include "symbol/ops.h"
#include "tests/executor/group_helpers.h"
#include "tests/test_device.h"

namespace bindery {

template <class Make>
Symbol On(const std::string& placement, const Make& make) {
  const AttrScope scope({{"ctx_group", placement}});
  return make();
}

// Replica r: "low" on device 2 r, "high" on device 2 r + 1, the rest on the first.
inline GroupOptions OptionsOf(int replicas, std::vector<DataDesc> data, std::vector<DataDesc> labels = {}) {
  GroupOptions options{.devices = {},
                       .data = std::move(data),
                       .labels = std::move(labels),
                       .inputs_need_grad = true,
                       .threads_per_device = 1};
  for (int r = 0; r < replicas; ++r) {
    options.devices.push_back(TestDevice(2 * r));
    options.placements["low"].push_back(TestDevice(2 * r));
    options.placements["high"].push_back(TestDevice(2 * r + 1));
  }
  return options;
}

// The same without placements.
inline std::unique_ptr<ExecutorGroup> Unplaced(const Symbol& symbol, GroupOptions options) {
  options.placements.clear();
  return MakeGroup(WithoutPlacements(symbol), options);
}

// Outputs, gradients and running statistics of both after forward and backward of a batch.
inline void ExpectEqual(ExecutorGroup* group, ExecutorGroup* expected, const Batch& batch,
                        const std::vector<HostTensor>& head_gradients = {}, double tolerance = 2e-5) {
  for (ExecutorGroup* one : {group, expected}) {
    one->Forward(batch, Mode::kTrain);
    head_gradients.empty() ? one->Backward() : one->Backward(head_gradients);
  }
  EXPECT_EQ(group->OutputShapes(), expected->OutputShapes());
  const std::vector<Tensor> outputs = group->Outputs(), expected_outputs = expected->Outputs();
  for (size_t i = 0; i < expected_outputs.size(); ++i) {
    EXPECT_LE(MaxAbsDiff(outputs[i].ToHost(), expected_outputs[i].ToHost()), tolerance) << "output " << i;
  }
  if (expected->options().inputs_need_grad) {
    const std::vector<Tensor> gradients = group->InputGradients(), expected_gradients = expected->InputGradients();
    ASSERT_EQ(gradients.size(), expected_gradients.size());
    for (size_t i = 0; i < gradients.size(); ++i) {
      EXPECT_LE(MaxAbsDiff(gradients[i].ToHost(), expected_gradients[i].ToHost()), tolerance) << "input " << i;
    }
  }
  for (const std::string& name : expected->param_names()) {
    if (expected->grad_req(name) == GradReq::kNull) continue;
    EXPECT_LE(MaxAbsDiff(SumOfGradients(*group, name), SumOfGradients(*expected, name)), tolerance) << name;
  }
  HostTensorMap aux, expected_aux;
  group->GetParams(nullptr, &aux);
  expected->GetParams(nullptr, &expected_aux);
  ASSERT_EQ(aux.size(), expected_aux.size());
  for (const auto& [name, value] : expected_aux) EXPECT_LE(MaxAbsDiff(aux.at(name), value), tolerance) << name;
}

inline Symbol Mlp() {
  const Symbol hidden = On("low", [] {
    const Symbol x = FullyConnected(Variable("data"), {.num_hidden = 6}, "fc1");
    return Dropout(Tanh(x, "tanh1"), {.p = 0.3}, "drop1");
  });
  return On("high", [&] {
    const Symbol x = Dropout(Tanh(FullyConnected(hidden, {.num_hidden = 5}, "fc2")), {.p = 0.3}, "drop2");
    return SoftmaxOutput(FullyConnected(x, {.num_hidden = 3}, "fc3"), {}, "softmax");
  });
}

struct Case {
  const char* name;
  Symbol net;
  DataDesc data, label;
  int64_t classes;
};

inline Batch RandomBatchOf(const Case& c, int64_t samples, uint64_t seed) {
  const Shape data = c.data.shape.With(c.data.BatchAxis(), samples),
              label = c.label.shape.With(c.label.BatchAxis(), samples);
  Batch batch{.data = {RandomTensor(data, seed)}, .label = {HostTensor(DType::kFloat32, label)}, .samples = samples};
  for (int64_t i = 0; i < label.Elements(); ++i) {
    batch.label[0].Set(i,
                       static_cast<double>((static_cast<uint64_t>(i) * 7 + seed) % static_cast<uint64_t>(c.classes)));
  }
  return batch;
}

inline std::vector<Case> Cases() {
  const Symbol pooled = On("low", [] {
    Symbol x = Tanh(Convolution(Variable("data"), {.num_filter = 4, .kernel = {3, 3}}, "conv1"));
    x = Pooling(x, {.type = PoolType::kMax, .kernel = {2, 2}, .stride = {2, 2}});
    return Tanh(Convolution(x, {.num_filter = 6, .kernel = {3, 3}}, "conv2"));
  });
  const Symbol lenet = On("high", [&] {
    const Symbol x = Tanh(FullyConnected(Flatten(pooled), {.num_hidden = 8}, "fc1"));
    return SoftmaxOutput(FullyConnected(x, {.num_hidden = 5}, "fc2"), {}, "softmax");
  });
  const RnnAttrs layer{.cell = RecurrentCell::kLstm, .hidden = 5, .layout = SequenceLayout::kTnc};
  const Symbol below = On("low", [&] { return Rnn(Variable("data"), layer, "lstm0").output; });
  const Symbol lstm = On("high", [&] {
    const Symbol rows = Reshape(Rnn(below, layer, "lstm1").output, {.shape = {-1, 5}}, "rows");
    const Symbol label = Reshape(Variable("softmax_label"), {.shape = {-1}}, "labels");
    return SoftmaxOutput(FullyConnected(rows, {.num_hidden = 4}, "scores"), label, {}, "softmax");
  });
  return {{"mlp", Mlp(), {"data", {7, 4}}, {"softmax_label", {7}}, 3},
          {"lenet", lenet, {"data", {7, 1, 10, 10}}, {"softmax_label", {7}}, 5},
          {"lstm", lstm, {"data", {3, 7, 4}, {}, "TNC"}, {"softmax_label", {3, 7}, {}, "TN"}, 4}};
}

}  // namespace bindery
