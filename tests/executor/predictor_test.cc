// Predictor: many threads on one set of weights.
#include "executor/predictor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "symbol/ops.h"
#include "tests/executor/group_helpers.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

constexpr int64_t kHidden = 512, kFeatures = 256;  // half a MiB of weights, much more than a call's own memory

Model RandomModel() {
  Symbol x = Relu(FullyConnected(Variable("data"), {.num_hidden = kHidden}, "fc1"));
  x = Relu(BatchNorm(x, {.fix_gamma = false}, "bn"));
  Model model{.symbol = SoftmaxOutput(FullyConnected(x, {.num_hidden = 7}, "fc2"), {}, "softmax")};
  const Executor executor(model.symbol, {.inputs = {{"data", {1, kFeatures}}}, .for_training = false});
  for (const std::string& name : executor.param_names()) {
    const Tensor array = executor.ArgumentArray(name);
    model.params[name] = RandomTensor(array.shape(), StreamKey(1, name).k0);
  }
  for (const std::string& name : executor.aux_names()) {
    model.aux[name] = HostTensor::Full(DType::kFloat32, {kHidden}, name.ends_with("var") ? 2 : 0.5);
  }
  return model;
}

PredictorOptions Options(int calls) {
  return {.device = TestDevice(0), .inputs = {{"data", {16, kFeatures}}}, .calls = calls, .threads = 1};
}

