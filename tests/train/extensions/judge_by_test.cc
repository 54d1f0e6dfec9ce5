// Schedules that are shown what is reported.
#include <gtest/gtest.h>

#include <string>

#include "symbol/ops.h"
#include "tests/log_lines.h"
#include "tests/test_device.h"
#include "train/data/array_iter.h"
#include "train/extensions/guards.h"
#include "train/loop/loop.h"
#include "train/loop/model_learner.h"

namespace bindery {
namespace {

class JudgeByTest : public testing::Test {
 protected:
  static Model Linear() {
    const Symbol x = FullyConnected(Variable("data"), {.num_hidden = 1}, "linear");
    return {.symbol = LinearRegressionOutput(x, Variable("softmax_label"), {}, "error")};
  }

  ArrayIter points_{HostTensor::From({4, 1}, {1, 2, 3, 4}),
                    HostTensor::From({4, 1}, {2, 3, 4, 5}),
                    {.batch_size = 2, .last_batch = LastBatch::kRepeat}};
  TrainedModel model_{Linear(),
                      {.devices = {TestDevice(0)},
                       .data = {{"data", {2, 1}}},
                       .labels = {{"softmax_label", {2, 1}}},
                       .threads_per_device = 1},
                      {.optimizer = "sgd(lr=0.1)", .schedule = "plateau(factor=0.5, patience=0)"}};
  ModelLearner learner_{{.iterators = {{"main", &points_}}, .models = {{"main", &model_}}}};
  LogLines log_;
};

TEST_F(JudgeByTest, PlateausHearOfValues) {
  Loop loop(&learner_, UntilIteration(4));
  double value = 1;
  loop.Extend({.name = "values", .trigger = Always(), .priority = kWrites, .run = [&](Loop& l) {
                 l.observation().Report("loss", value += 1, 1);
               }});
  loop.Extend(JudgeBy("loss", "main", EveryIterations(2)));
  loop.Run();  // judged by 2.5, then by 4.5
  EXPECT_EQ(model_.updater().LearningRate(), 0.05);
}

// A resumed run that goes by another value does not compare it with those of before.
TEST_F(JudgeByTest, PlateausBeginAnewWithAnotherValue) {
  const auto run = [&](const std::string& value, int64_t iterations, const Checkpoint* from) {
    Loop loop(&learner_, UntilIteration(iterations));
    loop.Extend({.name = "values", .trigger = Always(), .priority = kWrites, .run = [&](Loop& l) {
                   l.observation().Report("small", 1, 1);
                   l.observation().Report("large", 100 - static_cast<double>(l.now().iteration), 1);
                 }});
    loop.Extend(JudgeBy(value, "main", EveryIterations(1)));
    if (from) loop.Restore(*from);
    loop.Run();
    return loop.ToCheckpoint();
  };
  const Checkpoint first = run("small", 1, nullptr);
  run("large", 3, &first);
  EXPECT_EQ(model_.updater().LearningRate(), 0.1);  // it falls, though it is above the other
  run("small", 5, &first);
  EXPECT_LT(model_.updater().LearningRate(), 0.1);  // which does not
  EXPECT_EQ(log_.text(),
            "the schedule of \"main\" so far went by \"small\"; it goes by \"large\" now: which is the best begins "
            "anew\n");
  // A checkpoint of a restored run that has made no step yet is still of the value before.
  log_.clear();
  const Checkpoint again = run("large", 1, &first);
  EXPECT_EQ(log_.text(), "");
  run("large", 3, &again);
  EXPECT_NE(log_.text().find("so far went by \"small\"; it goes by \"large\" now"), std::string::npos) << log_.text();
}

}  // namespace
}  // namespace bindery
