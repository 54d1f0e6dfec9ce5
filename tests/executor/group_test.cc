// DataParallelExecutorGroup against one device and against numbers worked out by hand.
#include "executor/data_parallel_executor_group.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/philox.h"
#include "engine/kernels/flat.h"
#include "symbol/ops.h"
#include "tests/executor/group_helpers.h"

namespace bindery {
namespace {

const std::vector<std::vector<Device>> kDevices = {{Cpu(0)}, {Cpu(0), Cpu(1)}, {Cpu(0), Cpu(1), Cpu(2)}};

TEST(Group, BiasesFollowTheDivisorOfEachBatch) {   // E1 of the behaviours, by our rule of divisors
  const Symbol net = FullyConnected(Variable("data"), {.num_hidden = 20}, "fc");
  DataParallelExecutorGroup group(net, {.devices = {Cpu(0), Cpu(1)}, .data = {{"data", {7, 20}}}});
  group.SetParams({{"fc_weight", HostTensor(DType::kFloat32, {20, 20})}, {"fc_bias", HostTensor(DType::kFloat32, {20})}}, {});
  double expected = 0;
  for (const int64_t batch : {7, 14, 7}) {
    group.Forward(Batch{.data = {HostTensor(DType::kFloat32, {batch, 20})}});
    group.Backward(std::vector<HostTensor>{HostTensor::Full(DType::kFloat32, {batch, 20}, 1)});
    HostTensor sum(DType::kFloat32, {20});
    for (int d = 0; d < 2; ++d) {
      const HostTensor part = group.GetGradient("fc_bias", d);
      for (int i = 0; i < 20; ++i) sum.Set(i, sum.At(i) + part.At(i));
    }
    expected -= 1;
    HostTensorMap params, aux;
    group.GetParams(&params, &aux);
    for (int i = 0; i < 20; ++i) params["fc_bias"].Set(i, params["fc_bias"].At(i) - sum.At(i) / static_cast<double>(batch));
    group.SetParams(params, aux);
    EXPECT_NEAR(params["fc_bias"].At(0), expected, 1e-6);
  }
}

TEST(Group, InputGradientsComeInTheOrderOfTheData) {   // E2
  const Symbol y = Variable("a") + 2.0 * Variable("b") + 3.0 * Variable("c");
  DataParallelExecutorGroup group(y, {.devices = {Cpu(0), Cpu(1)}, .data = {{"b", {5, 5}}, {"c", {5, 5}}, {"a", {5, 5}}}, .inputs_need_grad = true});
  const HostTensor ones = HostTensor::Full(DType::kFloat32, {5, 5}, 1);
  group.Forward(Batch{.data = {ones, ones, ones}});
  group.Backward(std::vector<HostTensor>{ones});
  const std::vector<Tensor> gradients = group.InputGradients();
  ASSERT_EQ(gradients.size(), 3u);
  for (const auto& [i, value] : {std::pair(0, 2.0), std::pair(1, 3.0), std::pair(2, 1.0)}) {
    EXPECT_EQ(MaxAbsDiff(gradients[i].ToHost(), HostTensor::Full(DType::kFloat32, {5, 5}, value)), 0);
  }
  EXPECT_EQ(group.InputGradientsPerDevice()[0].size(), 2u);
}

TEST(Group, BatchAxisAnywhere) {   // E3
  const Symbol net = Activation(Variable("data"), {.type = ActivationType::kTanh}, "act");
  DataParallelExecutorGroup group(net, {.devices = {Cpu(0), Cpu(1)}, .data = {{"data", {3, 8, 7}, DType::kFloat32, "TNC"}}, .inputs_need_grad = true});
  EXPECT_EQ(group.OutputShapes()[0], (Shape{3, 8, 7}));
  const HostTensor x = RandomTensor({3, 8, 7}, 1);
  group.Forward(Batch{.data = {x}});
  const std::vector<Tensor> parts = group.OutputsPerDevice()[0];
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].shape(), (Shape{3, 4, 7}));
  const HostTensor merged = group.Outputs()[0].ToHost();
  EXPECT_EQ(Concatenate(std::vector<HostTensor>{parts[0].ToHost(), parts[1].ToHost()}, 1), merged);
  group.Backward(std::vector<HostTensor>{HostTensor::Full(DType::kFloat32, {3, 8, 7}, 1)});
  EXPECT_EQ(group.InputGradients()[0].shape(), (Shape{3, 8, 7}));
}

