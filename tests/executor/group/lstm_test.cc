// Recurrent nets on a group: states carried from step to step (E11), groups of different depth that share (E16).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "executor/data_parallel_executor_group.h"
#include "symbol/ops.h"
#include "tests/executor/group_helpers.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

struct LstmState {
  Symbol h, c;  // hidden and cell state, (N, hidden) each
};

// A layer's weights serve all its steps.
class LstmLayer {
 public:
  LstmLayer(const std::string& name, int64_t hidden)
      : hidden_(hidden), i2h_weight_(Variable(name + "_i2h_weight")), i2h_bias_(Variable(name + "_i2h_bias")),
        h2h_weight_(Variable(name + "_h2h_weight")) {}

  // Without a state before: of zeros.
  LstmState Step(const Symbol& x, const std::optional<LstmState>& before) const {
    const int64_t gates_size = 4 * hidden_;
    Symbol gates = FullyConnected(x, i2h_weight_, i2h_bias_, {.num_hidden = gates_size});
    if (before) {
      gates = gates + FullyConnected(before->h, h2h_weight_, {}, {.num_hidden = gates_size, .no_bias = true});
    }
    const Symbol gate = SliceChannel(gates, {.num_outputs = 4});
    const Symbol in = Sigmoid(gate[0]), forget = Sigmoid(gate[1]), transform = Tanh(gate[2]), out = Sigmoid(gate[3]);
    const Symbol c = before ? forget * before->c + in * transform : in * transform;
    return {out * Tanh(c), c};
  }

 private:
  int64_t hidden_;
  Symbol i2h_weight_, i2h_bias_, h2h_weight_;
};

// (N, steps * features) of "data", cut into steps.
Symbol StepsOfData(int64_t steps) { return SliceChannel(Variable("data"), {.num_outputs = steps}, "steps"); }

constexpr int64_t kBatch = 5, kSteps = 4, kFeatures = 3, kHidden = 6;
const std::vector<std::string> kStates = {"l0_h", "l0_c", "l1_h", "l1_c"};

// Two layers from given states; the heads are the states after the last step.
Symbol TwoLayers() {
  const LstmLayer layers[] = {{"l0", kHidden}, {"l1", kHidden}};
  LstmState states[] = {{Variable("l0_h"), Variable("l0_c")}, {Variable("l1_h"), Variable("l1_c")}};
  const Symbol steps = StepsOfData(kSteps);
  for (int t = 0; t < kSteps; ++t) {
    states[0] = layers[0].Step(steps[t], states[0]);
    states[1] = layers[1].Step(states[0].h, states[1]);
  }
  return Group({states[0].h, states[0].c, states[1].h, states[1].c});
}

// The same in plain loops. states: kStates, each (N, hidden).
std::vector<HostTensor> TwoLayersByHand(const HostTensorMap& params, const HostTensor& data,
                                        std::vector<HostTensor> states) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  for (int64_t n = 0; n < kBatch; ++n) {
    for (int64_t t = 0; t < kSteps; ++t) {
      std::vector<double> x;
      for (int64_t f = 0; f < kFeatures; ++f) x.push_back(data.At((n * kSteps + t) * kFeatures + f));
      for (int l = 0; l < 2; ++l) {
        const std::string layer = "l" + std::to_string(l);
        const HostTensor &i2h = params.at(layer + "_i2h_weight"), &h2h = params.at(layer + "_h2h_weight");
        HostTensor &h = states[2 * l], &c = states[2 * l + 1];
        const auto features = static_cast<int64_t>(x.size());
        std::vector<double> gates;
        for (int64_t g = 0; g < 4 * kHidden; ++g) {
          double sum = params.at(layer + "_i2h_bias").At(g);
          for (int64_t f = 0; f < features; ++f) sum += i2h.At(g * features + f) * x[f];
          for (int64_t k = 0; k < kHidden; ++k) sum += h2h.At(g * kHidden + k) * h.At(n * kHidden + k);
          gates.push_back(sum);
        }
        x.clear();
        for (int64_t k = 0; k < kHidden; ++k) {
          const double in = sigmoid(gates[k]), forget = sigmoid(gates[kHidden + k]);
          const double transform = std::tanh(gates[2 * kHidden + k]), out = sigmoid(gates[3 * kHidden + k]);
          const double cell = forget * c.At(n * kHidden + k) + in * transform;
          c.Set(n * kHidden + k, cell);
          h.Set(n * kHidden + k, out * std::tanh(cell));
          x.push_back(h.At(n * kHidden + k));
        }
      }
    }
  }
  return states;
}

