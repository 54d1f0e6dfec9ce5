// Whole trainings: resumed to the bit, and good enough. tests/train/splits_test.cc: on any devices.
#include <gtest/gtest.h>

#include "symbol/ops.h"
#include "tests/test_device.h"
#include "tests/test_folder.h"
#include "tests/train/fit_until.h"
#include "train/data/array_iter.h"
#include "train/data/digits.h"
#include "train/trainer.h"
#include "train/zoo.h"

namespace bindery {
namespace {

ArrayIter Digits(int64_t count, int64_t batch, bool shuffle = true, int64_t first = 0) {
  ImageSet set = DrawDigits(count, 1, first);
  return ArrayIter(std::move(set.images), std::move(set.labels), {.batch_size = batch, .shuffle = shuffle, .seed = 3});
}

// Simulated devices have the reference kernels only, which are slow.
Symbol Net(double dropout = 0) { return ModelByName(OnCpusOnly() ? "lenet" : "mlp", {.dropout = dropout}); }

TEST(Training, LearnsDigits) {
  ArrayIter train = Digits(OnCpusOnly() ? 4000 : 1000, 64), test = Digits(500, 64, false, 100000);
  Trainer trainer(Net(), {.devices = {TestDevice(0), TestDevice(1)}, .optimizer = "sgd(lr=0.05, momentum=0.9)"});
  const FitResult result = trainer.Fit(train, {.epochs = 3, .validation = &test});
  EXPECT_GE(result.validation[0].second, OnCpusOnly() ? 0.95 : 0.7);
  // Saved, loaded, and at another batch size, the predictions are the same.
  const std::string path = testing::TempDir() + "/learned.pb";
  trainer.Save(path);
  Trainer loaded(LoadModel(path), {.devices = {TestDevice(0)}});
  ArrayIter other = Digits(500, 37, false, 100000);
  const HostTensor predictions = trainer.Predict(test)[0];
  EXPECT_LT(MaxAbsDiff(predictions, trainer.Predict(other)[0]), 1e-6);
  // Bound for prediction alone, other kernels may be chosen: the scores, up to 20, then differ by 1e-5 of rounding, a
  // tenth of which is seen in probabilities.
  EXPECT_LT(MaxAbsDiff(predictions, loaded.Predict(other)[0]), 2e-6);
  EXPECT_EQ(loaded.Score(other)[0].second, result.validation[0].second);
}

TEST(Training, ResumedAnywhereItEndsInTheSameBits) {
  const auto make = [] {
    return Trainer(Net(0.3), {.devices = {TestDevice(0), TestDevice(1)},
                              .optimizer = "sgd(lr=0.02, momentum=0.9)",
                              .schedule = "factor(step=5, factor=0.9)",
                              .seed = 4});
  };
  const auto params = [](Trainer& trainer) { return trainer.ToModel().params; };
  ArrayIter all = Digits(330, 64);
  Trainer whole = make();
  whole.Fit(all, {.epochs = 3});
  const HostTensorMap expected = params(whole);
  for (const int64_t stop : {1, 4, 6, 7, 13, 17}) {  // in the middle of an epoch, at its end, after it
    const TestFolder folder;
    ArrayIter data = Digits(330, 64), again = Digits(330, 64);
    Trainer first = make(), second = make();
    const FitResult r = FitUntil(stop, &first, data, {.epochs = 3, .checkpoints = folder.path()});
    EXPECT_TRUE(r.stopped);
    EXPECT_EQ(r.steps, stop);
    EXPECT_EQ(second.Fit(again, {.epochs = 3, .checkpoints = folder.path(), .resume = true}).steps, 18);
    for (const auto& [name, value] : params(second))
      EXPECT_EQ(value, expected.at(name)) << name << ", stopped at " << stop;
  }
}

TEST(Training, DivergenceIsAnErrorAndNamesTheStep) {
  ArrayIter data = Digits(640, 64);
  Trainer trainer(ModelByName("mlp"), {.optimizer = "sgd(lr=1e30)", .metrics = "cross-entropy"});
  try {
    trainer.Fit(data, {.epochs = 3});
    FAIL() << "nothing was thrown";
  } catch (const NumericError& e) {
    EXPECT_NE(std::string(e.what()).find("training has diverged"), std::string::npos);
  }
}

TEST(Updater, HeadsThatNormaliseThemselvesAreNotDividedAgain) {
  const auto step = [](Normalization normalization, const std::string& optimizer) {
    const Symbol net = SoftmaxOutput(FullyConnected(Variable("data"), {.num_hidden = 3, .no_bias = true}, "fc"),
                                     {.normalization = normalization}, "softmax");
    DataParallelExecutorGroup group(
        net,
        {.devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {5, 4}}}, .labels = {{"softmax_label", {5}}}});
    group.SetParams({{"fc_weight", HostTensor(DType::kFloat32, {3, 4})}}, {});
    Updater updater(&group, {.optimizer = MakeOptimizer(optimizer)});
    Batch batch{.data = {HostTensor::Full(DType::kFloat32, {5, 4}, 0.5)}, .label = {HostTensor(DType::kFloat32, {5})}};
    updater.Update(std::make_shared<const Batch>(batch));
    HostTensorMap params;
    group.GetParams(&params, nullptr);
    return params.at("fc_weight").At(0);
  };
  const double expected = 0.1 * (1 - 1.0 / 3) * 0.5;  // lr * mean of (onehot - p) * x
  EXPECT_NEAR(step(Normalization::kNull, "sgd(lr=0.1)"), expected, 1e-6);
  EXPECT_NEAR(step(Normalization::kBatch, "sgd(lr=0.1)"), expected, 1e-6);
  EXPECT_NEAR(step(Normalization::kValid, "sgd(lr=0.1)"), expected, 1e-6);
  EXPECT_NEAR(step(Normalization::kNull, "sgd(lr=0.1, rescale=1)"), 5 * expected, 1e-6);  // an explicit rescale wins
}

