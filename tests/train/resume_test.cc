// What a resumed run says and refuses when it is not the run that was stopped.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/files.h"
#include "symbol/ops.h"
#include "tests/log_lines.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "tests/test_folder.h"
#include "train/data/array_iter.h"
#include "train/data/digits.h"
#include "train/trainer.h"
#include "train/zoo.h"

namespace bindery {
namespace {

ArrayIter Digits(uint64_t seed = 1, int64_t batch = 16) {
  ImageSet set = DrawDigits(40, seed);
  return ArrayIter(std::move(set.images), std::move(set.labels), {.batch_size = batch, .shuffle = true, .seed = 3});
}

class ResumeTest : public testing::Test {
 protected:
  ResumeTest() {
    ArrayIter data = Digits();
    Trainer(ModelByName("mlp"), options_).Fit(data, {.epochs = 1, .checkpoints = folder_});
    log_.clear();
  }
  FitResult Resume(const Symbol& symbol, const TrainerOptions& options, ArrayIter data = Digits(), int64_t epochs = 2) {
    return Trainer(symbol, options).Fit(data, {.epochs = epochs, .checkpoints = folder_, .resume = true});
  }
  std::string Refusal(const Symbol& symbol, ArrayIter data = Digits()) {
    return MessageOf<CheckpointError>([&] { Resume(symbol, options_, std::move(data)); });
  }

