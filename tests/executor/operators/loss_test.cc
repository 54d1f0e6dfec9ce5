#include "symbol/ops/loss.h"

#include <gtest/gtest.h>

#include <cmath>

#include "symbol/gradient.h"
#include "symbol/ops/cross_entropy.h"
#include "symbol/ops/ctc.h"
#include "tests/executor/cases/operator_cases.h"
#include "tests/executor/graph_runner.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

TEST(Operators, Softmax) { CheckOperators(SoftmaxCases()); }
TEST(Operators, CrossEntropy) { CheckOperators(CrossEntropyCases()); }
TEST(Operators, CTC) { CheckOperators(CTCCases()); }
TEST(Operators, Loss) { CheckOperators(LossCases()); }
TEST(Operators, Measure) { CheckOperators(MeasureCases()); }

// The sum of these losses is no float16.
TEST(CrossEntropy, OfManyLabelsIn16Bits) {
  constexpr int64_t kLabels = 9000;
  HostTensor data(DType::kFloat16, {kLabels, 2}), label(DType::kFloat16, {kLabels});
  for (int64_t i = 0; i < kLabels; ++i) data.Set(2 * i + 1, 8);
  const Symbol loss = SoftmaxCrossEntropy(Variable("x"), Variable("label"), {}, LossReduction::kMean, {}, "loss");
  const std::vector<std::string> wrt = {"x"};
  const GivenTypes given{.shapes = {{"x", data.shape()}}, .dtypes = {{"x", DType::kFloat16}}};
  const Symbol all = Group({loss, Gradient(MakeLoss(loss), wrt, given).gradients[0]});
  for (const KernelPolicy policy : {KernelPolicy::kFast, KernelPolicy::kReference}) {
    const std::vector<HostTensor> r = RunGraph(all, {{"x", data}, {"label", label}}, {.policy = policy}).outputs;
    EXPECT_EQ(r[0].dtype(), DType::kFloat32);
    EXPECT_NEAR(r[0].At(0), 8.000335, 1e-4);
    EXPECT_EQ(r[1].dtype(), DType::kFloat16);
    EXPECT_NEAR(r[1].At(0), -1.0 / kLabels, 1e-6);
  }
}

class LossTest : public testing::TestWithParam<KernelPolicy> {
 protected:
  // Output and data gradient of SoftmaxOutput.
  std::vector<HostTensor> Run(const HostTensor& x, const HostTensor& label, const SoftmaxOutputAttrs& attrs,
                              int64_t batch_size = 1) {
    const Symbol y = SoftmaxOutput(Variable("x"), Variable("label"), attrs, "softmax");
    const std::vector<std::string> wrt = {"x"};
    const Symbol all = Group({y, Gradient(y, wrt).gradients[0]});
    return RunGraph(all, {{"x", x}, {"label", label}}, {.policy = GetParam(), .step = {.batch_size = batch_size}})
        .outputs;
  }
};
INSTANTIATE_TEST_SUITE_P(Tables, LossTest, testing::Values(KernelPolicy::kReference, KernelPolicy::kFast),
                         [](const auto& info) { return info.param == KernelPolicy::kFast ? "fast" : "reference"; });

const HostTensor kScores = HostTensor::From({1, 4}, {1, 6, 4, 2});
const HostTensor kLabel = HostTensor::From({1}, {1});

TEST_P(LossTest, SoftmaxOutputOfKnownNumbers) {
  const std::vector<HostTensor> r = Run(kScores, kLabel, {});
  ExpectNear(r[0], HostTensor::From({1, 4}, {0.005806628f, 0.861780069f, 0.116629249f, 0.015784052f}), 1e-6, "p");
  ExpectNear(r[1], HostTensor::From({1, 4}, {0.005806628f, 0.861780069f - 1, 0.116629249f, 0.015784052f}), 1e-6,
             "gradient");
}

TEST_P(LossTest, LabelSmoothing) {
  const std::vector<HostTensor> r = Run(kScores, kLabel, {.smooth_alpha = 0.2});
  for (int k = 0; k < 4; ++k) EXPECT_NEAR(r[1].At(k) - r[0].At(k), k == 1 ? -0.8 : -0.2 / 3, 1e-6);
}