TEST(Group, HalfPrecisionDataGivesHalfPrecisionOutputs) {   // E4
  DataParallelExecutorGroup group(Activation(Variable("data"), {.type = ActivationType::kRelu}, "a"),
                                  {.devices = {Cpu(0), Cpu(1)}, .data = {{"data", {4, 3}, DType::kFloat16}}, .for_training = false});
  group.Forward(Batch{.data = {HostTensor::Full(DType::kFloat32, {4, 3}, 1.5)}});
  EXPECT_EQ(group.Outputs()[0].dtype(), DType::kFloat16);
  EXPECT_EQ(group.OutputsPerDevice()[0][1].dtype(), DType::kFloat16);
  EXPECT_EQ(group.Outputs()[0].ToHost().At(11), 1.5);
}

TEST(Group, AFailedBindLeavesNothingBehind) {   // E5
  const Symbol net = SmallNet();
  EXPECT_THROW(DataParallelExecutorGroup(net, {.data = {{"data", {4, 3, 2, 1, 1}, DType::kFloat32, "NC"}}}), ShapeError);
  EXPECT_THROW(DataParallelExecutorGroup(net, {.data = {{"dota", {4, 6}}}}), Error);
  DataParallelExecutorGroup group(net, {.data = {{"data", {4, 6}}}, .labels = {{"softmax_label", {4}}}});
  EXPECT_EQ(group.OutputShapes()[0], (Shape{4, 3}));
}

TEST(Group, FewerSamplesThanDevices) {   // E7: the last idle; all as on one device
  const Symbol net = SmallNet();
  const Batch batch = RandomBatch(2, 6, 3, 5);
  DataParallelExecutorGroup one(net, {.devices = {Cpu(0)}, .data = {{"data", {2, 6}}}, .labels = {{"softmax_label", {2}}}, .inputs_need_grad = true});
  DataParallelExecutorGroup three(net, {.devices = kDevices[2], .data = {{"data", {2, 6}}}, .labels = {{"softmax_label", {2}}}, .inputs_need_grad = true});
  InitialiseEqually({&one, &three}, 1);
  // A full batch first, so that stale gradients of the third device would show.
  three.Forward(RandomBatch(9, 6, 3, 6));
  three.Backward();
  for (DataParallelExecutorGroup* group : {&one, &three}) {
    group->Forward(batch);
    group->Backward();
  }
  EXPECT_EQ(three.slices(), (std::vector<SampleRange>{{0, 1}, {1, 2}, {2, 2}}));
  EXPECT_LT(MaxAbsDiff(one.Outputs()[0].ToHost(), three.Outputs()[0].ToHost()), 1e-6);
  EXPECT_LT(MaxAbsDiff(one.InputGradients()[0].ToHost(), three.InputGradients()[0].ToHost()), 1e-6);
  for (const std::string& name : one.param_names()) EXPECT_LT(MaxAbsDiff(SumOfGradients(one, name), SumOfGradients(three, name)), 1e-6) << name;
}

TEST(Group, AnyBatchAndShapeWithoutReshape) {   // E9
  Symbol x = Convolution(Variable("data"), {.num_filter = 4, .kernel = {3, 3}}, "conv");
  x = Pooling(x, {.type = PoolType::kAvg, .global = true});
  x = SoftmaxOutput(FullyConnected(x, {.num_hidden = 10}, "fc"), {}, "softmax");
  DataParallelExecutorGroup group(x, {.devices = {Cpu(0), Cpu(1)}, .data = {{"data", {10, 3, 12, 12}}}, .labels = {{"softmax_label", {10}}}});
  InitialiseEqually({&group}, 1);
  for (const auto& [n, h, w] : {std::tuple(10, 12, 12), std::tuple(3, 12, 12), std::tuple(20, 20, 20), std::tuple(20, 8, 16), std::tuple(5, 6, 6)}) {
    group.Forward(Batch{.data = {RandomTensor({n, 3, h, w}, 2)}, .label = {HostTensor(DType::kFloat32, {n})}});
    group.Backward();
    EXPECT_EQ(group.Outputs()[0].ToHost().shape(), (Shape{n, 10}));
  }
  group.Forward(Batch{.data = {RandomTensor({10, 3, 12, 12}, 2)}}, Mode::kPredict);
  EXPECT_EQ(group.Outputs()[0].ToHost().shape(), (Shape{10, 10}));
}

