// What a resumed run says and refuses when it is not the run that was stopped.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/log.h"
#include "symbol/ops.h"
#include "tests/train/message_of.h"
#include "train/array_iter.h"
#include "train/digits.h"
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
  ResumeTest() : folder_(testing::TempDir() + "/resume_test") {
    std::filesystem::remove_all(folder_);
    SetLogCallback([this](LogLevel, const std::string& line) { log_ += line + "\n"; });
    ArrayIter data = Digits();
    Trainer(ModelByName("mlp"), options_).Fit(data, {.epochs = 1, .checkpoints = folder_});
    log_.clear();
  }
  ~ResumeTest() override { SetLogCallback(nullptr); }

  FitResult Resume(const Symbol& symbol, const TrainerOptions& options, ArrayIter data = Digits(), int64_t epochs = 2) {
    return Trainer(symbol, options).Fit(data, {.epochs = epochs, .checkpoints = folder_, .resume = true});
  }
  std::string Refusal(const Symbol& symbol, ArrayIter data = Digits()) {
    return MessageOf<CheckpointError>([&] { Resume(symbol, options_, std::move(data)); });
  }

  const TrainerOptions options_ = {.devices = {Cpu(0), Cpu(1)}, .threads_per_device = 1};
  const std::string folder_;
  std::string log_;
};

TEST_F(ResumeTest, TheSameRunGoesOn) {
  EXPECT_EQ(Resume(ModelByName("mlp"), options_).steps, 6);
  EXPECT_EQ(log_, "going on after step 3, in epoch 2\n");
}

TEST_F(ResumeTest, AnotherModelIsRefused) {
  EXPECT_EQ(Refusal(ModelByName("lenet")),
            "CheckpointError: the checkpoint is of another model: it has no \"conv1_weight\"");
  EXPECT_EQ(Refusal(ModelByName("mlp", {.num_classes = 12})),
            "CheckpointError: the checkpoint is of another model: its \"fc3_weight\" is (10, 64), expected (12, 64)");
  const Symbol shorter = ModelByName("mlp").Internals()["fc2_output"];
  EXPECT_EQ(Refusal(SoftmaxOutput(shorter, {}, "softmax")),
            "CheckpointError: the checkpoint is of another model: it has \"fc3_bias\" besides");
}

TEST_F(ResumeTest, OtherDataAreRefused) {
  EXPECT_EQ(Refusal(ModelByName("mlp"), Digits(2)),
            "CheckpointError: the iterator's state was saved with other data: as many samples, but of other values");
  EXPECT_EQ(Refusal(ModelByName("mlp"), Digits(1, 8)),
            "CheckpointError: the iterator's state was saved with another \"batch_size\": 16, but here it is 8");
}

TEST_F(ResumeTest, DifferencesThatDoNotPreventItAreReported) {
  Resume(ModelByName("mlp", {.dropout = 0.5}), options_);
  EXPECT_NE(log_.find("another graph"), std::string::npos) << log_;
  log_.clear();
  TrainerOptions other = options_;
  other.workload = {3, 1};
  Resume(ModelByName("mlp", {.dropout = 0.5}), other, Digits(), 3);
  EXPECT_NE(log_.find("was trained on cpu:0,cpu:1, this run goes on on cpu:0,cpu:1 with workload 3,1"),
            std::string::npos)
      << log_;
  EXPECT_EQ(log_.find("another graph"), std::string::npos) << log_;
  log_.clear();
  other.optimizer = "sgd(lr=0.5)";
  Resume(ModelByName("mlp", {.dropout = 0.5}), other, Digits(), 4);
  EXPECT_EQ(log_.find("was trained on"), std::string::npos) << log_;
  EXPECT_NE(log_.find("this run goes on by sgd(lr=0.5)"), std::string::npos) << log_;
}

TEST_F(ResumeTest, AFinishedRunIsMeasuredAllTheSame) {
  ArrayIter test = Digits(5), data = Digits();
  Trainer trainer(ModelByName("mlp"), options_);
  const FitResult result =
      trainer.Fit(data, {.epochs = 1, .validation = &test, .checkpoints = folder_, .resume = true});
  EXPECT_EQ(result.steps, 3);
  EXPECT_EQ(result.validation, trainer.Score(test));
  EXPECT_EQ(log_, "the checkpoint of step 3 has 1 epochs already: nothing is left to train\n");
}

TEST_F(ResumeTest, AStopRequestedBeforeTheFirstStepCounts) {
  ArrayIter data = Digits();
  Trainer trainer(ModelByName("mlp"), options_);
  trainer.RequestStop();
  const FitResult first = trainer.Fit(data, {.epochs = 2});
  EXPECT_TRUE(first.stopped);
  EXPECT_EQ(first.steps, 1);
  const FitResult rest = trainer.Fit(data, {.epochs = 2});  // one request stops one run
  EXPECT_FALSE(rest.stopped);
  EXPECT_EQ(rest.steps, 6);
}

TEST_F(ResumeTest, AnUpdaterServesAtMost64Devices) {
  TrainerOptions many = options_;
  many.devices.assign(65, Cpu(0));
  ArrayIter data = Digits();
  EXPECT_EQ(MessageOf<Error>([&] { Trainer(ModelByName("mlp"), many).Fit(data, {}); }),
            "Error: an updater serves at most 64 devices, got 65");
}

}  // namespace
}  // namespace bindery
