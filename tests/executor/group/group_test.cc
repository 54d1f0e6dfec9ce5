// DataParallelExecutorGroup against one device and against numbers worked out by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "executor/data_parallel_executor_group.h"
#include "symbol/ops.h"
#include "tests/executor/group_helpers.h"
#include "tests/test_device.h"
#include "train/updater/updater.h"

namespace bindery {
namespace {

const std::vector<std::vector<Device>> kDevices = {
    {TestDevice(0)}, {TestDevice(0), TestDevice(1)}, {TestDevice(0), TestDevice(1), TestDevice(2)}};

// E1, by our rule of divisors: by default the samples of each step's batch; an explicit rescale stays what it is.
TEST(Group, BiasesFollowTheDivisorOfEachBatch) {
  const Symbol net = FullyConnected(Variable("data"), {.num_hidden = 20}, "fc");
  for (const auto& [optimizer, biases] : {std::pair("sgd(lr=1)", std::vector<double>{-1, -2, -3}),
                                          {"sgd(lr=1, rescale=0.14285714285714285)", {-1, -3, -4}}}) {
    DataParallelExecutorGroup group(net, {.devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {7, 20}}}});
    group.SetParams(
        {{"fc_weight", HostTensor(DType::kFloat32, {20, 20})}, {"fc_bias", HostTensor(DType::kFloat32, {20})}}, {});
    Updater updater(&group, {.optimizer = MakeOptimizer(optimizer)});
    for (const auto& [batch, bias] : {std::pair(7, biases[0]), std::pair(14, biases[1]), std::pair(7, biases[2])}) {
      group.Reshape({{"data", {batch, 20}}}, {});
      group.Forward(Batch{.data = {HostTensor(DType::kFloat32, {batch, 20})}});
      group.Backward(std::vector<HostTensor>{HostTensor::Full(DType::kFloat32, {batch, 20}, 1)});
      EXPECT_EQ(SumOfGradients(group, "fc_bias"), HostTensor::Full(DType::kFloat32, {20}, batch));
      updater.Apply(batch);
      for (int d = 0; d < 2; ++d) {
        const HostTensor now = group.store().Get(*group.store().Find("fc_bias"), d);
        EXPECT_LE(MaxAbsDiff(now, HostTensor::Full(DType::kFloat32, {20}, bias)), 1e-6)
            << optimizer << ", batch " << batch;
      }
    }
  }
}

