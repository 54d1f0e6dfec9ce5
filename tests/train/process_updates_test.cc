// Updates of several processes: each has elements of its own, with the optimizer's state of these.
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <vector>

#include "tests/train/process_training.h"

namespace bindery {
namespace {

TEST(ProcessUpdates, NormsAreOfTheSumOverAll) {
  ExpectSameAsOneProcess(2, Net(), {.optimizer = "sgd(lr=0.5, clip_norm=0.1)"}, 1e-5);
  ExpectSameAsOneProcess(2, Net(), {.optimizer = "lamb(lr=0.01)"}, 1e-4);
  ExpectSameAsOneProcess(3, Net(), {.optimizer = "lamb(lr=0.01, clip_norm=0.1)"}, 1e-4);
}

// Values of which each has several ranges.
TEST(ProcessUpdates, LargeParametersAreSharedOutPieceByPiece) {
  Symbol net = Relu(FullyConnected(Variable("data"), {.num_hidden = 600}, "fc1"), "relu");
  net = Relu(FullyConnected(net, {.num_hidden = 500}, "fc2"), "relu2");
  net = SoftmaxOutput(FullyConnected(net, {.num_hidden = 2}, "fc3"), {}, "softmax");
  ExpectSameAsOneProcess(3, net, {.optimizer = "adam(lr=0.001)", .average = "ema(0.9)"}, 1e-4);
}

TEST(ProcessUpdates, FixedParametersStay) {
  ExpectSameAsOneProcess(2, Net(), {.fixed_params = {"fc1_bias", "fc2_weight"}}, 1e-5);
}

// What is not trained, but lies among what is, stays as it is.
TEST(ProcessUpdates, AFixedGammaStays) {
  Symbol net = BatchNorm(FullyConnected(Variable("data"), {.num_hidden = 8}, "fc1"), {.fix_gamma = true}, "bn");
  net = SoftmaxOutput(FullyConnected(net, {.num_hidden = 2}, "fc2"), {}, "softmax");
  ExpectProcesses(2, [&](const ProcessesPtr& processes) {
    Trainer trainer(net, Of(processes, Options(Cpus(1))));
    const std::unique_ptr<DataIter> part = PartOfData(processes);
    trainer.Fit(*part, {.epochs = 2});
    const HostTensor gamma = trainer.ToModel().params.at("bn_gamma");
    for (int64_t i = 0; i < gamma.elements(); ++i) EXPECT_EQ(gamma.At(i), 1);
  });
}

std::atomic<int64_t> updated = 0;  // elements

// Descent, which counts.
void CountedUpdate(DType, const UpdateArgs& args, const UpdateArrays& arrays) {
  updated += arrays.elements;
  for (int64_t i = 0; i < arrays.elements; ++i) {
    float gradient = 0;
    for (const void* part : arrays.gradients) gradient += static_cast<const float*>(part)[i];
    const auto step = static_cast<float>(args.learning_rate * args.rescale) * gradient;
    static_cast<float*>(arrays.new_weight)[i] = static_cast<const float*>(arrays.weight)[i] - step;
    for (void* copy : arrays.copies) static_cast<float*>(copy)[i] = static_cast<float*>(arrays.new_weight)[i];
  }
}

TEST(ProcessUpdates, EachUpdatesElementsOfItsOwn) {
  static const bool once = (AddOptimizer({.name = "counted", .kernel = CountedUpdate}), true);
  ASSERT_TRUE(once);
  updated = 0;
  ExpectSameAsOneProcess(1, Net(), {.optimizer = "counted"}, 1e-5);
  const int64_t one = updated.exchange(0) / 2;  // which it trains twice
  EXPECT_GT(one, 0);
  ExpectProcesses(3, [](const ProcessesPtr& processes) {
    Trainer trainer(Net(), Of(processes, Options(Cpus(1), {.optimizer = "counted"})));
    const std::unique_ptr<DataIter> part = PartOfData(processes);
    trainer.Fit(*part, {.epochs = 3});
  });
  EXPECT_EQ(updated, one);
}

// One wants all of the optimizer's state while the others go on, and when they have ended.
TEST(ProcessUpdates, OneMaySaveByItself) {
  const TrainerOptions own{.optimizer = "adam(lr=0.01)", .average = "ema(0.9)", .use_average = true};
  std::vector<Checkpoint> expected;
  {
    Trainer one(Net(), Options(Cpus(3), own));
    const std::unique_ptr<DataIter> data = Data();
    FitOptions options{.epochs = 2};
    options.on_batch = [&](const BatchReport& report) {
      if (report.step % 3 == 0) expected.push_back(one.ToCheckpoint());
    };
    one.Fit(*data, options);
    expected.push_back(one.ToCheckpoint());
    expected.push_back({.model = one.ToAveragedModel(), .optimizer_state = one.ToCheckpoint().optimizer_state});
  }
  ExpectProcesses(3, [&](const ProcessesPtr& processes) {
    const bool saves = processes->rank() == 1;
    std::vector<Checkpoint> saved;
    Trainer trainer(Net(), Of(processes, Options(Cpus(1), own)));
    const std::unique_ptr<DataIter> part = PartOfData(processes);
    FitOptions options{.epochs = 2};
    options.on_batch = [&](const BatchReport& report) {
      if (saves && report.step % 3 == 0) saved.push_back(trainer.ToCheckpoint());
    };
    trainer.Fit(*part, options);
    if (!saves) return;
    saved.push_back(trainer.ToCheckpoint());
    saved.push_back({.model = trainer.ToAveragedModel(), .optimizer_state = trainer.ToCheckpoint().optimizer_state});
    ASSERT_EQ(saved.size(), expected.size());
    for (size_t i = 0; i < saved.size(); ++i) {
      EXPECT_LE(MostDifferent(saved[i].model.params, expected[i].model.params), 1e-5);
      EXPECT_LE(MostDifferent(saved[i].optimizer_state, expected[i].optimizer_state), 1e-5);
    }
  });
}

// Of so few elements, 64 as they are stored, the third process has none; the first steps overflow.
TEST(ProcessUpdates, OneWithoutElementsOfItsOwnGoesOnAfterAnOverflow) {
  const Symbol net =
      SoftmaxOutput(FullyConnected(Variable("data"), {.num_hidden = 2, .no_bias = true}, "fc"), {}, "softmax");
  for (const char* optimizer : {"sgd", "sgd(lr=0.1, clip_norm=0.1)", "lamb(lr=0.01)"}) {
    SCOPED_TRACE(optimizer);
    ExpectSameAsOneProcess(
        3, net, {.optimizer = optimizer, .precision = "float16", .loss_scale = "dynamic(start=16777216)"}, 1e-4);
  }
}

// Whoever was given all states has them: it asks nobody.
TEST(ProcessUpdates, OneMaySaveByItselfWhatItWasGiven) {
  const TrainerOptions own{.optimizer = "adam(lr=0.01)"};
  Trainer one(Net(), Options(Cpus(2), own));
  const std::unique_ptr<DataIter> data = Data();
  one.Fit(*data, {.epochs = 1});
  const Checkpoint checkpoint = one.ToCheckpoint();
  std::latch saved(1);
  ExpectProcesses(2, [&](const ProcessesPtr& processes) {
    Trainer trainer(Net(), Of(processes, Options(Cpus(1), own)));
    const std::unique_ptr<DataIter> part = PartOfData(processes);
    trainer.Fit(*part, {.epochs = 1});
    trainer.Restore(checkpoint);
    if (processes->rank() == 0) {
      EXPECT_EQ(trainer.ToCheckpoint().optimizer_state, checkpoint.optimizer_state);
      saved.count_down();
    }
    saved.wait();  // the other calls nothing before
  });
}

TEST(ProcessUpdates, OnDevicesThatTheHostCannotAddress) {
  ExpectSameAsOneProcess(2, Net(), {}, 1e-5, {Sim(0)});
  ExpectSameAsOneProcess(2, Net(), {}, 1e-5, {Cpu(0), Sim(0)});
  ExpectSameAsOneProcess(2, Net(), {.optimizer = "lamb(lr=0.01)"}, 1e-4, {Sim(0), Sim(2)});
}

TEST(ProcessUpdates, SeveralDevicesEach) {
  ExpectSameAsOneProcess(2, Net(), {}, 1e-5, {Cpu(0), Cpu(2)});
  ExpectSameAsOneProcess(2, Net(), {.optimizer = "lamb(lr=0.01, clip_norm=1)"}, 1e-4, {Cpu(0), Cpu(2)});
  ExpectSameAsOneProcess(2, Net(), {.kvstore = KVStoreType::kLocal}, 1e-5, {Cpu(0), Cpu(2)});
}

}  // namespace
}  // namespace bindery