TEST_P(LossTest, IgnoredRowsHaveNoGradientAndOthersDoNotChange) {
  const HostTensor x = Uniform({4, 5}, -2, 2).Cast(DType::kFloat32), label = HostTensor::From({4}, {3, 1, 0, 1});
  const HostTensor all = Run(x, label, {})[1], some = Run(x, label, {.use_ignore = true, .ignore_label = 1})[1];
  for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(some.At(i), label.At(i / 5) == 1 ? 0 : all.At(i));
}

TEST_P(LossTest, ProbabilitiesAsLabel) {
  const HostTensor x = Uniform({3, 4}, -2, 2).Cast(DType::kFloat32),
                   label = Uniform({3, 4}, 0, 1).Cast(DType::kFloat32);
  const std::vector<HostTensor> r = Run(x, label, {});
  for (int64_t i = 0; i < 12; ++i) EXPECT_NEAR(r[1].At(i), r[0].At(i) - label.At(i), 1e-6);
}

// Batch 8, 6 classes, with and without a 3 x 3 map: grad_scale / (1 | 8 | valid), and / 9 with a map unless 'valid'.
TEST_P(LossTest, Normalization) {
  for (bool map : {false, true}) {
    const Shape data = map ? Shape{8, 6, 3, 3} : Shape{8, 6};
    const HostTensor x = Uniform(data, -2, 2).Cast(DType::kFloat32);
    const HostTensor label = Integers(data.Erase(1), 0, 5).Cast(DType::kFloat32);
    int64_t valid = 0;
    for (int64_t i = 0; i < label.elements(); ++i) valid += label.At(i) != 0;
    SoftmaxOutputAttrs attrs{.grad_scale = 3, .use_ignore = true, .ignore_label = 0, .multi_output = map};
    const HostTensor plain = Run(x, label, attrs, 8)[1];
    const double base = map ? 3.0 / 9 : 3.0;
    for (auto [normalization, scale] : {std::pair{Normalization::kNull, base},
                                        {Normalization::kBatch, base / 8},
                                        {Normalization::kValid, 3.0 / static_cast<double>(valid)}}) {
      attrs.normalization = normalization;
      const HostTensor gradient = Run(x, label, attrs, 8)[1];
      for (int64_t i = 0; i < plain.elements(); ++i) {
        EXPECT_NEAR(gradient.At(i), plain.At(i) / base * scale, 1e-6) << "map " << map << ", element " << i;
      }
    }
  }
}

TEST_P(LossTest, LabelsOutOfRangeAreErrors) {
  const HostTensor x = Uniform({5, 10}).Cast(DType::kFloat32);
  for (float bad : {12.0f, 10.0f, -1.0f, NAN, 0.5f, 9.5f}) {
    try {
      Run(x, HostTensor::From({5}, {0, 1, 2, bad, 4}), {});
      ADD_FAILURE() << "label " << bad << " passed";
    } catch (const DataError& e) {
      EXPECT_NE(e.message().find("of sample 3 is not in 0..9"), std::string::npos) << e.message();
    }
  }
  // An ignored label may be anything; the output alone does not look at labels.
  EXPECT_NO_THROW(Run(x, HostTensor::From({5}, {0, 1, 2, -1, 4}), {.use_ignore = true}));
  const Symbol y = SoftmaxOutput(Variable("x"), Variable("label"), {}, "softmax");
  EXPECT_NO_THROW(RunGraph(y, {{"x", x}, {"label", HostTensor::From({5}, {0, 1, 2, 12, 4})}}, {.policy = GetParam()}));
  const HostTensor map = Uniform({1, 3, 2}).Cast(DType::kFloat32);
  for (float bad : {3.0f, 1.5f}) {
    const auto run = [&] { Run(map, HostTensor::From({1, 2}, {2, bad}), {.multi_output = true}); };
    EXPECT_NE(MessageOf<DataError>(run).find("of sample 0 is not in 0..2"), std::string::npos) << bad;
  }
}

