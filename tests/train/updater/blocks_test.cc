// Training in blocks: the same bits on any number of devices, by any workload.
#include "train/updater/blocks.h"

#include <gtest/gtest.h>

#include <cmath>

#include "executor/data_parallel_executor_group.h"
#include "symbol/ops.h"
#include "symbol/stages.h"
#include "tests/host_tensors.h"
#include "tests/log_lines.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "tests/test_folder.h"
#include "tests/train/fit_until.h"
#include "train/data/array_iter.h"
#include "train/trainer.h"
#include "train/zoo.h"

namespace bindery {
namespace {

// A convolution, batch-norm and dropout, on images of 6 x 6.
Symbol Net(double dropout = 0.3, bool batch_norm = true) {
  Symbol x = Convolution(Variable("data"), {.num_filter = 8, .kernel = {3, 3}, .no_bias = batch_norm}, "conv");
  if (batch_norm) x = BatchNorm(x, {.fix_gamma = false}, "bn");
  x = Dropout(Tanh(x, "tanh"), {.p = dropout}, "drop");
  return SoftmaxOutput(FullyConnected(x, {.num_hidden = 3}, "fc"), {}, "softmax");
}

// 60 samples: batches of 26, and a last one of 8.
ArrayIter Images(bool shuffle = true, double bad_label_at = -1) {
  HostTensor data = Filled({60, 2, 6, 6}, [](int64_t i) { return std::sin(0.37 * static_cast<double>(i * i % 1009)); });
  HostTensor labels = Filled({60}, [](int64_t i) { return i * i % 7 % 3; });
  if (bad_label_at >= 0) labels.Set(static_cast<int64_t>(bad_label_at), 7);
  return ArrayIter(std::move(data), std::move(labels), {.batch_size = 26, .shuffle = shuffle, .seed = 5});
}

struct Setting {
  int devices = 1;
  std::vector<double> workload = {};
  int64_t micro_batches = 1;
  int threads = 1;
};

TrainerOptions On(const Setting& setting, int64_t block, const std::string& optimizer = "sgd(lr=0.2, momentum=0.9)") {
  return {.devices = TestDeviceList(setting.devices),
          .workload = setting.workload,
          .optimizer = optimizer,
          .metrics = "accuracy,cross-entropy,top-k(2)",
          .micro_batches = setting.micro_batches,
          .reproducible_block = block,
          .seed = 3,
          .threads_per_device = setting.threads};
}

const Setting kSettings[] = {{1},        {2},        {3},          {4}, {2, {3, 1}}, {3, {1, 0, 5}}, {3, {0, 1, 1}},
                             {2, {}, 3}, {1, {}, 4}, {1, {}, 1, 2}};

// Between kinds of devices, only up to rounding.
void ExpectSame(const HostTensorMap& a, const HostTensorMap& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, value] : a) {
    if (TestDevices() == "mixed") {
      EXPECT_LT(MaxAbsDiff(value, b.at(name)), 2e-3) << name;
    } else {
      EXPECT_EQ(value, b.at(name)) << name;
    }
  }
}

struct Trained {
  HostTensorMap params, aux, state;
  NamedValues train, score;
};

Trained Train(const Symbol& net, const TrainerOptions& options, int64_t epochs = 4) {
  ArrayIter data = Images(), validation = Images(false);
  Trainer trainer(net, options);
  const FitResult result = trainer.Fit(data, {.epochs = epochs, .validation = &validation});
  EXPECT_EQ(result.steps, 3 * epochs);
  const Model model = trainer.ToModel();
  return {model.params, model.aux, trainer.ToCheckpoint().optimizer_state, result.train, result.validation};
}

