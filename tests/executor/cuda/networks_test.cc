// Networks bound to GPUs, which run kernels by their bodies for CPUs.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "engine/cuda/recording.h"
#include "executor/executor.h"
#include "symbol/ops.h"
#include "symbol/ops/rules.h"
#include "tests/engine/cuda/fake/fake.h"
#include "tests/executor/values.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

HostTensor Filled(const Shape& shape, double value) { return HostTensor::Full(DType::kFloat32, shape, value); }

// Outputs and gradients of a forward and a backward.
std::vector<HostTensor> ResultsOn(Device device, const Symbol& network, const HostTensorMap& inputs,
                                  const HostTensorMap& params, const std::vector<std::string>& gradients) {
  ExecutorOptions options{.device = device};
  for (const auto& [name, value] : inputs) options.inputs.push_back({name, value.shape()});
  Executor executor(network, options);
  executor.SetParams(params, {}, {.allow_missing = true});
  executor.Forward(inputs);
  executor.Backward();
  std::vector<HostTensor> results = {executor.Output(0)};
  for (const std::string& name : gradients) results.push_back(executor.Gradient(name));
  return results;
}

TEST(CudaNetworksTest, GiveWhatCpusGive) {
  const Symbol data = Variable("data");
  Symbol x = Convolution(data, {.num_filter = 4, .kernel = {3, 3}}, "conv");
  x = Pooling(Relu(BatchNorm(x, {.fix_gamma = false}, "norm")), {.kernel = {2, 2}, .stride = {2, 2}});
  x = FullyConnected(Tanh(FullyConnected(x, {.num_hidden = 7}, "hidden")), {.num_hidden = 5}, "last");
  const Symbol network = SoftmaxOutput(x, {}, "softmax");
  const HostTensorMap inputs = {{"data", Uniform({6, 2, 10, 9}).Cast(DType::kFloat32)},
                                {"softmax_label", Integers({6}, 0, 4).Cast(DType::kFloat32)}};
  HostTensorMap params;
  const std::vector<std::string> names = {"conv_weight",   "conv_bias",   "norm_gamma",  "norm_beta",
                                          "hidden_weight", "hidden_bias", "last_weight", "last_bias"};
  const std::vector<Shape> shapes = {{4, 2, 3, 3}, {4}, {4}, {4}, {7, 48}, {7}, {5, 7}, {5}};
  for (size_t i = 0; i < names.size(); ++i) {
    params[names[i]] = Uniform(shapes[i], 0.1, 0.1 * static_cast<double>(i + 2)).Cast(DType::kFloat32);
  }
  const std::vector<HostTensor> cpu = ResultsOn(Cpu(), network, inputs, params, names);
  const std::vector<HostTensor> cuda = ResultsOn(Cuda(3), network, inputs, params, names);
  for (size_t i = 0; i < cpu.size(); ++i) {
    ExpectNear(cuda[i], cpu[i], 2e-5 * MaxAbs(cpu[i]) + 1e-6, i == 0 ? "output" : names[i - 1]);
  }
}

// An index that names nothing fails the forward, with the node's name, and the next one runs.
TEST(CudaNetworksTest, DataThatNamesNothing) {
  const Symbol network = Embedding(Variable("words"), {.input_dim = 4, .output_dim = 3}, "table");
  Executor executor(network, {.device = Cuda(1), .inputs = {{"words", {2}}}, .for_training = false});
  executor.SetParams({{"table_weight", Uniform({4, 3}).Cast(DType::kFloat32)}});
  executor.ArgumentArray("words").CopyFrom(Values({2}, {1, 4}).Cast(DType::kFloat32));  // nobody else looks at it
  executor.Forward();
  const std::string message = MessageOf<DataError>([&] { executor.Output(0); });
  EXPECT_NE(message.find("\"table\": 4 is not in -4..3: element 1 of its input"), std::string::npos) << message;
  executor.Forward({{"words", Values({2}, {1, -1}).Cast(DType::kFloat32)}});
  EXPECT_EQ(executor.Output(0).shape(), Shape({2, 3}));
}

// Nor does a number that is not whole name a class, or a length.
TEST(CudaNetworksTest, NumbersThatAreNotWhole) {
  const Symbol x = Variable("x"), n = Variable("n");
  const SequenceAttrs axes{.axis = 1, .batch_axis = 0};
  const std::vector<std::pair<Symbol, std::string>> all = {
      {SoftmaxOutput(x, n, {}, "y"), "0..2"},
      {SVMOutput(x, n, {}, "y"), "0..2"},
      {MakeLoss(SoftmaxCrossEntropy(x, n, {}, LossReduction::kNone, {}, "y")), "0..2"},
      {MakeLoss(SequenceMask(x, n, {axes, 0}, "y")), "0..3"},
      {MakeLoss(SequenceReverse(x, n, axes, "y")), "0..3"},
      {MakeLoss(SequenceLast(x, n, axes, "y")), "1..3"}};
  for (const auto& [network, range] : all) {
    Executor executor(network, {.device = Cuda(1),
                                .inputs = {{"x", {2, 3}}, {"n", {2}}},
                                .grad_req = std::map<std::string, GradReq>{{"x", GradReq::kWrite}}});
    const auto message = [&](double number) {
      executor.ArgumentArray("n").CopyFrom(Values({2}, {1, number}).Cast(DType::kFloat32));
      executor.Forward({{"x", Uniform({2, 3}).Cast(DType::kFloat32)}});
      executor.Backward();
      return MessageOf<DataError>([&] { executor.Gradient("x"); });
    };
    const std::string said = message(1.5);
    const std::string wanted = "\"y\": 1.5 is not in " + range + ": element 1 of its input";
    EXPECT_NE(said.find(wanted), std::string::npos) << said;
    EXPECT_EQ(message(2), "nothing was thrown");
  }
}

