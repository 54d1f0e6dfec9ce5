// A step is committed as a whole or not at all.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <thread>

#include "symbol/ops.h"
#include "tests/host_tensors.h"
#include "tests/log_lines.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "train/data/array_iter.h"
#include "train/trainer.h"

namespace bindery {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Finite outputs behind a gradient that overflows float32: y = 1e30 x w with a small w, and dw = 1e35 x.
Symbol Overflowing() {
  const Symbol product = Variable("data") * Variable("w", {.shape = Shape{2}, .init = "constant(1e-30)"});
  return MakeLoss(BatchNorm(product, {.fix_gamma = false}, "bn") * 1e30 + product * 1e30, {.grad_scale = 1e5}, "loss");
}

Batch DataOf(double value, int64_t samples = 4) {
  return {.data = {Filled({samples, 2}, [=](int64_t i) { return value * static_cast<double>(i % 3 + 1); })},
          .samples = samples};
}

struct State {
  HostTensorMap params, aux, optimizer;
  bool operator==(const State&) const = default;
};

State StateOf(const DataParallelExecutorGroup& group, const Updater& updater) {
  State state;
  group.GetParams(&state.params, &state.aux);
  state.optimizer = updater.State();
  return state;
}

class CommitTest : public testing::Test {
 protected:
  CommitTest()
      : group_(Overflowing(), {.devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {4, 2}}}}),
        updater_(&group_, {.optimizer = MakeOptimizer("sgd(lr=1e-37, momentum=0.9, rescale=1)")}) {
    HostTensorMap params, aux;
    for (const StoredParameter& p : group_.store().parameters()) {
      (p.auxiliary ? aux : params)[p.name] = HostTensor::Full(p.dtype, p.shape, p.auxiliary ? 0.5 : 1e-30);
    }
    group_.SetParams(params, aux);
  }
  DataParallelExecutorGroup group_;
  Updater updater_;
};

TEST_F(CommitTest, AGradientThatIsNotFiniteChangesNothing) {
  const State before = StateOf(group_, updater_);
  updater_.Update(std::make_shared<const Batch>(DataOf(1e5)));
  const HostTensor output = group_.Outputs()[0].ToHost();
  for (int64_t i = 0; i < output.elements(); ++i) EXPECT_TRUE(std::isfinite(output.At(i)));
  const std::string message = MessageOf<NumericError>([&] { updater_.WaitFor(1); });
  EXPECT_NE(message.find("the gradient of \""), std::string::npos) << message;
  EXPECT_NE(message.find("\" is not finite: element "), std::string::npos) << message;
  EXPECT_NE(message.find(", as it is stored, is "), std::string::npos) << message;
  EXPECT_EQ(StateOf(group_, updater_), before);
}

// A GPU's kernel can only tell of it when all that follows is enqueued already.
TEST(Commit, AnIndexThatNamesNothingChangesNothing) {
  // They are computed, so that none but the devices see what they are.
  const Symbol words = Embedding(Abs(Variable("data")), {.input_dim = 5, .output_dim = 3}, "table");
  DataParallelExecutorGroup group(MakeLoss(FullyConnected(words, {.num_hidden = 2}, "fc"), {}, "loss"),
                                  {.devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {4, 2}}}});
  group.SetParams({{"table_weight", HostTensor::Full(DType::kFloat32, {5, 3}, 0.5)},
                   {"fc_weight", HostTensor::Full(DType::kFloat32, {2, 6}, 0.5)},
                   {"fc_bias", HostTensor(DType::kFloat32, {2})}},
                  {});
  Updater updater(&group, {.optimizer = MakeOptimizer("sgd(lr=0.1, momentum=0.9)")});
  const State before = StateOf(group, updater);
  updater.Update(std::make_shared<const Batch>(DataOf(2)));  // 2, 4 and 6
  EXPECT_NE(MessageOf<DataError>([&] { updater.WaitFor(1); }).find("6 is not in -5..4"), std::string::npos);
  EXPECT_EQ(StateOf(group, updater), before);
}

