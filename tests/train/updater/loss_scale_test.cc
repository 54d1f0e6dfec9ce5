// Loss scaling: what gradients are times, what overflows do, and that nothing else depends on it.
#include "train/loss_scale.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <set>

#include "base/log.h"
#include "kvstore/kvstore.h"
#include "symbol/graph.h"
#include "symbol/ops.h"
#include "tests/host_tensors.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "tests/test_folder.h"
#include "tests/train/fit_until.h"
#include "train/data/array_iter.h"
#include "train/data/digits.h"
#include "train/trainer.h"
#include "train/zoo.h"

namespace bindery {
namespace {

constexpr double kStart = 65536, kHuge = 1e33;
constexpr int64_t kSamples = 4;

TEST(LossScaling, ReadsWhatItPrints) {
  const char* dynamic =
      "dynamic(start=8, growth=2, backoff=0.5, interval=2000, min=1, max=16777216, on_overflow=retry, limit=100)";
  for (const char* text : {"static(scale=1024)", dynamic}) EXPECT_EQ(ParseLossScaling(text)->Text(), text);
  EXPECT_EQ(ParseLossScaling("dynamic(8, on_overflow=retry)")->Text(), dynamic);
  EXPECT_FALSE(ParseLossScaling("").has_value());
  const auto message = [](const char* text) { return MessageOf<Error>([&] { ParseLossScaling(text); }); };
  EXPECT_EQ(message("static"), "Error: loss scale \"static\": \"scale\" is missing");
  EXPECT_EQ(message("static(0)"), "Error: loss scale \"static(0)\": the scale must be > 0");
  EXPECT_EQ(message("dynamic(8, min=9)"), "Error: loss scale \"dynamic(8, min=9)\": expected 0 < min <= start <= max");
  EXPECT_EQ(message("static(1e16)"), "Error: loss scale \"static(1e16)\": a scale is at most 2^53");
  EXPECT_EQ(message("dynamic(max=1e16)"), "Error: loss scale \"dynamic(max=1e16)\": a scale is at most 2^53");
  EXPECT_EQ(message("dynamic(growth=0.5)"), "Error: loss scale \"dynamic(growth=0.5)\": growth must be >= 1");
  EXPECT_EQ(message("dynamic(interval=0)"), "Error: loss scale \"dynamic(interval=0)\": interval must be >= 1");
  EXPECT_EQ(message("dynamic(on_overflow=stop)"),
            "Error: loss scale \"dynamic(on_overflow=stop)\": on_overflow must be skip or retry, got \"stop\"");
}

// The scale after each of these steps, in parts of kStart.
std::vector<double> ScalesOf(const char* text, const std::vector<bool>& overflows) {
  const LossScaling scaling = *ParseLossScaling(text);
  LossScaleState state = FirstState(scaling);
  std::vector<double> scales;
  for (const bool overflow : overflows) {
    state = overflow ? AfterOverflow(scaling, state) : AfterCommit(scaling, state);
    scales.push_back(state.scale / kStart);
  }
  return scales;
}

// The numbers are those of PyTorch 2.15: torch._amp_update_scale_, by which its GradScaler goes, growth every 3 steps.
TEST(LossScaling, GrowsAndBacksOffAsPyTorchs) {
  const std::vector<bool> overflows = {false, false, false, true,  false, false, true,  true, false,
                                       false, false, false, false, false, false, false, false};
  EXPECT_EQ(ScalesOf("dynamic(interval=3)", overflows),
            (std::vector<double>{1, 1, 2, 1, 1, 1, 0.5, 0.25, 0.25, 0.25, 0.5, 0.5, 0.5, 1, 1, 1, 2}));
}

// NNabla's grows after N + 2, later N + 1 good steps, and gives up without a word after 100 overflows in a row.
TEST(LossScaling, GrowsAfterJustTheInterval) {
  const LossScaling scaling = *ParseLossScaling("dynamic(start=8, interval=2000, min=1e-300)");
  LossScaleState state = AfterOverflow(scaling, FirstState(scaling));
  for (const double scale : {4, 8, 16}) {
    for (int step = 0; step < 2000; ++step) {
      ASSERT_EQ(state.scale, scale) << step;
      state = AfterCommit(scaling, state);
    }
  }
  for (int step = 0; step < 100; ++step) state = AfterOverflow(scaling, state);
  EXPECT_THROW(AfterOverflow(scaling, state), NumericError);
}

// PyTorch's has none.
TEST(LossScaling, StaysBetweenItsBounds) {
  EXPECT_EQ(ScalesOf("dynamic(interval=1, max=131072, min=32768)", {true, true, false, false, false}),
            (std::vector<double>{0.5, 0.5, 1, 2, 2}));
}

BatchPtr BatchOf(double value, int64_t samples = kSamples) {
  return std::make_shared<const Batch>(
      Batch{.data = {HostTensor::Full(DType::kFloat32, {samples, 1}, value)}, .samples = samples});
}

// The gradient of w is the sum of the data times kHuge, so of kSamples times a value of 1 it is finite at a scale of
// kStart, and of a value of 2 at no more than half of it.
Symbol Linear() {
  return MakeLoss(Variable("data") * Variable("w", {.shape = Shape{1, 1}, .init = "zero"}), {.grad_scale = kHuge},
                  "loss");
}

struct Serial {
  explicit Serial(const char* text) : scaling(*ParseLossScaling(text)), state(FirstState(scaling)) {}
  // A step; false if it overflows.
  bool Take(double value) {
    const double gradient = value * kSamples * kHuge * state.scale;
    const bool good = gradient < std::numeric_limits<float>::max();
    state = good ? AfterCommit(scaling, state) : AfterOverflow(scaling, state);
    if (good) sum += value;
    if (good) ++steps;
    return good;
  }
  LossScaling scaling;
  LossScaleState state;
  double sum = 0;
  int64_t steps = 0;
};

class LossScaleTest : public testing::Test {
 protected:
  std::unique_ptr<DataParallelExecutorGroup> MakeGroup(GradReq req = GradReq::kWrite) const {
    auto group = std::make_unique<DataParallelExecutorGroup>(
        ScaleLosses(Linear()), GroupOptions{.devices = devices_, .data = {{"data", {kSamples, 1}}}, .grad_req = req});
    group->SetParams({{"w", HostTensor(DType::kFloat32, {1, 1})}}, {});
    return group;
  }
  static double Weight(const DataParallelExecutorGroup& group) {
    HostTensorMap params;
    group.GetParams(&params, nullptr);
    return -params.at("w").At(0);
  }
  const std::vector<Device> devices_ = {TestDevice(0), TestDevice(1)};
  const std::string optimizer_ = "sgd(lr=1e-33)";
};

TEST_F(LossScaleTest, IsAFactorOfGradients) {
  const Symbol x = Variable("data") * Variable("w", {.shape = Shape{1, 1}});
  for (const Symbol& head : {MakeLoss(x, {.grad_scale = 3}, "loss"), LinearRegressionOutput(x, {}, "out"),
                             SoftmaxOutput(Concat({x, x * 2.0}, {.axis = 1}), {}, "softmax")}) {
    const std::set<std::string> labels = ListLabels(head);
    std::vector<DataDesc> descs;
    Batch batch{.data = {HostTensor::Full(DType::kFloat32, {kSamples, 1}, 0.5)}, .samples = kSamples};
    for (const std::string& label : labels) {
      const Shape shape = label == "out_label" ? Shape{kSamples, 1} : Shape{kSamples};
      descs.push_back({label, shape});
      batch.label.push_back(HostTensor::Full(DType::kFloat32, shape, 1));
    }
    EXPECT_EQ(ListLabels(ScaleLosses(head)), labels);
    DataParallelExecutorGroup group(ScaleLosses(head),
                                    {.devices = {TestDevice(0)}, .data = {{"data", {kSamples, 1}}}, .labels = descs});
    group.SetParams({{"w", HostTensor::Full(DType::kFloat32, {1, 1}, 0.25)}}, {});
    const auto gradient = [&](double scale) {
      group.SetStep({.loss_scale = scale});
      group.ForwardBackward(std::make_shared<const Batch>(batch));
      return group.GetGradient("w", 0).At(0);
    };
    EXPECT_NE(gradient(1), 0);
    EXPECT_EQ(gradient(64), 64 * gradient(1));
  }
}

TEST_F(LossScaleTest, AnOverflowIsLeftOutAndLowersTheScale) {
  const char* text = "dynamic(interval=2, max=131072)";
  const auto group = MakeGroup();
  Updater updater(group.get(), {.optimizer = MakeOptimizer(optimizer_), .loss_scale = ParseLossScaling(text)});
  Serial serial(text);
  for (const double value : {1, 2, 2, 1, 1, 1, 1, 2, 4, 1}) {
    updater.Update(BatchOf(value));
    EXPECT_EQ(updater.Finish(updater.step()), serial.Take(value));
    EXPECT_EQ(updater.loss_scale(), serial.state);
    EXPECT_EQ(updater.step(), serial.steps);
    EXPECT_NEAR(Weight(*group), serial.sum, 1e-5);
  }
  EXPECT_LT(serial.steps, 9);
}

// Without Finish: Update looks itself what became of the step before.
TEST_F(LossScaleTest, UpdateFinishesTheStepBefore) {
  const char* text = "dynamic(interval=2)";
  const auto group = MakeGroup();
  Updater updater(group.get(), {.optimizer = MakeOptimizer(optimizer_), .loss_scale = ParseLossScaling(text)});
  Serial serial(text);
  for (const double value : {1, 2, 2, 1, 4, 4, 1, 1, 1}) {
    updater.Update(BatchOf(value));
    serial.Take(value);
  }
  updater.Finish(updater.step());
  EXPECT_EQ(updater.step(), serial.steps);
  EXPECT_NEAR(Weight(*group), serial.sum, 1e-5);
}

// The divisor is that of all samples of all batches, whatever the scale is; one batch that overflows is enough.
TEST_F(LossScaleTest, MicroBatchesAreOneStep) {
  const auto group = MakeGroup(GradReq::kAdd);
  Updater updater(group.get(), {.optimizer = MakeOptimizer(optimizer_), .loss_scale = ParseLossScaling("dynamic")});
  const std::vector<BatchPtr> good = {BatchOf(0.5, 3), BatchOf(1, 1)}, bad = {BatchOf(0.5, 3), BatchOf(8, 1)};
  updater.Update(good);
  EXPECT_TRUE(updater.Finish(1));
  EXPECT_NEAR(Weight(*group), (0.5 * 3 + 1) / 4, 1e-6);
  updater.Update(bad);
  EXPECT_FALSE(updater.Finish(2));
  updater.Update(bad);
  EXPECT_TRUE(updater.Finish(2));
  EXPECT_NEAR(Weight(*group), (0.5 * 3 + 1) / 4 + (0.5 * 3 + 8) / 4, 1e-5);
}

TEST_F(LossScaleTest, IsRefusedWhereItCannotBe) {
  DataParallelExecutorGroup plain(Linear(), {.devices = devices_, .data = {{"data", {kSamples, 1}}}});
  EXPECT_EQ(MessageOf<Error>([&] { Updater(&plain, {.loss_scale = ParseLossScaling("static(8)")}); }),
            "Error: a loss scale needs a group of ScaleLosses(symbol)");
  const LossScaling bad[] = {{.start = 0}, {.backoff = 2}, {.start = 1, .min = 2}, {.dynamic = false, .start = -1}};
  for (const LossScaling& scaling : bad) {
    const auto group = MakeGroup();
    EXPECT_NE(MessageOf<Error>([&] { Updater(group.get(), {.loss_scale = scaling}); }).find(scaling.Text()),
              std::string::npos);
  }
}

// 7 batches an epoch; the last ones overflow, too.
ArrayIter Data() {
  const double values[] = {1, 2, 1, 1, 4, 1, 4};
  const HostTensor data = Filled({7 * kSamples, 1}, [&](int64_t i) { return values[i / kSamples]; });
  return ArrayIter({ArrayData{"data", std::make_shared<const HostTensor>(data), ""}}, {}, {.batch_size = kSamples});
}

TrainerOptions OptionsOf(const std::string& loss_scale) {
  return {.devices = {TestDevice(0), TestDevice(1)},
          .optimizer = "sgd(lr=1e-33)",
          .initializer = "zero",
          .metrics = "loss",
          .loss_scale = loss_scale};
}

// Micro-batches overflow together.
TEST_F(LossScaleTest, TrainersLeaveOutOrRetry) {
  for (const auto& [retry, micro_batches] : {std::pair(false, 1), {true, 1}, {false, 3}, {true, 3}}) {
    const std::string text = fmt::format("dynamic(interval=2, max=262144, on_overflow={})", retry ? "retry" : "skip");
    Serial serial(text.c_str());
    ArrayIter all = Data(), data = Data();
    for (int epoch = 0; epoch < 3; ++epoch) {
      while (const BatchPtr batch = all.Next()) {
        const double value = batch->data[0].At(0);
        while (!serial.Take(value) && retry) {
        }
      }
      all.Reset();
    }
    TrainerOptions options = OptionsOf(text);
    options.micro_batches = micro_batches;
    Trainer trainer(Linear(), options);
    int64_t samples = 0;
    const FitResult result =
        trainer.Fit(data, {.epochs = 3, .on_epoch = [&](const EpochReport& report) { samples += report.samples; }});
    EXPECT_EQ(result.steps, serial.steps) << text;
    EXPECT_EQ(samples, serial.steps * kSamples) << text;
    EXPECT_EQ(trainer.updater()->loss_scale(), serial.state) << text;
    EXPECT_NEAR(-trainer.ToModel().params.at("w").At(0), serial.sum, 1e-4) << text;
    if (retry) {
      EXPECT_EQ(serial.steps, 21);
    }
  }
}

TEST_F(LossScaleTest, ResumedItEndsInTheSameBits) {
  const TrainerOptions options = OptionsOf("dynamic(interval=3)");
  ArrayIter all = Data();
  Trainer whole(Linear(), options);
  whole.Fit(all, {.epochs = 3});
  for (const int64_t stop : {1, 3, 5, 8}) {
    const TestFolder folder;
    ArrayIter data = Data(), again = Data();
    Trainer first(Linear(), options), second(Linear(), options);
    FitUntil(stop, &first, data, {.epochs = 3, .checkpoints = folder.path()});
    second.Fit(again, {.epochs = 3, .checkpoints = folder.path(), .resume = true});
    EXPECT_EQ(second.ToModel().params, whole.ToModel().params) << stop;
    EXPECT_EQ(second.updater()->loss_scale(), whole.updater()->loss_scale()) << stop;
    EXPECT_EQ(second.updater()->step(), whole.updater()->step()) << stop;
  }
}

TEST_F(LossScaleTest, TooManyOverflowsInARowAreAnError) {
  for (const char* choice : {"skip", "retry"}) {
    ArrayIter data = Data();
    Trainer trainer(Linear(), OptionsOf(fmt::format("dynamic(min=65536, limit=1, on_overflow={})", choice)));
    const auto fit = [&] { trainer.Fit(data, {.epochs = choice == std::string("skip") ? 9 : 1}); };
    if (choice == std::string("skip")) {
      EXPECT_NO_THROW(fit());  // one good step between them
      continue;
    }
    EXPECT_NE(MessageOf<NumericError>(fit).find("gradients were not finite in 2 steps in a row, down to a loss scale "
                                                "of 65536"),
              std::string::npos);
  }
}

// The step runs again at its own scale, to tell what was not finite.
TEST_F(LossScaleTest, AnOverflowOfAStaticScaleIsAnErrorThatNamesTheValue) {
  HostTensor eight = HostTensor::Full(DType::kFloat32, {kSamples, 1}, 8);
  ArrayIter data({ArrayData{"data", std::make_shared<const HostTensor>(std::move(eight)), ""}}, {},
                 {.batch_size = kSamples});
  Trainer trainer(Linear(), OptionsOf("static(65536)"));
  const std::string message = MessageOf<NumericError>([&] { trainer.Fit(data, {}); });
  EXPECT_NE(message.find("(the first such value is in \""), std::string::npos) << message;
  EXPECT_NE(message.find("lower the learning rate or the loss scale or look at the data"), std::string::npos)
      << message;
}

TEST_F(LossScaleTest, NumbersThatMakeNoSenseAreRefused) {
  const auto group = MakeGroup();
  Updater updater(group.get(), {.optimizer = MakeOptimizer(optimizer_), .loss_scale = ParseLossScaling("dynamic")});
  updater.SetNumbers({{"loss scale", 8}, {"loss scale good", 5}});
  const Updater::Numbers before = updater.ToNumbers();
  EXPECT_EQ(before, (Updater::Numbers{{"loss scale", 8}, {"loss scale good", 5}}));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [name, value] : Updater::Numbers{{"loss scale", -1},
                                                    {"loss scale good", 0.5},
                                                    {"schedule best", nan},
                                                    {"schedule factor", nan},
                                                    {"schedule waited", 1e300}}) {
    EXPECT_THROW(updater.SetNumbers({{name, value}}), CheckpointError) << name;
    EXPECT_THROW(updater.CheckNumbers({{name, value}}), CheckpointError) << name;
    EXPECT_EQ(updater.ToNumbers(), before) << name;
  }
}

// Steps that were pushed but not committed have no average.
TEST_F(LossScaleTest, AnOverflowLeavesNoAverage) {
  const auto group = MakeGroup();
  Updater updater(group.get(), {.optimizer = MakeOptimizer(optimizer_),
                                .loss_scale = ParseLossScaling("dynamic"),
                                .average = ParseAveraging("ema(0.5)")});
  updater.Update(BatchOf(2));
  EXPECT_TRUE(updater.Averages().empty());
  EXPECT_FALSE(updater.Finish(1));
  updater.Update(BatchOf(2));
  EXPECT_NEAR(-updater.Averages().at("w").At(0), 2, 1e-5);
}

// A power of two changes no bit of what is neither tiny nor huge.
TEST_F(LossScaleTest, APowerOfTwoTrainsTheSameBits) {
  const auto train = [&](const std::string& loss_scale) {
    ImageSet set = DrawDigits(70, 1);
    ArrayIter data(std::move(set.images), std::move(set.labels), {.batch_size = 16, .shuffle = true, .seed = 3});
    Trainer trainer(ModelByName("mlp"), {.devices = devices_,
                                         .optimizer = "adam(lr=0.01, wd=0.001, clip_norm=0.5)",
                                         .loss_scale = loss_scale,
                                         .threads_per_device = 1});
    trainer.Fit(data, {.epochs = 2});
    return trainer.ToModel().params;
  };
  const HostTensorMap plain = train("static(1)");
  EXPECT_EQ(train("static(1024)"), plain);
  EXPECT_EQ(train("dynamic(start=8, interval=2)"), plain);
}

// What is sent in fewer bits are values without the scale, and a step that overflows leaves nothing with the senders,
// not of a parameter that did not overflow either: trained are the bits of no scale.
TEST_F(LossScaleTest, GradientsInFewerBitsTrainTheSameBits) {
  const auto weight = [](const char* name) { return Variable(name, {.shape = Shape{1, 1}, .init = "zero"}); };
  const Symbol net = MakeLoss(Variable("data") * (weight("w") + 0.25 * weight("v")), {.grad_scale = kHuge}, "loss");
  for (const Compression& compression :
       {Compression{.kind = CompressionKind::kTwoBits, .threshold = 3 * kHuge},
        Compression{.kind = CompressionKind::kFloat16}, Compression{.kind = CompressionKind::kBFloat16}}) {
    const auto train = [&](const std::string& loss_scale) {
      TrainerOptions options = OptionsOf(loss_scale);
      options.store = [&](const std::shared_ptr<Engine>& engine) {
        auto store = KVStore::Create(KVStoreType::kDevice, engine);
        store->SetCompression(compression);
        return store;
      };
      ArrayIter data = Data();
      Trainer trainer(net, options);
      EXPECT_EQ(trainer.Fit(data, {.epochs = 3}).steps, 21) << ToString(compression);
      return std::pair(trainer.ToModel().params, trainer.updater()->loss_scale().scale);
    };
    const auto [plain, one] = train("static(1)");
    for (const auto& [name, value] : plain) EXPECT_LT(value.At(0), 0) << name;
    const auto [scaled, scale] = train("dynamic(start=16777216, interval=2, on_overflow=retry)");
    EXPECT_EQ(scaled, plain) << ToString(compression);
    EXPECT_LT(scale, 16777216);
  }
}

}  // namespace
}  // namespace bindery
