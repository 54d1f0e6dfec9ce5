// Which epoch is the best, by which metric, and its checkpoint.
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "symbol/ops.h"
#include "tests/log_lines.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "tests/test_folder.h"
#include "train/checkpoint/best_checkpoint.h"
#include "train/data/array_iter.h"
#include "train/data/digits.h"
#include "train/extensions/snapshots.h"
#include "train/loop/loop.h"
#include "train/trainer.h"
#include "train/zoo.h"

namespace bindery {
namespace {

ArrayIter Digits(uint64_t seed, bool shuffle) {
  ImageSet set = DrawDigits(40, seed);
  return ArrayIter(std::move(set.images), std::move(set.labels), {.batch_size = 16, .shuffle = shuffle, .seed = 3});
}

double ValueOf(const NamedValues& values, const std::string& name) {
  for (const auto& [known, value] : values) {
    if (known == name) return value;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

class BestEpochTest : public testing::Test {
 protected:
  // Epochs of a run, which is gone on with if there is one.
  std::vector<EpochReport> Run(int64_t epochs, const std::string& optimizer, FitOptions fit) {
    TrainerOptions options = options_;
    options.optimizer = optimizer;
    ArrayIter train = Digits(1, true), test = Digits(5, false);
    std::vector<EpochReport> reports;
    fit.epochs = epochs;
    fit.validation = &test;
    fit.on_epoch = [&](const EpochReport& report) { reports.push_back(report); };
    Trainer(ModelByName("mlp"), options).Fit(train, fit);
    return reports;
  }
  std::string Best() const {
    const auto path = FindBest(CheckpointStore(folder_));
    return path ? std::filesystem::path(*path).filename().string() : "";
  }

  TrainerOptions options_ = {.devices = {TestDevice(0)}, .threads_per_device = 1};
  const TestFolder made_;
  const std::string& folder_ = made_.path();
  LogLines log_;
};

TEST_F(BestEpochTest, IsJudgedByTheMetricThatIsWatched) {
  for (const std::string watch : {"cross-entropy", "accuracy", ""}) {
    const std::string metric = watch.empty() ? "accuracy" : watch;
    const double sign = metric == "accuracy" ? 1 : -1;
    double best = -std::numeric_limits<double>::infinity();
    const auto reports = Run(8, "sgd(lr=0.3)", {.watch = watch});
    ASSERT_EQ(reports.size(), 8u);
    for (const EpochReport& report : reports) {
      const double value = sign * ValueOf(report.validation, metric);
      EXPECT_EQ(report.best, value > best) << watch << ", epoch " << report.epoch;
      best = std::max(best, value);
    }
  }
}

// Of a metric that only the program knows, the program says which way is better.
TEST_F(BestEpochTest, WhichWayIsBetterCanBeSaid) {
  const auto right = [](const Symbol& output, const Symbol& label) {
    return Equal(Cast(ArgMax(output, {.axis = 1}), {.dtype = DType::kFloat32}), label);
  };
  options_.metrics = "";
  options_.more_metrics = {MeanOf("hit", right)};
  const std::string path = folder_ + "/best.pb";
  for (const Better better : {Better::kAuto, Better::kLarger}) {
    const double sign = better == Better::kLarger ? 1 : -1;
    double best = -std::numeric_limits<double>::infinity();
    int files = 0, bests = 0;
    const Extension count{.name = "count", .trigger = EveryEpochs(), .priority = kReads - 1, .run = [&](Loop&) {
                            files += std::filesystem::remove(path);
                          }};
    const auto reports = Run(
        5, "sgd(lr=0.3)", {.extensions = {BestModel(path, "validation/hit", "main", better), count}, .better = better});
    for (const EpochReport& report : reports) {
      const double value = sign * ValueOf(report.validation, "hit");
      EXPECT_EQ(report.best, value > best) << report.epoch;
      bests += report.best;
      best = std::max(best, value);
    }
    EXPECT_EQ(files, bests);
    EXPECT_EQ(bests > 1, better == Better::kLarger);  // it learns
  }
}

TEST_F(BestEpochTest, AnUnknownMetricIsRefusedWithThoseThereAre) {
  EXPECT_EQ(MessageOf<Error>([&] { Run(1, "sgd", {.watch = "acuracy"}); }),
            "Error: watch: there is no metric \"acuracy\"; there are accuracy, cross-entropy");
  EXPECT_EQ(MessageOf<Error>([&] { Run(1, "sgd", {.keep_best = true}); }),
            "Error: keep_best needs a folder of checkpoints");
}

// Of accuracy nothing becomes better by such small steps; of cross-entropy each epoch does.
TEST_F(BestEpochTest, APlateauGoesByIt) {
  options_.schedule = "plateau(factor=0.5, patience=0, threshold=0)";
  EXPECT_EQ(Run(5, "sgd(lr=0.0001)", {.watch = "cross-entropy"}).back().learning_rate, 0.0001);
  EXPECT_LT(Run(5, "sgd(lr=0.0001)", {.watch = "accuracy"}).back().learning_rate, 0.0001);
}

TEST_F(BestEpochTest, ItsCheckpointIsKeptAndSurvivesResumes) {
  const FitOptions fit = {
      .checkpoints = folder_, .keep = 1, .keep_best = true, .resume = true, .watch = "cross-entropy"};
  std::vector<EpochReport> reports = Run(3, "sgd(lr=0.1)", fit);
  int64_t step = 0;
  double value = 0;
  for (const EpochReport& report : reports) {
    if (report.best) std::tie(step, value) = std::pair(report.step, ValueOf(report.validation, "cross-entropy"));
  }
  const std::string best = fmt::format("step-{:010}.ckpt", step);
  EXPECT_EQ(Best(), best);
  for (const int64_t epochs : {4, 6}) {  // with no steps at all, none becomes better
    for (const EpochReport& report : Run(epochs, "sgd(lr=0)", fit)) EXPECT_FALSE(report.best);
    EXPECT_EQ(Best(), best);
    EXPECT_EQ(CheckpointStore(folder_).List().size(), 2u);
  }
  // It is that epoch's model.
  ArrayIter test = Digits(5, false);
  const Model model = LoadBest(CheckpointStore(folder_))->model;
  EXPECT_EQ(ValueOf(Trainer(model, options_).Score(test), "cross-entropy"), value);
  // Gone back to, the run goes on from there, and knows what was best.
  GoBackToBest(CheckpointStore(folder_));
  reports = Run(4, "sgd(lr=0.1)", fit);
  ASSERT_FALSE(reports.empty());
  EXPECT_LT(reports[0].step, step + 4);
  EXPECT_TRUE(reports[0].best);
  EXPECT_NE(Best(), best);
}

TEST_F(BestEpochTest, StoppedAtOnceItIsTheBestStill) {
  const FitOptions fit = {.epochs = 2, .checkpoints = folder_, .keep_best = true, .resume = true};
  Run(1, "sgd(lr=0.1)", fit);
  const std::string best = Best();
  ASSERT_NE(best, "");
  ArrayIter train = Digits(1, true), test = Digits(5, false);
  Trainer trainer(ModelByName("mlp"), options_);
  trainer.RequestStop();
  FitOptions stopped = fit;
  stopped.validation = &test;
  EXPECT_TRUE(trainer.Fit(train, stopped).stopped);  // which saves the same place anew
  EXPECT_EQ(Best(), best);
}

// Batches whose steps overflow leave nothing behind: what is saved at the same step is the best still.
TEST_F(BestEpochTest, BatchesWithoutAStepDoNotLeaveIt) {
  const FitOptions fit = {.checkpoints = folder_, .keep_best = true, .resume = true, .watch = "accuracy"};
  const int64_t step = Run(1, "sgd(lr=0.1)", fit).at(0).step;
  const std::string best = Best();
  ASSERT_EQ(best, fmt::format("step-{:010}.ckpt", step));
  options_.precision = "float16";
  options_.loss_scale = "dynamic(start=1e15, backoff=0.9, limit=100)";  // gradients overflow, of each batch
  const auto reports = Run(2, "sgd(lr=0.1)", fit);
  ASSERT_EQ(reports.size(), 1u);
  ASSERT_EQ(reports[0].step, step);
  EXPECT_FALSE(reports[0].best);
  EXPECT_EQ(Best(), best);
  EXPECT_EQ(CheckpointStore(folder_).LoadNewest()->epoch, 2);
}

TEST_F(BestEpochTest, AResumeThatWatchesAnotherMetricBeginsAnew) {
  options_.schedule = "plateau(factor=0.5, patience=0)";
  FitOptions fit = {.checkpoints = folder_, .keep_best = true, .resume = true, .watch = "accuracy"};
  Run(2, "sgd(lr=0.1)", fit);
  log_.clear();
  Run(3, "sgd(lr=0.1)", fit);
  EXPECT_EQ(log_.text().find("judged by"), std::string::npos) << log_.text();
  fit.watch = "cross-entropy";  // whose values, about 2, are worse than any accuracy
  const auto reports = Run(5, "sgd(lr=0)", fit);
  EXPECT_NE(log_.text().find("epochs so far were judged by validation accuracy"), std::string::npos) << log_.text();
  EXPECT_NE(log_.text().find("this run goes by validation cross-entropy: which is the best begins anew"),
            std::string::npos);
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_TRUE(reports[0].best);
  EXPECT_FALSE(reports[1].best);
  EXPECT_EQ(Best(), fmt::format("step-{:010}.ckpt", reports[0].step));
  // What extensions remember of another value is forgotten, too.
  const auto stop = [](const std::string& metric) {
    return EarlyStopping({.value = "validation/" + metric, .patience = 2});
  };
  fit.stop = stop("cross-entropy");
  EXPECT_EQ(Run(20, "sgd(lr=0)", fit).size(), 3u);  // the first is the best that it sees
  fit.watch = "accuracy";
  fit.stop = stop("accuracy");
  EXPECT_EQ(Run(20, "sgd(lr=0)", fit).size(), 3u);
}

// A second Fit goes on from what the first judged, and compares it with nothing else.
TEST_F(BestEpochTest, ASecondFitGoesOn) {
  options_.schedule = "plateau(factor=0.5, patience=0)";
  options_.optimizer = "sgd(lr=0.1)";
  ArrayIter train = Digits(1, true), test = Digits(5, false);
  Trainer trainer(ModelByName("mlp"), options_);
  std::vector<EpochReport> reports;
  FitOptions fit = {.validation = &test,
                    .checkpoints = folder_,
                    .keep = 1,
                    .keep_best = true,
                    .on_epoch = [&](const EpochReport& report) { reports.push_back(report); },
                    .watch = "cross-entropy"};
  for (fit.epochs = 1; fit.epochs <= 4; ++fit.epochs) trainer.Fit(train, fit);
  std::vector<EpochReport> whole = Run(4, "sgd(lr=0.1)", {.watch = "cross-entropy"});
  ASSERT_EQ(reports.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(reports[i].best, whole[i].best) << i;
    EXPECT_EQ(reports[i].learning_rate, whole[i].learning_rate) << i;
  }
  EXPECT_EQ(log_.text().find("judged by"), std::string::npos) << log_.text();
  fit.epochs = 5;
  fit.watch = "accuracy";
  trainer.Fit(train, fit);
  EXPECT_NE(log_.text().find("epochs so far were judged by validation cross-entropy"), std::string::npos)
      << log_.text();
  EXPECT_TRUE(reports.back().best);
  EXPECT_EQ(reports.back().learning_rate, reports[3].learning_rate);
  EXPECT_EQ(Best(), fmt::format("step-{:010}.ckpt", reports.back().step));
  // One that makes no step saves the same place anew.
  fit.epochs = 6;
  trainer.RequestStop();
  trainer.Fit(train, fit);
  EXPECT_EQ(Best(), fmt::format("step-{:010}.ckpt", reports.back().step));
}

}  // namespace
}  // namespace bindery