TEST(Commit, ALabelThatNamesNothingChangesNothing) {
  // It is computed, so that none but the devices see what it is.
  const Symbol classes = FullyConnected(Variable("data"), {.num_hidden = 3}, "fc"), label = Abs(Variable("label"));
  const Symbol losses[] = {SoftmaxOutput(classes, label, {}, "softmax"),
                           MakeLoss(SoftmaxCrossEntropy(classes, label, {}, LossReduction::kNone, {}, "softmax"))};
  for (const auto& [loss, bad] : {std::pair{losses[0], 7.0}, {losses[1], 7.0}, {losses[0], 1.5}, {losses[1], 1.5}}) {
    DataParallelExecutorGroup group(
        loss, {.devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {4, 2}}}, .labels = {{"label", {4}}}});
    group.SetParams(
        {{"fc_weight", HostTensor::Full(DType::kFloat32, {3, 2}, 0.5)}, {"fc_bias", HostTensor(DType::kFloat32, {3})}},
        {});
    Updater updater(&group, {.optimizer = MakeOptimizer("sgd(lr=0.1, momentum=0.9)")});
    const State before = StateOf(group, updater);
    Batch batch = DataOf(1);
    batch.label = {HostTensor(DType::kFloat32, {4})};
    batch.label[0].Set(2, bad);
    updater.Update(std::make_shared<const Batch>(batch));
    const std::string message = MessageOf<DataError>([&] { updater.WaitFor(1); });
    EXPECT_NE(message.find(fmt::format("{} ", bad)), std::string::npos) << message;
    EXPECT_NE(message.find("is not in 0..2"), std::string::npos) << message;
    // By the name that the user gave, and once.
    EXPECT_EQ(message.find("_backward"), std::string::npos) << message;
    EXPECT_EQ(message.find("node \""), std::string::npos) << message;
    EXPECT_NE(message.find("\"softmax"), std::string::npos) << message;
    EXPECT_EQ(message.find("\"softmax"), message.rfind("\"softmax")) << message;
    EXPECT_EQ(StateOf(group, updater), before);
  }
}

// What a batch brings is refused before the step has begun.
TEST(Commit, ALabelOfTheBatchThatNamesNothingBeginsNoStep) {
  const Symbol classes = FullyConnected(Variable("data"), {.num_hidden = 3}, "fc");
  DataParallelExecutorGroup group(
      SoftmaxOutput(classes, Variable("label"), {}, "softmax"),
      {.devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {4, 2}}}, .labels = {{"label", {4}}}});
  group.SetParams(
      {{"fc_weight", HostTensor::Full(DType::kFloat32, {3, 2}, 0.5)}, {"fc_bias", HostTensor(DType::kFloat32, {3})}},
      {});
  Updater updater(&group, {.optimizer = MakeOptimizer("sgd(lr=0.1, momentum=0.9)")});
  const State before = StateOf(group, updater);
  Batch batch = DataOf(1);
  batch.label = {HostTensor(DType::kFloat32, {4})};
  const Batch good = batch;
  batch.label[0].Set(3, 7);
  EXPECT_EQ(MessageOf<DataError>([&] { updater.Update(std::make_shared<const Batch>(batch)); }),
            "DataError: \"label\": 7 is not in 0..2, which SoftmaxOutput \"softmax\" takes (element 3, of sample 3 of "
            "the batch)");
  EXPECT_EQ(updater.step(), 0);
  EXPECT_EQ(StateOf(group, updater), before);
  updater.Update(std::make_shared<const Batch>(good));
  updater.WaitFor(1);
  EXPECT_NE(StateOf(group, updater), before);
  // It is looked at once: where that is said to have been, kernels tell.
  const auto bad = std::make_shared<const Batch>(batch);
  updater.Apply(updater.Compute({&bad, 1}, {}, /*checked=*/true));
  const std::string told = MessageOf<DataError>([&] { updater.WaitFor(2); });
  EXPECT_NE(told.find("not in 0..2"), std::string::npos) << told;
  EXPECT_EQ(told.find("of the batch"), std::string::npos) << told;
}

TEST_F(CommitTest, NothingMovesAfterAFailureUntilItIsForgiven) {
  const auto bad = std::make_shared<const Batch>(DataOf(1e5)), good = std::make_shared<const Batch>(DataOf(0));
  const State before = StateOf(group_, updater_);
  const auto push = [&](const BatchPtr& batch) {
    updater_.Compute(batch);
    updater_.Apply(group_.batch_size());
  };
  push(bad);
  push(good);
  EXPECT_THROW(updater_.WaitFor(1), NumericError);
  EXPECT_THROW(updater_.WaitFor(2), NumericError);  // the same error
  EXPECT_THROW(updater_.WaitFor(3), Error);
  EXPECT_EQ(StateOf(group_, updater_), before);
  updater_.Forgive();
  push(good);
  EXPECT_NO_THROW(updater_.WaitFor(3));
  EXPECT_NE(StateOf(group_, updater_).aux, before.aux);
}