TEST(Group, UnbatchedInputsGoToEveryDeviceAndUnbatchedHeadsSayHowTheyMerge) {   // E10
  const Symbol scale = Variable("scale"), data = Variable("data");
  const Symbol heads = Group({data * scale, (scale * 2.0).WithAnnotation("merge", "first"), Sum(data).WithAnnotation("merge", "sum"), Mean(data).WithAnnotation("merge", "mean")});
  const std::vector<DataDesc> descs = {{"data", {5, 4}}, {"scale", {1, 4}, DType::kFloat32, "--"}};
  DataParallelExecutorGroup group(heads, {.devices = {Cpu(0), Cpu(1)}, .data = descs, .for_training = false});
  HostTensor x = RandomTensor({5, 4}, 3);
  group.Forward(Batch{.data = {x, HostTensor::Full(DType::kFloat32, {1, 4}, 3)}});
  double sum = 0;
  for (int i = 0; i < 20; ++i) sum += x.At(i);
  EXPECT_EQ(group.Outputs()[0].shape(), (Shape{5, 4}));
  EXPECT_EQ(group.Outputs()[1].ToHost().At(2), 6);
  EXPECT_NEAR(group.Outputs()[2].ToHost().At(0), sum, 1e-5);
  EXPECT_NEAR(group.Outputs()[3].ToHost().At(0), sum / 20, 1e-6);
  try {
    DataParallelExecutorGroup unsaid(Sum(data, {}, "total"), {.devices = {Cpu(0), Cpu(1)}, .data = {{"data", {5, 4}}}, .for_training = false});
    FAIL() << "a head that does not say how it merges was bound";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("merge = sum, mean or first"), std::string::npos) << e.what();
  }
}

TEST(Group, PreSplitBatchesEqualTheSplit) {   // E12
  const Symbol net = SmallNet();
  const Batch batch = RandomBatch(6, 6, 3, 4);
  DataParallelExecutorGroup group(net, {.devices = {Cpu(0), Cpu(1)}, .data = {{"data", {6, 6}}}, .labels = {{"softmax_label", {6}}}});
  InitialiseEqually({&group}, 1);
  group.Forward(batch);
  group.Backward();
  const HostTensor whole = group.Outputs()[0].ToHost(), gradient = SumOfGradients(group, "fc1_weight");
  std::vector<BatchPtr> parts;
  for (const auto& [begin, end] : {std::pair(0, 2), std::pair(2, 6)}) {
    parts.push_back(std::make_shared<Batch>(Batch{.data = {batch.data[0].Slice(0, begin, end)}, .label = {batch.label[0].Slice(0, begin, end)}}));
  }
  group.Forward(parts);
  group.Backward();
  EXPECT_LT(MaxAbsDiff(group.Outputs()[0].ToHost(), whole), 1e-6);
  EXPECT_LT(MaxAbsDiff(SumOfGradients(group, "fc1_weight"), gradient), 1e-6);
  EXPECT_EQ(group.slices()[1], (SampleRange{2, 6}));
}

TEST(Group, PaddingRowsAreNeitherTrainedNorReturned) {
  const Symbol net = SmallNet();
  DataParallelExecutorGroup group(net, {.devices = {Cpu(0), Cpu(1)}, .data = {{"data", {5, 6}}}, .labels = {{"softmax_label", {5}}}});
  InitialiseEqually({&group}, 1);
  Batch padded = RandomBatch(5, 6, 3, 4);
  padded.pad = 2;
  group.Forward(padded);
  group.Backward();
  EXPECT_EQ(group.Outputs()[0].shape(), (Shape{3, 3}));
  const HostTensor gradient = SumOfGradients(group, "fc1_weight");
  group.Forward(Batch{.data = {padded.data[0].Slice(0, 0, 3)}, .label = {padded.label[0].Slice(0, 0, 3)}});
  group.Backward();
  EXPECT_EQ(MaxAbsDiff(SumOfGradients(group, "fc1_weight"), gradient), 0);
}