// What is launched as a graph is what is enqueued one by one, to the bit, step by step.
TEST(CudaNetworksTest, GraphsGiveTheSame) {
  const Symbol data = Variable("data");
  Symbol x = Relu(BatchNorm(FullyConnected(data, {.num_hidden = 7}, "hidden"), {.fix_gamma = false}, "norm"));
  x = FullyConnected(Dropout(x, {.p = 0.5}, "dropout"), {.num_hidden = 5}, "last");
  std::vector<HostTensor> batches, results[2];
  for (int step = 0; step < 4; ++step) batches.push_back(Uniform({6, 4}).Cast(DType::kFloat32));
  for (const bool graphs : {false, true}) {
    cuda::UseGraphs(graphs);
    Executor executor(SoftmaxOutput(x, {}, "softmax"),
                      {.device = Cuda(4), .inputs = {{"data", {6, 4}}, {"softmax_label", {6}}}});
    HostTensorMap params;
    const std::vector<std::string> names = {"hidden_weight", "hidden_bias", "norm_gamma",
                                            "norm_beta",     "last_weight", "last_bias"};
    const std::vector<Shape> shapes = {{7, 4}, {7}, {7}, {7}, {5, 7}, {5}};
    for (size_t i = 0; i < names.size(); ++i) params[names[i]] = Filled(shapes[i], 0.1 * static_cast<double>(i + 1));
    executor.SetParams(params, {}, {.allow_missing = true});
    for (size_t step = 0; step < batches.size(); ++step) {
      const int64_t before = cuda::fake::GraphLaunches();
      executor.Forward({{"data", batches[step]}, {"softmax_label", Filled({6}, static_cast<double>(step))}});
      executor.Backward();
      results[graphs].push_back(executor.Output(0));
      for (const std::string& name : names) results[graphs].push_back(executor.Gradient(name));
      EXPECT_EQ(cuda::fake::GraphLaunches() > before, graphs && step > 0) << "step " << step;
    }
  }
  EXPECT_EQ(results[0], results[1]);
}

// A node that finds such data within a graph is named, too.
TEST(CudaNetworksTest, DataThatNamesNothingWithinAGraph) {
  Symbol x = Embedding(Variable("words"), {.input_dim = 4, .output_dim = 3}, "table");
  x = Softmax(Tanh(FullyConnected(x, {.num_hidden = 2}, "last")), {}, "y");
  Executor executor(x, {.device = Cuda(5), .inputs = {{"words", {2}}}, .for_training = false});
  executor.SetParams(
      {{"table_weight", Filled({4, 3}, 1)}, {"last_weight", Filled({2, 3}, 1)}, {"last_bias", Filled({2}, 0)}}, {},
      {.allow_missing = true});
  const int64_t before = cuda::fake::GraphLaunches();
  for (const double word : {1, 2, 3, 4, 0}) {
    executor.ArgumentArray("words").CopyFrom(Filled({2}, word));
    executor.Forward();
    if (word != 4) {
      EXPECT_NO_THROW(executor.Output(0));
      continue;
    }
    const std::string message = MessageOf<DataError>([&] { executor.Output(0); });
    EXPECT_NE(message.find("\"table\": 4 is not in -4..3"), std::string::npos) << message;
  }
  EXPECT_GE(cuda::fake::GraphLaunches() - before, 4);
}

// More operands than a launch has room for.
TEST(CudaNetworksTest, SumsOfManyOperands) {
  const Symbol x = Variable("x");
  Executor executor(Apply(AddNOp(), {}, std::vector<Symbol>(1000, x), "sum"),
                    {.device = Cuda(2), .inputs = {{"x", {3}}}, .for_training = false});
  executor.Forward({{"x", Values({3}, {1, -2, 0.5}).Cast(DType::kFloat32)}});
  ExpectNear(executor.Output(0), Values({3}, {1000, -2000, 500}), 0, "sum");
}

TEST(CudaNetworksTest, NamesOperatorsOfProgramsWithoutKernels) {
  const OpDef& op = AddOp({.name = "OnlyOnCpus", .doc = "y = x", .infer = rule::Like(0)});
  const Symbol y = Apply(op, {}, {FullyConnected(Variable("x"), {.num_hidden = 4}, "fc")}, "y");
  const std::string message = MessageOf<Error>([&] {
    Executor(y, {.device = Cuda(0), .inputs = {{"x", {5, 3}}}, .for_training = false});
  });
  EXPECT_NE(message.find("no kernel for operator \"OnlyOnCpus\" on cuda"), std::string::npos) << message;
}

}  // namespace
}  // namespace bindery