std::vector<HostTensor> MergedOutputs(const DataParallelExecutorGroup& group) {
  std::vector<HostTensor> outputs;
  for (const Tensor& output : group.Outputs()) outputs.push_back(output.ToHost());
  return outputs;
}

void ExpectNear(const std::vector<HostTensor>& values, const std::vector<HostTensor>& expected, double tolerance) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_LE(MaxAbsDiff(values[i], expected[i]), tolerance) << kStates[i];
}

TEST(GroupLstm, StatesAreCarriedFromStepToStep) {  // E11
  std::vector<DataDesc> states;
  for (const std::string& name : kStates) states.push_back({name, {kBatch, kHidden}});
  DataParallelExecutorGroup group(TwoLayers(), {.devices = {TestDevice(0), TestDevice(1)},
                                                .data = {{"data", {kBatch, kSteps * kFeatures}}},
                                                .states = states,
                                                .for_training = false});
  InitialiseEqually({&group}, 1);
  HostTensorMap params;
  group.GetParams(&params, nullptr);
  const Batch batch{.data = {RandomTensor({kBatch, kSteps * kFeatures}, 1)}};
  const std::vector<HostTensor> zeros(4, HostTensor(DType::kFloat32, {kBatch, kHidden}));
  const std::vector<HostTensor> ones(4, HostTensor::Full(DType::kFloat32, {kBatch, kHidden}, 1));

  // [state][device]; zero after the bind.
  ASSERT_EQ(group.States().size(), 4u);
  for (const std::vector<Tensor>& state : group.States()) {
    ASSERT_EQ(state.size(), 2u);
    EXPECT_EQ(state[0].ToHost(), HostTensor(DType::kFloat32, {3, kHidden}));
    EXPECT_EQ(state[1].ToHost(), HostTensor(DType::kFloat32, {2, kHidden}));
  }
  group.Forward(batch);
  ExpectNear(MergedOutputs(group), TwoLayersByHand(params, batch.data[0], zeros), 1e-5);

  group.SetStates(1.0);
  for (const std::vector<Tensor>& state : group.States()) {
    EXPECT_EQ(state[1].ToHost(), HostTensor::Full(DType::kFloat32, {2, kHidden}, 1));
  }
  group.Forward(batch);
  const std::vector<HostTensor> first = MergedOutputs(group);
  const std::vector<HostTensor> first_by_hand = TwoLayersByHand(params, batch.data[0], ones);
  ExpectNear(first, first_by_hand, 1e-5);

  group.SetStates(group.OutputsPerDevice());  // unmerged, device by device
  group.Forward(batch);
  const std::vector<HostTensor> second = MergedOutputs(group);
  ExpectNear(second, TwoLayersByHand(params, batch.data[0], first_by_hand), 1e-5);
  for (size_t i = 0; i < 4; ++i) EXPECT_GT(MaxAbsDiff(first[i], second[i]), 1e-3) << kStates[i];

  group.SetStates(first);  // merged: the same
  group.Forward(batch);
  ExpectNear(MergedOutputs(group), second, 0);
  group.Forward(batch);  // states stay what they were set to
  ExpectNear(MergedOutputs(group), second, 0);

  EXPECT_THROW(group.SetStates(std::vector<HostTensor>(3, ones[0])), Error);
  EXPECT_THROW(group.SetStates(std::vector<std::vector<Tensor>>(4)), Error);
  EXPECT_THROW(group.SetStates(std::vector<HostTensor>(4, HostTensor(DType::kFloat32, {kBatch, kHidden + 1}))), Error);
}

// data + state, of one number a sample; samples lie in the middle of the second state.
Symbol SumsWithStates() { return Group({Variable("data") + Variable("h"), Variable("more") + Variable("c")}); }
GroupOptions OptionsOfSums(int64_t samples, int devices) {
  GroupOptions options{.devices = {},
                       .data = {{"data", {samples, 1}}, {"more", {2, samples, 1}, {}, "TNC"}},
                       .states = {{"h", {samples, 1}}, {"c", {2, samples, 1}, {}, "TNC"}},
                       .for_training = false};
  for (int d = 0; d < devices; ++d) options.devices.push_back(TestDevice(d));
  return options;
}
// What a batch of so many samples sees of `h` and of `c`.
std::vector<HostTensor> StatesSeen(DataParallelExecutorGroup* group, int64_t samples) {
  group->Forward(
      Batch{.data = {HostTensor(DType::kFloat32, {samples, 1}), HostTensor(DType::kFloat32, {2, samples, 1})}});
  return MergedOutputs(*group);
}
std::vector<HostTensor> StatesOf(const std::vector<float>& h) {
  std::vector<float> c = h;
  for (const float value : h) c.push_back(10 * value);
  const auto samples = static_cast<int64_t>(h.size());
  return {HostTensor::From({samples, 1}, h), HostTensor::From({2, samples, 1}, c)};
}