TEST(Group, InputGradientsComeInTheOrderOfTheData) {  // E2
  const Symbol y = Variable("a") + 2.0 * Variable("b") + 3.0 * Variable("c");
  DataParallelExecutorGroup group(y, {.devices = {TestDevice(0), TestDevice(1)},
                                      .data = {{"b", {5, 5}}, {"c", {5, 5}}, {"a", {5, 5}}},
                                      .inputs_need_grad = true});
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

TEST(Group, BatchAxisAnywhere) {  // E3
  const Symbol net = Activation(Variable("data"), {.type = ActivationType::kTanh}, "act");
  DataParallelExecutorGroup group(net, {.devices = {TestDevice(0), TestDevice(1)},
                                        .data = {{"data", {3, 8, 7}, DType::kFloat32, "TNC"}},
                                        .inputs_need_grad = true});
  EXPECT_EQ(group.OutputShapes()[0], (Shape{3, 8, 7}));
  const HostTensor x = RandomTensor({3, 8, 7}, 1), g = RandomTensor({3, 8, 7}, 2);
  group.Forward(Batch{.data = {x}});
  const std::vector<Tensor> parts = group.OutputsPerDevice()[0];
  ASSERT_EQ(parts.size(), 2u);
  for (const Tensor& part : parts) EXPECT_EQ(part.shape(), (Shape{3, 4, 7}));
  const HostTensor merged = group.Outputs()[0].ToHost();
  EXPECT_EQ(merged.shape(), (Shape{3, 8, 7}));
  EXPECT_EQ(Concatenate(std::vector<HostTensor>{parts[0].ToHost(), parts[1].ToHost()}, 1), merged);
  group.Backward(std::vector<HostTensor>{g});
  const HostTensor gradient = group.InputGradients()[0].ToHost();
  EXPECT_EQ(gradient.shape(), (Shape{3, 8, 7}));
  EXPECT_EQ(group.InputGradientsPerDevice()[0][1].shape(), (Shape{3, 4, 7}));
  for (int64_t i = 0; i < x.elements(); ++i) {
    const double y = std::tanh(x.At(i));
    EXPECT_NEAR(merged.At(i), y, 1e-5);
    EXPECT_NEAR(gradient.At(i), g.At(i) * (1 - y * y), 1e-5);
  }
}

TEST(Group, HalfPrecisionDataGivesHalfPrecisionOutputs) {  // E4
  DataParallelExecutorGroup group(Activation(Variable("data"), {.type = ActivationType::kRelu}, "act"),
                                  {.devices = {TestDevice(0), TestDevice(1)},
                                   .data = {{"data", {3, 8, 7}, DType::kFloat16, "TNC"}},
                                   .for_training = false});
  group.Forward(Batch{.data = {HostTensor::Full(DType::kFloat32, {3, 8, 7}, 1.5)}});
  EXPECT_EQ(group.Outputs()[0].ToHost(), HostTensor::Full(DType::kFloat16, {3, 8, 7}, 1.5));
  const std::vector<Tensor> parts = group.OutputsPerDevice()[0];
  ASSERT_EQ(parts.size(), 2u);
  for (const Tensor& part : parts) EXPECT_EQ(part.ToHost(), HostTensor::Full(DType::kFloat16, {3, 4, 7}, 1.5));
}

TEST(Group, AFailedBindLeavesNothingBehind) {  // E5
  const Symbol net = SmallNet();
  const auto storage = [] { return DefaultStorage()->Stats(TestDevice(0)).in_use; };
  const int64_t before = storage();
  EXPECT_THROW(DataParallelExecutorGroup(net, {.data = {{"data", {4, 3, 2, 1, 1}, DType::kFloat32, "NC"}}}),
               ShapeError);
  EXPECT_THROW(DataParallelExecutorGroup(net, {.data = {{"dota", {4, 6}}}}), Error);
  EXPECT_THROW(DataParallelExecutorGroup(net, {.data = {{"data", {4, 6}}}, .labels = {{"softmax_label", {5}}}}),
               ShapeError);
  EXPECT_THROW(DataParallelExecutorGroup(net, {.data = {{"data", {4}}}, .labels = {{"softmax_label", {4}}}}),
               ShapeError);
  EXPECT_THROW(DataParallelExecutorGroup(net, {}), Error);
  EXPECT_EQ(MessageOf([&] {
              DataParallelExecutorGroup(net, {.data = {{"data", {kUnknownDim, 6}}}});
            }),
            "ShapeError: \"data\" (?, 6): the samples of a batch must be known");
  EXPECT_EQ(storage(), before);
  DataParallelExecutorGroup group(net, {.data = {{"data", {4, 6}}}, .labels = {{"softmax_label", {4}}}});
  EXPECT_EQ(group.OutputShapes()[0], (Shape{4, 3}));
  group.Forward(RandomBatch(4, 6, 3, 1));
  EXPECT_EQ(group.Outputs()[0].ToHost().shape(), (Shape{4, 3}));
}

// E7: 15 over 4 devices, 9 over 2, n - 1 over n with the last one idle: all as on one device.
TEST(Group, AnyNumberOfSamplesOnAnyNumberOfDevices) {
  const Symbol net = SmallNet();
  using Shares = std::vector<int64_t>;
  for (const auto& [devices, shares] :
       {std::pair(4, Shares{4, 4, 4, 3}), {2, {5, 4}}, {4, {1, 1, 1, 0}}, {3, {1, 0, 0}}}) {
    const int64_t samples = std::accumulate(shares.begin(), shares.end(), int64_t{0});
    const auto options = [&](int count) {
      GroupOptions o{.devices = {},
                     .data = {{"data", {samples, 6}}},
                     .labels = {{"softmax_label", {samples}}},
                     .inputs_need_grad = true};
      for (int d = 0; d < count; ++d) o.devices.push_back(TestDevice(d));
      return o;
    };
    DataParallelExecutorGroup one(net, options(1)), many(net, options(devices));
    InitialiseEqually({&one, &many}, 1);
    // A batch that all devices have a share of first, so that stale gradients of idle ones would show.
    many.Forward(RandomBatch(16, 6, 3, 6));
    many.Backward();
    for (DataParallelExecutorGroup* group : {&one, &many}) {
      group->Forward(RandomBatch(samples, 6, 3, 5));
      group->Backward();
    }
    Shares split;
    for (const SampleRange& range : many.slices()) split.push_back(range.size());
    EXPECT_EQ(split, shares);
    EXPECT_LT(MaxAbsDiff(one.Outputs()[0].ToHost(), many.Outputs()[0].ToHost()), 1e-5);
    EXPECT_LT(MaxAbsDiff(one.InputGradients()[0].ToHost(), many.InputGradients()[0].ToHost()), 1e-5);
    for (const std::string& name : one.param_names())
      EXPECT_LT(MaxAbsDiff(SumOfGradients(one, name), SumOfGradients(many, name)), 1e-5) << name;
    const size_t busy =
        static_cast<size_t>(std::count_if(shares.begin(), shares.end(), [](int64_t n) { return n > 0; }));
    EXPECT_EQ(many.OutputsPerDevice()[0].size(), busy);
    EXPECT_EQ(many.InputGradientsPerDevice()[0].size(), busy);

    GroupOptions plain = options(devices);
    plain.labels.clear();
    DataParallelExecutorGroup identity(Identity(Variable("data"), "same"), plain);
    const HostTensor x = RandomTensor({samples, 6}, 1), g = RandomTensor({samples, 6}, 2);
    identity.Forward(Batch{.data = {x}});
    identity.Backward(std::vector<HostTensor>{g});
    EXPECT_EQ(identity.Outputs()[0].ToHost(), x);
    EXPECT_EQ(identity.InputGradients()[0].ToHost(), g);
  }
}

// E8, by our rule: shares are ranges. Strided ones (sample i on device i mod 3) can be cut beforehand; outputs come in
// the order of the devices.
TEST(Group, SharesAreRangesUnlessCutBeforehand) {
  DataParallelExecutorGroup group(Identity(Variable("data"), "same"),
                                  {.devices = kDevices[2], .data = {{"data", {7, 1}}}, .for_training = false});
  const auto samples = [&] {
    std::vector<HostTensor> parts;
    const std::vector<std::vector<Tensor>> outputs = group.OutputsPerDevice();
    for (const Tensor& part : outputs[0]) parts.push_back(part.ToHost());
    return parts;
  };
  using Parts = std::vector<HostTensor>;
  group.Forward(Batch{.data = {HostTensor::From({7, 1}, {0, 1, 2, 3, 4, 5, 6})}});
  EXPECT_EQ(samples(), (Parts{HostTensor::From({3, 1}, {0, 1, 2}), HostTensor::From({2, 1}, {3, 4}),
                              HostTensor::From({2, 1}, {5, 6})}));
  const Parts strided = {HostTensor::From({3, 1}, {0, 3, 6}), HostTensor::From({2, 1}, {1, 4}),
                         HostTensor::From({2, 1}, {2, 5})};
  std::vector<BatchPtr> batches;
  for (const HostTensor& part : strided) batches.push_back(std::make_shared<Batch>(Batch{.data = {part}}));
  group.Forward(batches);
  EXPECT_EQ(samples(), strided);
  EXPECT_EQ(group.Outputs()[0].ToHost(), HostTensor::From({7, 1}, {0, 3, 6, 1, 4, 2, 5}));
}

// E9; scoring and predicting with other shapes: Training.OtherShapesWithoutRebinding.
TEST(Group, AnyBatchAndShapeWithoutReshape) {
  Symbol x = Convolution(Variable("data"), {.num_filter = 4, .kernel = {3, 3}, .stride = {2, 2}}, "conv");
  x = Pooling(x, {.type = PoolType::kAvg, .global = true});
  x = SoftmaxOutput(FullyConnected(x, {.num_hidden = 10}, "fc"), {}, "softmax");
  DataParallelExecutorGroup group(x, {.devices = {TestDevice(0), TestDevice(1)},
                                      .data = {{"data", {10, 3, 32, 32}}},
                                      .labels = {{"softmax_label", {10}}}});
  InitialiseEqually({&group}, 1);
  Updater updater(&group);
  for (const auto& [n, h, w] : {std::tuple(10, 32, 32), std::tuple(3, 32, 32), std::tuple(20, 32, 32),
                                std::tuple(20, 120, 120), std::tuple(20, 32, 64), std::tuple(5, 28, 30)}) {
    updater.Update(std::make_shared<const Batch>(
        Batch{.data = {RandomTensor({n, 3, h, w}, 2)}, .label = {HostTensor(DType::kFloat32, {n})}}));
    EXPECT_EQ(group.OutputShapes()[0], (Shape{n, 10}));
    EXPECT_EQ(group.Outputs()[0].ToHost().shape(), (Shape{n, 10}));
  }
  group.Forward(Batch{.data = {RandomTensor({10, 3, 32, 32}, 2)}}, Mode::kPredict);
  EXPECT_EQ(group.Outputs()[0].ToHost().shape(), (Shape{10, 10}));
}

TEST(Group, UnbatchedInputsGoToEveryDeviceAndUnbatchedHeadsSayHowTheyMerge) {  // E10
  const Symbol scale = Variable("scale"), data = Variable("data");
  const Symbol heads = Group({data * scale, (scale * 2.0).WithAnnotation("merge", "first"),
                              Sum(data).WithAnnotation("merge", "sum"), Mean(data).WithAnnotation("merge", "mean")});
  const std::vector<DataDesc> descs = {{"data", {5, 4}}, {"scale", {1, 4}, DType::kFloat32, "--"}};
  DataParallelExecutorGroup group(heads,
                                  {.devices = {TestDevice(0), TestDevice(1)}, .data = descs, .for_training = false});
  HostTensor x = RandomTensor({5, 4}, 3);
  group.Forward(Batch{.data = {x, HostTensor::Full(DType::kFloat32, {1, 4}, 3)}});
  double sum = 0;
  for (int i = 0; i < 20; ++i) sum += x.At(i);
  const HostTensor product = group.Outputs()[0].ToHost();
  EXPECT_EQ(product.shape(), (Shape{5, 4}));
  for (int i = 0; i < 20; ++i) EXPECT_NEAR(product.At(i), 3 * x.At(i), 1e-6);
  const HostTensor doubled = HostTensor::Full(DType::kFloat32, {1, 4}, 6);
  EXPECT_EQ(group.Outputs()[1].ToHost(), doubled);
  const std::vector<Tensor> copies = group.OutputsPerDevice()[1];
  ASSERT_EQ(copies.size(), 2u);
  for (const Tensor& copy : copies) EXPECT_EQ(copy.ToHost(), doubled);
  EXPECT_NEAR(group.Outputs()[2].ToHost().At(0), sum, 1e-5);
  EXPECT_NEAR(group.Outputs()[3].ToHost().At(0), sum / 20, 1e-6);
  try {
    DataParallelExecutorGroup unsaid(
        Sum(data, {}, "total"),
        {.devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {5, 4}}}, .for_training = false});
    FAIL() << "a head that does not say how it merges was bound";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("sum, mean or first: .WithAnnotation"), std::string::npos) << e.what();
  }
}

