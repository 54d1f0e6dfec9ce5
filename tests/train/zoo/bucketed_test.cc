// Networks of several lengths on one set of parameters: each step against one by hand, and against padding.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <set>
#include <thread>

#include "engine/memory/storage.h"
#include "symbol/ops.h"
#include "tests/executor/group_helpers.h"
#include "tests/host_tensors.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "train/loop/bucketed_model.h"
#include "train/loop/trained_model.h"

namespace bindery {
namespace {

constexpr int64_t kWidth = 3, kHidden = 4, kClasses = 3;

// A plain recurrent network, unrolled: x_t of a batch (N, steps, width), one label a sample. From three steps on its
// scores are scaled, by a parameter that shorter networks do not have.
BucketNet Unrolled(int64_t steps) {
  const Symbol data = Variable("data");
  const Symbol in = Variable("in_weight"), back = Variable("back_weight"), bias = Variable("in_bias");
  const Symbol cut = SliceChannel(data, {.num_outputs = steps, .axis = 1, .squeeze_axis = true});
  Symbol h;
  for (int64_t t = 0; t < steps; ++t) {
    const Symbol x = FullyConnected(cut[static_cast<int>(t)], in, bias, {.num_hidden = kHidden});
    h = Tanh(h.empty() ? x : x + FullyConnected(h, back, {}, {.num_hidden = kHidden, .no_bias = true}));
  }
  Symbol scores = FullyConnected(h, {.num_hidden = kClasses}, "out");
  if (steps >= 3) scores = scores * Variable("scale_weight", {.shape = Shape{1, kClasses}});
  return {.symbol = SoftmaxOutput(scores, {}, "softmax"),
          .data = {{"data", {5, steps, kWidth}}},
          .labels = {{"softmax_label", {5}}}};
}

BatchPtr BatchOf(int64_t samples, int64_t steps, int seed) {
  return std::make_shared<const Batch>(
      Batch{.data = {Filled({samples, steps, kWidth},
                            [=](int64_t i) { return std::sin(1.7 * static_cast<double>(i) + seed); })},
            .label = {Filled({samples}, [=](int64_t i) { return (i * 7 + seed) % kClasses; })},
            .samples = samples});
}

GroupOptions Devices() { return {.devices = {TestDevice(0), TestDevice(1)}, .workload = {2, 1}, .seed = 3}; }

// What a step is, on one device by a group of its own, in double: weight decay, then momentum.
class Reference {
 public:
  explicit Reference(const Model& start) : params_(start.params) {
    for (const auto& [name, value] : params_) momentum_[name] = HostTensor(DType::kFloat64, value.shape());
  }
  void Step(int64_t key, const BatchPtr& batch, double lr, double momentum, double wd) {
    const BucketNet net = Unrolled(key);
    DataParallelExecutorGroup group(net.symbol, {.data = net.data, .labels = net.labels});
    group.SetParams(params_, {}, {.allow_extra = true});
    group.Forward(batch, Mode::kTrain);
    group.Backward();
    for (const std::string& name : group.param_names()) {
      const HostTensor gradient = group.GetGradient(name, 0);
      HostTensor &value = params_.at(name), &m = momentum_.at(name);
      for (int64_t i = 0; i < value.elements(); ++i) {
        const double decay = name.ends_with("_weight") ? wd : 0;
        const double g = gradient.At(i) / static_cast<double>(batch->samples) + decay * value.At(i);
        m.Set(i, momentum * m.At(i) - lr * g);
        value.Set(i, value.At(i) + m.At(i));
      }
    }
  }
  const HostTensorMap& params() const { return params_; }