TEST(GroupLstm, AStateIsOneValueForAllSamples) {
  for (const int devices : {1, 2, 3}) {
    DataParallelExecutorGroup group(SumsWithStates(), OptionsOfSums(4, devices));
    const auto expect = [&](int64_t samples, float value) {
      const std::vector<HostTensor> seen = StatesSeen(&group, samples);
      EXPECT_EQ(seen[0], HostTensor::Full(DType::kFloat32, {samples, 1}, value));
      EXPECT_EQ(seen[1], HostTensor::Full(DType::kFloat32, {2, samples, 1}, value));
    };
    group.SetStates(7);
    for (const int64_t samples : {4, 1}) expect(samples, 7);
    group.SetStates(2);  // as after an epoch whose last batch is short
    for (const int64_t samples : {4, 6, 3}) expect(samples, 2);
  }
}

TEST(GroupLstm, StatesFollowTheirSamples) {
  for (const int devices : {1, 2, 3}) {
    DataParallelExecutorGroup group(SumsWithStates(), OptionsOfSums(4, devices));
    group.SetStates(StatesOf({1, 2, 3, 4}));
    EXPECT_EQ(StatesSeen(&group, 4), StatesOf({1, 2, 3, 4}));
    std::vector<double> workload(static_cast<size_t>(devices), 1);
    workload[0] = 3;
    group.SetWorkload(workload);
    EXPECT_EQ(StatesSeen(&group, 4), StatesOf({1, 2, 3, 4}));
    EXPECT_EQ(StatesSeen(&group, 2), StatesOf({1, 2}));  // the others wait
    group.SetStates(StatesOf({5, 6}));
    EXPECT_EQ(StatesSeen(&group, 1), StatesOf({5}));
    EXPECT_EQ(StatesSeen(&group, 3), StatesOf({5, 6, 3}));
    EXPECT_EQ(StatesSeen(&group, 6), StatesOf({5, 6, 3, 4, 0, 0}));
    EXPECT_EQ(StatesSeen(&group, 4), StatesOf({5, 6, 3, 4}));
    std::vector<BatchPtr> cut(static_cast<size_t>(devices));  // all on the last device
    cut.back() = std::make_shared<const Batch>(
        Batch{.data = {HostTensor(DType::kFloat32, {4, 1}), HostTensor(DType::kFloat32, {2, 4, 1})}});
    group.Forward(cut);
    EXPECT_EQ(MergedOutputs(group), StatesOf({5, 6, 3, 4}));
  }
}

// There is no memory for the larger batch on the second device, when the first has made room for its states.
TEST(GroupLstm, ABatchThatCannotBeBoundLeavesTheStates) {
  DataParallelExecutorGroup group(SumsWithStates(), OptionsOfSums(4, 2));
  group.SetStates(StatesOf({1, 2, 3, 4}));
  DefaultStorage()->ReleasePool();
  DefaultStorage()->SetLimit(TestDevice(1), DefaultStorage()->Stats(TestDevice(1)).in_use + 1024);
  EXPECT_THROW(StatesSeen(&group, 4096), DeviceError);
  DefaultStorage()->SetLimit(TestDevice(1), 0);
  EXPECT_EQ(StatesSeen(&group, 4), StatesOf({1, 2, 3, 4}));
  const std::vector<HostTensor> seen = StatesSeen(&group, 4096);
  EXPECT_EQ(seen[0].Slice(0, 0, 5), StatesOf({1, 2, 3, 4, 0})[0]);
}

TEST(GroupLstm, StatesAreSetFromStates) {
  GroupOptions options = OptionsOfSums(2, 2);
  options.data[1] = {"more", {2, 1}};
  options.states[1] = {"c", {2, 1}};
  DataParallelExecutorGroup group(SumsWithStates(), options);
  const HostTensor h = HostTensor::From({2, 1}, {1, 2}), c = HostTensor::From({2, 1}, {3, 4});
  const auto seen_after = [&](const auto& change) {
    group.SetStates(std::vector<HostTensor>{h, c});
    const std::vector<std::vector<Tensor>> states = group.States();
    group.SetStates(DeviceArrays(change(states)));
    group.Forward(Batch{.data = {HostTensor(DType::kFloat32, {2, 1}), HostTensor(DType::kFloat32, {2, 1})}});
    return MergedOutputs(group);
  };
  using Pieces = std::vector<std::vector<Tensor>>;
  EXPECT_EQ(seen_after([](const Pieces& states) { return states; }), (std::vector<HostTensor>{h, c}));
  EXPECT_EQ(seen_after([](const Pieces& states) {
              return Pieces{states[1], states[0]};
            }),
            (std::vector<HostTensor>{c, h}));
  EXPECT_EQ(seen_after([](const Pieces& states) {
              return Pieces{{states[0][1], states[0][0]}, states[1]};
            }),
            (std::vector<HostTensor>{HostTensor::From({2, 1}, {2, 1}), c}));
}

