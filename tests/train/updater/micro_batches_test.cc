// Batches that are computed in pieces: by trainers and learners, as one step, with the metrics of the whole batch.
#include "train/updater/micro_batches.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "executor/placed_executor_group.h"
#include "symbol/ops.h"
#include "symbol/stages.h"
#include "tests/host_tensors.h"
#include "tests/log_lines.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "tests/test_folder.h"
#include "tests/train/fit_until.h"
#include "train/data/array_iter.h"
#include "train/loop/model_learner.h"
#include "train/trainer.h"

namespace bindery {
namespace {

Symbol Net(double dropout = 0) {
  Symbol x = Tanh(FullyConnected(Variable("data"), {.num_hidden = 6}, "fc1"), "tanh1");
  if (dropout > 0) x = Dropout(x, {.p = dropout}, "drop");
  return SoftmaxOutput(FullyConnected(x, {.num_hidden = 2}, "fc2"), {}, "softmax");
}

// 26 samples: batches of 8, and a last one of 2.
ArrayIter Points(bool shuffle = true, double bad_label_at = -1) {
  HostTensor labels = Filled({26}, [](int64_t i) { return i * i % 5 < 2; });
  if (bad_label_at >= 0) labels.Set(static_cast<int64_t>(bad_label_at), 7);
  return ArrayIter(Sines({26, 4}), std::move(labels), {.batch_size = 8, .shuffle = shuffle, .seed = 5});
}

TrainerOptions On(int devices, int64_t micro_batches, const std::string& optimizer = "sgd(lr=0.2, momentum=0.9)") {
  return {.devices = TestDeviceList(devices),
          .optimizer = optimizer,
          .metrics = "accuracy,cross-entropy,f1(average=macro)",
          .micro_batches = micro_batches,
          .seed = 3,
          .threads_per_device = 1};
}

std::vector<std::string> LinesOf(const std::function<void()>& f) {
  const LogLines log;
  f();
  return log.lines();
}

TEST(MicroBatches, NoneIsLargerThanThoseOfAWholeBatch) {
  for (const auto& [pieces, batch_size] : {std::pair(4, 64), {3, 64}, {64, 64}, {6, 9}, {1, 8}}) {
    const MicroBatches cut{.pieces = pieces, .batch_size = batch_size};
    EXPECT_EQ(cut.PiecesOf(batch_size), pieces);
    for (int64_t samples = 1; samples <= 2 * batch_size; ++samples) {
      const int64_t count = cut.PiecesOf(samples);
      if (pieces == 1) {
        EXPECT_EQ(count, 1);
        continue;
      }
      EXPECT_LE(CeilDiv(samples, count), cut.largest()) << samples << " by " << pieces << " of " << batch_size;
      EXPECT_LE(count, samples);
    }
  }
}

TEST(MicroBatches, AreRowsOfTheBatch) {
  const std::shared_ptr<Engine> engine = DefaultEngine();
  HostTensor along = HostTensor::From({5, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  const GroupOptions group{.data = {{"rows", {5, 2}},
                                    {"columns", {2, 5}, DType::kFloat32, "TN"},
                                    {"all", {2}, DType::kFloat32, "C"},
                                    {"there", {5, 2}}}};
  Batch batch{.data = {along, along.Reshape({2, 5}), HostTensor::From({2}, {1, 2})},
              .samples = 4,
              .pad = 1,
              .index = {7, 5, 3, 1}};
  // On devices in pieces of one row and of four.
  Tensor one(engine, TestDevice(0), DType::kFloat32, {1, 2}), four(engine, TestDevice(1), DType::kFloat32, {4, 2});
  one.CopyFrom(along.Slice(0, 0, 1));
  four.CopyFrom(along.Slice(0, 1, 5));
  batch.device_data.Set(3, {one, four});
  const std::vector<BatchPtr> cut = CutBatch(std::make_shared<const Batch>(batch), group, 4, 3);
  ASSERT_EQ(cut.size(), 3u);
  const std::pair<int64_t, int64_t> ranges[] = {{0, 2}, {2, 3}, {3, 4}};
  for (size_t i = 0; i < 3; ++i) {
    const auto& [begin, end] = ranges[i];
    EXPECT_EQ(cut[i]->samples, end - begin);
    EXPECT_EQ(cut[i]->pad, 0);
    EXPECT_EQ(cut[i]->first, begin);
    EXPECT_EQ(cut[i]->data[0], along.Slice(0, begin, end));
    EXPECT_EQ(cut[i]->data[1], along.Reshape({2, 5}).Slice(1, begin, end));
    EXPECT_EQ(cut[i]->data[2], batch.data[2]);
    EXPECT_EQ(cut[i]->index, std::vector<int64_t>(batch.index.begin() + begin, batch.index.begin() + end));
    int64_t row = begin;
    for (const Tensor& piece : *cut[i]->device_data.Find(3)) {
      EXPECT_EQ(piece.ToHost(), along.Slice(0, row, row + piece.shape()[0]));
      row += piece.shape()[0];
    }
    EXPECT_EQ(row, end);
  }
  EXPECT_EQ(cut[0]->device_data.Find(3)->size(), 2u);
  Batch across;
  across.device_data.Set(1, {four});
  const GroupOptions columns{.data = {{"a", {5, 2}}, {"columns", {2, 5}, DType::kFloat32, "TN"}}};
  EXPECT_NE(MessageOf<DataError>([&] {
              CutBatch(std::make_shared<const Batch>(across), columns, 5, 2);
            }).find("\"columns\" lies on devices with its samples along axis 1"),
            std::string::npos);
}

TEST(MicroBatches, TrainAsOneBatchDoes) {
  for (const char* optimizer : {"sgd(lr=0.2, momentum=0.9)", "sgd(lr=0.2, clip_norm=0.05)", "lamb(lr=0.05, wd=0.01)"}) {
    std::vector<HostTensorMap> trained;
    std::vector<NamedValues> metrics;
    for (const auto& [devices, pieces] : {std::pair(1, 1), {1, 3}, {2, 2}, {3, 8}, {2, 5}}) {
      ArrayIter data = Points();
      Trainer trainer(Net(), On(devices, pieces, optimizer));
      const FitResult result = trainer.Fit(data, {.epochs = 3});
      EXPECT_EQ(result.steps, 12);
      EXPECT_EQ(trainer.micro_batches(), pieces);
      trained.push_back(trainer.ToModel().params);
      metrics.push_back(result.train);
      metrics.back().push_back(trainer.Score(data)[2]);
      EXPECT_LT(MostDifferent(trained.back(), trained[0]), 2e-6) << optimizer << ", " << pieces << " on " << devices;
      ASSERT_EQ(metrics.back().size(), 4u);
      for (size_t i = 0; i < 4; ++i) {
        // Accuracies are counts, and so is what F1 is made of: as a mean of what whole batches give.
        EXPECT_NEAR(metrics.back()[i].second, metrics[0][i].second, i == 1 ? 1e-5 : 1e-12) << metrics[0][i].first;
      }
    }
  }
}

// Each piece divides by what it has; the step is as long as that of the whole batch all the same.
TEST(MicroBatches, MeansAreOfAllPieces) {
  const Symbol x = FullyConnected(Variable("data"), {.num_hidden = 2}, "fc"), label = Variable("softmax_label");
  const Symbol valid = SoftmaxOutput(x, label, {.normalization = Normalization::kValid}, "softmax");
  const Symbol batch = SoftmaxOutput(x, label, {.normalization = Normalization::kBatch}, "softmax");
  const Symbol mean = MakeLoss(SoftmaxCrossEntropy(x, label, {}, LossReduction::kMean), {}, "loss")
                          .WithAnnotation("merge", "mean");  // so of one device
  const auto train = [](const Symbol& net, int devices, int64_t pieces, const std::string& optimizer) {
    TrainerOptions options = On(devices, pieces, optimizer);
    options.metrics = "loss";
    ArrayIter data = Points(false);
    Trainer trainer(net, options);
    trainer.Fit(data, {.epochs = 2});
    return trainer.ToModel().params;
  };
  for (const std::string optimizer : {"sgd(lr=0.5)", "sgd(lr=0.5, rescale=0.5)", "sgd(lr=0.5, clip_norm=0.1)"}) {
    for (const Symbol& net : {valid, mean, batch}) {
      const HostTensorMap whole = train(net, 1, 1, optimizer);
      for (const auto& [devices, pieces] : {std::pair(1, 2), {2, 4}, {1, 8}}) {
        if (net.entries() == mean.entries() && devices > 1) continue;
        EXPECT_LT(MostDifferent(train(net, devices, pieces, optimizer), whole), 2e-6) << optimizer << ", " << pieces;
      }
    }
  }
  // What is a mean of the batch and what is one of a piece would weigh differently.
  for (const Symbol& other : {batch, SoftmaxOutput(x, label, {}, "softmax")}) {
    const Symbol both = Group({mean, other});
    EXPECT_NE(train(both, 1, 1, "sgd(lr=0.5, rescale=1)").size(), 0u);
    EXPECT_NE(MessageOf([&] { train(both, 1, 2, "sgd(lr=0.5, rescale=1)"); }).find("micro-batches"), std::string::npos);
  }
}

// Masks go by the sample's place in the whole batch.
TEST(MicroBatches, DropWhatOneBatchWould) {
  std::vector<HostTensorMap> trained;
  for (const auto& [devices, pieces] : {std::pair(1, 1), {1, 3}, {2, 2}, {3, 8}, {2, 5}}) {
    ArrayIter data = Points();
    Trainer trainer(Net(0.4), On(devices, pieces));
    trainer.Fit(data, {.epochs = 3});
    trained.push_back(trainer.ToModel().params);
    EXPECT_LT(MostDifferent(trained.back(), trained[0]), 2e-6) << pieces << " on " << devices;
  }
  ArrayIter data = Points();
  Trainer without(Net(), On(1, 1));
  without.Fit(data, {.epochs = 3});
  EXPECT_GT(MostDifferent(without.ToModel().params, trained[0]), 1e-2);
}

TEST(MicroBatches, ScoreAndPredictInPieces) {
  ArrayIter data = Points(false);
  Trainer whole(Net(), On(2, 1)), pieces(Net(), On(2, 4));
  // Nothing is bound that is larger than a piece.
  whole.Fit(data, {.epoch_batches = 1});
  data.Reset();
  pieces.Fit(data, {.epoch_batches = 1});
  EXPECT_EQ(pieces.group()->options().data[0].shape, (Shape{2, 4}));
  EXPECT_LT(pieces.group()->stages()[0]->memory(0).arena, whole.group()->stages()[0]->memory(0).arena);
  EXPECT_LT(MaxAbsDiff(whole.Predict(data)[0], pieces.Predict(data)[0]), 2e-6);
  EXPECT_EQ(pieces.Predict({HostTensor(DType::kFloat32, {9, 4})})[0].shape(), (Shape{9, 2}));
  const NamedValues expected = whole.Score(data), scores = pieces.Score(data);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(scores[i].second, expected[i].second, 1e-5);
  // Before any Fit, a batch may be too small for as many.
  EXPECT_EQ(Trainer(pieces.ToModel(), On(2, 4)).Predict({HostTensor(DType::kFloat32, {1, 4})})[0].shape(),
            (Shape{1, 2}));
}

TEST(MicroBatches, ResumedAnywhereTheyEndInTheSameBits) {
  ArrayIter all = Points();
  Trainer whole(Net(0.3), On(2, 3));
  whole.Fit(all, {.epochs = 3});
  for (const int64_t stop : {1, 4, 6}) {
    const TestFolder made;
    const std::string& folder = made.path();
    ArrayIter data = Points(), again = Points(), others = Points();
    Trainer first(Net(0.3), On(2, 3)), second(Net(0.3), On(2, 3)), other(Net(0.3), On(2, 2));
    FitUntil(stop, &first, data, {.epochs = 3, .checkpoints = folder});
    const auto resume = [&](Trainer& trainer, ArrayIter& from) {
      return LinesOf([&] { trainer.Fit(from, {.epochs = 3, .checkpoints = folder, .keep = 9, .resume = true}); });
    };
    EXPECT_EQ(resume(second, again).size(), 1u);  // where it goes on
    EXPECT_EQ(second.ToModel().params, whole.ToModel().params) << stop;
    std::filesystem::remove_all(folder);
    first.Fit(data, {.epochs = 3, .checkpoints = folder});
    const std::vector<std::string> lines = resume(other, others);
    EXPECT_EQ(lines.front(), "the checkpoint was trained with micro-batches \"3\", this run goes on with \"2\"");
  }
}

// Whichever of a step's micro-batches it is in.
TEST(MicroBatches, ABadLabelAnywhereChangesNothing) {
  for (const double bad : {0, 3, 7}) {
    ArrayIter data = Points(false, bad);
    Trainer trainer(Net(), On(2, 4));
    trainer.Prepare(data);
    const HostTensorMap before = trainer.ToModel().params;
    EXPECT_NE(MessageOf<DataError>([&] { trainer.Fit(data, {}); }), "nothing was thrown") << bad;
    EXPECT_EQ(trainer.ToModel().params, before) << bad;
    EXPECT_EQ(trainer.updater()->step(), 0);
    trainer.Fit(data, {});  // goes on behind the batch
    EXPECT_EQ(trainer.updater()->step(), 3);
  }
}

TEST(MicroBatches, WhatIsNotFiniteIsNamed) {
  ArrayIter data = Points(false);
  Trainer trainer(Net(), On(2, 4, "sgd(lr=1e38)"));
  const std::string message = MessageOf<NumericError>([&] { trainer.Fit(data, {.epochs = 3}); });
  EXPECT_NE(message.find("(the first such value is in \""), std::string::npos) << message;
}

TEST(MicroBatches, OfPartsWithDevicesOfTheirOwn) {
  Symbol x = Variable("data");
  {
    const AttrScope low({{"ctx_group", "low"}});
    x = Tanh(FullyConnected(x, {.num_hidden = 6}, "fc1"), "tanh1");
  }
  {
    const AttrScope high({{"ctx_group", "high"}});
    x = SoftmaxOutput(FullyConnected(x, {.num_hidden = 2}, "fc2"), {}, "softmax");
  }
  const auto train = [](const Symbol& net, const TrainerOptions& options) {
    ArrayIter data = Points();
    Trainer trainer(net, options);
    trainer.Fit(data, {.epochs = 2});
    return trainer.ToModel().params;
  };
  TrainerOptions placed = On(0, 3);
  for (int r = 0; r < 2; ++r) {
    placed.devices.push_back(TestDevice(2 * r));
    placed.placements["low"].push_back(TestDevice(2 * r));
    placed.placements["high"].push_back(TestDevice(2 * r + 1));
  }
  EXPECT_LT(MostDifferent(train(x, placed), train(WithoutPlacements(x), On(1, 1))), 2e-6);
  placed.micro_batches = MicroBatches::kAutomatic;
  EXPECT_NE(MessageOf([&] { train(x, placed); }).find("give the number of micro-batches"), std::string::npos);
}

TEST(MicroBatches, WhatTheyCannotBe) {
  ArrayIter data = Points();
  const auto message = [&](TrainerOptions options) {
    return MessageOf([&] { Trainer(Net(), options).Fit(data, {}); });
  };
  EXPECT_EQ(message(On(1, 9)), "Error: micro_batches: a batch of 8 samples makes 1 to 8 of them, got 9");
  EXPECT_EQ(message(On(1, -1)), "Error: micro_batches: a batch of 8 samples makes 1 to 8 of them, got -1");
  TrainerOptions limited = On(1, 2);
  limited.memory_limit = 5;
  EXPECT_NE(message(limited).find("memory_limit is for micro_batches = MicroBatches::kAutomatic"), std::string::npos);
  const GroupOptions group{.data = data.ProvideData(), .labels = data.ProvideLabel(), .inputs_need_grad = true};
  EXPECT_NE(MessageOf([&] { TrainedModel(Net(), group, {.micro_batches = 2}); }).find("gradients of inputs"),
            std::string::npos);
}

// --- by a learner ---

GroupOptions GroupOf(const ArrayIter& data) {
  return {.devices = {TestDevice(0), TestDevice(1), TestDevice(2)},
          .data = data.ProvideData(),
          .labels = data.ProvideLabel(),
          .threads_per_device = 1,
          .seed = 3};
}

TEST(MicroBatches, ByALearner) {
  const auto twice = [](const Batch& share, Device) {
    Batch converted = share;
    for (float& value : converted.data[0].data<float>()) value *= 2;
    return converted;
  };
  for (const bool converts : {false, true}) {
    for (const SampleOrder order : {SampleOrder::kContiguous, SampleOrder::kStrided}) {
      const auto run = [&](int64_t pieces, Observation* observed) {
        ArrayIter data = Points();
        TrainedModel model(Net(), GroupOf(data),
                           {.optimizer = "sgd(lr=0.2, momentum=0.9)",
                            .metrics = "accuracy,f1(average=macro)",
                            .micro_batches = pieces,
                            .report_replicas = true});
        ModelLearner learner({.iterators = {{"main", &data}},
                              .models = {{"main", &model}},
                              .converter = converts ? Converter(twice) : Converter(),
                              .order = order});
        for (int i = 0; i < 6; ++i) learner.Update();
        model.Settle();
        learner.Observe(observed);
        ArrayIter test = Points(false);
        observed->Report("score", model.Score(test)[1].second);
        return model.ToModel().params;
      };
      Observation whole, cut;
      EXPECT_LT(MostDifferent(run(3, &cut), run(1, &whole)), 2e-6);
      for (const char* name : {"main/accuracy", "main/f1", "score"}) {
        ASSERT_TRUE(whole.Find(name)) << name;
        EXPECT_NEAR(cut.Find(name)->value, whole.Find(name)->value, 1e-12) << name;
        EXPECT_EQ(cut.Find(name)->weight, whole.Find(name)->weight) << name;
      }
      double samples = 0;  // of all replicas
      for (const char* name : {"main/0/accuracy", "main/1/accuracy", "main/2/accuracy"}) {
        samples += cut.Find(name)->weight;
      }
      EXPECT_EQ(samples, cut.Find("main/accuracy")->weight);
    }
  }
}

TEST(MicroBatches, OfReplicasOfTheUsers) {
  ArrayIter data = Points(false);
  const auto model = [&](GradReq request) {
    GroupOptions group = GroupOf(data);
    group.grad_req = request;
    auto replicas = std::make_unique<DataParallelExecutorGroup>(Net(), group);
    return std::make_unique<TrainedModel>(std::move(replicas), TrainedModelOptions{.micro_batches = 2});
  };
  const auto adds = model(GradReq::kAdd), writes = model(GradReq::kWrite);
  const BatchPtr batch = data.Next();
  EXPECT_EQ(adds->Cut(batch).size(), 2u);
  adds->Step(batch);
  adds->Settle();
  EXPECT_EQ(adds->updater().step(), 1);
  EXPECT_NE(MessageOf([&] { writes->Step(batch); }).find("micro-batches add up"), std::string::npos);
}

}  // namespace
}  // namespace bindery
