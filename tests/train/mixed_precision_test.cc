// Trainings whose layers run in bfloat16 or float16: as good as in float32, resumed to the bit, and what overflows
// moves nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "executor/units.h"
#include "kvstore/kvstore.h"
#include "symbol/ops.h"
#include "tests/log_lines.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "tests/test_folder.h"
#include "tests/train/fit_until.h"
#include "train/data/array_iter.h"
#include "train/data/digits.h"
#include "train/loop/model_learner.h"
#include "train/loop/trained_model.h"
#include "train/precision.h"
#include "train/trainer.h"
#include "train/zoo.h"

namespace bindery {
namespace {

ArrayIter Digits(int64_t count, bool shuffle = true, int64_t first = 0) {
  ImageSet set = DrawDigits(count, 1, first);
  return ArrayIter(std::move(set.images), std::move(set.labels), {.batch_size = 50, .shuffle = shuffle, .seed = 3});
}

TrainerOptions OptionsOf(const std::string& precision) {
  return {.devices = {TestDevice(0), TestDevice(1)},
          .optimizer = "sgd(lr=0.05, momentum=0.9)",
          .precision = precision,
          .seed = 4};
}

TEST(Precision, ReadsTexts) {
  EXPECT_FALSE(ParsePrecision("").has_value());
  EXPECT_FALSE(ParsePrecision("float32").has_value());
  EXPECT_EQ(ParsePrecision("bfloat16")->dtype, DType::kBFloat16);
  const auto options = ParsePrecision("float16(Pooling=float32, Normalize=low, Softmax=follow)");
  EXPECT_EQ(options->dtype, DType::kFloat16);
  EXPECT_EQ(options->operators,
            (OperatorPrecisions{
                {"Normalize", Precision::kLow}, {"Pooling", Precision::kFloat32}, {"Softmax", Precision::kFollow}}));
  EXPECT_EQ(MessageOf([] { ParsePrecision("float64"); }),
            "Error: unknown precision \"float64\"; did you mean \"float32\"?");
  EXPECT_EQ(MessageOf([] { Trainer(ModelByName("mlp"), {.precision = "bfloat16(SoftmaxOutput=low)"}); }),
            "Error: SoftmaxOutput is a loss: it cannot run in bfloat16");
}

// So few samples part trainings by a few answers. Simulated devices have the reference kernels only, which are slow:
// they train a small network, less, which tells less.
TEST(MixedPrecision, LearnsDigitsAsFloat32Does) {
  const int64_t count = OnCpusOnly() ? 1500 : 600, tested = OnCpusOnly() ? 1000 : 500;
  const auto train = [&](const std::string& precision) {
    ArrayIter data = Digits(count), test = Digits(tested, false, 100000);
    TrainerOptions options = OptionsOf(precision);
    options.schedule = "cosine(80)";
    Trainer trainer(ModelByName(OnCpusOnly() ? "lenet" : "mlp"), options);
    trainer.Fit(data, {.epochs = OnCpusOnly() ? 3 : 6});
    for (const auto& [name, value] : trainer.ToModel().params) EXPECT_EQ(value.dtype(), DType::kFloat32) << name;
    EXPECT_EQ(trainer.ToModel().symbol.DebugString(), trainer.symbol().DebugString());
    return trainer.Score(test)[0].second;
  };
  const double plain = train("float32");
  EXPECT_GT(plain, OnCpusOnly() ? 0.88 : 0.6);
  for (const char* precision : {"bfloat16", "float16"}) {
    EXPECT_NEAR(train(precision), plain, OnCpusOnly() ? 0.01 : 0.04) << precision;
  }
}

// Steps that overflow included: float16 begins with a few.
TEST(MixedPrecision, ResumedItEndsInTheSameBits) {
  for (const char* precision : {"bfloat16", "float16"}) {
    const auto make = [&] { return Trainer(ModelByName("mlp", {.dropout = 0.2}), OptionsOf(precision)); };
    ArrayIter all = Digits(330);
    Trainer whole = make();
    whole.Fit(all, {.epochs = 2});
    for (const int64_t stop : {2, 9}) {
      const TestFolder folder;
      ArrayIter data = Digits(330), again = Digits(330);
      Trainer first = make(), second = make();
      FitUntil(stop, &first, data, {.epochs = 2, .checkpoints = folder.path()});
      second.Fit(again, {.epochs = 2, .checkpoints = folder.path(), .resume = true});
      EXPECT_EQ(second.ToModel().params, whole.ToModel().params) << precision << ", stopped at " << stop;
    }
  }
}

TEST(MixedPrecision, AnotherPrecisionIsReported) {
  LogLines log;
  ArrayIter data = Digits(50);
  Trainer trained(ModelByName("mlp"), OptionsOf(""));
  trained.Fit(data, {});
  EXPECT_EQ(log.text(), "");
  Trainer mixed(ModelByName("mlp"), OptionsOf("bfloat16"));
  mixed.Restore(trained.ToCheckpoint());
  EXPECT_EQ(log.text(), "the checkpoint was trained with precision \"\", this run goes on with \"bfloat16\"\n");
  log.clear();
  mixed.Fit(data, {.epochs = 2});
  mixed.Score(data);
  const Device first = TestDevice(0);
  EXPECT_EQ(log.text(), HasUnitsFor(first.kind, DType::kBFloat16)
                            ? ""
                            : fmt::format("{} has no units for bfloat16: what runs in bfloat16 is computed in float32 "
                                          "and rounded; that takes less memory, but more time than float32\n",
                                          first));
}

// Data and labels of integers are told to the pass: what takes integers alone would throw, and what they are of would be
// cast.
TEST(MixedPrecision, IntegersStayIntegers) {
  Symbol x =
      Embedding(BitAnd(Variable("data"), 7.0), Variable("table_weight"), {.input_dim = 8, .output_dim = 4}, "table");
  x = FullyConnected(x, {.num_hidden = 3}, "fc");
  const Symbol net = SoftmaxOutput(x, BitAnd(Variable("softmax_label"), 3.0), {}, "softmax");
  HostTensor words(DType::kInt32, {6}), labels(DType::kInt32, {6});
  for (int64_t i = 0; i < 6; ++i) {
    words.Set(i, static_cast<double>(1000003 + i));
    labels.Set(i, static_cast<double>(i % 3));
  }
  for (const char* precision : {"bfloat16", "float16"}) {
    ArrayIter data(words, labels, {.batch_size = 6});
    Trainer trainer(net, OptionsOf(precision));
    trainer.Fit(data, {.epochs = 30});
    EXPECT_EQ(trainer.Score(data, "accuracy")[0].second, 1) << precision;
  }
}

// What layers read of parameters is made when these change (executor/group/derivation.h): by updates, of one batch or
// of several; not by steps that fail or overflow; by averages that take their place, and by whoever sets them.
TEST(MixedPrecision, CopiesOfParametersFollowThem) {
  struct Run {
    std::vector<HostTensor> outputs;
    HostTensorMap params;
    bool operator==(const Run&) const = default;
  };
  const auto train = [](const std::string& precision, bool in_parts, bool derives) {
    TrainedModel model(ModelByName("mlp"),
                       {.devices = {TestDevice(0), TestDevice(1)},
                        .data = {{"data", {9, 1, 28, 28}}},
                        .labels = {{"softmax_label", {9}}},
                        .grad_req = in_parts ? GradReq::kAdd : GradReq::kWrite,
                        .seed = 2,
                        .switches = {.derive = derives}},
                       {.optimizer = "adam(lr=0.01)", .precision = precision, .average = "ema(0.5)"});
    DataParallelExecutorGroup& group = *model.group().stages()[0];
    EXPECT_EQ(group.plan().derived.empty(), !derives);
    Updater& updater = model.updater();
    Run run;
    const auto predict = [&](int64_t samples) {
      group.Forward(Batch{.data = {DrawDigits(samples, 5).images}}, Mode::kPredict);
      run.outputs.push_back(group.Outputs()[0].ToHost());
    };
    for (int64_t step = 0; step < 8; ++step) {
      ImageSet set = DrawDigits(9, 1, 9 * step);
      if (step == 3) set.images.Set(0, std::numeric_limits<double>::infinity());
      const auto rows = [&](int64_t begin, int64_t end) {
        return std::make_shared<const Batch>(
            Batch{.data = {set.images.Slice(0, begin, end)}, .label = {set.labels.Slice(0, begin, end)}});
      };
      const std::vector<BatchPtr> parts = {rows(0, 2), rows(2, 3), rows(3, 9)};
      const HostTensorMap before = model.ToModel().params;
      in_parts ? updater.Update(parts) : updater.Update(rows(0, 9));
      bool done = false;
      try {
        done = updater.Finish(updater.step());  // not if it overflows
      } catch (const NumericError&) {
        updater.GoBack(updater.step());
      }
      EXPECT_NE(done, step == 3 || model.ToModel().params == before);
      predict(9);
      if (step % 2 == 0) predict(4);
      const HostTensorMap averages = updater.Averages();
      if (step == 5) group.SetParams(averages, {}, {.allow_missing = true});
      if (step != 6) continue;
      const auto store = KVStore::Create(KVStoreType::kDevice, group.engine());
      for (const ReplicatedParam& p : group.params()) {
        if (!p.name.ends_with("bias")) continue;
        store->Init(p.name, HostTensor::Full(DType::kFloat32, p.values[0].shape(), 0.125));
        store->Pull(p.name, p.values);
      }
      predict(9);
    }
    predict(9);
    run.params = model.ToModel().params;
    return run;
  };
  for (const char* precision : {"bfloat16", "float16"}) {
    for (const bool in_parts : {false, true}) {
      EXPECT_EQ(train(precision, in_parts, true), train(precision, in_parts, false)) << precision << ", " << in_parts;
    }
  }
}

// A model of a learner: as replicas that are bound in the precision by hand, and as a trainer does, float32 outside, and
// a loss scale with float16.
TEST(MixedPrecision, OfATrainedModel) {
  const Model model{
      .symbol = FullyConnected(Variable("data"), {.num_hidden = 1}, "fc"),
      .params = {{"fc_weight", HostTensor::From({1, 2}, {0.3f, -0.2f})}, {"fc_bias", HostTensor::From({1}, {0.1f})}}};
  const auto loss = [](const Symbol& outputs) {
    return LinearRegressionOutput(outputs, Variable("softmax_label"), {.grad_scale = 2}, "out");
  };
  const GroupOptions group{
      .devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {4, 2}}}, .labels = {{"softmax_label", {4, 1}}}};
  const auto train = [](TrainedModel* trained) {
    ArrayIter points(HostTensor::From({6, 2}, {1, 2, 0.5f, -1, 2, 0, -1, 1, 0, 3, 1.5f, 0.5f}),
                     HostTensor::From({6, 1}, {1, 0, 2, -1, 0.5f, 1}),
                     {.batch_size = 4, .last_batch = LastBatch::kRepeat});
    ModelLearner learner({.iterators = {{"main", &points}}, .models = {{"main", trained}}});
    for (int i = 0; i < 5; ++i) learner.Update();
    trained->Settle();
    return trained->ToModel();
  };
  const TrainedModelOptions options{.optimizer = "sgd(lr=0.1)", .metrics = "mse"};
  const auto in = [&](const std::string& precision, const std::string& loss_scale = {}) {
    TrainedModelOptions own = options;
    own.precision = precision;
    own.loss_scale = loss_scale;
    own.loss = loss;
    return std::make_unique<TrainedModel>(model, group, own);
  };
  const auto replicas = [&](const Symbol& symbol) {
    auto bound = std::make_unique<DataParallelExecutorGroup>(symbol, group);
    bound->SetParams(model.params, {});
    return bound;
  };
  const auto low = in("bfloat16");
  EXPECT_FALSE(low->updater().loss_scaling().has_value());
  const Model trained = train(low.get());
  TrainedModel by_hand(replicas(MixedPrecision(loss(model.symbol))), options);
  EXPECT_EQ(trained.params, train(&by_hand).params);
  EXPECT_NE(trained.params, train(in("").get()).params);
  EXPECT_EQ(trained.params.at("fc_weight").dtype(), DType::kFloat32);
  EXPECT_EQ(trained.symbol.DebugString(), model.symbol.DebugString());