 private:
  HostTensorMap params_, momentum_;
};

constexpr int64_t kKeys[] = {4, 2, 3, 2, 4, 1, 3, 4, 2, 2};

TEST(Bucketed, EveryStepIsThatOfItsOwnNetwork) {
  BucketedModel model(Unrolled, 4, Devices(), {.optimizer = "sgd(lr=0.2, momentum=0.9, wd=0.05)"});
  Reference reference(model.ToModel());
  int step = 0;
  for (const int64_t key : kKeys) {
    const BatchPtr batch = BatchOf(5 + step % 3, key, step);
    const HostTensorMap before = model.ToModel().params;
    model.Step(key, batch);
    reference.Step(key, batch, 0.2, 0.9, 0.05);
    const HostTensorMap after = model.ToModel().params;
    for (const auto& [name, value] : reference.params()) {
      EXPECT_LE(MaxAbsDiff(after.at(name), value), 2e-6) << name << " after step " << step << " of key " << key;
    }
    const bool reaches_scale = key >= 3, reaches_back = key >= 2;
    EXPECT_EQ(after.at("scale_weight") == before.at("scale_weight"), !reaches_scale) << "to the bit";
    EXPECT_EQ(after.at("back_weight") == before.at("back_weight"), !reaches_back);
    ++step;
  }
  EXPECT_EQ(model.updater().step(), step);
  EXPECT_EQ(model.keys(), (std::vector<int64_t>{1, 2, 3, 4}));
}

// A rule whose step depends on the count of steps, a norm over all that the step reaches, and averages.
TEST(Bucketed, WhatAStepDoesNotReachCountsForNothing) {
  const TrainedModelOptions options{.optimizer = "adam(lr=0.05, clip_norm=0.3)", .average = "ema(0.9)"};
  BucketedModel mixed(Unrolled, 4, Devices(), options), shorter(Unrolled, 4, Devices(), options);
  mixed.Step(4, BatchOf(5, 4, 1));
  shorter.Restore(mixed.ToCheckpoint());
  // A gradient of the longest network lies in the arrays of one, and none in those of the other.
  mixed.Step(2, BatchOf(5, 2, 2));
  shorter.Step(2, BatchOf(5, 2, 2));
  EXPECT_EQ(mixed.ToModel().params, shorter.ToModel().params);
  EXPECT_EQ(mixed.ToCheckpoint().optimizer_state, shorter.ToCheckpoint().optimizer_state);
}

// An average begins with the weight, whenever a step reaches that first.
TEST(Bucketed, AveragesBeginWithTheWeights) {
  for (const char* average : {"ema(0.999)", "swa(start=1)", "swa(start=3, every=2)"}) {
    BucketedModel model(Unrolled, 4, Devices(), {.optimizer = "sgd(lr=0)", .average = average});
    const HostTensorMap weights = model.ToModel().params;
    for (int step = 0; step < 10; ++step) {
      model.Step(step == 0 ? 2 : 4, BatchOf(5, step == 0 ? 2 : 4, step));
      model.Settle();
      for (const auto& [name, value] : model.updater().Averages()) {
        EXPECT_LE(MaxAbsDiff(value, weights.at(name)), 1e-6) << average << " of " << name << " after step " << step;
      }
      EXPECT_EQ(model.updater().Averages().size(), weights.size());
    }
  }
}

// One weight times data of `key` columns, all ones, of two samples: each pass gives the gradient 2 key.
TEST(Bucketed, GradientsOfTwoKeysAreWrittenOrAddToOneArray) {  // E17, whose keys have one shape: 1, 1
  const auto net = [](int64_t key) {
    const Symbol product = Variable("data") * Variable("a", {.shape = Shape{1, 1}, .init = "one"});
    return BucketNet{.symbol = MakeLoss(product, {}, "loss"), .data = {{"data", {2, key}}}};
  };
  for (const GradReq request : {GradReq::kWrite, GradReq::kAdd}) {
    for (const auto& [first, second] : {std::pair(10, 5), std::pair(5, 10)}) {
      GroupOptions options = Devices();
      options.grad_req = request;
      BucketedModel model(net, 10, options, {.metrics = "loss"});
      double expected = 0;
      for (const int64_t key : {first, second}) {
        DataParallelExecutorGroup& group = model.group(key);
        group.Forward(Batch{.data = {HostTensor::Full(DType::kFloat32, {2, key}, 1)}});
        group.Backward();
        expected = 2 * static_cast<double>(key) + (request == GradReq::kAdd ? expected : 0);
        EXPECT_EQ(SumOfGradients(group, "a").At(0), expected) << key;
      }
    }
  }
}

// Sequences of 2 steps as such, and padded to 4 in one network that takes each sample's own last state.
TEST(Bucketed, AreWhatPaddingAndMaskingComputes) {
  const auto net = [](int64_t steps, bool padded) {
    const Symbol data = Variable("data");
    const RnnResult rnn = Rnn(data, {.cell = RecurrentCell::kLstm, .hidden = kHidden, .layout = SequenceLayout::kNtc},
                              "lstm", {}, {}, padded ? Variable("lengths") : Symbol());
    const Symbol scores = FullyConnected(rnn.states[0], {.num_hidden = kClasses}, "out");
    BucketNet made{.symbol = SoftmaxOutput(scores, {}, "softmax"),
                   .data = {{"data", {6, steps, kWidth}}},
                   .labels = {{"softmax_label", {6}}}};
    if (padded) made.data.push_back({"lengths", {6}});
    return made;
  };
  const TrainedModelOptions options{.optimizer = "sgd(lr=0.3, momentum=0.9)"};
  BucketedModel buckets([&](int64_t steps) { return net(steps, false); }, 4, Devices(), options);
  BucketedModel padded([&](int64_t) { return net(4, true); }, 0, Devices(), options,
                       [&] {
                         Model values = buckets.ToModel();
                         values.symbol = {};
                         return values;
                       }());
  for (int step = 0; step < 6; ++step) {
    const int64_t length = 2 + 2 * (step % 2);
    const BatchPtr batch = BatchOf(6, length, step);
    Batch wide{.data = {HostTensor(DType::kFloat32, {6, 4, kWidth}), HostTensor::Full(DType::kFloat32, {6}, length)},
               .label = batch->label,
               .samples = 6};
    for (int64_t n = 0; n < 6; ++n) {
      for (int64_t i = 0; i < length * kWidth; ++i) {
        wide.data[0].Set(n * 4 * kWidth + i, batch->data[0].At(n * length * kWidth + i));
      }
    }
    const auto whole = std::make_shared<const Batch>(std::move(wide));
    EXPECT_LE(MaxAbsDiff(buckets.Predict(length, batch)[0], padded.Predict(0, whole)[0]), 1e-5);
    buckets.Step(length, batch);
    padded.Step(0, whole);
  }
  const HostTensorMap a = buckets.ToModel().params, b = padded.ToModel().params;
  for (const auto& [name, value] : a) EXPECT_LE(MaxAbsDiff(value, b.at(name)), 1e-5) << name;
}

TEST(Bucketed, NothingIsAllocatedOnceAKeyWasSeen) {
  BucketedModel model(Unrolled, 4, Devices(), {.optimizer = "adam"});
  const auto run = [&](int64_t key) { model.Step(key, BatchOf(5, key, 1)); };
  const auto in_use = [&] {
    int64_t least = INT64_MAX;
    model.Settle();
    for (int i = 0; i < 20; ++i) {
      model.group(4).engine()->WaitAll();
      least = std::min(least, DefaultStorage()->Stats(TestDevice(0)).in_use);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return least;
  };
  for (const int64_t key : {4, 3, 2, 1, 4, 3, 2, 1}) run(key);
  const int64_t bytes = in_use(), committed = model.group(4).executors()[0]->arena()->committed();
  std::set<const void*> arenas;
  for (const int64_t key : model.keys()) arenas.insert(model.group(key).executors()[0]->arena().get());
  EXPECT_EQ(arenas.size(), 1u) << "working memory is shared";
  for (int i = 0; i < 200; ++i) run(kKeys[i % std::size(kKeys)]);
  EXPECT_EQ(in_use(), bytes);
  EXPECT_EQ(model.group(4).executors()[0]->arena()->committed(), committed);
}

TEST(Bucketed, ARunGoesOnFromACheckpointToTheBit) {
  const TrainedModelOptions options{.optimizer = "adam(lr=0.02)", .schedule = "factor(step=3, factor=0.5)"};
  BucketedModel whole(Unrolled, 4, Devices(), options), first(Unrolled, 4, Devices(), options);
  for (int step = 0; step < 10; ++step) whole.Step(kKeys[step], BatchOf(5, kKeys[step], step));
  for (int step = 0; step < 4; ++step) first.Step(kKeys[step], BatchOf(5, kKeys[step], step));
  const std::string path = testing::TempDir() + "/buckets.ckpt";
  SaveCheckpoint(first.ToCheckpoint(), path);
  BucketedModel second(Unrolled, 4, Devices(), options);
  second.Step(2, BatchOf(5, 2, 77));
  second.Restore(LoadCheckpoint(path));
  for (int step = 4; step < 10; ++step) second.Step(kKeys[step], BatchOf(5, kKeys[step], step));
  EXPECT_EQ(second.ToModel().params, whole.ToModel().params);
  EXPECT_EQ(second.updater().step(), 10);

  BucketedModel other(Unrolled, 3, Devices(), options);
  EXPECT_NE(MessageOf<CheckpointError>([&] { other.Restore(LoadCheckpoint(path)); }).find("another network"),
            std::string::npos);
}

TEST(Bucketed, MetricsAreOverAllBuckets) {
  BucketedModel model(Unrolled, 4, Devices(), {.optimizer = "sgd(lr=0)", .metrics = "accuracy"});
  EXPECT_TRUE(model.TakeMetric().empty());
  double right = 0, samples = 0;
  std::vector<BucketBatch> batches;
  for (int step = 0; step < 10; ++step) batches.push_back({kKeys[step], BatchOf(4 + step % 4, kKeys[step], step)});
  for (const BucketBatch& given : batches) {
    const HostTensor p = model.Predict(given.key, given.batch)[0];
    for (int64_t n = 0; n < given.batch->samples; ++n) {
      int64_t best = 0;
      for (int64_t k = 1; k < kClasses; ++k) best = p.At(n * kClasses + k) > p.At(n * kClasses + best) ? k : best;
      right += static_cast<double>(best) == given.batch->label[0].At(n);
    }
    samples += static_cast<double>(given.batch->samples);
  }
  size_t next = 0;
  const NamedValues scored = model.Score(
      [&] { return next < batches.size() ? std::optional(batches[next++]) : std::optional<BucketBatch>(); });
  EXPECT_DOUBLE_EQ(scored[0].second, right / samples);
  for (const BucketBatch& given : batches) model.Step(given);
  model.Settle();
  EXPECT_DOUBLE_EQ(model.TakeMetric()[0].second, right / samples);
  EXPECT_TRUE(model.TakeMetric().empty());
}

// On the devices are the labels of the batch before.
TEST(Bucketed, WithoutLabelsNothingIsMeasured) {
  BucketedModel model(Unrolled, 4, Devices(), {.metrics = "accuracy"});
  const auto score = [&](const BatchPtr& batch) {
    bool given = false;
    return model.Score([&] {
      return std::exchange(given, true) ? std::optional<BucketBatch>() : std::optional(BucketBatch{2, batch});
    });
  };
  const BatchPtr batch = BatchOf(5, 2, 1);
  const double expected = score(batch)[0].second;
  Batch bare = *batch;
  bare.label.clear();
  EXPECT_EQ(MessageOf([&] { score(std::make_shared<const Batch>(bare)); }),
            "DataError: metric \"accuracy\": expected a batch with 1 labels, got one without");
  EXPECT_EQ(score(batch)[0].second, expected);
}

// Each network takes of the options what is about its own parameters.
TEST(Bucketed, OptionsNameParametersOfTheDefaultNetwork) {
  GroupOptions options = Devices();
  options.fixed_params = {"s*"};
  options.param_dtypes = {{"scale*", DType::kFloat32}, {"*_weight", DType::kFloat32}};
  options.grad_req = std::map<std::string, GradReq>{{"back_weight", GradReq::kNull}};
  BucketedModel model(Unrolled, 3, options);
  const HostTensorMap before = model.ToModel().params;
  for (const int64_t key : {1, 2, 3}) model.Step(key, BatchOf(5, key, 1));
  const HostTensorMap after = model.ToModel().params;
  for (const char* fixed : {"scale_weight", "back_weight"}) EXPECT_EQ(after.at(fixed), before.at(fixed)) << fixed;
  EXPECT_NE(after.at("in_weight"), before.at("in_weight"));
  options.param_dtypes = {{"scales", DType::kFloat32}};
  EXPECT_NE(MessageOf([&] { BucketedModel(Unrolled, 3, options); }).find("\"scales\" fits no parameter"),
            std::string::npos);
}

TEST(Bucketed, AFailedStepChangesNothing) {
  BucketedModel model(Unrolled, 4, Devices(), {.optimizer = "sgd(lr=0.1, momentum=0.9)"});
  model.Step(3, BatchOf(5, 3, 1));
  const Checkpoint before = model.ToCheckpoint();
  Batch bad = *BatchOf(5, 2, 2);
  bad.data[0].Set(0, NAN);
  const auto broken = std::make_shared<const Batch>(std::move(bad));
  EXPECT_THROW(
      {
        model.Step(2, broken);
        model.Settle();
      },
      NumericError);
  EXPECT_EQ(model.ToCheckpoint().model.params, before.model.params);
  EXPECT_EQ(model.ToCheckpoint().optimizer_state, before.optimizer_state);
  BucketedModel same(Unrolled, 4, Devices(), {.optimizer = "sgd(lr=0.1, momentum=0.9)"});
  same.Restore(before);
  for (BucketedModel* one : {&model, &same}) one->Step(4, BatchOf(5, 4, 3));
  EXPECT_EQ(model.ToModel().params, same.ToModel().params) << "it goes on";
}

// Next gives none at the end of an epoch.
TEST(Bucketed, NoBatchIsRefused) {
  BucketedModel model(Unrolled, 4, Devices(), {.optimizer = "sgd(lr=0.1)"});
  const std::string expected =
      "DataError: there is no batch: where Next gave none, the iterator's epoch is over, and Reset begins another";
  EXPECT_EQ(MessageOf([&] { model.Step(3, nullptr); }), expected);
  EXPECT_EQ(MessageOf([&] { model.Predict(3, nullptr); }), expected);
  model.Step(3, BatchOf(5, 3, 1));
  model.Settle();
  EXPECT_EQ(model.updater().step(), 1);

  const BucketNet net = Unrolled(3);
  GroupOptions group = Devices();
  group.data = net.data;
  group.labels = net.labels;
  for (const int pieces : {1, 2}) {
    TrainedModel single(net.symbol, group, {.micro_batches = pieces});
    EXPECT_EQ(MessageOf([&] { single.Step(BatchPtr()); }), expected) << pieces;
    EXPECT_EQ(MessageOf([&] { single.group().ForwardBackward(BatchPtr()); }), expected) << pieces;
    single.Step(BatchOf(5, 3, 1));
    single.Settle();
    EXPECT_EQ(single.updater().step(), 1);
  }
}

TEST(Bucketed, ANetworkWithMoreThanTheDefaultOneIsRefused) {
  BucketedModel model(Unrolled, 2, Devices(), {});
  EXPECT_EQ(MessageOf<Error>([&] { model.Step(3, BatchOf(5, 3, 1)); }),
            "Error: bucket 3: \"scale_weight\" is not in the network of the default key 2; did you mean "
            "\"back_weight\"?");
  model.Step(1, BatchOf(5, 1, 1));  // what fits goes on
  model.Settle();
  EXPECT_EQ(model.keys(), (std::vector<int64_t>{1, 2}));
}

TEST(Bucketed, OptionsThatAreNotItsOwnAreRefused) {
  const auto message = [](const TrainedModelOptions& options) {
    return MessageOf([&] { BucketedModel(Unrolled, 3, Devices(), options); });
  };
  EXPECT_NE(message({.micro_batches = 2}).find("micro_batches: a BucketedModel computes a batch at once"),
            std::string::npos);
  EXPECT_NE(message({.precision = "bfloat16"}).find("precision: a BucketedModel"), std::string::npos);
  EXPECT_NE(message({.report_replicas = true}).find("report_replicas: a BucketedModel"), std::string::npos);
}

}  // namespace
}  // namespace bindery