TEST_F(CommitTest, ABatchThatIsRefusedLeavesNoStepBehind) {
  EXPECT_THROW(updater_.Update(std::make_shared<const Batch>()), DataError);
  const HostTensorMap before = StateOf(group_, updater_).aux;
  group_.Forward(DataOf(1), Mode::kTrain);  // of no step: commits its running statistics itself
  EXPECT_NE(StateOf(group_, updater_).aux, before);
}

TEST_F(CommitTest, TheGateHasASay) {
  const State before = StateOf(group_, updater_);
  const auto good = std::make_shared<const Batch>(DataOf(0));
  updater_.Compute(good);
  group_.engine()->Push({.name = "say no",
                         .device = Cpu(),
                         .reads = {},
                         .writes = {updater_.gate()},
                         .updates = {},
                         .run = [](const OpContext&) { throw DataError("not this one"); }});
  updater_.Apply(4);
  EXPECT_EQ(MessageOf<DataError>([&] { updater_.WaitFor(1); }), "DataError: operation \"say no\" failed: not this one");
  EXPECT_EQ(StateOf(group_, updater_), before);
}

TEST(TrainerCommit, AnOverflowBehindFiniteOutputsIsNeverSaved) {
  Batch batch = DataOf(0, 12);
  batch.data[0].Set(9, 1e5);  // the fifth sample: in the second batch of three
  const auto data = std::make_shared<const HostTensor>(batch.data[0]);
  ArrayIter iterator({ArrayData{"data", data, ""}}, {}, {.batch_size = 4});
  Trainer trainer(Overflowing(), {.devices = {TestDevice(0), TestDevice(1)},
                                  .optimizer = "sgd(lr=1e-37, rescale=1)",
                                  .initializer = "constant(1e-30)",
                                  .metrics = "loss"});
  const std::string message = MessageOf<NumericError>([&] { trainer.Fit(iterator, {}); });
  EXPECT_NE(message.find("the gradient of \""), std::string::npos) << message;
  EXPECT_NE(message.find(" at step 2 (the first such value is in \""), std::string::npos) << message;
  const Checkpoint checkpoint = trainer.ToCheckpoint(&iterator);
  EXPECT_EQ(checkpoint.step, 1);
  EXPECT_EQ(checkpoint.batch_in_epoch, 2);  // the next Fit goes on with the third
  for (const HostTensorMap* values : {&checkpoint.model.params, &checkpoint.model.aux}) {
    for (const auto& [name, value] : *values) {
      for (int64_t i = 0; i < value.elements(); ++i) EXPECT_TRUE(std::abs(value.At(i)) < kInf) << name;
    }
  }
}

// On whichever device, in whichever micro-batch.
TEST(TrainerCommit, TheFirstBadValueIsNamedWithItsSample) {
  for (const int64_t pieces : {1, 2}) {
    for (const int64_t bad : {0, 4, 7, 11}) {
      HostTensor values = HostTensor::Full(DType::kFloat32, {12, 2}, 1);
      values.Set(2 * bad + 1, 1e30);
      ArrayIter iterator({ArrayData{"data", std::make_shared<const HostTensor>(std::move(values)), ""}}, {},
                         {.batch_size = 12});
      const Symbol x = Variable("data") * Variable("w", {.shape = Shape{2}, .init = "constant(1)"});
      Trainer trainer(
          MakeLoss(Exp(x, "exploded"), {}, "loss"),
          {.devices = {TestDevice(0), TestDevice(1)}, .workload = {1, 2}, .metrics = "loss", .micro_batches = pieces});
      const std::string message = MessageOf<NumericError>([&] { trainer.Fit(iterator, {}); });
      EXPECT_NE(message.find("in \"exploded_output\""), std::string::npos) << message;
      EXPECT_NE(message.find(fmt::format(" is inf, of sample {} of the batch)", bad)), std::string::npos) << message;
    }
  }
}

