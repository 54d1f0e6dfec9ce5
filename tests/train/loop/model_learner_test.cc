// Models, iterators and optimizers by name, in one learner. Numbers marked as Chainer's are what
// tools/compare_chainer/chainer_numbers.py prints.
#include "train/loop/model_learner.h"

#include <gtest/gtest.h>

#include <set>

#include "base/log.h"
#include "symbol/ops.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "train/data/array_iter.h"
#include "train/data/wrapped_iter.h"
#include "train/extensions/snapshots.h"
#include "train/loop/loop.h"

namespace bindery {
namespace {

// Six samples, batches of four, for ever.
ArrayIter Points(LastBatch last_batch = LastBatch::kRepeat, int64_t batch_size = 4, bool shuffle = false) {
  return ArrayIter(HostTensor::From({6, 2}, {1, 2, 0.5f, -1, 2, 0, -1, 1, 0, 3, 1.5f, 0.5f}),
                   HostTensor::From({6, 1}, {1, 0, 2, -1, 0.5f, 1}),
                   {.batch_size = batch_size, .shuffle = shuffle, .last_batch = last_batch});
}

Model Linear() {
  return {.symbol = FullyConnected(Variable("data"), {.num_hidden = 1}, "linear"),
          .params = {{"linear_weight", HostTensor::From({1, 2}, {0.3f, -0.2f})},
                     {"linear_bias", HostTensor::From({1}, {0.1f})}}};
}

Symbol SquaredError(const Symbol& outputs) {
  return LinearRegressionOutput(outputs, Variable("softmax_label"), {.grad_scale = 2}, "error");
}

GroupOptions PointsOn(int devices) {
  return {.devices = TestDeviceList(devices),
          .data = {{"data", {4, 2}}},
          .labels = {{"softmax_label", {4, 1}}},
          .threads_per_device = 1};
}

TrainedModelOptions Regression() {
  return {.optimizer = "sgd(lr=0.1, momentum=0.9)", .metrics = "mse", .loss = SquaredError};
}

std::vector<double> Weights(const TrainedModel& model) {
  const HostTensorMap params = model.ToModel().params;
  const HostTensor &w = params.at("linear_weight"), &b = params.at("linear_bias");
  return {w.At(0), w.At(1), b.At(0)};
}

// Chainer's ParallelUpdater on two devices, with half the rate: it sums the devices' means.
constexpr double kChainers[5][3] = {{0.4987500309944153, -0.10750000178813934, 0.16249999403953552},
                                    {0.7030625343322754, 0.1596718579530716, 0.2606249749660492},
                                    {0.9265013933181763, 0.31844234466552734, 0.2980034649372101},
                                    {1.0928531885147095, 0.3628402054309845, 0.22438651323318481},
                                    {1.101842999458313, 0.17084169387817383, -0.007313072681427002}};

TEST(ModelLearner, TrainsAsChainersUpdaterOnAnyDevices) {
  for (const int devices : {1, 2, 3}) {
    for (const SampleOrder order : {SampleOrder::kContiguous, SampleOrder::kStrided}) {
      ArrayIter points = Points();
      TrainedModel model(Linear(), PointsOn(devices), Regression());
      ModelLearner learner({.iterators = {{"main", &points}}, .models = {{"main", &model}}, .order = order});
      for (const auto& expected : kChainers) {
        learner.Update();
        model.Settle();
        const std::vector<double> weights = Weights(model);
        for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(weights[i], expected[i], 2e-6);
      }
      EXPECT_EQ(learner.iteration(), 5);
      EXPECT_EQ(learner.epoch(), 3);
      EXPECT_EQ(learner.epoch_detail(), 20.0 / 6);
      EXPECT_EQ(learner.previous_epoch_detail(), 16.0 / 6);
      EXPECT_TRUE(learner.is_new_epoch());
    }
  }
}

// Passes over what a sweep ends with.
struct CutIter final : WrappedIter {
  using WrappedIter::WrappedIter;
  BatchPtr Next() override {
    const BatchPtr batch = WrappedIter::Next();
    return batch && is_new_epoch() ? WrappedIter::Next() : batch;
  }
};

TEST(ModelLearner, ASweepEndsWithoutItsLastBatchToo) {
  CutIter points(std::make_unique<ArrayIter>(Points(LastBatch::kShort)));
  TrainedModel model(Linear(), PointsOn(1), Regression());
  ModelLearner learner({.iterators = {{"main", &points}}, .models = {{"main", &model}}});
  for (const bool is_new : {false, true, true}) {
    learner.Update();
    EXPECT_EQ(learner.is_new_epoch(), is_new);
  }
}

TEST(ModelLearner, SerializesUnderTheNamesOfItsParts) {
  ArrayIter points = Points(), others = Points();
  TrainedModel model(Linear(), PointsOn(2), Regression()), critic(Linear(), PointsOn(1), Regression());
  ModelLearner learner(
      {.iterators = {{"main", &points}, {"others", &others}}, .models = {{"main", &model}, {"critic", &critic}}});
  learner.Update();
  const Checkpoint checkpoint = learner.ToCheckpoint();
  std::set<std::string> keys;
  const auto add = [&](const auto& map) {
    for (const auto& [name, value] : map) keys.insert(name.substr(0, name.find('/')));
  };
  add(checkpoint.model.params);
  add(checkpoint.optimizer_state);
  add(checkpoint.iterator);
  add(checkpoint.info);
  // Those of Chainer.
  EXPECT_EQ(keys, (std::set<std::string>{"iteration", "iterator:main", "iterator:others", "model:critic", "model:main",
                                         "optimizer:critic", "optimizer:main"}));
  EXPECT_EQ(checkpoint.iterator.at("iteration"), 1);
  EXPECT_EQ(checkpoint.step, 1);
}

// Two models, two optimizers, two iterators: each the other's teacher. Counts its own updates, too.
class Pair : public ModelLearner {
 public:
  using ModelLearner::ModelLearner;
  int64_t own = 0;