TEST_P(LossTest, LabelsThatAreNoClassAreErrorsOfEveryLoss) {
  const Symbol x = Variable("x"), label = Variable("label");
  const HostTensor data = Uniform({2, 3}).Cast(DType::kFloat32);
  const std::vector<std::string> wrt = {"x"};
  const auto gradient = [&](const Symbol& loss) {
    return Gradient(loss, wrt, {.shapes = {{"x", {2, 3}}, {"label", {2}}}}).gradients[0];
  };
  const auto message = [&](const Symbol& y, float of_second) {
    return MessageOf<DataError>([&] {
      RunGraph(y, {{"x", data}, {"label", HostTensor::From({2}, {1, of_second})}}, {.policy = GetParam()});
    });
  };
  const CrossEntropyAttrs smooth{.label_smoothing = 0.1};
  const Symbol entropy = SoftmaxCrossEntropy(x, label, {}, LossReduction::kNone, {}, "y");
  const Symbol likelihood = NegativeLogLikelihood(x, label, smooth, LossReduction::kNone, {}, "y");
  for (const Symbol& y : {entropy, likelihood, gradient(MakeLoss(entropy)), gradient(MakeLoss(likelihood))}) {
    for (float bad : {3.0f, -1.0f, NAN, 0.5f, 2.5f}) {
      EXPECT_NE(message(y, bad).find("is not in 0..2"), std::string::npos) << bad;
    }
    EXPECT_EQ(message(y, 2), "nothing was thrown");
  }
  // One against the rest: a whole label that is no class has all of them against it.
  const Symbol hinges = gradient(SVMOutput(x, label, {}, "y"));
  for (float bad : {0.5f, 2.5f, -0.5f, NAN}) {
    EXPECT_NE(message(hinges, bad).find("is not in 0..2"), std::string::npos) << bad;
  }
  for (float good : {0.0f, 2.0f, 3.0f, -1.0f}) EXPECT_EQ(message(hinges, good), "nothing was thrown") << good;
}

TEST_P(LossTest, WhatCannotBeIsAnErrorOfCTC) {
  const CTCLossAttrs attrs{.use_data_lengths = true, .use_label_lengths = true};
  const Symbol x = Variable("x"), label = Variable("label"), steps = Variable("steps"), labels = Variable("labels");
  const Symbol told = Apply(CTCLossOp(), attrs, {x, label, steps, labels}, "y"), untold = CTCLoss(x, label, {}, "y");
  const HostTensorMap good = {{"x", Uniform({4, 2, 3}).Cast(DType::kFloat32)},
                              {"label", HostTensor::From({2, 2}, {1, 2, 2, 0})},
                              {"steps", HostTensor::From({2}, {3, 4})},
                              {"labels", HostTensor::From({2}, {2, 1})}};
  const auto message = [&](const Symbol& y, const char* name, int64_t at, double bad) {
    HostTensorMap values = good;
    values[name].Set(at, bad);
    for (const char* other : {"steps", "labels"}) {
      if (y.ListArguments().size() == 2) values.erase(other);
    }
    return MessageOf<DataError>([&] { RunGraph(y, values, {.policy = GetParam()}); });
  };
  for (const double bad : {3.0, 0.5, 1.5, static_cast<double>(NAN)}) {
    for (const Symbol& y : {told, untold}) {
      EXPECT_NE(message(y, "label", 1, bad).find("is the blank or"), std::string::npos) << bad;
    }
  }
  for (const double bad : {5.0, 1.5, -1.0, static_cast<double>(NAN)}) {
    EXPECT_NE(message(told, "steps", 0, bad).find("0..4"), std::string::npos) << bad;
    EXPECT_NE(message(told, "labels", 0, bad).find("0..2"), std::string::npos) << bad;
  }
  EXPECT_EQ(message(told, "steps", 0, 4), "nothing was thrown");
  EXPECT_EQ(message(untold, "label", 1, -0.5), "nothing was thrown");  // negative: the labels end there
}

}  // namespace
}  // namespace bindery
