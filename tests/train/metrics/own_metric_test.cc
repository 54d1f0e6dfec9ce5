// Metrics of a program's own, beside the built-in ones: on any devices, and in checkpoints.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "symbol/ops.h"
#include "tests/message_of.h"
#include "train/data/array_iter.h"
#include "train/trainer.h"

namespace bindery {
namespace {

// y = fc(x) with weight 1 and bias 0, whose labels are off by 0.125 i in sample i of 8.
struct Off {
  Symbol net = LinearRegressionOutput(FullyConnected(Variable("data"), {.num_hidden = 1}, "fc"),
                                      Variable("softmax_label"), {}, "y");
  Model model{.symbol = net,
              .params = {{"fc_weight", HostTensor::From({1, 1}, {1})}, {"fc_bias", HostTensor::From({1}, {0})}}};
  HostTensor data{DType::kFloat32, {8, 1}}, label{DType::kFloat32, {8, 1}};
  Off() {
    for (int64_t i = 0; i < 8; ++i) {
      data.Set(i, static_cast<double>(i));
      label.Set(i, static_cast<double>(i) * 1.125);
    }
  }
  ArrayIter Batches() const { return {data, label, {.batch_size = 3}}; }
};

std::shared_ptr<const Metric> Near(double distance) {
  return MeanOf("near",
                [=](const Symbol& output, const Symbol& label) { return LessEqual(Abs(output - label), distance); });
}

TEST(OwnMetric, TheMeanOfAFormulaOnAnyDevices) {
  const Off off;
  for (const int64_t devices : {1, 2, 3}) {
    std::vector<Device> list;
    for (int i = 0; i < devices; ++i) list.push_back(Cpu(i));
    Trainer trainer(off.model, {.devices = list, .metrics = "mae", .more_metrics = {Near(0.5), Near(0.25)}});
    ArrayIter batches = off.Batches();
    EXPECT_EQ(trainer.Score(batches), (NamedValues{{"mae", 0.4375}, {"near", 5.0 / 8}, {"near_2", 3.0 / 8}}));
    EXPECT_EQ(trainer.Score(batches, "mse").size(), 1u);  // what is asked for by name alone
  }
}

// Equal shares are still not the same: each begins elsewhere.
TEST(OwnMetric, KnowsWhichSamplesAreADevices) {
  struct First final : Metric {
    std::string name() const override { return "first"; }
    int partial_size() const override { return 1; }
    MetricGraph AsGraph(const MetricArrays& share) const override {
      return {.partial = Constant(HostTensor::From({1}, {static_cast<float>(share.first)}).Cast(DType::kFloat64))};
    }
    NamedValues Values(std::span<const double> total) const override { return {{name(), total[0]}}; }
  };
  const Off off;
  Trainer trainer(off.model, {.devices = {Cpu(0), Cpu(1)}, .metrics = "", .more_metrics = {std::make_shared<First>()}});
  ArrayIter batches(off.data, off.label, {.batch_size = 8});
  EXPECT_EQ(trainer.Score(batches), (NamedValues{{"first", 4}}));
}

TEST(OwnMetric, AloneAndOfValuesThatAreNoTruths) {
  const Off off;
  const auto error = MeanOf("error", [](const Symbol& output, const Symbol& label) { return label - output; });
  Trainer trainer(off.model, {.metrics = "", .more_metrics = {error}});
  ArrayIter batches = off.Batches();
  EXPECT_EQ(trainer.Score(batches), (NamedValues{{"error", 0.4375}}));
  const auto wrong = MeanOf("wrong", [](const Symbol& output, const Symbol&) { return output; }, {.output = "none"});
  Trainer unpaired(off.model, {.metrics = "", .more_metrics = {wrong}});
  EXPECT_NE(MessageOf([&] { unpaired.Score(batches); }).find("none"), std::string::npos);
}

// For speed: then a run that diverges is found all the same.
TEST(OwnMetric, ThereMayBeNone) {
  const Off off;
  Trainer trainer(off.model, {.optimizer = "sgd(lr=0.001)", .metrics = ""});
  ArrayIter batches = off.Batches(), others = off.Batches();
  EXPECT_TRUE(trainer.Score(others).empty());
  const FitResult result = trainer.Fit(batches, {.epochs = 2, .validation = &others});
  EXPECT_GT(result.steps, 1);
  EXPECT_TRUE(result.train.empty());
  EXPECT_TRUE(result.validation.empty());
  Trainer resumed(off.model, {.optimizer = "sgd(lr=0.001)", .metrics = ""});
  resumed.Restore(trainer.ToCheckpoint(&batches), &batches);
  EXPECT_EQ(resumed.ToModel().params, trainer.ToModel().params);
  HostTensor data = off.data;
  data.Set(0, std::nan(""));
  ArrayIter broken(data, off.label, {.batch_size = 8});
  EXPECT_NE(MessageOf<NumericError>([&] { trainer.Fit(broken, {.epochs = 4}); }).find("is not finite"),
            std::string::npos);
}

TEST(OwnMetric, AValueThatIsNoNumberIsNoNumber) {
  const Off off;
  const auto root = MeanOf("root", [](const Symbol& output, const Symbol& label) { return Sqrt(output - label); });
  Trainer trainer(off.model, {.metrics = "", .more_metrics = {root}});
  ArrayIter batches = off.Batches();
  EXPECT_TRUE(std::isnan(trainer.Score(batches)[0].second));
}

TEST(OwnMetric, GoesOnInTheMiddleOfAnEpoch) {
  const Off off;
  const TrainerOptions options{.optimizer = "sgd(lr=0)", .metrics = "mae", .more_metrics = {Near(0.5)}};
  const std::string folder = std::string(std::getenv("TEST_TMPDIR")) + "/run";
  std::filesystem::remove_all(folder);
  ArrayIter batches = off.Batches();
  Trainer stopped(off.model, options);
  stopped.Fit(batches, {.checkpoints = folder, .on_batch = [&](const BatchReport& report) {
                          if (report.batch == 2) stopped.RequestStop();
                        }});
  ArrayIter rest = off.Batches();
  Trainer resumed(off.model, options);
  const FitResult result = resumed.Fit(rest, {.checkpoints = folder, .resume = true});
  EXPECT_EQ(result.train, (NamedValues{{"mae", 0.4375}, {"near", 5.0 / 8}}));
}

}  // namespace
}  // namespace bindery
