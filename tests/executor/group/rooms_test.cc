// The three that a group is made of, each alone.
#include <gtest/gtest.h>

#include "executor/group/bindings.h"
#include "executor/group/feeder.h"
#include "executor/group/merger.h"
#include "tests/executor/group_helpers.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

GroupOptions OptionsOf(int devices, int64_t samples) {
  GroupOptions options{.devices = {}, .data = {{"data", {samples, 4}}}, .labels = {{"softmax_label", {samples}}}};
  for (int d = 0; d < devices; ++d) options.devices.push_back(TestDevice(d));
  options.threads_per_device = 1;
  return options;
}

TEST(Feeder, ShapesAreThoseOfTheRowsThatCount) {
  const GroupSpec spec(SmallNet(), OptionsOf(2, 8));
  const Feeder feeder(spec, DefaultEngine());
  Batch batch = RandomBatch(6, 4, 3, 1);
  batch.pad = 1;
  std::vector<Shape> shapes;
  feeder.ShapesOf(batch, Mode::kTrain, &shapes);
  EXPECT_EQ(shapes, (std::vector<Shape>{{5, 4}, {5}}));
  EXPECT_EQ(spec.SamplesOf(shapes), 5);
  EXPECT_EQ(spec.Split(5), (std::vector<SampleRange>{{0, 3}, {3, 5}}));

  batch.label.clear();
  feeder.ShapesOf(batch, Mode::kPredict, &shapes);
  EXPECT_EQ(shapes, (std::vector<Shape>{{5, 4}, {5}}));
  EXPECT_THROW(feeder.ShapesOf(batch, Mode::kTrain, &shapes), DataError);
  batch.pad = 6;
  EXPECT_THROW(feeder.ShapesOf(batch, Mode::kPredict, &shapes), DataError);
}

TEST(Feeder, JoinsTheBatchesOfDevices) {
  const GroupSpec spec(SmallNet(), OptionsOf(2, 8));
  const Feeder feeder(spec, DefaultEngine());
  const auto one = std::make_shared<const Batch>(RandomBatch(1, 4, 3, 1));
  const auto four = std::make_shared<const Batch>(RandomBatch(4, 4, 3, 2));
  const Feeder::Joined joined = feeder.Join({one, four}, Mode::kTrain);
  EXPECT_EQ(joined.shapes, (std::vector<Shape>{{5, 4}, {5}}));
  EXPECT_EQ(joined.ranges, (std::vector<SampleRange>{{0, 1}, {1, 5}}));
  EXPECT_THROW(feeder.Join({one, std::make_shared<const Batch>(RandomBatch(4, 3, 3, 2))}, Mode::kTrain), DataError);
}

TEST(Feeder, NumbersStepsAndPredictions) {
  GroupOptions options = OptionsOf(3, 8);
  options.seed = 7;
  const GroupSpec spec(SmallNet(), options);
  Feeder feeder(spec, DefaultEngine());
  const auto batch = std::make_shared<const Batch>(RandomBatch(2, 4, 3, 1));
  const auto next = [&](Mode mode) { return feeder.Next({&batch, 1}, mode, spec.Split(2)); };
  const auto first = next(Mode::kTrain);
  EXPECT_EQ(first->shares[0].batch, batch);
  EXPECT_EQ(first->shares[2].batch, nullptr);  // has no samples
  EXPECT_EQ(first->block.seed, 7u);
  EXPECT_EQ(first->block.step, 0u);
  EXPECT_EQ(first->block.batch_size, 2);
  EXPECT_EQ(next(Mode::kTrain)->block.step, 1u);
  EXPECT_EQ(next(Mode::kPredict)->block.step, 2u);
  EXPECT_EQ(next(Mode::kPredict)->block.step, 3u);
  EXPECT_EQ(next(Mode::kPredict)->block.micro_batch, StepBlock::kPrediction);
  feeder.SetStep({.step = 40, .micro_batch = 2, .batch_size = 10, .tentative = true});
  EXPECT_TRUE(feeder.tentative());
  const auto set = next(Mode::kTrain);
  EXPECT_EQ(set->block.step, 40u);
  EXPECT_EQ(set->block.micro_batch, 2u);
  EXPECT_EQ(set->block.batch_size, 10);
}

