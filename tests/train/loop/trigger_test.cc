// When triggers are due. Numbers marked as Chainer's are what tools/compare_chainer/chainer_numbers.py prints.
#include "train/loop/trigger.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/message_of.h"
#include "train/data/array_iter.h"

namespace bindery {
namespace {

constexpr int kIterations = 20;
constexpr double kValues[kIterations] = {5, 4, 4.5, 3, 3, 6, 2, 2.5, 1, 7, 1, 0.5, 3, 3, 3, 3, 3, 3, 3, 3};

ArrayIter TenSamples(int64_t batch_size = 3) {
  return ArrayIter(HostTensor(DType::kFloat32, {10, 1}), HostTensor(DType::kFloat32, {10}),
                   {.batch_size = batch_size, .last_batch = LastBatch::kRepeat});
}

// The iterations at which it is due: ten samples, batches of three, the values above as "loss", each of one sample.
std::vector<int> Due(Trigger trigger, int from = 0, int to = kIterations) {
  ArrayIter data = TenSamples();
  std::vector<int> due;
  Moment moment;
  for (int i = 0; i < to; ++i) {
    data.Next();
    moment = {.iteration = i + 1,
              .previous_iteration = i,
              .epoch = data.epoch(),
              .epoch_detail = data.epoch_detail(),
              .previous_epoch_detail = data.previous_epoch_detail(),
              .is_new_epoch = data.is_new_epoch(),
              .seconds = 0.25 * (i + 1)};
    if (i < from) continue;
    Observation observation;
    observation.Report("loss", kValues[i], 1);
    if (trigger.Due(moment, observation)) due.push_back(i + 1);
  }
  return due;
}

using Iterations = std::vector<int>;

TEST(Trigger, IntervalsAreChainers) {
  EXPECT_EQ(Due(EveryEpochs()), (Iterations{4, 7, 10, 14, 17, 20}));
  EXPECT_EQ(Due(EveryEpochs(2)), (Iterations{7, 14, 20}));
  EXPECT_EQ(Due(EveryEpochs(0.5)), (Iterations{2, 4, 5, 7, 9, 10, 12, 14, 15, 17, 19, 20}));
  EXPECT_EQ(Due(EveryIterations(4)), (Iterations{4, 8, 12, 16, 20}));
}

TEST(Trigger, PointsAreChainers) {
  EXPECT_EQ(Due(AtEpochs({1, 2.5})), (Iterations{4, 9}));
  EXPECT_EQ(Due(AtIterations({3, 7})), (Iterations{3, 7}));
}

TEST(Trigger, BestValuesAreChainers) {
  EXPECT_EQ(Due(AtMinimum("loss", EveryIterations(2))), (Iterations{2, 4, 8, 12}));
  EXPECT_EQ(Due(AtMaximum("loss")), (Iterations{4}));
  EXPECT_EQ(Due(EarlyStopping({.value = "loss", .patience = 2, .check = EveryIterations(2)})),
            (Iterations{16, 17, 18, 19, 20}));  // Chainer's at 16, 18, 20: due at checks only
  EXPECT_EQ(Due(AtMinimum("another", EveryIterations(9))), Iterations());
}

// Three times a tenth is less than 3 / 10 in doubles, but no interval is left out.
TEST(Trigger, TenthsOfAnEpochAreCounted) {
  ArrayIter data = TenSamples(1);
  Trigger trigger = EveryEpochs(0.1);
  for (int i = 0; i < 30; ++i) {
    data.Next();
    EXPECT_TRUE(trigger.Due(
        {.epoch_detail = data.epoch_detail(), .previous_epoch_detail = data.previous_epoch_detail()}, Observation()))
        << i;
  }
}

TEST(Trigger, Combined) {
  EXPECT_EQ(Due(Once(EveryIterations(4))), (Iterations{4}));
  EXPECT_EQ(Due(Either(AtIterations({3, 7}), EveryIterations(7))), (Iterations{3, 7, 14}));
  EXPECT_EQ(Due(EverySeconds(1.5)), (Iterations{6, 12, 18}));
  EXPECT_EQ(Due(Never()), Iterations());
  EXPECT_EQ(Due(Always()).size(), static_cast<size_t>(kIterations));
  const Trigger own = [](const Moment& moment, const Observation& observation, const Trigger::Memory& memory) {
    return observation.Find("loss")->value > 5 && ++memory["seen"] == 2 && moment.iteration == 10;
  };
  EXPECT_EQ(Due(own), (Iterations{10}));
}

// Stopped after every iteration in turn, and gone on with from a checkpoint.
TEST(Trigger, RemembersThroughACheckpoint) {
  const Trigger all[] = {
      AtMinimum("loss", EveryIterations(2)),
      EarlyStopping({.value = "loss", .patience = 2, .better = Better::kSmaller, .check = EveryIterations(2)}),
      Once(EveryIterations(7)), Either(Once(EveryEpochs()), AtMaximum("loss", EveryIterations(3)))};
  for (const Trigger& trigger : all) {
    const Iterations whole = Due(trigger);
    for (int stop = 1; stop < kIterations; ++stop) {
      Checkpoint checkpoint;
      Trigger before = trigger, after = trigger;
      Iterations due;
      // A copy remembers by itself: `before` is run by reference.
      const Trigger::Rule rule = before.rule();
      std::map<std::string, double> memory;
      const Trigger recorded([&](const Moment& m, const Observation& o, const Trigger::Memory&) {
        return rule(m, o, Trigger::Memory(&memory));
      });
      due = Due(recorded, 0, stop);
      Archive to = Archive::To(&checkpoint);
      to.Numbers(&memory);
      const Archive from = Archive::From(checkpoint);
      Archive reading = from;
      after.Serialize(&reading);
      for (const int at : Due(after, stop)) due.push_back(at);
      EXPECT_EQ(due, whole) << "stopped after " << stop;
    }
  }
}

TEST(Trigger, NotANumberIsNeverTheBest) {
  Trigger best = AtMinimum("loss", EveryIterations(1)),
          stop = EarlyStopping({.value = "loss", .patience = 2, .check = EveryIterations(1)});
  int64_t iteration = 0;
  const auto ask = [&](Trigger& trigger, double value) {
    Observation observation;
    observation.Report("loss", value);
    const Moment moment{.iteration = iteration + 1, .previous_iteration = iteration};
    ++iteration;
    return trigger.Due(moment, observation);
  };
  EXPECT_FALSE(ask(best, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_TRUE(ask(best, 2));
  EXPECT_FALSE(ask(best, -std::numeric_limits<double>::infinity()));
  EXPECT_TRUE(ask(best, 1));
  Checkpoint damaged{.numbers = {{"has best", 1}, {"best", std::numeric_limits<double>::quiet_NaN()}}};
  Archive from = Archive::From(damaged);
  best.Serialize(&from);
  EXPECT_TRUE(ask(best, 3));
  EXPECT_FALSE(ask(stop, 1));
  EXPECT_FALSE(ask(stop, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_TRUE(ask(stop, std::numeric_limits<double>::quiet_NaN()));
}

// At the end of an epoch it is known what is reported.
TEST(Trigger, RefusesAValueThatNothingReports) {
  const auto at = [](Trigger* trigger, bool end, bool reported) {
    const double epoch = end ? 1 : 0.5;
    const Moment moment = {.epoch = end, .epoch_detail = epoch, .previous_epoch_detail = 0, .is_new_epoch = end};
    Observation observation;
    observation.Report("train/accuracy", 0.5);
    if (reported) observation.Report("validation/accuracy", 0.5);
    return MessageOf<Error>([&] { trigger->Due(moment, observation); });
  };
  const std::string refused =
      "Error: a trigger waits for \"val/accuracy\", which nothing has reported by the end of an epoch; known: "
      "train/accuracy, validation/accuracy";
  for (Trigger trigger : {EarlyStopping({.value = "val/accuracy"}), AtMaximum("val/accuracy"),
                          Either(Never(), AtMinimum("val/accuracy", Always()))}) {
    EXPECT_EQ(at(&trigger, false, true), "nothing was thrown");
    EXPECT_EQ(at(&trigger, true, true), refused);
  }
  // Not where it has been there, or nobody asks yet.
  Trigger known = EarlyStopping({.value = "validation/accuracy", .patience = 9}), late = AtMaximum("x", AtEpochs({2}));
  EXPECT_EQ(at(&known, false, true), "nothing was thrown");
  for (Trigger* trigger : {&known, &late}) EXPECT_EQ(at(trigger, true, false), "nothing was thrown");
}

TEST(Trigger, RefusesWhatMakesNoSense) {
  EXPECT_EQ(MessageOf([] { EveryIterations(0); }), "Error: a trigger's period: expected more than 0, got 0");
  EXPECT_THROW(EveryEpochs(std::nan("")), Error);
  EXPECT_THROW(EverySeconds(-1), Error);
  EXPECT_THROW(EarlyStopping({.value = "loss", .patience = 0}), Error);
}

TEST(Observation, MeansAreBySamples) {
  RunningMeans means;
  Observation first, second;
  first.Report("a", 1, 3);
  first.Report("rate", 0.1);
  first.Report("main", {{"x", 5}}, 2);
  second.Report("a", 5, 1);
  second.Report("rate", 0.2);
  means.Add(first);
  means.Add(second);
  Checkpoint checkpoint;
  Archive to = Archive::To(&checkpoint);
  means.Serialize(&to);
  const std::map<std::string, double> expected = {{"a", 2}, {"main/x", 5}, {"rate", 0.2}};
  EXPECT_EQ(means.Take(), expected);
  EXPECT_TRUE(means.Take().empty());
  means.Add(second);
  Archive from = Archive::From(checkpoint);
  means.Serialize(&from);
  EXPECT_EQ(means.Take(), expected);
}

TEST(Observation, IsMadeWhenItIsLookedAt) {
  int made = 0;
  Observation observation([&](Observation* o) {
    ++made;
    o->Report("a", 1);
  });
  observation.Report("b", 2);
  EXPECT_EQ(made, 0);
  EXPECT_EQ(observation.Find("a")->value, 1);
  EXPECT_EQ(observation.Find("b")->value, 2);
  EXPECT_EQ(observation.Find("c"), nullptr);
  EXPECT_EQ(made, 1);
}

TEST(Archive, WritesAndReadsByTheSameLines) {
  struct State {
    int64_t count = 0;
    double number = 0;
    std::string text = {};
    IterState counts = {};
    HostTensorMap tensors = {};
    void Serialize(Archive* archive) {
      archive->Count("count", &count);
      Archive place = archive->In("a/b%");
      place.Number("number", &number);
      place.Text("text", &text);
      Archive deeper = place.In("counts");
      deeper.Counts(&counts);
      deeper.Tensors(Archive::Tensor::kOptimizer, &tensors);
    }
  };
  State written{INT64_MIN, 0.1, "x", {{"y", 7}, {"z/z", -1}}, {{"w", HostTensor::Full(DType::kFloat64, {2}, 3)}}}, read;
  read.counts = {{"old", 1}};
  Checkpoint checkpoint;
  Archive to = Archive::To(&checkpoint);
  written.Serialize(&to);
  Archive from = Archive::From(checkpoint);
  read.Serialize(&from);
  EXPECT_EQ(std::tie(read.count, read.number, read.text, read.counts, read.tensors),
            std::tie(written.count, written.number, written.text, written.counts, written.tensors));
  EXPECT_EQ(from.Places(), (std::vector<std::string>{"a/b%"}));
  checkpoint.optimizer_state["tensors/alone"] = HostTensor::Full(DType::kFloat64, {2}, 3);
  for (const Archive& archive : {from, to}) {
    EXPECT_FALSE(archive.In("tensors").empty());
    EXPECT_TRUE(archive.In("nothing").empty());
  }
  EXPECT_EQ(MessageOf<CheckpointError>([&] { from.Count("count", &read.count, 0, 9); }),
            "CheckpointError: the checkpoint's \"count\": expected 0 to 9, got -9223372036854775808");
  checkpoint.numbers.clear();
  EXPECT_EQ(MessageOf<CheckpointError>([&] { read.Serialize(&from); }),
            "CheckpointError: the checkpoint has no \"a%2Fb%25/number\"");
}

}  // namespace
}  // namespace bindery
