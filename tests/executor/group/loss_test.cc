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

// By PyTorch 2.15's cross_entropy(weight=...), reduction sum and mean: the mean is over the weights of labels, wherever
// they are.
TEST(GroupSoftmax, ClassWeightsAsPyTorch) {
  const double sum[] = {0.01161326, -0.27643986, 0.2332585,  0.03156811,  0.01741989, 2.58534021,
                        0.34988775, -2.95264784, 0.01161326, -0.27643986, 0.2332585,  0.03156811};
  const double mean[] = {0.00165904, -0.03949141, 0.03332264, 0.00450973,  0.00248856, 0.36933432,
                         0.04998396, -0.42180683, 0.00165904, -0.03949141, 0.03332264, 0.00450973};
  const double ignoring[] = {0.00290331, -0.06910997, 0.05831462, 0.00789203,  0,          0,
                             0,          0,           0.00290331, -0.06910997, 0.05831462, 0.00789203};
  const SoftmaxOutputAttrs weighted{.class_weights = {0.5, 2, 1, 3}};
  const auto with = [&](Normalization normalization, double scale = 1) {
    SoftmaxOutputAttrs attrs = weighted;
    attrs.normalization = normalization;
    for (double& weight : attrs.class_weights) weight *= scale;
    return attrs;
  };
  SoftmaxOutputAttrs ignores = with(Normalization::kValid);
  ignores.use_ignore = true;
  ignores.ignore_label = 3;
  const Result summed = RunHead(weighted, kScores, kLabels);
  const Result of_batch = RunHead(with(Normalization::kBatch), kScores, kLabels);
  const Result of_labels = RunHead(with(Normalization::kValid), kScores, kLabels);
  const Result of_small = RunHead(with(Normalization::kValid, 1e-3), kScores, kLabels);  // a sum below 1
  const Result some = RunHead(ignores, kScores, kLabels);
  for (int64_t i = 0; i < 12; ++i) {
    EXPECT_NEAR(summed.output.At(i), kP[i % 4], 1e-6);
    EXPECT_NEAR(summed.gradient.At(i), sum[i], 1e-6);
    EXPECT_NEAR(of_batch.gradient.At(i), sum[i] / 3, 1e-6);
    EXPECT_NEAR(of_labels.gradient.At(i), mean[i], 1e-6);
    EXPECT_NEAR(of_small.gradient.At(i), mean[i], 1e-6);
    EXPECT_NEAR(some.gradient.At(i), ignoring[i], 1e-6);
  }
  const HostTensor none(DType::kFloat32, {3, 4});
  EXPECT_EQ(RunHead(ignores, kScores, HostTensor::From({3}, {3, 3, 3})).gradient, none);  // not 0 / 0
}

// The weight of a label is of all classes at its position, whatever axis they are along.
TEST(GroupSoftmax, ClassWeightsOfPositions) {
  const std::vector<double> weights = {0.5, 2, 0, 3};
  struct Form {
    Shape data, labels;
    SoftmaxOutputAttrs attrs;
    int64_t inner;
  };
  const std::vector<Form> forms = {{{6, 2, 1, 2}, {6}, {}, 1},
                                   {{6, 3, 4}, {6, 3}, {.smooth_alpha = 0.1, .preserve_shape = true}, 1},
                                   {{6, 4, 3}, {6, 3}, {.grad_scale = 2, .multi_output = true}, 3}};
  for (const Form& form : forms) {
    const HostTensor x = RandomTensor(form.data, 1);
    HostTensor labels(DType::kFloat32, form.labels);
    for (int64_t i = 0; i < labels.elements(); ++i) labels.Set(i, static_cast<double>(i * 3 % 4));
    SoftmaxOutputAttrs attrs = form.attrs;
    attrs.class_weights = weights;
    const HostTensor plain = RunHead(form.attrs, x, labels).gradient, weighted = RunHead(attrs, x, labels).gradient;
    for (int64_t i = 0; i < x.elements(); ++i) {
      const auto label = static_cast<size_t>(labels.At(i / (4 * form.inner) * form.inner + i % form.inner));
      EXPECT_NEAR(weighted.At(i), plain.At(i) * weights[label], 1e-6) << ToString(form.data) << " " << i;
    }
  }
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