TEST(Group, WrongUseIsAnError) {
  const Symbol net = SmallNet();
  DataParallelExecutorGroup predict(net, {.data = {{"data", {4, 6}}}, .for_training = false});
  EXPECT_THROW(predict.Outputs(), Error);     // nothing has run
  predict.Forward(RandomBatch(4, 6, 3, 1), Mode::kPredict);
  EXPECT_THROW(predict.Backward(), Error);
  EXPECT_THROW(predict.Outputs(0, 5), Error);
  DataParallelExecutorGroup group(net, {.data = {{"data", {4, 6}}}, .labels = {{"softmax_label", {4}}}});
  EXPECT_THROW(group.Forward(Batch{.data = {HostTensor(DType::kFloat32, {4, 6})}}), DataError);    // no labels
  EXPECT_THROW(group.Forward(Batch{.data = {HostTensor(DType::kFloat32, {4, 6, 1})}, .label = {HostTensor(DType::kFloat32, {4})}}), DataError);
  EXPECT_THROW(group.Forward(Batch{.data = {HostTensor(DType::kFloat32, {4, 6})}, .label = {HostTensor(DType::kFloat32, {3})}}), ShapeError);
  EXPECT_THROW(group.InputGradients(), Error);
  EXPECT_THROW(DataParallelExecutorGroup(net, {.devices = {Cpu(0), Cpu(1)}, .workload = {1}, .data = {{"data", {4, 6}}}}), Error);
  EXPECT_THROW(DataParallelExecutorGroup(net, {.data = {{"data", {4, 6}}}, .fixed_params = {"fc1_wieght"}}), Error);
  DataParallelExecutorGroup open(FullyConnected(Variable("data"), {.num_hidden = 2}, "fc"), {.data = {{"data", {4, 6}}}});
  open.Forward(Batch{.data = {HostTensor(DType::kFloat32, {4, 6})}});
  try {
    open.Backward();
    FAIL() << "a head without gradient went backward";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("MakeLoss"), std::string::npos) << e.what();
  }
}

TEST(SplitBatch, LargestRemainder) {   // E6, E7
  const auto sizes = [](int64_t batch, std::vector<double> workload) {
    std::vector<int64_t> shares;
    for (const SampleRange& r : SplitBatch(batch, workload)) shares.push_back(r.size());
    return shares;
  };
  using Shares = std::vector<int64_t>;
  EXPECT_EQ(sizes(15, {1, 1, 1, 1}), (Shares{4, 4, 4, 3}));
  EXPECT_EQ(sizes(9, {1, 1}), (Shares{5, 4}));
  EXPECT_EQ(sizes(9, {2, 1}), (Shares{6, 3}));
  EXPECT_EQ(sizes(10, {1, 3}), (Shares{3, 7}));
  EXPECT_EQ(sizes(7, {3, 1, 1}), (Shares{4, 2, 1}));
  EXPECT_EQ(sizes(6, {1, 1, 1, 1}), (Shares{2, 2, 1, 1}));
  EXPECT_EQ(sizes(2, {1, 1, 1}), (Shares{1, 1, 0}));
  EXPECT_EQ(sizes(1, {1, 1}), (Shares{1, 0}));
  EXPECT_EQ(sizes(5, {0, 1}), (Shares{0, 5}));
  for (int64_t batch = 0; batch < 70; ++batch) {
    for (const std::vector<double>& w : {std::vector<double>{1, 1, 1}, {2, 1}, {10, 10, 3}, {0.1, 0.2, 0.7}, {5, 0, 1}}) {
      double total = 0;
      int64_t at = 0;
      for (const double x : w) total += x;
      const auto ranges = SplitBatch(batch, w);
      for (size_t d = 0; d < w.size(); ++d) {
        EXPECT_EQ(ranges[d].begin, at);
        at = ranges[d].end;
        EXPECT_LT(std::abs(static_cast<double>(ranges[d].size()) - static_cast<double>(batch) * w[d] / total), 1.0 + 1e-9);
      }
      EXPECT_EQ(at, batch);
    }
  }
  EXPECT_THROW(SplitBatch(3, std::vector<double>{0, 0}), Error);
  EXPECT_THROW(SplitBatch(3, std::vector<double>{1, -1}), Error);
  EXPECT_THROW(SplitBatch(3, std::vector<double>{NAN}), Error);
}

}  // namespace
}  // namespace bindery
