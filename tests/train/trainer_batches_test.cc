// Epochs, scores and predictions of a number of batches; predictions batch by batch; what is there before the first
// step.
#include <gtest/gtest.h>

#include <cmath>

#include "symbol/ops.h"
#include "tests/host_tensors.h"
#include "tests/log_lines.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "tests/test_folder.h"
#include "tests/train/fit_until.h"
#include "train/data/array_iter.h"
#include "train/data/samples/sample_iter.h"
#include "train/initializer.h"
#include "train/trainer.h"

namespace bindery {
namespace {

Symbol Net() { return SoftmaxOutput(FullyConnected(Variable("data"), {.num_hidden = 3}, "fc"), {}, "softmax"); }

std::vector<Device> Devices() { return {TestDevice(0), TestDevice(1)}; }

// Ten samples in batches of four.
ArrayIter Data(LastBatch last_batch = LastBatch::kShort, bool shuffle = true) {
  return ArrayIter(Sines({10, 5}), ClassesInTurn(10, 3),
                   {.batch_size = 4, .shuffle = shuffle, .seed = 2, .last_batch = last_batch});
}

TEST(TrainerBatches, TheModelKnowsOfItsDataWhatTheIteratorDoes) {
  const auto array = [](const char* name, const Shape& shape) {
    return ArrayData{name, std::make_shared<const HostTensor>(DType::kFloat32, shape), ""};
  };
  const SampleSourcePtr samples = WithMetadata(SamplesOf({array("data", {4, 5})}, {array("softmax_label", {4})}),
                                               {{"classes", "a"}, {"made", "b"}});
  const auto fit = [&](const Model& model) {
    Trainer trainer(model, {.devices = Devices()});
    SampleIter data(samples, {.batch_size = 4});
    trainer.Fit(data, {.epochs = 1});
    EXPECT_EQ(trainer.ToCheckpoint().model.metadata, trainer.ToModel().metadata);
    std::map<std::string, std::string> texts = trainer.ToModel().metadata;
    texts.erase("bindery.inputs");  // which the trainer adds
    return texts;
  };
  using Texts = std::map<std::string, std::string>;
  EXPECT_EQ(fit({.symbol = Net()}), (Texts{{"classes", "a"}, {"made", "b"}}));
  const LogLines log;
  EXPECT_EQ(fit({.symbol = Net(), .metadata = {{"classes", "own"}}}), (Texts{{"classes", "own"}, {"made", "b"}}));
  EXPECT_EQ(log.text(), "the model's \"classes\" is not that of the data that it is trained on, and stays as it is\n");
}

TEST(TrainerBatches, TheModelKnowsNothingOfDataThatDoNotFit) {
  const auto samples = [](const char* name, const char* classes) {
    const auto array = [](const char* own, const Shape& shape) {
      return ArrayData{own, std::make_shared<const HostTensor>(DType::kFloat32, shape), ""};
    };
    return WithMetadata(SamplesOf({array(name, {4, 5})}, {array("softmax_label", {4})}), {{"classes", classes}});
  };
  Trainer trainer(Net(), {.devices = Devices()});
  SampleIter bad(samples("dta", "bad"), {.batch_size = 4}), good(samples("data", "good"), {.batch_size = 4});
  EXPECT_THROW(trainer.Fit(bad, {.epochs = 1}), Error);
  trainer.Fit(good, {.epochs = 1});
  EXPECT_THROW(trainer.Fit(bad, {.epochs = 2}), Error);
  EXPECT_EQ(trainer.ToModel().metadata.at("classes"), "good");
}

TEST(TrainerBatches, AnEpochOfSoManyGoesOnThroughTheData) {
  for (const LastBatch last_batch : {LastBatch::kShort, LastBatch::kRepeat}) {
    for (const int64_t length : {1, 2, 3, 5, 7}) {
      ArrayIter data = Data(last_batch), same = Data(last_batch);
      Trainer trainer(Net(), {.devices = Devices(), .optimizer = "sgd(lr=0.1, momentum=0.9)"});
      Trainer serial(Net(), trainer.options());
      std::vector<int64_t> steps, batches;
      const FitResult result =
          trainer.Fit(data, {.epochs = 3,
                             .epoch_batches = length,
                             .on_batch = [&](const BatchReport& report) { batches.push_back(report.batches); },
                             .on_epoch = [&](const EpochReport& report) { steps.push_back(report.step); }});
      EXPECT_EQ(result.steps, 3 * length);
      EXPECT_EQ(steps, (std::vector<int64_t>{length, 2 * length, 3 * length}));
      EXPECT_EQ(batches, std::vector<int64_t>(static_cast<size_t>(3 * length), length));
      // The same batches by hand, sweep after sweep.
      serial.Prepare(same);
      for (int64_t step = 0; step < 3 * length; ++step) {
        BatchPtr batch = same.Next();
        if (!batch) {
          same.Reset();
          batch = same.Next();
        }
        serial.updater()->Update(batch);
      }
      EXPECT_EQ(trainer.ToModel().params, serial.ToModel().params) << length;
    }
  }
  ArrayIter data = Data();
  EXPECT_EQ(MessageOf([&] { Trainer(Net()).Fit(data, {.epoch_batches = -1}); }),
            "Error: epoch_batches: expected 0 or more, got -1");
  EXPECT_EQ(MessageOf([&] { Trainer(Net()).Fit(data, {.epochs = -1}); }), "Error: epochs: expected 0 or more, got -1");
}

TEST(TrainerBatches, AnEpochOfSoManyIsResumedToTheBit) {
  const FitOptions fit{.epochs = 4, .epoch_batches = 2};
  ArrayIter all = Data();
  Trainer whole(Net(), {.devices = Devices()});
  whole.Fit(all, fit);
  for (const int64_t stop : {1, 3, 4, 6}) {
    const TestFolder folder;
    FitOptions options = fit;
    options.checkpoints = folder.path();
    ArrayIter data = Data(), again = Data();
    Trainer first(Net(), {.devices = Devices()}), second(Net(), {.devices = Devices()});
    EXPECT_EQ(FitUntil(stop, &first, data, options).steps, stop);
    options.resume = true;
    EXPECT_EQ(second.Fit(again, options).steps, 8);
    EXPECT_EQ(second.ToModel().params, whole.ToModel().params) << stop;
  }
}

TEST(TrainerBatches, ScoresAndPredictsSoMany) {
  ArrayIter data = Data(LastBatch::kShort, false), repeating = Data(LastBatch::kRepeat, false);
  Trainer trainer(Net(), {.devices = Devices()});
  trainer.Fit(data, {});
  const HostTensor all = trainer.Predict(data)[0];
  EXPECT_EQ(trainer.Predict(data, 2)[0], all.Slice(0, 0, 8));
  EXPECT_EQ(trainer.Predict(data, 9)[0], all);
  // Of one that repeats, too, beyond a sweep: ten rows and the first two again.
  const HostTensor beyond = Concatenate(std::vector<HostTensor>{all, all.Slice(0, 0, 2)}, 0);
  // On another device than before, in part: devices of several kinds agree up to rounding.
  EXPECT_LE(MaxAbsDiff(trainer.Predict(repeating, 3)[0], beyond), TestDevices() == "mixed" ? 1e-6 : 0);
  EXPECT_NE(MessageOf([&] { trainer.Predict(repeating); }).find("or a number of batches"), std::string::npos);
  // A score of two batches is that of their samples.
  double right = 0;
  for (int64_t i = 0; i < 8; ++i) {
    int64_t best = 0;
    for (int64_t c = 1; c < 3; ++c) best = all.At(3 * i + c) > all.At(3 * i + best) ? c : best;
    right += best == i % 3;
  }
  EXPECT_EQ(trainer.Score(data, "accuracy", 2)[0].second, right / 8);
  EXPECT_EQ(trainer.Score(repeating, "accuracy", 2)[0].second, right / 8);
  EXPECT_NE(MessageOf([&] { trainer.Score(data, "accuracy", -1); }).find("got -1"), std::string::npos);
}

// Of batches whose arrays lie on devices already.
TEST(TrainerBatches, ScoresWhatLiesOnDevices) {
  struct OnDevice final : ArrayIter {
    using ArrayIter::ArrayIter;
    BatchPtr Next() override {
      const BatchPtr batch = ArrayIter::Next();
      if (!batch) return batch;
      auto there = std::make_shared<Batch>(*batch);
      const auto put = [](std::vector<HostTensor>* from) {
        Tensor tensor(DefaultEngine(), TestDevice(0), from->at(0).dtype(), from->at(0).shape());
        tensor.CopyFrom(from->at(0));
        from->clear();
        return DeviceArrays({tensor});
      };
      there->device_data = put(&there->data);
      there->device_label = put(&there->label);
      return there;
    }
  };
  for (const int64_t pieces : {1, 2}) {
    OnDevice there(HostTensor(DType::kFloat32, {8, 5}), HostTensor(DType::kFloat32, {8}), {.batch_size = 4});
    ArrayIter here(HostTensor(DType::kFloat32, {8, 5}), HostTensor(DType::kFloat32, {8}), {.batch_size = 4});
    Trainer trainer(Net(), {.devices = {TestDevice(0)}, .micro_batches = pieces});
    EXPECT_EQ(trainer.Fit(there, {.validation = &there}).validation, trainer.Score(here)) << pieces;
    // Without labels there is nothing to measure by.
    ArrayIter unlabelled({{"data", std::make_shared<const HostTensor>(DType::kFloat32, Shape{8, 5})}}, {},
                         {.batch_size = 4});
    EXPECT_EQ(MessageOf<DataError>([&] { trainer.Score(unlabelled); }),
              "DataError: a batch to measure on has 0 label arrays, expected 1, first \"softmax_label\"");
    EXPECT_EQ(
        MessageOf<DataError>([&] { Trainer(Net()).Fit(unlabelled, {}); }),
        "DataError: cannot train without the label \"softmax_label\": data have to bring it, and the options of a "
        "group to describe it");
  }
}

// An iterator of one's own that says of too few samples which they are.
TEST(TrainerBatches, AnIndexIsOfAllSamples) {
  struct Short final : ArrayIter {
    using ArrayIter::ArrayIter;
    BatchPtr Next() override {
      auto batch = std::make_shared<Batch>(*ArrayIter::Next());
      batch->index = {0};
      return batch;
    }
  };
  for (const int64_t pieces : {1, 2}) {
    Short data(HostTensor(DType::kFloat32, {8, 5}), HostTensor(DType::kFloat32, {8}), {.batch_size = 4});
    Trainer trainer(Net(), {.devices = {TestDevice(0)}, .micro_batches = pieces});
    EXPECT_NE(MessageOf<DataError>([&] { trainer.Fit(data, {}); }).find("has 1 of its 4 samples"), std::string::npos);
  }
}

TEST(TrainerBatches, PredictsOneAfterTheOther) {
  ArrayIter data = Data();
  Trainer trainer(Net(), {.devices = Devices()});
  trainer.Fit(data, {});
  std::vector<HostTensor> parts;
  std::vector<int64_t> index;
  trainer.PredictEach(data, [&](const Batch& batch, const std::vector<HostTensor>& outputs) {
    EXPECT_EQ(outputs.size(), 1u);
    EXPECT_EQ(outputs[0].shape()[0], batch.samples);
    index.insert(index.end(), batch.index.begin(), batch.index.end());
    parts.push_back(outputs[0]);
    return true;
  });
  EXPECT_EQ(parts.size(), 3u);
  EXPECT_EQ(index.size(), 10u);
  ArrayIter in_order = Data(LastBatch::kShort, false);
  const HostTensor all = trainer.Predict(in_order)[0], shuffled = Concatenate(parts, 0);
  for (int64_t row = 0; row < 10; ++row) {
    const int64_t sample = index[static_cast<size_t>(row)];
    EXPECT_LT(MaxAbsDiff(shuffled.Slice(0, row, row + 1), all.Slice(0, sample, sample + 1)), 1e-6);
  }
  int visits = 0;
  trainer.PredictEach(data, [&](const Batch&, const std::vector<HostTensor>&) { return ++visits < 2; });
  EXPECT_EQ(visits, 2);
  EXPECT_EQ(trainer.Predict(data)[0].shape(), (Shape{10, 3}));  // from the beginning
}

// What MXNet's init_params and init_optimizer do, before the first step; then each again by itself.
TEST(TrainerBatches, PreparedItHasParametersAndAnOptimizer) {
  ArrayIter data = Data(), same = Data();
  Trainer prepared(Net(), {.devices = Devices(), .optimizer = "adam(lr=0.1)", .seed = 7});
  Trainer plain(Net(), prepared.options());
  EXPECT_EQ(prepared.group(), nullptr);
  prepared.Prepare(data);
  ASSERT_NE(prepared.updater(), nullptr);
  EXPECT_EQ(prepared.updater()->optimizer().Text(), MakeOptimizer("adam(lr=0.1)")->Text());
  EXPECT_EQ(prepared.updater()->step(), 0);
  EXPECT_EQ(prepared.ToModel().params.at("fc_weight").shape(), (Shape{3, 5}));
  const Checkpoint first = prepared.ToCheckpoint();
  prepared.Fit(data, {.epochs = 2});
  plain.Fit(same, {.epochs = 2});
  EXPECT_EQ(prepared.ToModel().params, plain.ToModel().params);
  // Other initial values, the same optimizer; then both anew.
  SetInitialParams(prepared.group(), {}, Initializer("constant(0.5)"), 7);
  EXPECT_EQ(prepared.ToModel().params.at("fc_weight").At(0), 0.5);
  EXPECT_EQ(prepared.updater()->step(), 6);
  prepared.Restore(first);
  EXPECT_EQ(prepared.ToModel().params, first.model.params);
  EXPECT_EQ(prepared.updater()->step(), 0);
}

}  // namespace
}  // namespace bindery