TEST(Group, PreSplitBatchesEqualTheSplit) {  // E12
  const Symbol net = SmallNet();
  const Batch batch = RandomBatch(6, 6, 3, 4);
  DataParallelExecutorGroup group(
      net, {.devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {6, 6}}}, .labels = {{"softmax_label", {6}}}});
  InitialiseEqually({&group}, 1);
  group.Forward(batch);
  group.Backward();
  const HostTensor whole = group.Outputs()[0].ToHost(), gradient = SumOfGradients(group, "fc1_weight");
  for (const int64_t cut : {3, 2}) {  // the usual split: the same bits
    std::vector<BatchPtr> parts;
    for (const auto& [begin, end] : {std::pair(int64_t{0}, cut), std::pair(cut, int64_t{6})}) {
      parts.push_back(std::make_shared<Batch>(
          Batch{.data = {batch.data[0].Slice(0, begin, end)}, .label = {batch.label[0].Slice(0, begin, end)}}));
    }
    group.Forward(parts);
    group.Backward();
    EXPECT_LE(MaxAbsDiff(group.Outputs()[0].ToHost(), whole), cut == 3 ? 0 : 1e-5);
    EXPECT_LE(MaxAbsDiff(SumOfGradients(group, "fc1_weight"), gradient), cut == 3 ? 0 : 1e-5);
    EXPECT_EQ(group.slices()[1], (SampleRange{cut, 6}));
    EXPECT_EQ(group.batch_size(), 6);
  }
  EXPECT_THROW(group.Forward(std::vector<BatchPtr>(3, std::make_shared<Batch>(batch))), Error);
}

