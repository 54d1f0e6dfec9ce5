// A training does not depend on how its batches are split over devices (A1).
//
// In float64 that is checked over whole trainings: whatever differs apart from rounding would show. In float32 rounding
// itself shows sooner or later: sums of gradients in another order move weights by about 1e-8, until a relu or a
// maximum of pooling decides the other way; one such decision changes the losses after it by 1e-5 to 1e-3. So float32
// trainings are compared where few decisions flip: at small rates, and over the first steps with batch-norm, which
// centres activations at the kink.
//
// Simulated devices have the reference kernels only, so there images and nets are smaller.
#include <gtest/gtest.h>

#include "symbol/ops.h"
#include "tests/test_device.h"
#include "train/data/array_iter.h"
#include "train/data/digits.h"
#include "train/initializer.h"
#include "train/metrics/metrics.h"
#include "train/updater/updater.h"
#include "train/zoo.h"

namespace bindery {
namespace {

struct Split {
  std::vector<Device> devices;
  std::vector<double> workload;
};
const std::vector<Split> kSplits = {{{TestDevice(0)}, {}},
                                    {{TestDevice(0), TestDevice(1)}, {}},
                                    {{TestDevice(0), TestDevice(1), TestDevice(2)}, {}},
                                    {{TestDevice(0), TestDevice(1)}, {2, 1}}};

struct Training {
  DType dtype = DType::kFloat32;
  int64_t batch = 64;
  std::string optimizer = {};
  int steps = 30;
};

// On simulated devices every other row and column.
HostTensor Images(const ImageSet& digits, DType dtype) {
  const HostTensor images = digits.images.Cast(dtype);
  if (OnCpusOnly()) return images;
  const int64_t samples = images.shape()[0];
  HostTensor small(dtype, {samples, 1, 14, 14});
  for (int64_t i = 0; i < small.elements(); ++i) {
    small.Set(i, images.At(i / 196 * 784 + i % 196 / 14 * 56 + i % 14 * 2));
  }
  return small;
}

// The loss of every step. Epochs end in a short batch.
std::vector<double> Losses(const Symbol& symbol, const Training& training, const Split& split) {
  const ImageSet digits = DrawDigits(6 * training.batch + 5, 1);
  ArrayIter data(Images(digits, training.dtype), digits.labels,
                 {.batch_size = training.batch, .shuffle = true, .seed = 3});
  DataParallelExecutorGroup group(symbol, {.devices = split.devices,
                                           .workload = split.workload,
                                           .data = data.ProvideData(),
                                           .labels = data.ProvideLabel(),
                                           .seed = 9});
  SetInitialParams(&group, {}, Initializer("xavier"), 9);
  Updater updater(&group, {.optimizer = MakeOptimizer(training.optimizer)});
  const std::unique_ptr<Metric> loss = MakeMetric("cross-entropy");
  std::vector<double> losses;
  while (static_cast<int>(losses.size()) < training.steps) {
    BatchPtr batch = data.Next();
    if (!batch) {
      data.Reset();
      batch = data.Next();
    }
    updater.Update(batch);
    loss->Reset();
    group.UpdateMetric(loss.get(), batch->label);
    losses.push_back(loss->Get()[0].second);
  }
  return losses;
}

// Relative to the losses of one device: the first within `first`, all within `all`.
void ExpectSameLosses(const Symbol& symbol, const Training& training, double first, double all) {
  const std::vector<double> one = Losses(symbol, training, kSplits[0]);
  for (size_t s = 1; s < kSplits.size(); ++s) {
    const std::vector<double> other = Losses(symbol, training, kSplits[s]);
    EXPECT_NEAR(other[0], one[0], first * one[0]) << "split " << s;
    for (size_t i = 0; i < one.size(); ++i) {
      EXPECT_NEAR(other[i], one[i], all * one[i]) << "split " << s << ", step " << i;
    }
  }
  EXPECT_LT(one.back(), one.front());
}

// LeNet with relu and fewer channels: reference kernels, which float64 takes, are slow.
Symbol SmallLeNet(double dropout, bool norm) {
  const int size = OnCpusOnly() ? 5 : 3;
  const auto block = [&](Symbol x, int64_t filters, const std::string& number) {
    x = Convolution(x, {.num_filter = filters, .kernel = {size, size}}, "conv" + number);
    if (norm) x = BatchNorm(x, {.fix_gamma = false, .sync = true}, "bn" + number);
    return Pooling(Relu(x), {.kernel = {2, 2}, .stride = {2, 2}});
  };
  Symbol x = block(block(Variable("data"), 4, "1"), 8, "2");
  x = Relu(FullyConnected(x, {.num_hidden = 40}, "fc1"));
  if (dropout > 0) x = Dropout(x, {.p = dropout}, "drop");
  return SoftmaxOutput(FullyConnected(x, {.num_hidden = 10}, "fc2"), {}, "softmax");
}

// 12 samples divide by 2 and by 3, 11 by neither.
TEST(Splits, InFloat64AllTrainingsAreTheSame) {
  for (const double dropout : {0.0, 0.5}) {
    for (const bool norm : {false, true}) {
      const int64_t batch = norm ? 11 : 12;
      SCOPED_TRACE(fmt::format("dropout {}, norm {}, batch {}", dropout, norm, batch));
      ExpectSameLosses(SmallLeNet(dropout, norm),
                       {.dtype = DType::kFloat64, .batch = batch, .optimizer = "sgd(lr=0.05, momentum=0.9, wd=1e-4)"},
                       1e-12, 1e-10);
    }
  }
}

// Norms of all gradients, and of weights and directions of each parameter, whoever has the parts.
TEST(Splits, InFloat64TrainingsByNormsAreTheSame) {
  for (const char* optimizer :
       {"sgd(lr=0.2, clip_norm=0.3)", "lars(lr=0.1, eta=0.02, wd=1e-3)", "lamb(lr=0.02, wd=0.01, clip_norm=0.5)"}) {
    SCOPED_TRACE(optimizer);
    ExpectSameLosses(SmallLeNet(0, false), {.dtype = DType::kFloat64, .batch = 12, .optimizer = optimizer}, 1e-12,
                     1e-10);
  }
}

TEST(Splits, InFloat32TrainingsAtSmallRatesAreTheSame) {
  for (const double dropout : {0.0, 0.5}) {
    const int64_t batch = dropout > 0 ? 20 : 64;
    SCOPED_TRACE(fmt::format("dropout {}, batch {}", dropout, batch));
    const Symbol net = OnCpusOnly() ? ModelByName("lenet", {.dropout = dropout}) : SmallLeNet(dropout, false);
    ExpectSameLosses(net, {.batch = batch, .optimizer = "sgd(lr=0.005)"}, 1e-5, 1e-4);
  }
}

// A1: LeNet with relus and means, batch 256, which three devices share unevenly, rate 0.2.
TEST(Splits, InFloat32TheFirstLargeStepsAreTheSame) {
  const PoolingAttrs halve{.type = PoolType::kAvg, .kernel = {2, 2}, .stride = {2, 2}};
  const int part = OnCpusOnly() ? 1 : 5, size = OnCpusOnly() ? 5 : 3;
  Symbol x = Relu(Convolution(Variable("data"), {.num_filter = 20 / part, .kernel = {3, 3}}, "conv1"));
  x = Relu(Convolution(Pooling(x, halve), {.num_filter = 50 / part, .kernel = {size, size}}, "conv2"));
  x = Relu(FullyConnected(Pooling(x, halve), {.num_hidden = 128 / part}, "fc1"));
  x = SoftmaxOutput(FullyConnected(x, {.num_hidden = 10}, "fc2"), {}, "softmax");
  ExpectSameLosses(x, {.batch = 256 / part, .optimizer = "sgd(lr=0.2)", .steps = OnCpusOnly() ? 10 : 60}, 1e-5, 1e-4);
}

TEST(Splits, InFloat32TheFirstStepsWithSynchronisedBatchNormAreTheSame) {
  ExpectSameLosses(SmallLeNet(0, true), {.optimizer = "sgd(lr=0.02)", .steps = 5}, 1e-5, 1e-4);
}

}  // namespace
}  // namespace bindery
