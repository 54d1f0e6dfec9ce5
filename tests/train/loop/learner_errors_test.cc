// What becomes of a learner whose steps fail.
#include <gtest/gtest.h>

#include <cmath>

#include "symbol/ops.h"
#include "tests/log_lines.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "train/data/array_iter.h"
#include "train/loop/model_learner.h"

namespace bindery {
namespace {

// Steps of the models "a" and "b" on batches of two of four samples; `bad`: on what is not a number instead, of "a".
class Pair : public ModelLearner {
 public:
  using ModelLearner::ModelLearner;
  bool bad = false;

 protected:
  void UpdateCore() override {
    const BatchPtr batch = NextBatch("main", model("a"));
    auto spoilt = std::make_shared<Batch>(*batch);
    spoilt->data = {HostTensor::Full(DType::kFloat32, {2, 1}, NAN)};
    model("a").Step(bad ? BatchPtr(spoilt) : batch);
    model("b").Step(batch);
  }
};

struct PairRun {
  static TrainedModel Made(const std::string& loss_scale = {}) {
    return {
        LinearRegressionOutput(FullyConnected(Variable("data"), {.num_hidden = 1}, "fc"), Variable("label"), {},
                               "error"),
        {.devices = {TestDevice()}, .data = {{"data", {2, 1}}}, .labels = {{"label", {2, 1}}}, .threads_per_device = 1},
        {.optimizer = "sgd(lr=0.1)",
         .schedule = "factor(step=1, factor=0.5, unit=epoch)",
         .metrics = "mse",
         .loss_scale = loss_scale}};
  }
  ArrayIter data{{{"data", std::make_shared<const HostTensor>(HostTensor::From({4, 1}, {1, 2, 3, 4}))}},
                 {{"label", std::make_shared<const HostTensor>(HostTensor::From({4, 1}, {1, 0, 1, 0}))}},
                 {.batch_size = 2, .last_batch = LastBatch::kRepeat}};
  TrainedModel a = Made(), b = Made();
  Pair pair{{.iterators = {{"main", &data}}, .models = {{"a", &a}, {"b", &b}}}};
};

// An epoch whose last step fails is over all the same, and for all models.
TEST(LearnerErrors, EveryScheduleHearsOfAnEpochThatEndsBadly) {
  PairRun run;
  run.pair.Update();
  run.pair.bad = true;
  EXPECT_THROW(run.pair.Update(), NumericError);
  EXPECT_TRUE(run.pair.is_new_epoch());
  EXPECT_EQ(run.a.updater().LearningRate(), 0.05);
  EXPECT_EQ(run.b.updater().LearningRate(), 0.05);
  run.pair.bad = false;
  for (int i = 0; i < 2; ++i) run.pair.Update();
  EXPECT_EQ(run.a.updater().LearningRate(), 0.025);
}

// Who goes back does not care what became of the steps in flight.
TEST(LearnerErrors, AFailedStepInFlightDoesNotKeepARestoreFromItsWork) {
  PairRun run;
  const Checkpoint before = run.pair.ToCheckpoint();
  run.pair.bad = true;
  run.pair.Update();
  run.pair.Restore(before);
  EXPECT_EQ(run.pair.iteration(), 0);
  run.pair.bad = false;
  run.pair.Update();
  PairRun other;
  other.pair.Update();
  EXPECT_EQ(run.pair.ToCheckpoint().model.params, other.pair.ToCheckpoint().model.params);
}

// Steps in flight are waited for, and not done again: nobody would see them.
TEST(LearnerErrors, NothingIsTrainedByADestructor) {
  const LogLines log;
  {
    TrainedModel model = PairRun::Made("dynamic(start=65536, on_overflow=retry)");
    Batch batch{.data = {HostTensor::Full(DType::kFloat32, {2, 1}, 1e36)},
                .label = {HostTensor(DType::kFloat32, {2, 1})},
                .samples = 2};
    model.Step(std::make_shared<const Batch>(batch));
  }
  EXPECT_EQ(log.text(), "");
}

TEST(LearnerErrors, AConverterMustMakeEveryArray) {
  PairRun run;
  ModelLearner learner(
      {.iterators = {{"main", &run.data}}, .models = {{"main", &run.a}}, .converter = [](Batch share, Device) {
         share.data.clear();
         share.device_data.Set(0, {});
         return share;
       }});
  EXPECT_EQ(MessageOf<DataError>([&] { learner.Update(); }),
            fmt::format("DataError: the converter made nothing of array 0 for {}", TestDevice()));
}

}  // namespace
}  // namespace bindery