TEST(Group, PaddingRowsAreNeitherTrainedNorReturned) {
  const Symbol net = SmallNet();
  DataParallelExecutorGroup group(
      net, {.devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {5, 6}}}, .labels = {{"softmax_label", {5}}}});
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
  EXPECT_THROW(predict.Outputs(), Error);  // nothing has run
  predict.Forward(RandomBatch(4, 6, 3, 1), Mode::kPredict);
  EXPECT_THROW(predict.Backward(), Error);
  EXPECT_THROW(predict.Outputs(0, 5), Error);
  DataParallelExecutorGroup group(net, {.data = {{"data", {4, 6}}}, .labels = {{"softmax_label", {4}}}});
  EXPECT_THROW(group.Forward(Batch{.data = {HostTensor(DType::kFloat32, {4, 6})}}), DataError);  // no labels
  EXPECT_THROW(group.Forward(Batch{.data = {HostTensor(DType::kFloat32, {4, 6, 1})},
                                   .label = {HostTensor(DType::kFloat32, {4})}}),
               DataError);
  EXPECT_THROW(
      group.Forward(Batch{.data = {HostTensor(DType::kFloat32, {4, 6})}, .label = {HostTensor(DType::kFloat32, {3})}}),
      ShapeError);
  EXPECT_THROW(group.InputGradients(), Error);
  EXPECT_THROW(DataParallelExecutorGroup(
                   net, {.devices = {TestDevice(0), TestDevice(1)}, .workload = {1}, .data = {{"data", {4, 6}}}}),
               Error);
  EXPECT_THROW(DataParallelExecutorGroup(net, {.data = {{"data", {4, 6}}}, .fixed_params = {"fc1_wieght"}}), Error);
  EXPECT_THROW(DataParallelExecutorGroup(net, {.data = {{"data", {4, 6}}}, .fixed_params = {"fc9*"}}), Error);
  DataParallelExecutorGroup open(FullyConnected(Variable("data"), {.num_hidden = 2}, "fc"),
                                 {.data = {{"data", {4, 6}}}});
  open.Forward(Batch{.data = {HostTensor(DType::kFloat32, {4, 6})}});
  try {
    open.Backward();
    FAIL() << "a head without gradient went backward";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("MakeLoss"), std::string::npos) << e.what();
  }
}

