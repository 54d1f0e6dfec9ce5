// Training of models parts of which have devices of their own: the parameters are those of training on one device, a
// step is of all parts or of none, and files know nothing of placements.
#include <gtest/gtest.h>

#include <cmath>

#include "executor/placed_executor_group.h"
#include "symbol/chain.h"
#include "symbol/ops.h"
#include "symbol/stages.h"
#include "tests/host_tensors.h"
#include "tests/log_lines.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "tests/test_folder.h"
#include "train/data/array_iter.h"
#include "train/loop/loop.h"
#include "train/loop/model_learner.h"
#include "train/trainer.h"

namespace bindery {
namespace {

Symbol Low() { return Tanh(FullyConnected(Variable("data"), {.num_hidden = 6}, "fc1"), "tanh1"); }
Symbol Middle() {
  // No bias: its gradient would be nothing but rounding, which rules like Adam's take for a direction.
  const Symbol x = FullyConnected(Variable("data"), {.num_hidden = 5, .no_bias = true}, "fc2");
  return Dropout(Relu(BatchNorm(x, {.sync = true}, "bn")), {.p = 0.25}, "drop");
}
Symbol High() { return SoftmaxOutput(FullyConnected(Variable("data"), {.num_hidden = 3}, "fc3"), {}, "softmax"); }

// Parts "low", "middle" and again "low".
Symbol Net() {
  return Chain({{.name = "features", .symbol = Low(), .placement = "low"},
                {.name = "middle", .symbol = Middle(), .placement = "middle"},
                {.name = "classifier", .symbol = High(), .take_labels = true, .placement = "low"}});
}

ArrayIter Points(int64_t batch_size = 7, bool shuffle = true) {
  return ArrayIter(Sines({26, 4}), ClassesInTurn(26, 3), {.batch_size = batch_size, .shuffle = shuffle, .seed = 5});
}

// Replica r: "low" on device 2 r, "middle" on device 2 r + 1.
TrainerOptions Placed(int replicas, const std::string& optimizer = "sgd(lr=0.2, momentum=0.9, wd=0.01)") {
  TrainerOptions options{.devices = {}, .optimizer = optimizer, .seed = 3, .threads_per_device = 1};
  for (int r = 0; r < replicas; ++r) {
    options.devices.push_back(TestDevice(2 * r));
    options.placements["low"].push_back(TestDevice(2 * r));
    options.placements["middle"].push_back(TestDevice(2 * r + 1));
  }
  return options;
}

Model Train(const Symbol& net, const TrainerOptions& options, int64_t epochs = 2, const std::string& checkpoints = "") {
  Trainer trainer(net, options);
  ArrayIter data = Points();
  trainer.Fit(data, {.epochs = epochs, .checkpoints = checkpoints});
  return trainer.ToModel();
}

double MostDifferent(const Model& a, const Model& b) {
  return std::max(MostDifferent(a.params, b.params), MostDifferent(a.aux, b.aux));
}

TEST(PlacedTraining, EqualsOneDevice) {
  for (const char* optimizer : {"sgd(lr=0.2, momentum=0.9, wd=0.01)", "sgd(lr=0.2, clip_norm=0.05)", "adam(lr=0.02)",
                                "lamb(lr=0.05, wd=0.01)"}) {
    TrainerOptions alone = Placed(1, optimizer);
    alone.placements.clear();
    alone.devices = {Cpu(0)};
    alone.schedule = "factor(step=3, factor=0.5)";
    const Model expected = Train(WithoutPlacements(Net()), alone);
    for (const int replicas : {1, 2}) {
      for (const KVStoreType kvstore : {KVStoreType::kDevice, KVStoreType::kLocal}) {
        SCOPED_TRACE(fmt::format("{}, {} replicas", optimizer, replicas));
        TrainerOptions options = Placed(replicas, optimizer);
        options.schedule = alone.schedule;
        options.kvstore = kvstore;
        if (replicas == 2) options.workload = {2, 1};
        EXPECT_LT(MostDifferent(Train(Net(), options), expected), 1e-4);
      }
    }
  }
}

// float16 with a loss scale that overflows at first.
TEST(PlacedTraining, OneLossScaleForAllParts) {
  TrainerOptions alone = Placed(1, "sgd(lr=0.1, momentum=0.9)");
  alone.precision = "float16";
  alone.loss_scale = "dynamic(start=16777216, max=16777216, on_overflow=retry)";
  TrainerOptions placed = alone, two = Placed(2, alone.optimizer);
  alone.placements.clear();
  two.precision = alone.precision;
  two.loss_scale = alone.loss_scale;
  const LogLines log;  // of overflows
  const auto train = [](const Symbol& net, const TrainerOptions& options) {
    Trainer trainer(net, options);
    ArrayIter data = Points();
    trainer.Fit(data, {.epochs = 2});
    return std::tuple(trainer.ToModel(), trainer.updater()->loss_scale().scale, trainer.updater()->step());
  };
  const auto [expected, scale, steps] = train(WithoutPlacements(Net()), alone);
  EXPECT_LT(scale, 16777216);
  for (const TrainerOptions& options : {placed, two}) {
    const auto [model, own_scale, own_steps] = train(Net(), options);
    EXPECT_EQ(own_scale, scale);
    EXPECT_EQ(own_steps, steps);
    EXPECT_LT(MostDifferent(model, expected), 2e-2);
  }
}

TEST(PlacedTraining, ResumesToTheBitAndOnOtherDevices) {
  const LogLines log;  // of devices that are others
  for (const int replicas : {1, 2}) {
    TrainerOptions options = Placed(replicas, "adam(lr=0.02)");
    options.average = "ema(0.9)";
    const Model whole = Train(Net(), options, 3);
    TrainerOptions other = options;
    other.placements = {{"low", {Cpu(0)}}, {"middle", {Cpu(0)}}};
    other.devices = {Cpu(0)};
    for (const bool same : {true, false}) {
      const TestFolder folder;
      Train(Net(), options, 1, folder.path());
      Trainer trainer(Net(), same ? options : other);
      ArrayIter data = Points();
      trainer.Fit(data, {.epochs = 3, .checkpoints = folder.path(), .resume = true});
      EXPECT_LE(MostDifferent(trainer.ToModel(), whole), same ? 0 : 1e-4);
    }
  }
}

// A model that was saved is one model, of the names it was made with; without its placements it runs on one device.
TEST(PlacedTraining, IsSavedAsOneModel) {
  const std::string path = testing::TempDir() + "/placed.pb";
  Trainer trainer(Net(), Placed(2));
  ArrayIter data = Points(), test = Points(5, false);
  trainer.Fit(data, {.epochs = 1});
  trainer.Save(path);
  Model loaded = LoadModel(path);
  EXPECT_EQ(ListPlacements(loaded.symbol), (std::vector<std::string>{"low", "middle"}));
  EXPECT_EQ(loaded.params.size(), 7u);
  Trainer placed(loaded, Placed(1));
  EXPECT_NEAR(placed.Score(test)[1].second, trainer.Score(test)[1].second, 1e-5);
  EXPECT_THROW(Trainer(loaded).Score(test), ModelError);
  loaded.symbol = WithoutPlacements(loaded.symbol);
  Trainer alone(loaded);
  EXPECT_NEAR(alone.Score(test)[1].second, trainer.Score(test)[1].second, 1e-5);
  EXPECT_LT(MaxAbsDiff(alone.Predict(test)[0], trainer.Predict(test)[0]), 1e-5);
  const HostTensor sample = Filled({3, 4}, [](int64_t i) { return 0.1 * static_cast<double>(i); });  // no labels
  EXPECT_LT(MaxAbsDiff(Trainer(LoadModel(path), Placed(2)).Predict({sample})[0], alone.Predict({sample})[0]), 1e-5);
}

// Finite outputs, and a gradient of one part that overflows: of a_weight the data times b_weight, or the other way.
TEST(PlacedTraining, AStepOfWhichOnePartOverflowsChangesNothing) {
  const Symbol low = Mul(Variable("data"), Variable("a_weight", {.shape = Shape{1, 2}}), "x");
  const Symbol product = Mul(Variable("data"), Variable("b_weight", {.shape = Shape{1, 2}}), "y");
  const Symbol net =
      Chain({{.symbol = low, .placement = "low"}, {.symbol = MakeLoss(product, {}, "loss"), .placement = "middle"}});
  const TrainerOptions placed = Placed(2);
  for (const char* overflows : {"a_weight", "b_weight"}) {
    PlacedExecutorGroup group(net,
                              {.devices = placed.devices, .data = {{"data", {4, 2}}}, .placements = placed.placements});
    HostTensorMap params;
    for (const char* name : {"a_weight", "b_weight"}) {
      params[name] = HostTensor::Full(DType::kFloat32, {1, 2}, std::string(name) == overflows ? 1 : 1e10);
    }
    group.SetParams(params, {});
    Updater updater(&group, {.optimizer = MakeOptimizer("sgd(lr=1e3, momentum=0.9, rescale=1)")});
    const auto state = [&] {
      HostTensorMap now;
      group.GetParams(&now, nullptr);
      return std::pair(now, updater.State());
    };
    const auto before = state();
    const auto update = [&](double value) {
      const HostTensor data = HostTensor::Full(DType::kFloat32, {4, 2}, value);
      updater.Update(std::make_shared<const Batch>(Batch{.data = {data}, .samples = 4}));
    };
    update(1e28);
    EXPECT_TRUE(std::isfinite(group.Outputs()[0].ToHost().At(0)));
    const std::string message = MessageOf<NumericError>([&] { updater.WaitFor(1); });
    EXPECT_NE(message.find(fmt::format("the gradient of \"{}\" is not finite", overflows)), std::string::npos)
        << message;
    EXPECT_EQ(state(), before);
    updater.Forgive();
    update(1);
    EXPECT_NO_THROW(updater.WaitFor(2));
    for (const auto& [name, value] : state().first) EXPECT_NE(value, before.first.at(name)) << name;
  }
}

TEST(PlacedTraining, TheFirstBadValueIsNamedWithItsDevice) {
  const Symbol inside = Chain({{.symbol = Low(), .placement = "low"},
                               {.symbol = Exp(Variable("data") * 1e4, "exploded"), .placement = "middle"}});
  const auto values = std::make_shared<const HostTensor>(HostTensor::Full(DType::kFloat32, {14, 4}, 1));
  ArrayIter data({ArrayData{"data", values, ""}}, {}, {.batch_size = 7});
  Trainer trainer(MakeLoss(inside, {}, "loss"), [] {
    TrainerOptions options = Placed(1);
    options.metrics = "loss";
    return options;
  }());
  const std::string message = MessageOf<NumericError>([&] { trainer.Fit(data, {}); });
  const std::string expected = "(the first such value is in \"exploded_output\" on " + ToString(TestDevice(1)) +
                               ": element 0 is inf, of sample 0 of the batch)";
  EXPECT_NE(message.find(expected), std::string::npos) << message;
}

// Tables whose gradients are kept by rows, if the host addresses all parts, and steps of several micro-batches.
TEST(PlacedTraining, RowsAndMicroBatches) {
  const Symbol words = Embedding(Variable("data"), {.input_dim = 9, .output_dim = 3, .sparse_grad = true}, "words");
  const Symbol scores = FullyConnected(Variable("data"), {.num_hidden = 3}, "fc");
  const Symbol net =
      Chain({{.symbol = words, .placement = "low"},
             {.symbol = SoftmaxOutput(scores, {}, "softmax"), .take_labels = true, .placement = "middle"}});
  const auto batch = [](int64_t samples, int64_t seed) {
    return std::make_shared<const Batch>(
        Batch{.data = {Filled({samples, 2}, [=](int64_t i) { return (i * i + seed) % 9; })},
              .label = {Filled({samples}, [=](int64_t i) { return (i + seed) % 3; })}});
  };
  for (const bool by_rows : {true, false}) {
    const auto train = [&](const Symbol& symbol, const TrainerOptions& on) {
      const auto group = MakeGroup(symbol, {.devices = on.devices,
                                            .data = {{"data", {5, 2}}},
                                            .labels = {{"softmax_label", {5}}},
                                            .sparse_gradients = by_rows && (OnCpusOnly() || !on.placements.empty()),
                                            .grad_req = by_rows ? GradReq::kWrite : GradReq::kAdd,
                                            .threads_per_device = 1,
                                            .placements = on.placements});
      HostTensorMap params;
      group->GetParams(&params, nullptr);
      for (auto& [name, value] : params) {
        for (int64_t i = 0; i < value.elements(); ++i) value.Set(i, std::sin(static_cast<double>(3 * i + 1)));
      }
      group->SetParams(params, {});
      Updater updater(group.get(), {.optimizer = MakeOptimizer("sgd(lr=0.3, momentum=0.9)")});
      for (int64_t step = 1; step <= 4; ++step) {
        const std::vector<BatchPtr> micro = {batch(5, step), batch(3, 7 * step)};
        by_rows ? updater.Update(micro[0]) : updater.Update(micro);
        updater.WaitFor(step);
      }
      Model model;
      group->GetParams(&model.params, &model.aux);
      return model;
    };
    TrainerOptions alone = Placed(1);
    alone.placements.clear();
    const Model expected = train(WithoutPlacements(net), alone);
    for (const int replicas : {1, 2}) EXPECT_LT(MostDifferent(train(net, Placed(replicas)), expected), 1e-5) << by_rows;
  }
}

TEST(PlacedTraining, ByALearner) {
  GroupOptions options{
      .data = {{"data", {7, 4}}}, .labels = {{"softmax_label", {7}}}, .threads_per_device = 1, .seed = 3};
  const TrainerOptions devices = Placed(2);
  const auto train = [&](const Symbol& net, const GroupOptions& group) {
    TrainedModel model(net, group, {.optimizer = "adam(lr=0.02)", .metrics = "accuracy"});
    ArrayIter data = Points();
    ModelLearner learner({.iterators = {{"main", &data}}, .models = {{"main", &model}}});
    while (learner.epoch() < 2) learner.Update();
    learner.Finalize();
    Observation seen;
    learner.Observe(&seen);
    EXPECT_GT(seen.values().count("main/accuracy"), 0u);
    return model.ToModel();
  };
  const Model expected = train(WithoutPlacements(Net()), options);
  options.devices = devices.devices;
  options.placements = devices.placements;
  EXPECT_LT(MostDifferent(train(Net(), options), expected), 1e-4);
}

// Where the heads are on different placements, a metric has no place.
TEST(PlacedTraining, AMetricNeedsAllHeadsInOnePlace) {
  const Symbol net = Group(
      {Chain({{.symbol = Low(), .placement = "low"}, {.symbol = High(), .take_labels = true, .placement = "middle"}})});
  const Symbol inside = net.Internals();
  Trainer trainer(Group({net, MakeLoss(inside["tanh1_output"], {}, "penalty").WithAnnotation("ctx_group", "low")}),
                  Placed(1));
  ArrayIter data = Points();
  EXPECT_NE(
      MessageOf<Error>([&] { trainer.Fit(data, {}); }).find("a metric is measured where all outputs and labels are"),
      std::string::npos);
}

}  // namespace
}  // namespace bindery
