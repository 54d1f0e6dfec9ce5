// Extensions in Trainer::Fit.
#include <gtest/gtest.h>

#include <filesystem>

#include "symbol/ops.h"
#include "tests/host_tensors.h"
#include "tests/test_device.h"
#include "train/data/array_iter.h"
#include "train/extensions/guards.h"
#include "train/loop/loop.h"
#include "train/trainer.h"

namespace bindery {
namespace {

Symbol Net() { return SoftmaxOutput(FullyConnected(Variable("data"), {.num_hidden = 3}, "fc1"), {}, "softmax"); }

// On the test's device.
TrainerOptions Here(TrainerOptions options = {}) {
  options.devices = {TestDevice()};
  return options;
}

ArrayIter Data(LastBatch last_batch = LastBatch::kShort) {
  return ArrayIter(Filled({10, 5}, [](int64_t i) { return 0.1 * static_cast<double>(i % 7 - 3); }),
                   ClassesInTurn(10, 3), {.batch_size = 4, .last_batch = last_batch});
}

// Two batches and a short one in each epoch.
TEST(FitExtensions, SeeEveryMoment) {
  const auto run = [](int64_t stop_at, const std::string& folder, bool resume) {
    Trainer trainer(Net(), Here({.optimizer = "sgd(lr=0.1)"}));
    ArrayIter data = Data(), test = Data();
    std::vector<std::string> seen;
    const auto note = [&](Loop& loop) {
      const Observation& values = loop.observation();
      const Moment& now = loop.now();
      seen.push_back(fmt::format("{} {:.2f} {} {}", now.iteration, now.epoch_detail, now.is_new_epoch,
                                 values.Find("validation/accuracy") != nullptr));
      EXPECT_EQ(values.Find("train/learning-rate")->value, 0.1);
      // Before that, steps may be in flight still: there is no value then.
      if (now.is_new_epoch) {
        EXPECT_NE(values.Find("train/cross-entropy"), nullptr);
      }
    };
    const FitResult result =
        trainer.Fit(data, {.epochs = 3,
                           .validation = &test,
                           .checkpoints = folder,
                           .resume = resume,
                           .on_batch =
                               [&](const BatchReport& report) {
                                 if (report.step == stop_at) trainer.RequestStop();
                               },
                           .extensions = {{.name = "note", .trigger = EveryIterations(1), .run = note},
                                          {.name = "twice", .trigger = EveryEpochs(1.5), .run = [&](Loop& loop) {
                                             seen.push_back(fmt::format("at {:.1f}", loop.now().epoch_detail));
                                           }}}});
    EXPECT_EQ(result.stopped, stop_at > 0);
    return seen;
  };
  const std::vector<std::string> whole = {"1 0.40 false false",
                                          "2 0.80 false false",
                                          "3 1.00 true true",
                                          "4 1.40 false false",
                                          "5 1.80 false false",
                                          "at 1.8",
                                          "6 2.00 true true",
                                          "7 2.40 false false",
                                          "8 2.80 false false",
                                          "9 3.00 true true",
                                          "at 3.0"};
  EXPECT_EQ(run(0, "", false), whole);
  for (const int64_t stop : {1, 2, 4, 5, 8}) {
    const std::string folder = testing::TempDir() + "/moments";
    std::filesystem::remove_all(folder);
    std::vector<std::string> seen = run(stop, folder, false);
    for (const std::string& moment : run(0, folder, true)) seen.push_back(moment);
    EXPECT_EQ(seen, whole) << stop;
  }
}

// Two batches in the first epoch and the third, two samples being kept, and three in the second.
// At an epoch's end, too, the rate is that of the steps that were taken.
TEST(FitExtensions, SeeTheRateThatWasTrainedWith) {
  for (const char* schedule :
       {"steps(at=2, factor=0.5, base=1, unit=epoch)", "plateau(patience=0, factor=0.5, base=1)"}) {
    Trainer trainer(Net(), Here({.schedule = schedule}));
    ArrayIter data = Data();
    std::vector<double> seen, trained;
    const auto note = [&](Loop& loop) { seen.push_back(loop.observation().Find("train/learning-rate")->value); };
    trainer.Fit(data, {.epochs = 4,
                       .on_batch = [&](const BatchReport& report) { trained.push_back(report.learning_rate); },
                       .extensions = {{.name = "note", .trigger = EveryIterations(1), .run = note}}});
    EXPECT_EQ(seen, trained) << schedule;
  }
}

TEST(FitExtensions, SeeEveryStepWhereSamplesAreKeptForTheNextSweep) {
  Trainer trainer(Net(), Here());
  ArrayIter data = Data(LastBatch::kRollOver);
  std::vector<int64_t> seen, ends;
  const Extension note{
      .name = "note", .trigger = EveryIterations(1), .run = [&](Loop& loop) { seen.push_back(loop.now().iteration); }};
  trainer.Fit(
      data,
      {.epochs = 3, .on_epoch = [&](const EpochReport& report) { ends.push_back(report.step); }, .extensions = {note}});
  EXPECT_EQ(seen, (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(ends, (std::vector<int64_t>{2, 5, 7}));
}

// A metric has no value before a step is over, which is no fault; and a loop that an extension stops has been stopped.
TEST(FitExtensions, NothingIsWrongBeforeAStepIsOver) {
  Trainer trainer(Net(), Here());
  ArrayIter data = Data();
  int64_t looks = 0;
  const FitResult result = trainer.Fit(
      data, {.epochs = 3,
             .extensions = {FailOnBadNumbers(EveryIterations(1)),
                            {.name = "looks", .trigger = EveryIterations(1), .run = [&](Loop&) { ++looks; }},
                            {.name = "stop", .trigger = AtEpochs({2}), .run = [](Loop& loop) { loop.Stop(); }}}});
  EXPECT_EQ(looks, 6);
  EXPECT_EQ(result.epochs, 2);
  EXPECT_TRUE(result.stopped);
}

// An extension's tensors are in the same checkpoint as the model's.
TEST(FitExtensions, KeepTensors) {
  const std::string folder = testing::TempDir() + "/tensors";
  std::filesystem::remove_all(folder);
  HostTensorMap sums;
  for (const int64_t epochs : {1, 2}) {
    Trainer trainer(Net(), Here());
    ArrayIter data = Data();
    sums = {};
    const auto add = [&](Loop& loop) {
      HostTensor& sum = sums.try_emplace("sum", HostTensor(DType::kFloat32, {1})).first->second;
      sum.Set(0, sum.At(0) + static_cast<double>(loop.now().iteration));
    };
    const auto serialize = [&](Archive* archive) { archive->Tensors(Archive::Tensor::kParameter, &sums); };
    trainer.Fit(data, {.epochs = epochs,
                       .checkpoints = folder,
                       .resume = epochs == 2,
                       .extensions = {{.name = "sum", .run = add, .serialize = serialize}}});
  }
  EXPECT_EQ(sums.at("sum").At(0), 3 + 6);
}

TEST(FitExtensions, StopsWhenNothingBecomesBetter) {
  Trainer trainer(Net(), Here({.optimizer = "sgd(lr=0)"}));  // nothing is learned
  ArrayIter data = Data();
  const FitResult result =
      trainer.Fit(data, {.epochs = 50, .stop = EarlyStopping({.value = "train/accuracy", .patience = 2})});
  EXPECT_EQ(result.epochs, 3);
  EXPECT_FALSE(result.stopped);
}

}  // namespace
}  // namespace bindery