TEST(SplitBatch, LargestRemainder) {  // E6
  const auto sizes = [](int64_t batch, std::vector<double> workload) {
    std::vector<int64_t> shares;
    for (const SampleRange& r : SplitBatch(batch, workload)) shares.push_back(r.size());
    return shares;
  };
  using Shares = std::vector<int64_t>;
  const std::vector<double> two(2, 1), three(3, 1), four(4, 1), eight(8, 1);
  EXPECT_EQ(sizes(4, three), (Shares{2, 1, 1}));
  EXPECT_EQ(sizes(3, two), (Shares{2, 1}));
  EXPECT_EQ(sizes(5, two), (Shares{3, 2}));
  EXPECT_EQ(sizes(7, two), (Shares{4, 3}));
  EXPECT_EQ(sizes(5, three), (Shares{2, 2, 1}));
  EXPECT_EQ(sizes(16, three), (Shares{6, 5, 5}));
  EXPECT_EQ(sizes(14, four), (Shares{4, 4, 3, 3}));
  EXPECT_EQ(sizes(10, four), (Shares{3, 3, 2, 2}));
  EXPECT_EQ(sizes(100, eight), (Shares{13, 13, 13, 13, 12, 12, 12, 12}));
  EXPECT_EQ(sizes(31, eight), (Shares{4, 4, 4, 4, 4, 4, 4, 3}));
  EXPECT_EQ(sizes(9, {2, 1}), (Shares{6, 3}));
  EXPECT_EQ(sizes(10, {1, 3}), (Shares{3, 7}));
  EXPECT_EQ(sizes(7, {3, 1, 1}), (Shares{4, 2, 1}));
  EXPECT_EQ(sizes(6, four), (Shares{2, 2, 1, 1}));
  EXPECT_EQ(sizes(2, three), (Shares{1, 1, 0}));  // fewer samples than devices: zeros at the end
  EXPECT_EQ(sizes(1, two), (Shares{1, 0}));
  EXPECT_EQ(sizes(5, {0, 1}), (Shares{0, 5}));
  for (int64_t batch = 0; batch < 70; ++batch) {
    for (const std::vector<double>& w :
         {std::vector<double>{1, 1, 1}, {2, 1}, {10, 10, 3}, {0.1, 0.2, 0.7}, {5, 0, 1}}) {
      double total = 0;
      int64_t at = 0;
      for (const double x : w) total += x;
      const auto ranges = SplitBatch(batch, w);
      for (size_t d = 0; d < w.size(); ++d) {
        EXPECT_EQ(ranges[d].begin, at);
        at = ranges[d].end;
        EXPECT_LT(std::abs(static_cast<double>(ranges[d].size()) - static_cast<double>(batch) * w[d] / total),
                  1.0 + 1e-9);
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