  const auto half = in("float16(FullyConnected=low)");
  ASSERT_TRUE(half->updater().loss_scaling().has_value());
  EXPECT_EQ(half->updater().loss_scale().scale, 65536);
  EXPECT_NE(train(half.get()).params, model.params);
  EXPECT_LT(half->updater().loss_scale().scale, 65536);  // the gradients of the first steps are beyond float16
  EXPECT_EQ(in("float16", "static(8)")->updater().loss_scale().scale, 8);

  TrainedModelOptions own = options;
  own.precision = "float32";  // as they are
  EXPECT_NO_THROW(TrainedModel(replicas(loss(model.symbol)), own));
  own.precision = "bfloat16";
  EXPECT_EQ(MessageOf([&] { TrainedModel(replicas(loss(model.symbol)), own); }),
            "Error: replicas that are bound have their precision");
  EXPECT_NE(MessageOf([&] { in("float8"); }).find("unknown precision \"float8\""), std::string::npos);
}

// Another precision is a difference that is logged, as a trainer does; parameters and states are float32 in any.
TEST(MixedPrecision, ALearnersCheckpointKnowsItsPrecision) {
  const GroupOptions group{.devices = {TestDevice(0), TestDevice(1)},
                           .data = {{"data", {50, 1, 28, 28}}},
                           .labels = {{"softmax_label", {50}}}};
  struct Run {
    Run(const GroupOptions& group, const TrainedModelOptions& options)
        : model(ModelByName("mlp"), group, options),
          learner({.iterators = {{"main", &data}}, .models = {{"main", &model}}}) {}
    ArrayIter data = Digits(100);
    TrainedModel model;
    ModelLearner learner;
  };
  Run low(group, {.optimizer = "sgd(lr=0.1)", .precision = "bfloat16"});
  low.learner.Update();
  const Checkpoint saved = low.learner.ToCheckpoint();
  EXPECT_EQ(saved.info.at("model:main/run/precision"), "bfloat16");
  const auto lines = [&](const TrainedModelOptions& options, const Checkpoint& checkpoint) {
    Run run(group, options);
    const LogLines warnings(LogLevel::kWarning);
    run.learner.Restore(checkpoint);
    EXPECT_EQ(run.model.ToModel().params, low.model.ToModel().params);
    return warnings.lines();
  };
  using Lines = std::vector<std::string>;
  EXPECT_EQ(lines({.optimizer = "sgd(lr=0.1)", .precision = "bfloat16"}, saved), Lines());
  EXPECT_EQ(
      lines({.optimizer = "sgd(lr=0.1)"}, saved),
      Lines{"model \"main\" of the checkpoint was trained with precision \"bfloat16\", this run goes on with \"\""});
  EXPECT_EQ(lines({.optimizer = "sgd(lr=0.1)", .precision = "bfloat16", .micro_batches = 2}, saved).size(), 1u);
  EXPECT_EQ(
      lines({.optimizer = "sgd(lr=0.2)", .schedule = "factor(step=3, factor=0.5)", .precision = "bfloat16"}, saved)
          .size(),
      2u);
  // One that says nothing of it, as those before did.
  Checkpoint older = saved;
  std::erase_if(older.info, [](const auto& entry) { return entry.first.find("/run/") != std::string::npos; });
  EXPECT_EQ(lines({.optimizer = "sgd(lr=0.1)"}, older), Lines());
}

