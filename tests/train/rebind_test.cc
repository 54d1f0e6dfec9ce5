// Trainers fed with batches of other sizes and images than those they were bound for.
#include <gtest/gtest.h>

#include "base/philox.h"
#include "symbol/ops.h"
#include "tests/test_device.h"
#include "train/data/array_iter.h"
#include "train/data/digits.h"
#include "train/trainer.h"
#include "train/zoo.h"

namespace bindery {
namespace {

ArrayIter Images(int64_t count, int64_t batch, int64_t height, int64_t width) {
  HostTensor data(DType::kFloat32, {count, 3, height, width}), labels(DType::kFloat32, {count});
  PhiloxStream random(1, "images");
  for (float& v : data.data<float>()) v = random.Uniform();
  for (float& v : labels.data<float>()) v = static_cast<float>(random.Below(10));
  return ArrayIter(std::move(data), std::move(labels), {.batch_size = batch});
}

// E9: scores and predictions; training steps on such batches: tests/executor/group/group_test.cc.
TEST(Rebind, OtherBatchesAndImagesNeedNoCall) {
  Symbol x = Convolution(Variable("data"), {.num_filter = 4, .kernel = {3, 3}, .stride = {2, 2}}, "conv");
  x = Pooling(Relu(x), {.type = PoolType::kAvg, .global = true});
  x = SoftmaxOutput(FullyConnected(x, {.num_hidden = 10}, "fc"), {}, "softmax");
  Trainer trainer(x, {.devices = {TestDevice(0), TestDevice(1)}, .metrics = "accuracy"});
  ArrayIter train = Images(30, 10, 32, 32);
  trainer.Fit(train, {.epochs = 1});
  for (const auto& [batch, height, width] :
       {std::tuple(3, 32, 32), {20, 32, 32}, {20, 120, 120}, {20, 32, 64}, {5, 28, 30}}) {
    ArrayIter data = Images(2 * batch, batch, height, width);
    const NamedValues score = trainer.Score(data);
    ASSERT_EQ(score.size(), 1u);
    EXPECT_TRUE(score[0].second >= 0 && score[0].second <= 1) << score[0].second;
    EXPECT_EQ(trainer.Predict(data)[0].shape(), (Shape{2 * batch, 10}));
    EXPECT_EQ(trainer.group()->OutputShapes()[0], (Shape{batch, 10}));
  }
  Trainer inference(trainer.ToModel());
  ArrayIter ten = Images(10, 10, 32, 32);
  const std::vector<HostTensor> predictions = inference.Predict(ten);
  ASSERT_EQ(predictions.size(), 1u);
  EXPECT_EQ(predictions[0].shape(), (Shape{10, 10}));
  EXPECT_LT(MaxAbsDiff(predictions[0], trainer.Predict(ten)[0]), 1e-6);
}

// What MXNet's bind(force_rebind=True) is for: other shapes by themselves, other devices by a checkpoint in memory.
// Parameters and the optimizer's state stay.
TEST(Rebind, OtherShapesAndDevicesKeepTheOptimizersState) {
  Symbol x = Convolution(Variable("data"), {.num_filter = 4, .kernel = {3, 3}, .stride = {2, 2}}, "conv");
  x = Pooling(Tanh(x), {.type = PoolType::kAvg, .global = true});
  x = SoftmaxOutput(FullyConnected(x, {.num_hidden = 10}, "fc"), {}, "softmax");
  const auto options = [](std::vector<Device> devices) {
    return TrainerOptions{.devices = std::move(devices), .optimizer = "sgd(lr=0.05, momentum=0.9)", .seed = 3};
  };
  const auto fit = [](Trainer& trainer, int64_t epochs, int64_t batch, int64_t height) {
    ArrayIter data = Images(24, batch, height, 16);
    trainer.Fit(data, {.epochs = epochs});
  };
  Trainer stays(x, options({TestDevice(0)}));
  fit(stays, 1, 8, 16);
  const HostTensorMap state = stays.updater()->State(), params = stays.ToModel().params;
  EXPECT_GT(MaxAbsDiff(state.at("fc_weight:momentum"), HostTensor(DType::kFloat32, {10, 4})), 1e-4);

  Trainer moves(x, options({TestDevice(1), TestDevice(2), TestDevice(3)}));
  moves.Restore(stays.ToCheckpoint());
  EXPECT_EQ(moves.ToModel().params, params);
  fit(stays, 3, 6, 12);
  fit(moves, 3, 6, 12);
  EXPECT_EQ(stays.updater()->step(), 3 + 2 * 4);
  EXPECT_EQ(moves.updater()->step(), stays.updater()->step());
  for (const auto& [name, value] : stays.ToModel().params) {
    EXPECT_LT(MaxAbsDiff(value, moves.ToModel().params.at(name)), 1e-5) << name;
    EXPECT_GT(MaxAbsDiff(value, params.at(name)), 1e-4) << name;
  }
  for (const auto& [name, value] : stays.updater()->State()) {
    EXPECT_LT(MaxAbsDiff(value, moves.updater()->State().at(name)), 1e-5) << name;
  }
  // As if the momentum had been lost, it would be another training.
  Trainer anew(Model{.symbol = x, .params = params}, options({TestDevice(0)}));
  fit(anew, 2, 6, 12);
  EXPECT_GT(MaxAbsDiff(anew.ToModel().params.at("fc_weight"), stays.ToModel().params.at("fc_weight")), 1e-4);
}

// Of a net that is far from sure of itself: its scores are of the order of 1. Scores of 20, as trained nets have them,
// carry 1e-5 of float32's rounding, of which a probability sees up to a quarter.
TEST(Rebind, PredictionsDoNotDependOnTheBatchSize) {
  const auto images = std::make_shared<const HostTensor>(DrawDigits(60, 1).images);
  const auto batches_of = [&](int64_t batch) {
    return ArrayIter({{.name = "data", .values = images}}, {}, {.batch_size = batch});
  };
  Trainer trainer(ModelByName("lenet"), {.devices = {TestDevice(0), TestDevice(1)}, .seed = 1});
  ArrayIter first = batches_of(20);
  const HostTensor expected = trainer.Predict(first)[0];
  Trainer again(trainer.ToModel(), {.devices = {TestDevice(0)}});
  for (const int64_t batch : {1, 2, 7, 37, 60}) {
    ArrayIter data = batches_of(batch);
    EXPECT_LT(MaxAbsDiff(trainer.Predict(data)[0], expected), 1e-6) << batch;
    EXPECT_LT(MaxAbsDiff(again.Predict(data)[0], expected), 1e-6) << batch;
  }
}

}  // namespace
}  // namespace bindery
