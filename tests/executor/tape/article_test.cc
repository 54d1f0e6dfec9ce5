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

using Params = std::vector<Array>;

Array LeNet(const Array& images, const Params& p) {
  const PoolingAttrs half = {.type = PoolType::kAvg, .kernel = {2, 2}, .stride = {2, 2}};
  Array x = Apply(Relu, {Apply(Convolution, {images, p[0], p[1]}, {.num_filter = 20, .kernel = {3, 3}})});
  x = Apply(Relu, {Apply(Convolution, {Apply(Pooling, {x}, half), p[2], p[3]}, {.num_filter = 50, .kernel = {5, 5}})});
  x = Apply(FullyConnected, {Apply(Pooling, {x}, half), p[4], p[5]}, {.num_hidden = 128});
  return Apply(FullyConnected, {Apply(Relu, {x}), p[6], p[7]}, {.num_hidden = 10});
}

// Mean losses, step by step, of one epoch with steps of at most `batch_size` samples.
std::vector<double> Losses(const ImageSet& train, int num_devices, int64_t batch_size,
                           std::vector<HostTensor>* params) {
  std::vector<Device> devices;
  std::vector<Params> replicas(num_devices);
  SeedArrays(5);
  for (int d = 0; d < num_devices; ++d) devices.push_back(TestDevice(d));
  const Params first = {Array::Normal({20, 1, 3, 3}, 0.1),   Array::Zeros({20}),  //
                        Array::Normal({50, 20, 5, 5}, 0.05), Array::Zeros({50}),  //
                        Array::Normal({128, 800}, 0.05),     Array::Zeros({128}),
                        Array::Normal({10, 128}, 0.1),       Array::Zeros({10})};
  for (int d = 0; d < num_devices; ++d) {
    for (const Array& p : first) replicas[d].emplace_back(p.CopyTo(devices[d])).AttachGradient();
  }
  std::vector<double> means;
  const int64_t count = train.labels.shape()[0];
  for (int64_t i = 0; i < count; i += batch_size) {
    const int64_t end = std::min(i + batch_size, count);
    const auto xs = SplitAndLoad(train.images.Slice(0, i, end), devices, {.even = false});
    const auto ys = SplitAndLoad(train.labels.Slice(0, i, end), devices, {.even = false});
    std::vector<Array> losses;
    {
      const RecordScope record;
      for (int d = 0; d < num_devices; ++d) {
        losses.push_back(Apply([](const Symbol& x, const Symbol& y) { return SoftmaxCrossEntropy(x, y); },
                               {LeNet(xs[d], replicas[d]), ys[d]}));
      }
    }
    for (const Array& loss : losses) loss.Backward();
    for (size_t p = 0; p < first.size(); ++p) {
      std::vector<Array> gradients;
      for (const Params& replica : replicas) gradients.push_back(replica[p].gradient());
      AllReduce(gradients);
    }
    for (Params& replica : replicas) {
      for (Array& p : replica) p -= 0.2 / static_cast<double>(end - i) * p.gradient();
    }
    double sum = 0;
    for (const Array& loss : losses) sum += loss.Sum().Scalar();
    means.push_back(sum / static_cast<double>(end - i));
  }
  for (size_t p = 0; p < first.size(); ++p) {
    for (const Params& replica : replicas) EXPECT_EQ(replica[p].ToHost(), replicas[0][p].ToHost());  // to the bit
    params->push_back(replicas[0][p].ToHost());
  }
  return means;
}

// A1.
TEST(Article, TheSameLossesOnAnyNumberOfDevices) {
  // Simulated devices compute by the reference kernels.
  const int64_t samples = OnCpusOnly() ? 3000 : 96, batch_size = OnCpusOnly() ? 256 : 20;
  const ImageSet train = DrawDigits(samples, 1);
  std::vector<HostTensor> first;
  const std::vector<double> expected = Losses(train, 1, batch_size, &first);
  if (OnCpusOnly()) {
    EXPECT_LT(expected.back(), 0.95 * expected.front());
  }
  for (const int num_devices : {2, 3}) {  // 256 rows and the last 184 are not divided by 3
    std::vector<HostTensor> params;
    const std::vector<double> losses = Losses(train, num_devices, batch_size, &params);
    ASSERT_EQ(losses.size(), expected.size());
    for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-4) << num_devices << ", " << i;
    for (size_t p = 0; p < params.size(); ++p) EXPECT_LT(MaxAbsDiff(params[p], first[p]), 1e-3) << p;
  }
}

}  // namespace
}  // namespace bindery