// Each on an instance and an arena of its own, all on one set of weights.
TEST(Predictor, ThirtyTwoThreadsGiveTheBitsOfOne) {
  constexpr int kThreads = 32;
  const Model model = RandomModel();
  const Predictor one(model, Options(1)), many(model, Options(kThreads));
  std::vector<HostTensor> data, expected;
  for (int64_t n = 1; n <= 16; ++n) {
    data.push_back(RandomTensor({n, kFeatures}, static_cast<uint64_t>(n)));
    expected.push_back(one.Predict({{"data", data.back()}})[0]);
  }
  std::atomic<int> wrong{0}, here{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (++here; here < kThreads;) std::this_thread::yield();
      for (size_t run = 0; run < 16; ++run) {
        const size_t i = (5 * run + 3 * t) % data.size();
        if (many.Predict({{"data", data[i]}})[0] != expected[i]) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  // As a group predicts.
  DataParallelExecutorGroup group(model.symbol,
                                  {.devices = {TestDevice(0)}, .data = Options(1).inputs, .for_training = false});
  group.SetParams(model.params, model.aux);
  group.Forward(Batch{.data = {data.back()}});
  EXPECT_LE(MaxAbsDiff(group.Outputs()[0].ToHost(), expected.back()), 1e-6);
}

// Eight calls at once need less memory than two sets of weights.
TEST(Predictor, WeightsAreThereOnce) {
  const Model model = RandomModel();
  const Device device = TestDevice(0);
  const auto in_use = [&] { return DefaultStorage()->Stats(device).in_use; };
  const int64_t before = in_use();
  const Predictor predictor(model, Options(8));
  const int64_t weights = in_use() - before;
  EXPECT_GE(weights, kHidden * kFeatures * 4);
  std::atomic<int> here{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (++here; here < 8;) std::this_thread::yield();
      for (int run = 0; run < 10; ++run) predictor.Predict({{"data", RandomTensor({16, kFeatures}, 1)}});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(in_use() - before, 2 * weights);
  EXPECT_GE(predictor.memory().parameters, kHidden * kFeatures * 4);
}

TEST(Predictor, OnDevices) {
  const Predictor predictor(RandomModel(), Options(2));
  const HostTensor data = RandomTensor({5, kFeatures}, 1);
  const HostTensor expected = predictor.Predict({{"data", data}})[0];
  for (const int index : {0, 1}) {
    const Tensor input(TestDevice(index), DType::kFloat32, data.shape());
    input.CopyFrom(data);
    const Tensor output = predictor.Predict(TensorMap{{"data", input}})[0];
    EXPECT_EQ(output.device(), TestDevice(0));
    EXPECT_EQ(output.engine(), input.engine());
    const Tensor copy(output.device(), DType::kFloat32, output.shape());
    copy.CopyFrom(output);
    EXPECT_EQ(copy.ToHost(), expected);
  }
  const Tensor broken(TestDevice(0), DType::kFloat32, data.shape());
  DefaultEngine()->Push(
      {.name = "break", .device = TestDevice(0), .writes = {broken.var()}, .run = [](const OpContext&) {
         throw NumericError("broken on purpose");
       }});
  EXPECT_THROW(predictor.Predict(TensorMap{{"data", broken}}), NumericError);
  EXPECT_EQ(predictor.Predict({{"data", data}})[0], expected);
  EXPECT_THROW(DefaultEngine()->WaitAll(), NumericError);
}

// Batches and outputs of more than a thread copies by itself.
TEST(Predictor, CopiesByAllItsThreads) {
  PredictorOptions options = Options(1);
  options.inputs = {{"data", {512, kFeatures}}};
  options.threads = 2;
  const Predictor predictor(Model{.symbol = Relu(Variable("data"))}, options);
  for (const int64_t n : {512, 301}) {
    const HostTensor data = RandomTensor({n, kFeatures}, static_cast<uint64_t>(n));
    const std::vector<HostTensor> outputs = predictor.Predict({{"data", data}});
    ASSERT_EQ(outputs[0].shape(), data.shape());
    for (int64_t i = 0; i < n * kFeatures; ++i) ASSERT_EQ(outputs[0].At(i), std::max(data.At(i), 0.0)) << i;
  }
}

TEST(Predictor, ACallThatFailsHarmsNoOther) {
  const Symbol net = Embedding(Variable("data"), {.input_dim = 4, .output_dim = 2}, "embedding");
  const Predictor predictor({.symbol = net, .params = {{"embedding_weight", RandomTensor({4, 2}, 1)}}},
                            {.inputs = {{"data", {3}}}, .calls = 1});
  const HostTensor good = HostTensor::From({3}, {0, 3, 1}), bad = HostTensor::From({2}, {0, 9});
  const HostTensor expected = predictor.Predict({{"data", good}})[0];
  EXPECT_THROW(predictor.Predict({{"data", bad}}), Error);
  EXPECT_EQ(predictor.Predict({{"data", good}})[0], expected);
}

// A cache has nothing at the first step; a batch has samples.
TEST(Predictor, OtherAxesMayBeEmpty) {
  const Symbol joined = Concat({Variable("past"), Variable("x")}, {.axis = 1}, "y");
  const HostTensor x = RandomTensor({2, 1, 3}, 1);
  for (const char* layout : {"", "ABC", "NTC"}) {
    const Predictor predictor({.symbol = joined}, {.device = TestDevice(0),
                                                   .inputs = {{"x", {2, 1, 3}, DType::kFloat32, layout},
                                                              {"past", {2, 8, 3}, DType::kFloat32, layout}}});
    EXPECT_EQ(predictor.Predict({{"x", x}, {"past", HostTensor(DType::kFloat32, {2, 0, 3})}})[0], x) << layout;
    EXPECT_EQ(predictor.Predict({{"x", x}, {"past", RandomTensor({2, 2, 3}, 2)}})[0].shape(), (Shape{2, 3, 3}));
  }
}

TEST(Predictor, WhatDoesNotFitIsRefused) {
  const Model model = RandomModel();
  const Predictor predictor(model, Options(1));
  const auto message = [&](const HostTensorMap& inputs) { return MessageOf([&] { predictor.Predict(inputs); }); };
  const HostTensor data = RandomTensor({2, kFeatures}, 1);
  EXPECT_EQ(message({{"data", data}}), "nothing was thrown");
  EXPECT_EQ(message({}), "DataError: input \"data\" is missing");
  EXPECT_EQ(message({{"data", data}, {"date", data}}), "DataError: \"date\" is not an input; did you mean \"data\"?");
  EXPECT_EQ(message({{"data", RandomTensor({17, kFeatures}, 1)}}),
            "DataError: input \"data\": expected at most (16, 256) (PredictorOptions::inputs), got (17, 256)");
  EXPECT_NE(message({{"data", RandomTensor({2, 3}, 1)}}).find("fc1"), std::string::npos);
  EXPECT_EQ(message({{"data", data}}), "nothing was thrown");
  PredictorOptions options = Options(1);
  options.inputs.clear();
  EXPECT_EQ(
      MessageOf([&] { Predictor(model, options); }),
      "Error: \"data\" has no value in the model: describe it in the options, as an input, with its largest shape");
  options.inputs = {{"date", {16, kFeatures}}};
  EXPECT_EQ(MessageOf([&] { Predictor(model, options); }),
            "Error: data \"date\" is not an argument of the symbol; did you mean \"data\"?");
  Model without = model;
  without.params.erase("fc1_bias");
  EXPECT_NE(MessageOf([&] { Predictor(without, Options(1)); }).find("\"fc1_bias\" has no value"), std::string::npos);
}

}  // namespace
}  // namespace bindery