void ExpectSame(const Trained& a, const Trained& b) {
  ExpectSame(a.params, b.params);
  ExpectSame(a.aux, b.aux);
  ExpectSame(a.state, b.state);
  for (const auto& [one, other] : {std::pair(&a.train, &b.train), {&a.score, &b.score}}) {
    ASSERT_EQ(one->size(), other->size());
    for (size_t i = 0; i < one->size(); ++i) {
      if (TestDevices() == "mixed") {
        EXPECT_NEAR((*one)[i].second, (*other)[i].second, 1e-1) << (*one)[i].first;
      } else {
        EXPECT_EQ((*one)[i].second, (*other)[i].second) << (*one)[i].first;
      }
    }
  }
}

TEST(Blocks, TrainToTheSameBitsOnAnyDevices) {
  const Trained expected = Train(Net(), On({}, 4));
  for (const Setting& setting : kSettings) {
    SCOPED_TRACE(testing::Message() << setting.devices << " devices, " << setting.workload.size() << " numbers, "
                                    << setting.micro_batches << " micro-batches, " << setting.threads << " threads");
    ExpectSame(Train(Net(), On(setting, 4)), expected);
  }
}

TEST(Blocks, OfAnySizeAndOptimizer) {
  for (const auto& [block, optimizer] : {std::pair(5, "sgd(lr=0.2, clip_norm=0.05)"),
                                         {1, "adam(lr=0.01)"},
                                         {26, "lamb(lr=0.02, wd=0.01)"},
                                         {7, "lars(lr=0.2, wd=0.01, clip_norm=1)"},
                                         {64, "rmsprop(lr=0.01)"}}) {
    SCOPED_TRACE(optimizer);
    const Trained expected = Train(Net(), On({}, block, optimizer), 2);
    ExpectSame(Train(Net(), On({2}, block, optimizer), 2), expected);
    ExpectSame(Train(Net(), On({3, {1, 3, 2}}, block, optimizer), 2), expected);
  }
}

TEST(Blocks, WithALossScaleAndAverages) {
  const auto options = [](const Setting& setting) {
    TrainerOptions with = On(setting, 4);
    with.precision = "float16";
    with.loss_scale = "dynamic(start=16777216, interval=2, on_overflow=retry)";
    with.average = "ema(0.9)";
    with.use_average = true;
    return with;
  };
  const Trained expected = Train(Net(), options({}));
  ExpectSame(Train(Net(), options({2})), expected);
  ExpectSame(Train(Net(), options({3, {2, 1, 1}})), expected);
}

// The zoo's, with dropout and batch-norm, over 100 steps; on simulated devices, whose kernels are slow, over a few.
TEST(Blocks, OfModelsByName) {
  const int64_t epochs = TestDevices() == "cpu" ? 50 : 1;  // of two steps
  for (const char* name : {"lenet", "resnet20"}) {
    SCOPED_TRACE(name);
    const Symbol net = ModelByName(name, {.dropout = 0.2});
    const HostTensor images = Filled(ModelInputShape(name).Insert(0, 8),
                                     [](int64_t i) { return std::sin(0.1 * static_cast<double>(i * i % 997)); });
    const HostTensor labels = Filled({8}, [](int64_t i) { return i * i % 10; });
    std::vector<Model> models;
    for (const Setting& setting : {Setting{1}, {2}, {3, {1, 2, 1}}, {4}, {2, {}, 2}}) {
      ArrayIter data(images, labels, {.batch_size = 4});
      Trainer trainer(net, On(setting, 1, "sgd(lr=0.01, momentum=0.9, wd=1e-4)"));
      EXPECT_EQ(trainer.Fit(data, {.epochs = epochs}).steps, 2 * epochs);
      models.push_back(trainer.ToModel());
      ExpectSame(models.back().params, models[0].params);
      ExpectSame(models.back().aux, models[0].aux);
    }
  }
}

