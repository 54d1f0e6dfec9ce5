// The softmax head on a group: published numbers, and divisors that count the samples of all devices.
#include <gtest/gtest.h>

#include <cmath>

#include "executor/data_parallel_executor_group.h"
#include "symbol/ops.h"
#include "tests/executor/group_helpers.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

struct Result {
  HostTensor output, gradient;  // of the scores
};

// The head alone on two devices, their shares as 2 : 1.
Result RunHead(const SoftmaxOutputAttrs& attrs, const HostTensor& scores, const HostTensor& label) {
  DataParallelExecutorGroup group(SoftmaxOutput(Variable("data"), attrs, "softmax"),
                                  {.devices = {TestDevice(0), TestDevice(1)},
                                   .workload = {2, 1},
                                   .data = {{"data", scores.shape()}},
                                   .labels = {{"softmax_label", label.shape()}},
                                   .inputs_need_grad = true});
  group.Forward(Batch{.data = {scores}, .label = {label}});
  group.Backward();
  return {group.Outputs()[0].ToHost(), group.InputGradients()[0].ToHost()};
}

const double kP[] = {0.005806628, 0.861780069, 0.116629249, 0.015784052};
const HostTensor kScores = HostTensor::From({3, 4}, {1, 6, 4, 2, 1, 6, 4, 2, 1, 6, 4, 2});
const HostTensor kLabels = HostTensor::From({3}, {1, 3, 1});

TEST(GroupSoftmax, OfKnownNumbers) {  // E35
  const Result r = RunHead({}, kScores, kLabels);
  for (int64_t i = 0; i < 12; ++i) {
    const double p = kP[i % 4];
    EXPECT_NEAR(r.output.At(i), p, 1e-6);
    EXPECT_NEAR(r.gradient.At(i), p - (i % 4 == kLabels.At(i / 4)), 1e-6);
  }
}

TEST(GroupSoftmax, Smoothing) {  // E35
  const Result r = RunHead({.smooth_alpha = 0.2}, kScores, kLabels);
  for (int64_t i = 0; i < 12; ++i) {
    EXPECT_NEAR(r.gradient.At(i) - r.output.At(i), i % 4 == kLabels.At(i / 4) ? -0.8 : -0.0666667, 1e-6);
  }
}

TEST(GroupSoftmax, IgnoredRows) {  // E35
  const HostTensor x = RandomTensor({6, 5}, 1), labels = HostTensor::From({6}, {3, 1, 0, 1, 2, 1});
  const Result all = RunHead({}, x, labels), some = RunHead({.use_ignore = true, .ignore_label = 1}, x, labels);
  EXPECT_EQ(some.output, all.output);
  for (int64_t i = 0; i < 30; ++i) EXPECT_EQ(some.gradient.At(i), labels.At(i / 5) == 1 ? 0 : all.gradient.At(i));
}

TEST(GroupSoftmax, ProbabilitiesAsLabel) {  // E35
  const HostTensor labels = RandomTensor({3, 4}, 2);
  const Result r = RunHead({}, kScores, labels);
  for (int64_t i = 0; i < 12; ++i) EXPECT_NEAR(r.gradient.At(i), kP[i % 4] - labels.At(i), 1e-6);
}

// The mean over the labels of both devices that are not ignored, which counts them wherever they are.
TEST(GroupCrossEntropy, MeansAreOfAllDevices) {
  const CrossEntropyAttrs attrs{.use_ignore = true, .ignore_label = 3};
  const Symbol mean = SoftmaxCrossEntropy(Variable("data"), Variable("label"), attrs, LossReduction::kMean);
  DataParallelExecutorGroup group(MakeLoss(mean, {}, "loss").WithAnnotation("merge", "sum"),
                                  {.devices = {TestDevice(0), TestDevice(1)},
                                   .workload = {2, 1},
                                   .data = {{"data", kScores.shape()}},
                                   .labels = {{"label", kLabels.shape()}},
                                   .inputs_need_grad = true});
  group.Forward(Batch{.data = {kScores}, .label = {kLabels}});
  group.Backward();
  EXPECT_NEAR(group.Outputs()[0].ToHost().At(0), -std::log(kP[1]), 1e-6);
  const HostTensor gradient = group.InputGradients()[0].ToHost();
  for (int64_t i = 0; i < 12; ++i) {
    EXPECT_NEAR(gradient.At(i), kLabels.At(i / 4) == 3 ? 0 : (kP[i % 4] - (i % 4 == 1)) / 2, 1e-6);
  }
}

// E36: grad_scale / (1 | 8 | valid labels, at least 1), counted over both devices; with a map of 3 x 3 also / 9, but
// not for `valid`, which counts positions.
TEST(GroupSoftmax, DivisorsCountAllDevices) {
  const double scale = 3;
  for (const bool map : {false, true}) {
    const Shape shape = map ? Shape{8, 6, 3, 3} : Shape{8, 6};
    const int64_t positions = map ? 9 : 1;
    const HostTensor x = RandomTensor(shape, 1);
    // Class 0 is ignored; most of it is on the second device.
    HostTensor labels(DType::kFloat32, shape.Erase(1));
    int64_t valid = 0;
    for (int64_t i = 0; i < labels.elements(); ++i) {
      labels.Set(i, i >= labels.elements() * 3 / 4 ? 0 : static_cast<double>(i % 6));
      valid += labels.At(i) != 0;
    }
    HostTensor none(DType::kFloat32, labels.shape());
    for (const Normalization n : {Normalization::kNull, Normalization::kBatch, Normalization::kValid}) {
      const SoftmaxOutputAttrs attrs{
          .grad_scale = scale, .normalization = n, .use_ignore = true, .ignore_label = 0, .multi_output = map};
      const double divisor = n == Normalization::kValid   ? static_cast<double>(valid)
                             : n == Normalization::kBatch ? 8.0 * static_cast<double>(positions)
                                                          : static_cast<double>(positions);
      const Result r = RunHead(attrs, x, labels);
      for (int64_t i = 0; i < x.elements(); ++i) {
        const int64_t s = i % positions, k = i / positions % 6, sample = i / positions / 6;
        const double label = labels.At(sample * positions + s);
        const double expected = label == 0 ? 0 : (r.output.At(i) - (static_cast<double>(k) == label)) * scale / divisor;
        EXPECT_NEAR(r.gradient.At(i), expected, 1e-6) << "normalization " << static_cast<int>(n) << ", element " << i;
      }
      EXPECT_EQ(RunHead(attrs, x, none).gradient, HostTensor(DType::kFloat32, shape));  // no valid label: not 0 / 0
    }
  }
}

}  // namespace
}  // namespace bindery