// Attention with a mask of -1e9: in float16 that is infinite, and rows that see nothing would be NaN.
TEST(MixedPrecision, MasksInFloat16) {
  const Symbol data = Variable("data"), mask = Variable("mask", {.dtype = DType::kBool});
  const auto project = [&](const char* name) {
    return FullyConnected(data, {.num_hidden = 4, .flatten = false}, name);
  };
  const Symbol scores = MatMul(project("query"), project("key"), {.transpose_b = true}) * 0.5;
  const Symbol seen = Softmax(Where(mask, scores, -1e9), {}, "seen");
  const Symbol net = LinearRegressionOutput(MatMul(seen, project("value")), {}, "out");
  HostTensor values(DType::kFloat32, {2, 3, 4}), seeing(DType::kBool, {2, 3, 3});
  for (int64_t i = 0; i < values.elements(); ++i) values.Set(i, std::sin(static_cast<double>(i)));
  for (int64_t i = 0; i < seeing.elements(); ++i)
    seeing.Set(i, i % 3 <= i / 3 % 3 && i / 3 != 4);  // row 4 sees nothing
  const auto outputs = [&](const std::string& precision) {
    TrainerOptions options = OptionsOf(precision);
    options.loss_scale = precision.empty() ? "" : "static(16)";
    options.metrics = "mse";
    const auto share = [](const HostTensor& of) { return std::make_shared<const HostTensor>(of); };
    ArrayIter data({{"data", share(values)}, {"mask", share(seeing)}}, {{"out_label", share(values)}},
                   {.batch_size = 2});
    Trainer trainer(net, options);
    trainer.Fit(data, {.epochs = 3});
    return trainer.Predict(data)[0];
  };
  const HostTensor plain = outputs("");
  EXPECT_LT(MaxAbsDiff(outputs("float16"), plain), 0.01);
  EXPECT_LT(MaxAbsDiff(outputs("bfloat16"), plain), 0.05);
}