// A mean over weighted labels of both devices. With weights of 0 every probability is 1 / 3, and w of the labels are
// 1, 2, 3, 1, 2: dW[k] = sum of w (1 / 3 - [k = label]) x / 9.
TEST(Updater, MeansAreNotDividedAgain) {
  const auto step = [](const std::string& optimizer) {
    const Symbol scores = FullyConnected(Variable("data"), {.num_hidden = 3, .no_bias = true}, "fc");
    const Symbol weights = Constant(HostTensor::From({3}, {1, 2, 3}));
    const Symbol mean =
        SoftmaxCrossEntropy(scores, Variable("softmax_label"), {}, LossReduction::kMean, weights, "mean");
    DataParallelExecutorGroup group(
        MakeLoss(mean * 2.0, {}, "loss").WithAnnotation("merge", "sum"),
        {.devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {5, 4}}}, .labels = {{"softmax_label", {5}}}});
    group.SetParams({{"fc_weight", HostTensor(DType::kFloat32, {3, 4})}}, {});
    Updater updater(&group, {.optimizer = MakeOptimizer(optimizer)});
    Batch batch{.data = {HostTensor::Full(DType::kFloat32, {5, 4}, 0.5)},
                .label = {HostTensor::From({5}, {0, 1, 2, 0, 1})}};
    updater.Update(std::make_shared<const Batch>(batch));
    HostTensorMap params;
    group.GetParams(&params, nullptr);
    return params.at("fc_weight");
  };
  const HostTensor once = step("sgd(lr=0.1)"), half = step("sgd(lr=0.1, rescale=0.5)");
  for (const auto& [k, expected] : {std::pair(0, -0.1 / 9), std::pair(1, 0.1 / 9), std::pair(2, 0.0)}) {
    EXPECT_NEAR(once.At(int64_t{4} * k), expected, 1e-7);
    EXPECT_NEAR(half.At(int64_t{4} * k), expected / 2, 1e-7);
  }
}

}  // namespace
}  // namespace bindery