 protected:
  void UpdateCore() override {
    for (const char* name : {"main", "other"}) model(name).Step(NextBatch(name, model(name)));
    Report("pair/own", static_cast<double>(++own));
  }
  void Serialize(Archive* archive) override {
    ModelLearner::Serialize(archive);
    archive->Count("own", &own);
  }
};

struct PairRun {
  ArrayIter points = Points(LastBatch::kShort, 4, true), others = Points(LastBatch::kRepeat, 5, true);
  TrainedModel main{Linear(), PointsOn(2), Regression()};
  TrainedModel other{Linear(),
                     PointsOn(3),
                     {.optimizer = "adam(lr=0.05)",
                      .schedule = "steps(at=1;3, factor=0.5, unit=epoch)",
                      .metrics = "mse",
                      .loss = SquaredError}};
  Pair pair{{.iterators = {{"main", &points}, {"other", &others}}, .models = {{"main", &main}, {"other", &other}}}};
};

TEST(ModelLearner, CutOffAnywhereItEndsInTheSameBits) {
  constexpr int kUpdates = 5;
  PairRun whole;
  for (int i = 0; i < kUpdates; ++i) whole.pair.Update();
  EXPECT_EQ(whole.pair.own, kUpdates);
  for (const int cut : {0, 1, 2, 4}) {
    const std::string path = testing::TempDir() + "/pair.ckpt";
    {
      PairRun first;
      for (int i = 0; i < cut; ++i) first.pair.Update();
      SaveCheckpoint(first.pair.ToCheckpoint(), path);
    }
    PairRun second;
    second.pair.Update();  // of another past
    second.pair.Restore(LoadCheckpoint(path));
    EXPECT_EQ(second.pair.iteration(), cut);
    for (int i = cut; i < kUpdates; ++i) second.pair.Update();
    EXPECT_EQ(second.main.ToModel().params, whole.main.ToModel().params) << cut;
    EXPECT_EQ(second.other.ToModel().params, whole.other.ToModel().params) << cut;
    EXPECT_EQ(second.other.updater().LearningRate(), whole.other.updater().LearningRate());
    EXPECT_EQ(second.pair.own, kUpdates);
    EXPECT_EQ(second.points.SaveState(), whole.points.SaveState());
  }
}

TEST(ModelLearner, ARestoreThatFailsChangesNothing) {
  PairRun run;
  run.pair.Update();
  const Checkpoint before = run.pair.ToCheckpoint();
  PairRun later;
  for (int i = 0; i < 3; ++i) later.pair.Update();
  const Checkpoint good = later.pair.ToCheckpoint();
  const auto refusal = [&](const std::function<void(Checkpoint*)>& change) {
    Checkpoint checkpoint = good;
    change(&checkpoint);
    const std::string message = MessageOf<CheckpointError>([&] { run.pair.Restore(checkpoint); });
    const Checkpoint after = run.pair.ToCheckpoint();
    EXPECT_EQ(std::tie(after.model.params, after.optimizer_state, after.iterator, after.numbers),
              std::tie(before.model.params, before.optimizer_state, before.iterator, before.numbers));
    return message;
  };
  EXPECT_EQ(refusal([](Checkpoint* c) { c->iterator.erase("own"); }), "CheckpointError: the checkpoint has no \"own\"");
  for (const char* count : {"iteration", "optimizer:main/step"}) {
    for (const int64_t value : {int64_t{-1}, INT64_MAX}) {
      EXPECT_NE(refusal([&](Checkpoint* c) { c->iterator[count] = value; }).find(count), std::string::npos);
    }
  }
  EXPECT_EQ(refusal([](Checkpoint* c) { c->info["model:other/graph"] = "another"; }),
            "CheckpointError: the checkpoint's model \"other\" is of another graph");
  EXPECT_EQ(refusal([](Checkpoint* c) { c->optimizer_state.erase("optimizer:main/linear_bias:momentum"); }),
            "CheckpointError: model \"main\", trained by sgd(lr=0.1, momentum=0.9), cannot go on by sgd(lr=0.1, "
            "momentum=0.9): the optimizer state \"linear_bias:momentum\" is missing");
  EXPECT_NE(refusal([](Checkpoint* c) { c->model.params.erase("model:other/linear_bias"); }).find("linear_bias"),
            std::string::npos);
  EXPECT_NE(refusal([](Checkpoint* c) { c->iterator["iterator:main/samples"] = 7; }).find("samples"),
            std::string::npos);
}

TEST(ModelLearner, SchedulesHearOfEpochs) {
  for (const bool automatic : {true, false}) {
    ArrayIter points = Points();
    TrainedModelOptions options = Regression();
    options.schedule = "factor(step=1, factor=0.5, unit=epoch)";
    TrainedModel model(Linear(), PointsOn(1), options);
    ModelLearner learner({.iterators = {{"main", &points}}, .models = {{"main", &model}}, .auto_new_epoch = automatic});
    std::vector<double> rates;
    for (int i = 0; i < 6; ++i) {
      rates.push_back(model.updater().LearningRate());
      learner.Update();
      if (!automatic && i == 3) model.updater().NewEpoch();
    }
    EXPECT_EQ(rates, automatic ? (std::vector<double>{0.1, 0.1, 0.05, 0.025, 0.025, 0.0125})
                               : (std::vector<double>{0.1, 0.1, 0.1, 0.1, 0.05, 0.05}));
  }
}

TEST(ModelLearner, ReportsEveryReplicaAndAll) {
  ArrayIter points = Points(LastBatch::kShort, 4);
  TrainedModelOptions options = Regression();
  options.report_replicas = true;
  GroupOptions group = PointsOn(2);
  group.workload = {3, 1};
  TrainedModel model(Linear(), group, options);
  ModelLearner learner({.iterators = {{"main", &points}}, .models = {{"main", &model}}});
  // The first batch by the initial weights: 0.3 a - 0.2 b + 0.1.
  const double errors[] = {-1.0, 0.45, -1.3, 0.6};
  learner.Update();
  model.Settle();
  Observation first;
  learner.Observe(&first);
  double squares[4];
  for (int i = 0; i < 4; ++i) squares[i] = errors[i] * errors[i];
  EXPECT_NEAR(first.Find("main/0/mse")->value, (squares[0] + squares[1] + squares[2]) / 3, 1e-6);
  EXPECT_NEAR(first.Find("main/1/mse")->value, squares[3], 1e-6);
  EXPECT_NEAR(first.Find("main/mse")->value, (squares[0] + squares[1] + squares[2] + squares[3]) / 4, 1e-6);
  EXPECT_EQ(first.Find("main/mse")->weight, 4);
  EXPECT_EQ(first.Find("main/1/mse")->weight, 1);
  Observation nothing;
  learner.Observe(&nothing);
  EXPECT_TRUE(nothing.values().empty());
  learner.Update();  // the last two: the end of the epoch, so all is over
  Observation second;
  learner.Observe(&second);
  EXPECT_EQ(second.Find("main/mse")->weight, 2);
}

TEST(ModelLearner, ConvertsEachDevicesShare) {
  std::vector<std::pair<std::string, std::vector<int64_t>>> seen;
  const auto halves = [&](const Batch& share, Device device) {  // data were stored at half the size, say
    seen.emplace_back(ToString(device), share.index);
    Batch converted = share;
    for (float& value : converted.data[0].data<float>()) value *= 2;
    return converted;
  };
  for (const SampleOrder order : {SampleOrder::kContiguous, SampleOrder::kStrided}) {
    HostTensor small = HostTensor::From({7, 2}, {1, 2, 0.5f, -1, 2, 0, -1, 1, 0, 3, 1.5f, 0.5f, 1, 1});
    HostTensor large = small, labels = HostTensor::From({7, 1}, {1, 0, 2, -1, 0.5f, 1, 0});
    for (float& value : large.data<float>()) value *= 2;
    std::vector<HostTensorMap> trained;
    for (const bool converts : {false, true}) {
      seen.clear();
      ArrayIter data(converts ? small : large, labels, {.batch_size = 7});
      TrainedModel model(Linear(), PointsOn(3), Regression());
      ModelLearner learner({.iterators = {{"main", &data}},
                            .models = {{"main", &model}},
                            .converter = converts ? Converter(halves) : Converter(),
                            .order = order});
      learner.Update();
      trained.push_back(model.ToModel().params);
    }
    EXPECT_EQ(trained[0], trained[1]);
    const bool strided = order == SampleOrder::kStrided;
    using Rows = std::vector<int64_t>;
    ASSERT_EQ(seen.size(), 3u);
    EXPECT_EQ(seen[0], std::pair(ToString(TestDevice(0)), strided ? Rows{0, 3, 6} : Rows{0, 1, 2}));
    EXPECT_EQ(seen[1], std::pair(ToString(TestDevice(1)), strided ? Rows{1, 4} : Rows{3, 4}));
    EXPECT_EQ(seen[2], std::pair(ToString(TestDevice(2)), strided ? Rows{2, 5} : Rows{5, 6}));
  }
  // Fewer samples than devices; and a converter that loses some.
  ArrayIter two(HostTensor::From({2, 2}, {1, 2, 3, 4}), HostTensor::From({2, 1}, {1, 0}), {.batch_size = 2});
  TrainedModel model(Linear(), PointsOn(3), Regression());
  seen.clear();
  ModelLearner learner({.iterators = {{"main", &two}}, .models = {{"main", &model}}, .converter = halves});
  learner.Update();
  EXPECT_EQ(seen.size(), 2u);
  ModelLearner loses({.iterators = {{"main", &two}},
                      .models = {{"main", &model}},
                      .converter = [](const Batch&, Device) { return Batch{}; }});
  EXPECT_NE(MessageOf<DataError>([&] { loses.Update(); }).find("the converter made 0 samples"), std::string::npos);
}

TEST(ModelLearner, StridesNeedEqualWorkloads) {
  ArrayIter points = Points();
  GroupOptions group = PointsOn(2);
  group.workload = {2, 1};
  TrainedModel model(Linear(), group, Regression());
  ModelLearner learner(
      {.iterators = {{"main", &points}}, .models = {{"main", &model}}, .order = SampleOrder::kStrided});
  EXPECT_EQ(MessageOf([&] { learner.Update(); }),
            "Error: samples are shared out in strides among devices of one workload only");
}

// The same training by a group of the user's own, and one that is scaled.
TEST(ModelLearner, TakesReplicasOfTheUsers) {
  auto replicas = std::make_unique<DataParallelExecutorGroup>(SquaredError(Linear().symbol), PointsOn(2));
  replicas->SetParams(Linear().params, {});
  TrainedModelOptions options = Regression();
  options.loss = {};
  TrainedModel given(std::move(replicas), options), made(Linear(), PointsOn(2), Regression());
  options = Regression();
  options.loss_scale = "static(64)";
  TrainedModel scaled(Linear(), PointsOn(2), options);
  for (TrainedModel* model : {&given, &made, &scaled}) {
    ArrayIter points = Points();
    ModelLearner learner({.iterators = {{"main", &points}}, .models = {{"main", model}}});
    for (int i = 0; i < 5; ++i) learner.Update();
    model->Settle();
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(Weights(*model)[i], kChainers[4][i], 3e-6);
  }
  EXPECT_EQ(Weights(given), Weights(made));
  // What is saved is the model, not what training put behind it.
  EXPECT_EQ(made.ToModel().symbol.ListArguments(), Linear().symbol.ListArguments());
  ArrayIter all = Points(LastBatch::kShort);
  EXPECT_EQ(given.Score(all), made.Score(all));
}

TEST(ModelLearner, AnOverflowIsSkippedOrTakenAgain) {
  for (const bool retry : {false, true}) {
    TrainedModelOptions options = Regression();
    options.loss_scale = retry ? "dynamic(start=9e15, max=9e15, backoff=1e-12, on_overflow=retry)"
                               : "dynamic(start=9e15, max=9e15, backoff=1e-12)";
    HostTensor large = HostTensor::Full(DType::kFloat32, {4, 2}, 1e16);
    ArrayIter data(large, HostTensor(DType::kFloat32, {4, 1}), {.batch_size = 4, .last_batch = LastBatch::kRepeat});
    options.optimizer = "sgd(lr=1e-40)";
    TrainedModel model(Linear(), PointsOn(2), options);
    ModelLearner learner({.iterators = {{"main", &data}}, .models = {{"main", &model}}});
    learner.Update();
    model.Settle();
    EXPECT_EQ(model.updater().step(), retry ? 1 : 0);
    EXPECT_NEAR(model.updater().loss_scale().scale, 9e3, 1);
  }
}

TEST(ModelLearner, AFailedStepIsThrownAndForgiven) {
  ArrayIter points = Points();
  TrainedModel model(Linear(), PointsOn(2), Regression());
  ModelLearner learner({.iterators = {{"main", &points}}, .models = {{"main", &model}}});
  learner.Update();
  const auto bad = std::make_shared<Batch>();
  bad->data = {HostTensor::Full(DType::kFloat32, {4, 2}, NAN)};
  bad->label = {HostTensor(DType::kFloat32, {4, 1})};
  bad->samples = 4;
  model.Settle();
  const std::vector<double> before = Weights(model);
  model.Step(bad);
  EXPECT_THROW(model.Settle(), NumericError);
  EXPECT_EQ(Weights(model), before);
  EXPECT_EQ(model.updater().step(), 1);
  learner.Update();
  model.Settle();
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(Weights(model)[i], kChainers[1][i], 2e-6);
}

TEST(ModelLearner, SaysWhichNamesThereAre) {
  ArrayIter points = Points();
  TrainedModel model(Linear(), PointsOn(1), Regression());
  EXPECT_EQ(MessageOf([&] {
              ModelLearner({.iterators = {{"train", &points}}, .models = {{"main", &model}}});
            }),
            "Error: there is no iterator \"main\"; did you mean \"train\"?");
  EXPECT_EQ(MessageOf([&] { ModelLearner({.iterators = {{"main", &points}}}); }), "Error: a learner needs a model");
  ModelLearner learner({.iterators = {{"main", &points}}, .models = {{"mian", &model}}});
  EXPECT_EQ(MessageOf([&] { learner.Update(); }), "Error: there is no model \"main\"; did you mean \"mian\"?");
  TrainedModelOptions options = Regression();
  EXPECT_THROW(
      TrainedModel(std::make_unique<DataParallelExecutorGroup>(SquaredError(Linear().symbol), PointsOn(1)), options),
      Error);
}

}  // namespace
}  // namespace bindery