TEST(Feeder, BringsTheRatesOfAnUpdateWithABatchOrAlone) {
  const GroupSpec spec(SmallNet(), OptionsOf(3, 8));
  Feeder feeder(spec, DefaultEngine());
  const auto batch = std::make_shared<const Batch>(RandomBatch(2, 4, 3, 1));
  const StepRates rates{.learning_rate = 0.5, .rescale = 0.25, .step = 3}, other{.step = 4};
  EXPECT_NE(feeder.NextRates({}), nullptr);  // no block has been written yet
  EXPECT_EQ(feeder.NextRates({}), nullptr);
  feeder.SetStep({.step = 2, .rates = rates, .tentative = true});
  EXPECT_EQ(feeder.Next({&batch, 1}, Mode::kTrain, spec.Split(2))->block.rates, rates);
  EXPECT_EQ(feeder.NextRates(rates), nullptr);
  const auto alone = feeder.NextRates(other);
  ASSERT_NE(alone, nullptr);
  EXPECT_EQ(alone->block.rates, other);
  EXPECT_EQ(alone->block.step, 2u);
  EXPECT_EQ(alone->block.batch_size, 2);
  EXPECT_EQ(alone->shares.size(), 3u);
  EXPECT_EQ(alone->shares[0].batch, nullptr);
  feeder.Next({&batch, 1}, Mode::kPredict, spec.Split(2));  // brings those of the step again
  EXPECT_NE(feeder.NextRates(other), nullptr);
}

TEST(Bindings, AreFoundAgainByShapesModeWatchAndSplit) {
  const GroupSpec spec(SmallNet(), OptionsOf(2, 8));
  Bindings bindings(spec, DefaultEngine(), nullptr);
  const std::vector<Shape> eight = spec.InputShapes(), two = {{2, 4}, {2}};
  bindings.Find({{16, 4}, {16}}, Mode::kTrain, "");  // arrays that hold all shares below; when they grow, bindings go
  const std::shared_ptr<Binding> first = bindings.Find(eight, Mode::kTrain, "");
  EXPECT_EQ(first->samples(), 8);
  EXPECT_EQ(first->OutputShape(0), (Shape{8, 3}));
  EXPECT_EQ(first->OutputType(0).shape, (Shape{4, 3}));
  const std::shared_ptr<Binding> smaller = bindings.Find(two, Mode::kTrain, "");
  EXPECT_NE(smaller, first);
  EXPECT_NE(bindings.Find(eight, Mode::kPredict, ""), first);
  EXPECT_NE(bindings.Find(eight, Mode::kTrain, "fc1_output"), first);
  const std::vector<SampleRange> cut = {{0, 1}, {1, 8}};
  const std::shared_ptr<Binding> unequal = bindings.Find(eight, Mode::kTrain, "", &cut);
  EXPECT_EQ(unequal->ranges, cut);
  const int64_t misses = bindings.programs()->misses();
  EXPECT_EQ(bindings.Find(eight, Mode::kTrain, ""), first);
  EXPECT_EQ(bindings.Find(two, Mode::kTrain, ""), smaller);
  EXPECT_EQ(bindings.Find(eight, Mode::kTrain, "", &cut), unequal);
  EXPECT_EQ(bindings.programs()->misses(), misses);
}

TEST(Merger, MergesAlongTheBatchAxisOrByRule) {
  const GroupSpec spec(SmallNet(), OptionsOf(3, 8));
  const Merger merger(spec, DefaultEngine());
  const std::vector<SampleRange> ranges = {{0, 1}, {1, 1}, {1, 4}};  // the second has no samples
  const auto on_device = [](int device, const HostTensor& values) {
    const Tensor tensor(TestDevice(device), values.dtype(), values.shape());
    tensor.CopyFrom(values);
    return tensor;
  };
  const std::vector<Tensor> shares = {on_device(0, HostTensor::From({2, 1}, {1, 2})),
                                      on_device(2, HostTensor::From({2, 3}, {3, 4, 5, 6, 7, 8}))};
  EXPECT_EQ(merger.Merge(shares, {.dtype = DType::kFloat32, .shape = {2, 1}, .batch_axis = 1}, "", ranges).ToHost(),
            HostTensor::From({2, 4}, {1, 3, 4, 5, 2, 6, 7, 8}));
  const auto by_rule = [&](const std::string& rule) {
    return merger
        .Merge({on_device(0, HostTensor::From({1}, {1})), on_device(2, HostTensor::From({1}, {5}))},
               {.dtype = DType::kFloat32, .shape = {1}, .batch_axis = -1}, rule, ranges)
        .ToHost()
        .At(0);
  };
  EXPECT_EQ(by_rule("sum"), 6);
  EXPECT_EQ(by_rule("mean"), 4);  // 1 / 4 + 5 * 3 / 4
  EXPECT_EQ(by_rule("first"), 1);
}

}  // namespace
}  // namespace bindery