// Masks and sums are those of whole batches; and with one block, so is batch-norm.
TEST(Blocks, TrainAsWholeBatchesDo) {
  const Trained whole = Train(Net(0.3, false), On({2}, 0)), blocks = Train(Net(0.3, false), On({3}, 4));
  EXPECT_LT(MostDifferent(blocks.params, whole.params), 2e-5);
  EXPECT_GT(MostDifferent(Train(Net(0, false), On({}, 4)).params, whole.params), 1e-3);
  for (size_t i = 0; i < whole.train.size(); ++i) {
    EXPECT_NEAR(blocks.train[i].second, whole.train[i].second, 1e-4);
    EXPECT_NEAR(blocks.score[i].second, whole.score[i].second, 1e-4);
  }
  const Trained one = Train(Net(), On({}, 0)), block = Train(Net(), On({2}, 26));
  EXPECT_LT(MostDifferent(block.params, one.params), 1e-4);
  EXPECT_LT(MostDifferent(block.aux, one.aux), 1e-4);
}

// Running values move once per step, to the mean by samples of what the blocks would have made of them.
TEST(Blocks, MoveRunningValuesOnce) {
  const Symbol net = LinearRegressionOutput(
      FullyConnected(BatchNorm(Variable("data"), {.momentum = 0.5}, "bn"), {.num_hidden = 1}, "fc"), {}, "out");
  const auto data = std::make_shared<const HostTensor>(HostTensor::From({5, 1}, {1, 3, 10, 14, 4}));
  const auto labels = std::make_shared<const HostTensor>(DType::kFloat32, Shape{5, 1});
  for (const int devices : {1, 2, 3}) {
    ArrayIter iterator({{"data", data}}, {{"out_label", labels}}, {.batch_size = 5});
    TrainerOptions options = On({devices}, 2);
    options.metrics = "mse";
    Trainer trainer(net, options);
    trainer.Fit(iterator, {});
    // Blocks 1 3 | 10 14 | 4: means 2, 12, 4 and variances 1, 4, 0. They began as 0 and 1.
    const HostTensorMap aux = trainer.ToModel().aux;
    EXPECT_NEAR(aux.at("bn_running_mean").At(0), 0.5 * (2 * 2 + 2 * 12 + 4) / 5, 1e-6);
    EXPECT_NEAR(aux.at("bn_running_var").At(0), 0.5 + 0.5 * (2 * 1 + 2 * 4 + 0) / 5, 1e-6);
  }
}

TEST(Blocks, ResumedOnOtherDevicesTheyEndInTheSameBits) {
  const Trained expected = Train(Net(), On({2}, 4));
  for (const int64_t stop : {2, 5}) {
    const TestFolder folder;
    ArrayIter data = Images(), again = Images();
    Trainer first(Net(), On({3, {1, 2, 1}}, 4)), second(Net(), On({1}, 4));
    FitUntil(stop, &first, data, {.epochs = 4, .checkpoints = folder.path()});
    const LogLines log;
    second.Fit(again, {.epochs = 4, .checkpoints = folder.path(), .resume = true});
    const std::vector<std::string> lines = log.lines();
    ExpectSame(second.ToModel().params, expected.params);
    ExpectSame(second.ToModel().aux, expected.aux);
    EXPECT_TRUE(lines.front().ends_with("results are equal to the bit, on devices of one kind")) << lines.front();
  }
}

// Whichever block it is in.
TEST(Blocks, ABadLabelAnywhereChangesNothing) {
  for (const double bad : {0, 9, 25}) {
    ArrayIter data = Images(false, bad);
    Trainer trainer(Net(), On({2}, 4));
    trainer.Prepare(data);
    const Model before = trainer.ToModel();
    EXPECT_NE(MessageOf<DataError>([&] { trainer.Fit(data, {}); }), "nothing was thrown") << bad;
    EXPECT_EQ(trainer.ToModel().params, before.params) << bad;
    EXPECT_EQ(trainer.ToModel().aux, before.aux) << bad;
    EXPECT_EQ(trainer.updater()->step(), 0);
    trainer.Fit(data, {});  // goes on behind the batch
    EXPECT_EQ(trainer.updater()->step(), 2);
  }
}