  const TrainerOptions options_ = {.devices = {TestDevice(0), TestDevice(1)}, .threads_per_device = 1};
  const TestFolder made_;
  const std::string& folder_ = made_.path();
  LogLines log_;
};

TEST_F(ResumeTest, TheSameRunGoesOn) {
  EXPECT_EQ(Resume(ModelByName("mlp"), options_).steps, 6);
  EXPECT_EQ(log_.text(), "going on after step 3, in epoch 2\n");
}

TEST_F(ResumeTest, AnotherRunsFolderIsRefusedUnlessItIsToBeReplaced) {
  const std::string theirs = folder_ + "/step-0000000003.ckpt";
  const auto bytes = ReadFile(theirs);
  ArrayIter data = Digits(2);
  Trainer trainer(ModelByName("mlp"), options_);
  EXPECT_EQ(
      MessageOf<CheckpointError>([&] { trainer.Fit(data, {.epochs = 2, .checkpoints = folder_}); }),
      "CheckpointError: \"" + theirs +
          "\" is of an earlier run: .resume goes on with it, .overwrite replaces it, and another folder keeps it");
  EXPECT_EQ(trainer.group(), nullptr);
  EXPECT_EQ(ReadFile(theirs), bytes);
  trainer.Fit(data, {.epochs = 1, .checkpoints = folder_, .overwrite = true});
  EXPECT_NE(ReadFile(theirs), bytes);
  // Its own it goes on from.
  EXPECT_EQ(trainer.Fit(data, {.epochs = 2, .checkpoints = folder_}).steps, 6);
  // And those that it was put behind.
  Trainer restored(ModelByName("mlp"), options_);
  restored.Restore(trainer.ToCheckpoint(&data), &data);
  EXPECT_EQ(restored.Fit(data, {.epochs = 3, .checkpoints = folder_}).steps, 9);
}

TEST_F(ResumeTest, AnotherModelIsRefused) {
  EXPECT_EQ(Refusal(ModelByName("lenet")),
            "CheckpointError: the checkpoint is of another model: it has no \"conv1_weight\"");
  EXPECT_EQ(Refusal(ModelByName("mlp", {.num_classes = 12})),
            "CheckpointError: the checkpoint is of another model: its \"fc3_weight\" is (10, 64), expected (12, 64)");
  const Symbol shorter = ModelByName("mlp").Internals()["fc2_output"];
  EXPECT_EQ(Refusal(SoftmaxOutput(shorter, {}, "softmax")),
            "CheckpointError: the checkpoint is of another model: it has \"fc3_bias\" besides");
  // The same parameters, another network.
  EXPECT_EQ(Refusal(ModelByName("mlp", {.dropout = 0.5})),
            "CheckpointError: the checkpoint is of another graph: it has `fc2_weight` where this one has `dropout1 = "
            "Dropout(relu1)`");
}

TEST_F(ResumeTest, OtherDataAreRefused) {
  EXPECT_EQ(Refusal(ModelByName("mlp"), Digits(2)),
            "CheckpointError: the iterator's state was saved with other data: as many samples, but of other values");
  EXPECT_EQ(Refusal(ModelByName("mlp"), Digits(1, 8)),
            "CheckpointError: the iterator's state was saved with another \"batch_size\": 16, but here it is 8");
}

TEST_F(ResumeTest, AnOptimizerOfOtherStateIsRefused) {
  TrainerOptions other = options_;
  other.optimizer = "sgd(momentum=0.9)";
  EXPECT_EQ(
      MessageOf<CheckpointError>([&] { Resume(ModelByName("mlp"), other); }),
      "CheckpointError: the checkpoint was trained by sgd(lr=0.01), whose state sgd(lr=0.01, momentum=0.9) cannot take "
      "over: the optimizer state \"fc1_bias:momentum\" is missing; go on with the checkpoint's optimizer, "
      "average and fixed parameters, or start a new run");
  // The other way round, and restored before the first Fit.
  ArrayIter data = Digits();
  Trainer trained(ModelByName("mlp"), other);
  trained.Fit(data, {});
  Trainer plain(ModelByName("mlp"), options_);
  plain.Restore(trained.ToCheckpoint());
  EXPECT_EQ(
      MessageOf<CheckpointError>([&] { plain.Fit(data, {.epochs = 2}); }),
      "CheckpointError: the checkpoint was trained by sgd(lr=0.01, momentum=0.9), whose state sgd(lr=0.01) cannot take "
      "over: there is no optimizer state \"fc1_bias:momentum\"; there are none; go on with the checkpoint's "
      "optimizer, average and fixed parameters, or start a new run");
}

TEST_F(ResumeTest, DifferencesThatDoNotPreventItAreReported) {
  TrainerOptions other = options_;
  other.workload = {3, 1};
  Resume(ModelByName("mlp"), other);
  const std::string devices = fmt::format("{},{}", TestDevice(0), TestDevice(1));
  EXPECT_NE(log_.text().find(fmt::format("was trained on {0}, this run goes on on {0} with workload 3,1", devices)),
            std::string::npos)
      << log_.text();
  log_.clear();
  other.optimizer = "sgd(lr=0.5)";
  other.policy = KernelPolicy::kReference;
  other.threads_per_device = 2;
  other.fixed_params = {"fc1_bias"};
  Resume(ModelByName("mlp"), other, Digits(), 3);
  EXPECT_EQ(log_.text().find("was trained on"), std::string::npos) << log_.text();
  for (const char* text :
       {"this run goes on by sgd(lr=0.5)", "trained with kernels \"fast\", this run goes on with \"reference\"",
        "threads per device \"1\", this run goes on with \"2\"",
        "fixed parameters \"\", this run goes on with \"fc1_bias\""}) {
    EXPECT_NE(log_.text().find(text), std::string::npos) << text << "\n" << log_.text();
  }
}

TEST_F(ResumeTest, ThatNothingIsTrainedIsLogged) {
  TrainerOptions fixed = options_;
  for (const std::string& name : ModelByName("mlp").ListArguments()) {
    if (name.starts_with("fc")) fixed.fixed_params.push_back(name);
  }
  const std::string warning = "all parameters of the network are fixed: nothing is trained";
  ArrayIter data = Digits();
  TrainerOptions by_pattern = options_;
  by_pattern.fixed_params = {"fc*"};
  for (const TrainerOptions& all : {fixed, by_pattern}) {
    log_.clear();
    Trainer(ModelByName("mlp"), all).Fit(data, {.epochs = 1});
    EXPECT_NE(log_.text().find(warning), std::string::npos) << log_.text();
  }
  log_.clear();
  fixed.fixed_params.pop_back();
  Trainer(ModelByName("mlp"), fixed).Fit(data, {.epochs = 1});
  EXPECT_EQ(log_.text().find(warning), std::string::npos) << log_.text();
}

TEST_F(ResumeTest, TheBestValueSoFarIsRemembered) {
  ArrayIter test = Digits(5);
  const auto is_best = [&](int64_t epochs, const std::string& optimizer) {
    TrainerOptions options = options_;
    options.optimizer = optimizer;
    ArrayIter data = Digits();
    bool best = false;
    Trainer(ModelByName("mlp"), options)
        .Fit(data, {.epochs = epochs,
                    .validation = &test,
                    .checkpoints = folder_,
                    .resume = true,
                    .on_epoch = [&](const EpochReport& report) { best = report.best; }});
    return best;
  };
  EXPECT_TRUE(is_best(2, "sgd(lr=0.01)"));
  EXPECT_FALSE(is_best(3, "sgd(lr=0)"));  // as good as before, not better
}

TEST_F(ResumeTest, HalfAnEpochGoesOn) {
  TrainerOptions options = options_;
  const auto run_to = [&](int64_t step) {
    ArrayIter data = Digits();
    Trainer trainer(ModelByName("mlp"), options);
    trainer.Fit(data, {.epochs = 3, .checkpoints = folder_, .resume = true, .on_batch = [&](const BatchReport& report) {
                         EXPECT_EQ(report.samples, std::min<int64_t>(16 * report.batch, 40));
                         if (report.step == step) trainer.RequestStop();
                       }});
  };
  run_to(4);
  run_to(5);
  EXPECT_EQ(log_.text().find("the metrics of the epoch"), std::string::npos) << log_.text();
  options.metrics = "cross-entropy";
  run_to(6);
  EXPECT_NE(
      log_.text().find("the metrics of the epoch so far were accuracy,cross-entropy: those of this run, cross-entropy, "
                       "begin now"),
      std::string::npos)
      << log_.text();
}

// The validation data come in the same batches each time: the size of the batch that a sample is in decides in which
// order its products are summed, hence the last digit of its loss. (40 samples in batches of 16 leave one of 8, and
// shuffling puts others there.)
TEST_F(ResumeTest, AFinishedRunIsMeasuredAllTheSame) {
  ImageSet set = DrawDigits(40, 5);
  ArrayIter test(std::move(set.images), std::move(set.labels), {.batch_size = 16}), data = Digits();
  Trainer trainer(ModelByName("mlp"), options_);
  const FitResult result =
      trainer.Fit(data, {.epochs = 1, .validation = &test, .checkpoints = folder_, .resume = true});
  EXPECT_EQ(result.steps, 3);
  EXPECT_EQ(result.validation, trainer.Score(test));
  EXPECT_EQ(log_.text(), "the checkpoint of step 3 has 1 epochs already: nothing is left to train\n");
}

TEST_F(ResumeTest, AStopRequestedBeforeTheFirstStepCounts) {
  ArrayIter data = Digits();
  Trainer trainer(ModelByName("mlp"), options_);
  trainer.RequestStop();
  const FitResult first = trainer.Fit(data, {.epochs = 2});
  EXPECT_TRUE(first.stopped);
  EXPECT_EQ(first.steps, 0);
  const FitResult rest = trainer.Fit(data, {.epochs = 2});  // one request stops one run
  EXPECT_FALSE(rest.stopped);
  EXPECT_EQ(rest.steps, 6);
}

TEST_F(ResumeTest, AnUpdaterServesAtMost64Devices) {
  TrainerOptions many = options_;
  many.devices.assign(65, TestDevice(0));
  ArrayIter data = Digits();
  EXPECT_EQ(MessageOf<Error>([&] { Trainer(ModelByName("mlp"), many).Fit(data, {}); }),
            "Error: an updater serves at most 64 devices, got 65");
}

// What a loop keeps in a checkpoint for itself is told from parameters, whatever these are called.
TEST_F(ResumeTest, ParametersMayBeCalledAsTheLoopCallsWhatIsItsOwn) {
  const Symbol net = SoftmaxOutput(FullyConnected(Variable("data"), {.num_hidden = 10}, "loop/fc"), {}, "softmax");
  std::filesystem::remove_all(folder_);
  ArrayIter data = Digits();
  Trainer(net, options_).Fit(data, {.epochs = 1, .checkpoints = folder_});
  EXPECT_EQ(Resume(net, options_).steps, 6);
}

}  // namespace
}  // namespace bindery
