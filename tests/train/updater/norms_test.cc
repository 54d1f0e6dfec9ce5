// Norms over all devices: gradients clipped by the norm of all of them, and rules that go by norms of parameters.
#include <gtest/gtest.h>

#include <cmath>

#include "symbol/ops.h"
#include "tests/host_tensors.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "train/optimizers/key_updater.h"
#include "train/updater/updater.h"

namespace bindery {
namespace {

constexpr int64_t kSamples = 6, kWidth = 40;

// The loss is the sum over samples of x . (a_weight + b_bias + c_weight): the gradient of each is the sum of x.
Symbol Linear() {
  const Symbol data = Variable("data");
  Symbol sum;
  for (const char* name : {"a_weight", "b_bias", "c_weight"}) {
    const Symbol term = data * Variable(name, {.shape = Shape{1, kWidth}});
    sum = sum.empty() ? term : sum + term;
  }
  return MakeLoss(sum, {}, "loss");
}

double InputAt(int64_t sample, int64_t i) { return std::sin(static_cast<double>(3 * sample + i)); }
double GradientAt(int64_t i) {
  double sum = 0;
  for (int64_t sample = 0; sample < kSamples; ++sample) sum += InputAt(sample, i);
  return sum / kSamples;
}
double WeightAt(int64_t i) { return 0.1 * static_cast<double>(i % 7) - 0.2; }

BatchPtr Inputs() {
  const auto at = [](int64_t i) { return InputAt(i / kWidth, i % kWidth); };
  return std::make_shared<const Batch>(
      Batch{.data = {Filled({kSamples, kWidth}, at, DType::kFloat64)}, .samples = kSamples});
}

// The parameters after some steps on one to three devices, which have unequal shares.
HostTensorMap Train(const std::string& optimizer, int devices, int steps = 3,
                    const std::vector<std::string>& fixed = {}, KVStoreType kvstore = KVStoreType::kDevice) {
  DataParallelExecutorGroup group(Linear(), {.devices = TestDeviceList(devices),
                                             .data = {{"data", {kSamples, kWidth}, DType::kFloat64}},
                                             .fixed_params = fixed,
                                             .bucket_bytes = 400});
  HostTensorMap params;
  for (const StoredParameter& p : group.store().parameters()) params[p.name] = Filled(p.shape, WeightAt, p.dtype);
  group.SetParams(params, {});
  Updater updater(&group, {.optimizer = MakeOptimizer(optimizer), .kvstore = kvstore});
  for (int step = 0; step < steps; ++step) updater.Update(Inputs());
  updater.WaitFor(steps);
  group.GetParams(&params, nullptr);
  return params;
}

double NormOf(double (*element)(int64_t)) {
  double squares = 0;
  for (int64_t i = 0; i < kWidth; ++i) squares += element(i) * element(i);
  return std::sqrt(squares);
}

// One step by the plain gradient, times a factor.
void ExpectStep(const HostTensor& weight, double factor, const std::string& what) {
  for (int64_t i = 0; i < kWidth; ++i) {
    ASSERT_NEAR(weight.At(i), WeightAt(i) - factor * GradientAt(i), 1e-13) << what << " " << i;
  }
}

TEST(ClipNorm, IsOfAllGradientsTogether) {
  const double norm = std::sqrt(3) * NormOf(GradientAt);
  for (const KVStoreType type : {KVStoreType::kLocal, KVStoreType::kDevice}) {
    for (const int devices : {1, 2, 3}) {
      for (const auto& [name, weight] : Train("sgd(lr=1, clip_norm=0.25)", devices, 1, {}, type)) {
        ExpectStep(weight, 0.25 / norm, name);
      }
      for (const auto& [name, weight] : Train("sgd(lr=1, clip_norm=1e6)", devices, 1, {}, type)) {
        ExpectStep(weight, 1, name);
      }
    }
  }
}

TEST(ClipNorm, IsOfWhatIsTrainedAndAfterTheRescale) {
  const double norm = std::sqrt(2) * 2 * kSamples * NormOf(GradientAt);
  const HostTensorMap params = Train("sgd(lr=1, rescale=2, clip_norm=0.25)", 2, 1, {"c_weight"});
  ExpectStep(params.at("a_weight"), 0.25 / norm * 2 * kSamples, "a_weight");
  ExpectStep(params.at("c_weight"), 0, "c_weight");
}

TEST(ClipNorm, ComesBeforeTheClippingOfElements) {
  const double factor = 0.25 / (std::sqrt(3) * NormOf(GradientAt));
  const HostTensor weight = Train("sgd(lr=1, clip_gradient=0.01, clip_norm=0.25)", 2, 1).at("a_weight");
  for (int64_t i = 0; i < kWidth; ++i) {
    const double step = std::clamp(factor * GradientAt(i), -0.01, 0.01);
    EXPECT_NEAR(weight.At(i), WeightAt(i) - step, 1e-14);
  }
}

// A parameter's norms are of the whole of it, wherever its parts are; what is not decayed goes its way without.
TEST(NormRules, AreTheSameOnAnyDevices) {
  for (const char* text : {"lars(lr=0.1, eta=0.5, wd=0.01)", "lamb(lr=0.1, wd=0.01)", "lamb(lr=0.1, clip_norm=0.1)"}) {
    SCOPED_TRACE(text);
    const HostTensorMap one = Train(text, 1);
    for (const int devices : {2, 3}) {
      for (const auto& [name, weight] : Train(text, devices))
        EXPECT_LT(MaxAbsDiff(weight, one.at(name)), 1e-13) << name;
    }
    EXPECT_GT(MaxAbsDiff(one.at("a_weight"), one.at("b_bias")), 1e-3);
    EXPECT_LT(MaxAbsDiff(one.at("a_weight"), one.at("c_weight")), 1e-13);
  }
}

TEST(NormRules, GoByTheWholeParameter) {
  const double ratio = 0.5 * NormOf(WeightAt) / NormOf(GradientAt);
  const HostTensorMap params = Train("lars(lr=0.1, eta=0.5)", 3, 1);
  ExpectStep(params.at("a_weight"), 0.1 * ratio, "a_weight");
  ExpectStep(params.at("b_bias"), 0.1, "b_bias");
}

TEST(NormRules, UpdateKeys) {
  const HostTensorMap expected = Train("lars(lr=0.1, eta=0.5)", 1, 1);
  const KeyUpdater update = MakeKeyUpdater(MakeOptimizer("lars(lr=0.1, eta=0.5)"));
  for (const char* key : {"a_weight", "b_bias"}) {
    HostTensor weight = Filled({kWidth}, WeightAt, DType::kFloat64);
    const HostTensor gradient = Filled({kWidth}, GradientAt, DType::kFloat64);
    update(key, DType::kFloat64, gradient.raw(), weight.raw(), kWidth);
    EXPECT_LT(MaxAbsDiff(weight.Reshape({1, kWidth}), expected.at(key)), 1e-14) << key;
  }
  EXPECT_EQ(MessageOf<Error>([] { MakeKeyUpdater(MakeOptimizer("sgd(lr=1, clip_norm=2)")); }),
            "Error: sgd(lr=1, clip_norm=2): keys are updated one by one, so there is no norm of all gradients to clip "
            "by");
}

}  // namespace
}  // namespace bindery
