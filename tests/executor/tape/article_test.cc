// The recipe "multi-device training from scratch" of which examples/from_scratch.cc is the program: over a whole epoch
// the losses are the same on 1, 2 and 3 devices, also where the batches are not divided by them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "executor/tape/split_and_load.h"
#include "executor/tape/tape.h"
#include "symbol/ops.h"
#include "tests/executor/tape/helpers.h"
#include "train/data/digits.h"

namespace bindery {
namespace {

using Params = std::vector<NDArray>;

struct Settings {
  int64_t samples = 0, batch_size = 0;
  int epochs = 1;
  double rate = 0;
  int64_t narrow = 1;  // divides the numbers of filters and hidden units
  DType dtype = DType::kFloat32;
};

NDArray LeNet(const NDArray& images, const Params& p) {
  const int64_t filters = p[1].elements(), more = p[3].elements(), hidden = p[5].elements();
  const PoolingAttrs half = {.type = PoolType::kAvg, .kernel = {2, 2}, .stride = {2, 2}};
  NDArray x = Apply(Relu, {Apply(Convolution, {images, p[0], p[1]}, {.num_filter = filters, .kernel = {3, 3}})});
  x = Apply(Relu,
            {Apply(Convolution, {Apply(Pooling, {x}, half), p[2], p[3]}, {.num_filter = more, .kernel = {5, 5}})});
  x = Apply(FullyConnected, {Apply(Pooling, {x}, half), p[4], p[5]}, {.num_hidden = hidden});
  return Apply(FullyConnected, {Apply(Relu, {x}), p[6], p[7]}, {.num_hidden = 10});
}

// He et al. (2015)
NDArray Weights(const Shape& shape) {
  return NDArray::Normal(shape, std::sqrt(2.0 / static_cast<double>(shape.CountFrom(1))));
}

// Mean losses, step by step; and what the parameters become.
std::vector<double> Losses(const Settings& how, int num_devices, std::vector<HostTensor>* params) {
  const ImageSet train = DrawDigits(how.samples, 1);
  std::vector<Device> devices;
  std::vector<Params> replicas(num_devices);
  SeedArrays(5);
  for (int d = 0; d < num_devices; ++d) devices.push_back(TestDevice(d));
  const int64_t filters = 20 / how.narrow, more = 50 / how.narrow, hidden = 128 / how.narrow;
  const Params first = {Weights({filters, 1, 3, 3}),    NDArray::Zeros({filters}),  //
                        Weights({more, filters, 5, 5}), NDArray::Zeros({more}),     //
                        Weights({hidden, more * 16}),   NDArray::Zeros({hidden}),   //
                        Weights({10, hidden}),          NDArray::Zeros({10})};
  for (int d = 0; d < num_devices; ++d) {
    for (const NDArray& p : first) replicas[d].emplace_back(p.As(how.dtype).CopyTo(devices[d])).AttachGradient();
  }
  std::vector<double> means;
  for (int64_t i = 0; i < how.samples * how.epochs; i += how.batch_size) {
    const int64_t begin = i % how.samples, end = std::min(begin + how.batch_size, how.samples);
    const auto xs = SplitAndLoad(train.images.Slice(0, begin, end).Cast(how.dtype), devices, {.even = false});
    const auto ys = SplitAndLoad(train.labels.Slice(0, begin, end), devices, {.even = false});
    std::vector<NDArray> losses;
    {
      const RecordScope record;
      for (int d = 0; d < num_devices; ++d) {
        losses.push_back(Apply([](const Symbol& x, const Symbol& y) { return SoftmaxCrossEntropy(x, y); },
                               {LeNet(xs[d], replicas[d]), ys[d]}));
      }
    }
    for (const NDArray& loss : losses) loss.Backward();
    for (size_t p = 0; p < first.size(); ++p) {
      std::vector<NDArray> gradients;
      for (const Params& replica : replicas) gradients.push_back(replica[p].gradient());
      AllReduce(gradients);
    }
    for (Params& replica : replicas) {
      for (NDArray& p : replica) p -= how.rate / static_cast<double>(end - begin) * p.gradient();
    }
    double sum = 0;
    for (const NDArray& loss : losses) sum += loss.Sum().Scalar();
    means.push_back(sum / static_cast<double>(end - begin));
  }
  for (size_t p = 0; p < first.size(); ++p) {
    for (const Params& replica : replicas) EXPECT_EQ(replica[p].ToHost(), replicas[0][p].ToHost());  // to the bit
    params->push_back(replicas[0][p].ToHost());
  }
  return means;
}

void ExpectTheSame(const Settings& how, double fall, double tolerance) {
  std::vector<HostTensor> first;
  const std::vector<double> expected = Losses(how, 1, &first);
  EXPECT_LT(expected.back(), fall * expected.front());
  for (const int num_devices : {2, 3}) {
    std::vector<HostTensor> params;
    const std::vector<double> losses = Losses(how, num_devices, &params);
    ASSERT_EQ(losses.size(), expected.size());
    for (size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(losses[i], expected[i], tolerance) << num_devices << " devices, step " << i;
    }
    for (size_t p = 0; p < params.size(); ++p) EXPECT_LT(MaxAbsDiff(params[p], first[p]), 10 * tolerance) << p;
  }
}

// A1. 256 rows and the last 184 are not divided by 3.
TEST(Article, TheSameLossesOnAnyNumberOfDevices) {
  if (!OnCpusOnly()) GTEST_SKIP() << "minutes of the reference kernels; the narrow network runs there";
  ExpectTheSame({.samples = 3000, .batch_size = 256, .rate = 0.1}, 0.95, 1e-4);
}

// With double precision several epochs are the same: what differs is rounding, and that alone.
TEST(Article, NothingButRoundingDiffers) {
  const Settings how = {.samples = 200,
                        .batch_size = 40,
                        .epochs = OnCpusOnly() ? 12 : 3,
                        .rate = 0.2,
                        .narrow = 5,
                        .dtype = DType::kFloat64};
  ExpectTheSame(how, OnCpusOnly() ? 0.9 : 1, 1e-9);
}

}  // namespace
}  // namespace bindery
