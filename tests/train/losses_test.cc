// What networks lose in their first steps on other devices: what they lose on a CPU.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/test_device.h"
#include "train/data/array_iter.h"
#include "train/data/digits.h"
#include "train/trainer.h"
#include "train/zoo.h"

namespace bindery {
namespace {

// The cross entropy in each of some steps on one batch.
std::vector<double> Losses(const std::string& network, const std::vector<Device>& devices) {
  constexpr int64_t kSamples = 16, kSteps = 5;
  ImageSet set = DrawDigits(kSamples, 1, 0);
  ArrayIter data(std::move(set.images), std::move(set.labels), {.batch_size = kSamples});
  Trainer trainer(
      ModelByName(network, {.dropout = 0.2}),
      {.devices = devices, .optimizer = "sgd(lr=0.05, momentum=0.9)", .metrics = "cross-entropy", .seed = 5});
  std::vector<double> losses;
  trainer.Fit(data, {.epochs = kSteps,
                     .on_epoch = [&](const EpochReport& report) { losses.push_back(report.train[0].second); }});
  EXPECT_EQ(losses.size(), static_cast<size_t>(kSteps));
  return losses;
}

TEST(Losses, AreThoseOfCpus) {
  for (const std::string network : {"mlp", "lenet"}) {
    const std::vector<double> expected = Losses(network, {Cpu()});
    const std::vector<double> losses = Losses(network, {TestDevice(0), TestDevice(1)});
    for (size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(losses[i], expected.at(i), 1e-3 * expected[i]) << network << ", step " << i;
    }
  }
}

}  // namespace
}  // namespace bindery
