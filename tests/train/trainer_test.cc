// What a trainer promises apart from learning: who is fed what, when it stops, what it keeps.
#include "train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "symbol/ops.h"
#include "tests/host_tensors.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "train/data/array_iter.h"
#include "train/data/prefetch_iter.h"

namespace bindery {
namespace {

constexpr int64_t kSamples = 10;

HostTensor Ramp(const Shape& shape, double scale) {
  return Filled(shape, [=](int64_t i) { return scale * static_cast<double>(i % 7 - 3); });
}
HostTensor Classes() { return ClassesInTurn(kSamples, 3); }
ArrayData Array(const std::string& name, HostTensor values, const std::string& layout = "") {
  return {name, std::make_shared<const HostTensor>(std::move(values)), layout};
}

// On the test's device.
TrainerOptions Here(TrainerOptions options = {}) {
  options.devices = {TestDevice()};
  return options;
}

Symbol Net(const Symbol& data = Variable("data")) {
  return SoftmaxOutput(FullyConnected(data, {.num_hidden = 3}, "fc1"), {}, "softmax");
}
ArrayIter Data(ArrayIterOptions options = {.batch_size = 4}) {
  return ArrayIter(Ramp({kSamples, 5}, 0.1), Classes(), options);
}

// Two inputs of one shape, used differently.
Symbol TwoInputs() {
  const Symbol a = FullyConnected(Variable("a"), {.num_hidden = 3}, "fca"), b = Variable("b");
  return SoftmaxOutput(Add(a, b * 2.0), {}, "softmax");
}
ArrayIter TwoArrays(bool swapped) {
  std::vector<ArrayData> data = {Array("a", Ramp({kSamples, 3}, 0.1)), Array("b", Ramp({kSamples, 3}, 0.7))};
  if (swapped) std::swap(data[0], data[1]);
  return ArrayIter(data, {Array("softmax_label", Classes())}, {.batch_size = 4});
}

TEST(Trainer, TheScheduleStartsFromTheOptimizersRate) {
  Trainer trainer(Net(), Here({.optimizer = "sgd(lr=0.1)", .schedule = "cosine(max=1000, final=0.02)"}));
  ArrayIter data = Data();
  trainer.Fit(data, {});
  EXPECT_NEAR(trainer.updater()->schedule().LearningRate(1), 0.1, 1e-3);
  EXPECT_THROW(Trainer(Net(), Here({.optimizer = "sgd(lr=0.01)", .schedule = "cosine(max=1000, final=0.02)"})), Error);
}

TEST(Trainer, ArraysAreKnownByName) {
  Trainer trainer(TwoInputs(), Here());
  ArrayIter data = TwoArrays(false), swapped = TwoArrays(true);
  trainer.Fit(data, {.epochs = 2});
  const std::vector<HostTensor> expected = trainer.Predict(data);
  EXPECT_EQ(trainer.Predict(swapped), expected);
  EXPECT_EQ(trainer.Score(swapped), trainer.Score(data));
  ArrayIter other({Array("a", Ramp({4, 3}, 1)), Array("c", Ramp({4, 3}, 1))}, {}, {.batch_size = 4});
  EXPECT_EQ(MessageOf<DataError>([&] { trainer.Predict(other); }),
            "DataError: the iterator has no data \"b\"; known: a, c");
  ArrayIter more({Array("a", Ramp({4, 3}, 1)), Array("b", Ramp({4, 3}, 1)), Array("c", Ramp({4, 3}, 1))}, {},
                 {.batch_size = 4});
  EXPECT_EQ(MessageOf<DataError>([&] { trainer.Predict(more); }),
            "DataError: the iterator has 3 data arrays, expected 2");
  ArrayIter across({Array("a", Ramp({3, 4}, 1), "CN"), Array("b", Ramp({3, 4}, 1), "CN")}, {}, {.batch_size = 4});
  EXPECT_EQ(MessageOf<DataError>([&] { trainer.Predict(across); }),
            "DataError: data \"a\": the iterator's samples lie along axis 1, expected axis 0");
}

TEST(Trainer, PredictsArraysBeforeItHasSeenAnIterator) {
  Trainer trained(TwoInputs(), Here());
  ArrayIter data = TwoArrays(false);
  trained.Fit(data, {});
  const std::vector<HostTensor> arrays = {Ramp({kSamples, 3}, 0.1), Ramp({kSamples, 3}, 0.7)};
  Trainer loaded(trained.ToModel(), Here());
  EXPECT_LT(MaxAbsDiff(loaded.Predict(arrays)[0], trained.Predict(data)[0]), 1e-6);
  // Then by an iterator with labels.
  EXPECT_EQ(loaded.Score(data), trained.Score(data));
  EXPECT_EQ(loaded.Predict(arrays).size(), 1u);
  EXPECT_EQ(
      MessageOf<DataError>([&] { Trainer(trained.ToModel(), Here()).Predict({arrays[0]}); }),
      "DataError: 1 arrays were given, but 2 arguments have no value: a, b; an iterator would say which are data");
}

TEST(Trainer, PredictionsAreJoinedAlongTheirBatchAxis) {
  const Symbol x = Variable("data", {.layout = "TN"});
  const Model model{.symbol = Group({x * 2.0, Sum(x)})};
  ArrayIter data({Array("data", Ramp({2, 6}, 1), "TN")}, {}, {.batch_size = 4});
  Trainer trainer(Model{.symbol = x * 2.0}, Here());
  EXPECT_EQ(MaxAbsDiff(trainer.Predict(data)[0], Ramp({2, 6}, 2)), 0);
  Trainer both(model, Here());
  EXPECT_THROW(both.Predict(data), Error);  // a sum for each batch
  ArrayIter whole({Array("data", Ramp({2, 6}, 1), "TN")}, {}, {.batch_size = 6});
  EXPECT_EQ(both.Predict(whole)[1].elements(), 1);
}

// (T, N, C) seen as (T N, C): rows of several batches come time by time, and scores do not depend on the batches.
TEST(Trainer, RowsOfTimeAndBatchAreThoseOfOneBatch) {
  const Symbol rows = Reshape(Variable("data"), {.shape = {-1, 3}}, "rows");
  const Symbol net = SoftmaxOutput(rows, Reshape(Variable("softmax_label"), {.shape = {-1}}), {}, "softmax");
  const HostTensor inputs = Ramp({2, 6, 3}, 1);
  const HostTensor words = Filled({2, 6}, [](int64_t i) { return i * i % 3; });
  std::vector<NamedValues> scores;
  for (const int64_t batch : {6, 4}) {
    for (const int devices : {1, 2}) {
      TrainerOptions options{.workload = {2, 1}};
      options.workload.resize(static_cast<size_t>(devices));
      options.devices.clear();
      for (int i = 0; i < devices; ++i) options.devices.push_back(TestDevice(i));
      ArrayIter data({Array("data", inputs, "TNC")}, {Array("softmax_label", words, "TN")}, {.batch_size = batch});
      Trainer trainer(Model{.symbol = Group({net, rows * 2.0})}, options);
      EXPECT_EQ(MaxAbsDiff(trainer.Predict(data)[1], Ramp({2, 6, 3}, 2).Reshape({12, 3})), 0);
      scores.push_back(trainer.Score(data, "accuracy(output=softmax_output),cross-entropy(output=softmax_output)"));
      EXPECT_EQ(scores.back()[0].second, scores[0][0].second);
      EXPECT_NEAR(scores.back()[1].second, scores[0][1].second, 1e-6);
    }
  }
}

TEST(Trainer, RepeatingIteratorsEndTheirEpochs) {
  for (const bool prefetch : {false, true}) {
    Trainer trainer(Net(), Here());
    std::unique_ptr<DataIter> data =
        std::make_unique<ArrayIter>(Data({.batch_size = 4, .last_batch = LastBatch::kRepeat}));
    if (prefetch) data = std::make_unique<PrefetchIter>(std::move(data));
    std::vector<int64_t> steps;
    trainer.Fit(*data, {.epochs = 3, .on_epoch = [&](const EpochReport& report) { steps.push_back(report.step); }});
    EXPECT_EQ(steps, (std::vector<int64_t>{3, 5, 8}));  // 12, 20 and 32 samples: past 10, 20 and 30
    EXPECT_THROW(trainer.Score(*data), Error);
    EXPECT_THROW(trainer.Predict(*data), Error);
  }
}

TEST(Trainer, NoBatchIsAnError) {
  ArrayIter none(HostTensor(DType::kFloat32, {0, 5}), HostTensor(DType::kFloat32, {0}), {.batch_size = 4});
  Trainer trainer(Net(), Here());
  for (const auto& use : std::vector<std::function<void()>>{
           [&] { trainer.Predict(none); }, [&] { trainer.Score(none); }, [&] { trainer.Fit(none, {}); }}) {
    EXPECT_THROW(use(), DataError);
  }
}

TEST(Trainer, AFailedStepChangesNoParameter) {
  Trainer trainer(Net(), Here({.optimizer = "sgd(lr=0.1, momentum=0.9)"}));
  ArrayIter good = Data();
  trainer.Fit(good, {});
  const HostTensorMap before = trainer.ToModel().params;
  HostTensor images = Ramp({kSamples, 5}, 0.1);
  images.Set(3, std::numeric_limits<double>::quiet_NaN());
  ArrayIter nan(images, Classes(), {.batch_size = 4});
  EXPECT_EQ(
      MessageOf<NumericError>([&] { trainer.Fit(nan, {.epochs = 2}); }),
      "NumericError: output \"softmax_output\" is not finite at step 4, nor is its input \"data\" (element 3 is nan, "
      "of sample 0 of the batch, row 0 of the data): the data are not finite");
  EXPECT_EQ(trainer.ToModel().params, before);
  HostTensor labels = Classes();
  labels.Set(0, 17);  // the metric refuses it
  Trainer other(Net(), Here({.metrics = "cross-entropy"}));
  other.Fit(good, {});
  const HostTensorMap kept = other.ToModel().params;
  ArrayIter wrong(Ramp({kSamples, 5}, 0.1), labels, {.batch_size = 4});
  EXPECT_THROW(other.Fit(wrong, {.epochs = 2}), DataError);
  EXPECT_EQ(other.ToModel().params, kept);
}

TEST(Trainer, AFailedStepMovesNoStatistics) {
  const Symbol net =
      SoftmaxOutput(BatchNorm(FullyConnected(Variable("data"), {.num_hidden = 3}, "fc1"), {}, "bn"), {}, "softmax");
  Trainer trainer(net, Here());
  ArrayIter good = Data();
  trainer.Fit(good, {});
  const HostTensorMap before = trainer.ToModel().aux;
  HostTensor images = Ramp({kSamples, 5}, 0.1);
  images.Set(3, std::numeric_limits<double>::quiet_NaN());
  ArrayIter nan(images, Classes(), {.batch_size = 4});
  EXPECT_THROW(trainer.Fit(nan, {.epochs = 2}), NumericError);
  EXPECT_EQ(trainer.ToModel().aux, before);
}

// The batch that failed is left out, of the training as of its metrics; those that were pushed behind it are not.
TEST(Trainer, GoesOnAfterTheFailedStep) {
  HostTensor images = Ramp({kSamples, 5}, 0.1);
  images.Set(2 * 5, std::numeric_limits<double>::quiet_NaN());  // in the second batch of five
  const ArrayIterOptions options{.batch_size = 2};
  ArrayIter data(images, Classes(), options);
  Trainer trainer(Net(), Here());
  std::vector<double> totals;
  EXPECT_THROW(trainer.Fit(data, {.on_batch =
                                      [&](const BatchReport& report) {
                                        if (report.batch == 1) totals = trainer.ToCheckpoint(&data).metric_totals;
                                      }}),
               NumericError);
  const Checkpoint checkpoint = trainer.ToCheckpoint(&data);
  EXPECT_EQ(checkpoint.metric_totals, totals);
  EXPECT_EQ(checkpoint.batch_in_epoch, 2);
  EXPECT_EQ(checkpoint.step, 1);
  ArrayIter rest(images, Classes(), options);
  Trainer resumed(Net(), Here());
  resumed.Restore(checkpoint, &rest);
  NamedValues values;
  for (const auto& [run, iterator] : {std::pair(&trainer, &data), std::pair(&resumed, &rest)}) {
    std::vector<int64_t> batches;
    const FitResult result =
        run->Fit(*iterator, {.on_batch = [&](const BatchReport& report) { batches.push_back(report.batch); }});
    EXPECT_EQ(batches, (std::vector<int64_t>{3, 4, 5}));
    EXPECT_EQ(result.steps, 4);
    EXPECT_TRUE(std::isfinite(result.train[1].second));
    if (!values.empty()) {
      EXPECT_EQ(result.train, values);
    }
    values = result.train;
  }
  EXPECT_EQ(resumed.ToModel().params, trainer.ToModel().params);
}

TEST(Trainer, OutputsAreJudgedAndNotMetrics) {
  // Nothing was counted yet: no divergence.
  ArrayIter ignored = Data({.batch_size = 1});
  Trainer patient(Net(), Here({.metrics = "accuracy(ignore=0)"}));  // the first label
  EXPECT_EQ(patient.Fit(ignored, {}).steps, kSamples);
  // A metric that looks finite: divergence all the same.
  ArrayIter data = Data();
  Trainer diverging(Net(), Here({.optimizer = "sgd(lr=1e39)", .metrics = "accuracy"}));
  EXPECT_THROW(diverging.Fit(data, {.epochs = 20}), NumericError);
  // A head that trains nothing may be infinite.
  const Symbol x = Variable("data");
  Trainer blocked(Group({Net(x), BlockGrad(Log(x * 0.0))}),
                  Here({.metrics = "accuracy(output=softmax_output, label=softmax_label)"}));
  ArrayIter again = Data();
  EXPECT_EQ(blocked.Fit(again, {}).steps, 3);
}

// The last update of a run is seen by no later step.
TEST(Trainer, ValuesThatAreNotFiniteAreNotSaved) {
  const std::string folder = std::string(std::getenv("TEST_TMPDIR")) + "/not-finite";
  std::filesystem::remove_all(folder);  // of a repetition before
  ArrayIter data = Data({.batch_size = kSamples});
  Trainer good(Net(), Here({.optimizer = "sgd(lr=0.1, momentum=0.9)"}));
  EXPECT_EQ(good.Fit(data, {.epochs = 1, .checkpoints = folder}).steps, 1);
  for (const int64_t every : {0, 1}) {
    Trainer diverging(Net(), Here({.optimizer = "sgd(lr=1e300, momentum=0.9)"}));
    EXPECT_TRUE(MessageOf<NumericError>([&] {
                  diverging.Fit(data, {.epochs = 2, .checkpoints = folder, .checkpoint_every = every, .resume = true});
                }).starts_with("NumericError: after step 2, \"fc1_bias\", element 0, is "));
    EXPECT_EQ(CheckpointStore(folder).List().size(), 1u);
    EXPECT_EQ(CheckpointStore(folder).LoadNewest()->step, 1);
  }
  Trainer unsaved(Net(), Here({.optimizer = "sgd(lr=1e300)"}));
  ArrayIter again = Data({.batch_size = kSamples});
  EXPECT_THROW(unsaved.Fit(again, {}), NumericError);
  ArrayIter scored = Data();
  EXPECT_EQ(
      MessageOf<NumericError>([&] { unsaved.Score(scored); }),
      "NumericError: output \"softmax_output\" is not finite: the model has diverged, or the data are not finite");
}

TEST(Trainer, ACheckpointOnRequestDoesNotEndTheRun) {
  const std::string folder = std::string(std::getenv("TEST_TMPDIR")) + "/on-request";
  std::filesystem::remove_all(folder);  // of a repetition before
  ArrayIter data = Data();
  Trainer trainer(Net(), Here());
  const FitResult result =
      trainer.Fit(data, {.checkpoints = folder, .checkpoint_every = 1000, .on_batch = [&](const BatchReport& report) {
                           if (report.batch == 1) trainer.RequestCheckpoint();
                         }});
  std::vector<int64_t> saved;
  for (const std::string& path : CheckpointStore(folder).List()) saved.push_back(LoadCheckpoint(path).step);
  EXPECT_EQ(saved, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(result.steps, 3);
  EXPECT_FALSE(result.stopped);
}

TEST(Trainer, MastersAreKeptInTheDtypeOfTraining) {
  Trainer first(Net(), Here());
  ArrayIter data = Data();
  first.Fit(data, {});
  Model half = first.ToModel();
  for (auto& [name, value] : half.params) value = value.Cast(DType::kFloat16);
  Trainer tuned(half, Here({.optimizer = "sgd(lr=1e-4)"}));
  tuned.Fit(data, {});
  const HostTensorMap params = tuned.ToModel().params;
  EXPECT_EQ(params.at("fc1_weight").dtype(), DType::kFloat32);
  EXPECT_NE(params.at("fc1_weight"), params.at("fc1_weight").Cast(DType::kFloat16).Cast(DType::kFloat32));
}

TEST(Trainer, RestoreKeepsTheOptimizersStateUntilItIsNeeded) {
  const TrainerOptions options = Here({.optimizer = "sgd(lr=0.1, momentum=0.9)"});
  Trainer whole(Net(), options);
  ArrayIter data = Data(), scored = Data();
  whole.Fit(data, {.epochs = 1});
  const Checkpoint checkpoint = whole.ToCheckpoint(&data);
  whole.Fit(data, {.epochs = 3});
  for (const bool score_first : {false, true}) {
    Trainer rest(Net(), options);
    if (score_first) rest.Score(scored);
    ArrayIter own = Data();
    rest.Restore(checkpoint, &own);
    if (!score_first) rest.Score(scored);
    EXPECT_EQ(rest.Fit(own, {.epochs = 3}).steps, 9);
    EXPECT_EQ(rest.ToModel().params, whole.ToModel().params);
  }
}

TEST(Trainer, RestoreThatFailsChangesNothing) {
  const TrainerOptions options = Here({.optimizer = "sgd(lr=0.1, momentum=0.9)"});
  Trainer trainer(Net(), options);
  ArrayIter data = Data();
  trainer.Fit(data, {.epochs = 1});
  const Checkpoint good = trainer.ToCheckpoint(&data);
  trainer.Fit(data, {.epochs = 2});
  const Checkpoint before = trainer.ToCheckpoint(&data);
  std::vector<Checkpoint> bad(4, good);
  bad[0].optimizer_state.erase("fc1_bias:momentum");
  bad[1].iterator["batch_size"] = 5;
  bad[2].metric_totals = {1};
  bad[3].model.params.erase("fc1_bias");
  for (const Checkpoint& checkpoint : bad) {
    EXPECT_THROW(trainer.Restore(checkpoint, &data), CheckpointError);
    const Checkpoint after = trainer.ToCheckpoint(&data);
    EXPECT_EQ(after.model.params, before.model.params);
    EXPECT_EQ(after.optimizer_state, before.optimizer_state);
    EXPECT_EQ(after.iterator, before.iterator);
    EXPECT_EQ(after.step, before.step);
    EXPECT_EQ(after.epoch, before.epoch);
  }
}

TEST(Updater, AGroupThatAddsUpIsZeroedBeforeAStep) {
  ArrayIter data = Data();
  const BatchPtr batch = data.Next();
  std::vector<HostTensorMap> results;
  for (const GradReq request : {GradReq::kWrite, GradReq::kAdd}) {
    DataParallelExecutorGroup group(
        Net(),
        {.devices = {TestDevice()}, .data = data.ProvideData(), .labels = data.ProvideLabel(), .grad_req = request});
    group.SetParams({{"fc1_weight", Ramp({3, 5}, 0.1)}, {"fc1_bias", Ramp({3}, 0)}}, {});
    Updater updater(&group, {.optimizer = MakeOptimizer("sgd(lr=0.1)")});
    for (int step = 0; step < 3; ++step) updater.Update(batch);
    group.GetParams(&results.emplace_back(), nullptr);
    EXPECT_THROW(updater.Apply(0), Error);
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(Updater, MicroBatchesAreCheckedBeforeTheFirstRuns) {
  ArrayIter data = Data();
  const BatchPtr batch = data.Next();
  DataParallelExecutorGroup group(Net(), {.devices = {TestDevice()},
                                          .data = data.ProvideData(),
                                          .labels = data.ProvideLabel(),
                                          .grad_req = GradReq::kAdd});
  group.SetParams({{"fc1_weight", Ramp({3, 5}, 0.1)}, {"fc1_bias", Ramp({3}, 0)}}, {});
  Updater updater(&group);
  updater.Compute(batch);
  const HostTensor gradient = group.GetGradient("fc1_weight", 0);
  Batch empty = *batch, padded = *batch;
  empty.data.clear();
  padded.pad = 4;
  for (const Batch& bad : {empty, padded}) {
    const std::vector<BatchPtr> batches = {batch, std::make_shared<const Batch>(bad)};
    EXPECT_THROW(updater.Update(batches), DataError);
  }
  EXPECT_EQ(MessageOf<Error>([&] { updater.Update(std::vector<BatchPtr>(32769, batch)); }),
            "Error: Update: a step has at most 32768 micro-batches, got 32769");
  EXPECT_EQ(updater.step(), 0);
  EXPECT_EQ(group.GetGradient("fc1_weight", 0), gradient);
  updater.Update(std::vector<BatchPtr>{batch, batch});
  EXPECT_EQ(updater.step(), 1);
}

}  // namespace
}  // namespace bindery