// A step is pushed and not waited for, unless two are in flight already: while a device stands still, exactly two more
// are pushed.
TEST(TrainerCommit, WaitsOnlyWhereTwoStepsAreInFlight) {
  constexpr int kHeldAt = 3, kSteps = 8;
  const std::shared_ptr<Engine> engine = MakeThreadedEngine();
  std::atomic<bool> go = false;
  std::atomic<int> pushed = 0;
  const auto wait_for = [&](int steps, std::chrono::milliseconds longest) {
    const auto end = std::chrono::steady_clock::now() + longest;
    while (pushed < steps && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return pushed.load();
  };
  std::jthread watcher([&] {
    EXPECT_EQ(wait_for(kHeldAt + 2, std::chrono::seconds(60)), kHeldAt + 2);
    EXPECT_EQ(wait_for(kHeldAt + 3, std::chrono::milliseconds(100)), kHeldAt + 2);
    go = true;
  });
  const Symbol net = MakeLoss(FullyConnected(Variable("data"), {.num_hidden = 1}, "fc"), {}, "loss");
  Trainer trainer(
      net,
      {.devices = {TestDevice(0), TestDevice(1)}, .optimizer = "sgd(lr=0.1)", .metrics = "loss", .engine = engine});
  const ArrayData zeros{"data", std::make_shared<const HostTensor>(DType::kFloat32, Shape{4 * kSteps, 2})};
  ArrayIter data({zeros}, {}, {.batch_size = 4});
  trainer.Fit(data, {.epochs = 1, .on_batch = [&](const BatchReport& report) {
                       if (report.batch == kHeldAt) {
                         engine->WaitAll();
                         engine->Push({.name = "hold", .device = TestDevice(0), .run = [&go](const OpContext&) {
                                         while (!go) std::this_thread::yield();
                                       }});
                       }
                       pushed = static_cast<int>(report.batch);
                     }});
}

// The steps behind a failed one fail by themselves, and nobody is told of that again when the engine goes.
TEST(TrainerCommit, AFailureIsToldOnce) {
  const LogLines log;
  {
    const auto net = SoftmaxOutput(FullyConnected(Variable("data"), {.num_hidden = 3}, "fc1"), {}, "softmax");
    ArrayIter iterator(HostTensor::Full(DType::kFloat32, {20, 5}, 1e20), HostTensor(DType::kFloat32, {20}),
                       {.batch_size = 4});
    Trainer trainer(net, {.optimizer = "sgd(lr=1e30)", .engine = MakeThreadedEngine()});
    EXPECT_THROW(trainer.Fit(iterator, {}), NumericError);
  }
  EXPECT_EQ(log.text().find("nobody waited for"), std::string::npos) << log.text();
}

// The whole of training, with statistics and dropout, on these devices and on one CPU.
TEST(TrainerCommit, LearnsTheSameOnTheseDevices) {
  Symbol x = Relu(BatchNorm(FullyConnected(Variable("data"), {.num_hidden = 8}, "fc1"), {.sync = true}, "bn"));
  x = FullyConnected(Dropout(x, {.p = 0.25}, "drop"), {.num_hidden = 3}, "fc2");
  const Symbol net = SoftmaxOutput(x, {}, "softmax");
  const HostTensor data = Sines({20, 5}), labels = ClassesInTurn(20, 3);
  const auto train = [&](const std::vector<Device>& devices) {
    ArrayIter iterator(data, labels, {.batch_size = 7, .shuffle = true});
    Trainer trainer(net, {.devices = devices, .optimizer = "sgd(lr=0.1, momentum=0.9)", .metrics = "cross-entropy"});
    const FitResult result = trainer.Fit(iterator, {.epochs = 3});
    EXPECT_EQ(trainer.Score(iterator).size(), 1u);
    return std::pair(result.train[0].second, trainer.ToModel());
  };
  const auto [loss, model] = train({Cpu(0)});
  const auto [other_loss, other] = train({TestDevice(0), TestDevice(1), TestDevice(2)});
  EXPECT_NEAR(loss, other_loss, 1e-5);
  EXPECT_LT(MostDifferent(model.params, other.params), 1e-5);
  EXPECT_LT(MostDifferent(model.aux, other.aux), 1e-5);
}

}  // namespace
}  // namespace bindery