// 32 samples of 80 numbers: four steps of 20.
Symbol Stack(int layers) {
  const Symbol steps = StepsOfData(4);
  std::vector<LstmLayer> stack;
  for (int l = 0; l < layers; ++l) stack.push_back({"l" + std::to_string(l), 20});
  std::vector<std::optional<LstmState>> states(layers);
  Symbol x;
  for (int t = 0; t < 4; ++t) {
    x = steps[t];
    for (int l = 0; l < layers; ++l) {
      states[l] = stack[l].Step(x, states[l]);
      x = states[l]->h;
    }
  }
  return SoftmaxOutput(FullyConnected(x, {.num_hidden = 10}, "fc"), {}, "softmax");
}

TEST(GroupLstm, DeeperNetSharesTheShallowOnesMemory) {  // E16
  GroupOptions options{
      .devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {32, 80}}}, .labels = {{"softmax_label", {32}}}};
  DataParallelExecutorGroup three(Stack(3), options);
  options.shared_group = &three;
  DataParallelExecutorGroup five(Stack(5), options);
  const std::vector<ReplicatedParam> own = three.params(), shared = five.params();
  EXPECT_EQ(own.size(), 3u * 3 + 2);
  EXPECT_EQ(shared.size(), 5u * 3 + 2);
  for (const ReplicatedParam& p : own) {
    const auto q = std::find_if(shared.begin(), shared.end(), [&](const auto& other) { return other.name == p.name; });
    ASSERT_NE(q, shared.end()) << p.name;
    for (int d = 0; d < 2; ++d) {
      EXPECT_EQ(p.values[d].address(), q->values[d].address()) << p.name;
      EXPECT_EQ(p.grads[d].address(), q->grads[d].address()) << p.name;
    }
    EXPECT_EQ(three.grad_req(p.name), five.grad_req(p.name));
  }
  // Working memory is shared; each group has arrays of its own for exactly the data and the label.
  for (size_t d = 0; d < 2; ++d) EXPECT_EQ(three.executors()[d]->arena(), five.executors()[d]->arena());
  for (const DataParallelExecutorGroup* group : {&three, &five}) {
    std::vector<std::string> inputs;
    for (const PlanArgument& a : group->plan().arguments)
      if (!a.is_parameter()) inputs.push_back(a.name);
    EXPECT_EQ(inputs, (std::vector<std::string>{"data", "softmax_label"}));
    EXPECT_EQ(group->memory().inputs, 16 * 80 * 4 + 16 * 4);  // on one device
  }
  // What one sets and computes, the other sees.
  InitialiseEqually({&five}, 1);
  const Batch batch = RandomBatch(32, 80, 10, 1);
  five.Forward(batch);
  five.Backward();
  HostTensorMap params, all;
  three.GetParams(&params, nullptr);
  five.GetParams(&all, nullptr);
  for (const auto& [name, value] : params) {
    EXPECT_EQ(value, all.at(name));
    for (int d = 0; d < 2; ++d) EXPECT_EQ(three.GetGradient(name, d), five.GetGradient(name, d));
    EXPECT_GT(MaxAbsDiff(five.GetGradient(name, 1), HostTensor(DType::kFloat32, value.shape())), 0) << name;
  }
  // Shared, the shallow net computes what it computes alone.
  options.shared_group = nullptr;
  DataParallelExecutorGroup alone(Stack(3), options);
  alone.SetParams(params, {});
  for (DataParallelExecutorGroup* group : {&three, &alone}) {
    group->Forward(batch);
    group->Backward();
  }
  EXPECT_EQ(three.Outputs()[0].ToHost(), alone.Outputs()[0].ToHost());
  for (const std::string& name : three.param_names()) {
    EXPECT_EQ(SumOfGradients(three, name), SumOfGradients(alone, name)) << name;
  }
}

}  // namespace
}  // namespace bindery