TEST(Blocks, NeedRoomForOneAtATime) {
  if (TestDevices() == "cuda") GTEST_SKIP() << "what products may use of memory is more than this net's values";
  ArrayIter data = Images();
  Trainer whole(Net(), On({}, 0)), blocks(Net(), On({}, 2));
  whole.Prepare(data);
  blocks.Prepare(data);
  const auto arena = [](Trainer& trainer) { return trainer.group()->stages()[0]->memory(0).arena; };
  EXPECT_LT(4 * arena(blocks), arena(whole));
  EXPECT_EQ(blocks.group()->options().data[0].shape[0], 2);
}

TEST(Blocks, PredictTheSameBits) {
  ArrayIter data = Images(false);
  std::vector<HostTensor> predicted;
  for (const int devices : {1, 2, 3}) {
    ArrayIter from = Images();
    Trainer trainer(Net(), On({devices}, 4));
    trainer.Fit(from, {.epoch_batches = 1});
    predicted.push_back(trainer.Predict(data)[0]);
    EXPECT_EQ(predicted.back().shape(), (Shape{60, 3}));
    ExpectSame({{"outputs", predicted.back()}}, {{"outputs", predicted[0]}});
    EXPECT_EQ(trainer.Predict({HostTensor(DType::kFloat32, {9, 2, 6, 6})})[0].shape(), (Shape{9, 3}));
  }
}

TEST(Blocks, WhatTheyCannotDoIsSaid) {
  const auto error = [](const Symbol& net, const std::function<void(TrainerOptions*)>& change = {}) {
    return MessageOf<Error>([&] {
      TrainerOptions options = On({2}, 4);
      if (change) change(&options);
      ArrayIter data = Images();
      Trainer(net, options).Fit(data, {});
    });
  };
  const auto has = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  has(error(Net(), [](TrainerOptions* o) { o->reproducible_block = -1; }), "blocks have at least 1 sample, got -1");
  has(error(Net(), [](TrainerOptions* o) { o->workload = {1, 2, 3}; }), "workload");
  has(error(Net(),
            [](TrainerOptions* o) {
              o->placements = {{"tail", {TestDevice(0), TestDevice(1)}}};
            }),
      "there are none with placements");
  const Symbol logits = FullyConnected(Variable("data"), {.num_hidden = 3}, "fc");
  has(error(SoftmaxOutput(logits, {.normalization = Normalization::kValid}, "softmax")),
      "divides by what a block has (valid labels, or the samples of a mean)");
  has(error(SoftmaxOutput(FullyConnected(BatchNorm(Variable("data"), {.sync = true}, "bn"), {.num_hidden = 3}, "fc"),
                          {}, "softmax")),
      "normalises by the samples of all devices (sync)");
  // What divides by the batch is fine.
  EXPECT_EQ(error(SoftmaxOutput(logits, {.normalization = Normalization::kBatch}, "softmax")), "nothing was thrown");
  // By hand.
  const GroupOptions group{
      .devices = {TestDevice(0)}, .data = {{"data", {8, 2, 6, 6}}}, .labels = {{"softmax_label", {8}}}};
  GroupOptions inputs = group;
  inputs.inputs_need_grad = true;
  has(MessageOf<Error>([&] { ForBlocks(inputs, 4); }), "gradients of inputs are not there");
  inputs = group;
  inputs.grad_req = GradReq::kAdd;
  has(MessageOf<Error>([&] { ForBlocks(inputs, 4); }), "blocks need gradients that are written");
  DataParallelExecutorGroup plain(Net(), group);
  has(MessageOf<Error>([&] { Updater(&plain, {.block = 4}); }), "bound with the options of ForBlocks");
  has(MessageOf<Error>([&] { Updater(&plain, {.workload = {1}}); }), "the workload of an updater is of blocks");
}

}  // namespace
}  // namespace bindery