// The gradient of the output is that of the loss, -1, times the scale: 65536 is beyond float16, not beyond bfloat16.
TEST(MixedPrecision, AnOverflowInFloat16MovesNothing) {
  const Symbol net = LinearRegressionOutput(FullyConnected(Variable("data"), {.num_hidden = 1}, "fc"), {}, "out");
  const BatchPtr batch = std::make_shared<const Batch>(Batch{.data = {HostTensor::Full(DType::kFloat32, {2, 2}, 1)},
                                                             .label = {HostTensor::Full(DType::kFloat32, {2, 1}, 1)},
                                                             .samples = 2});
  const HostTensorMap zeros = {{"fc_weight", HostTensor(DType::kFloat32, {1, 2})},
                               {"fc_bias", HostTensor(DType::kFloat32, {1})}};
  for (const DType low : {DType::kBFloat16, DType::kFloat16}) {
    DataParallelExecutorGroup group(
        ScaleLosses(MixedPrecision(net, {.dtype = low})),
        {.devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {2, 2}}}, .labels = {{"out_label", {2, 1}}}});
    group.SetParams(zeros, {});
    Updater updater(
        &group, {.optimizer = MakeOptimizer("sgd(lr=0.125, momentum=0.5)"), .loss_scale = ParseLossScaling("dynamic")});
    const auto params = [&] {
      HostTensorMap now;
      group.GetParams(&now, nullptr);
      return now;
    };
    updater.Update(batch);
    const bool overflows = low == DType::kFloat16;
    EXPECT_EQ(updater.Finish(updater.step()), !overflows);
    EXPECT_EQ(updater.step(), overflows ? 0 : 1);
    EXPECT_EQ(updater.loss_scale().scale, overflows ? 32768 : 65536);
    if (overflows) {
      EXPECT_EQ(params(), zeros);
      EXPECT_EQ(updater.State().at("fc_bias:momentum"), HostTensor(DType::kFloat32, {1}));
      updater.Update(batch);
      EXPECT_TRUE(updater.Finish(updater.step()));
    }
    EXPECT_EQ(params().at("fc_bias").At(0), 0.125) << ToString(low);
    EXPECT_EQ(params().at("fc_weight").At(1), 0.125) << ToString(low);
  }
}

}  // namespace
}  // namespace bindery
