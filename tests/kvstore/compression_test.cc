// Values that are pushed in fewer bits.
#include "kvstore/compression.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/philox.h"
#include "kvstore/kvstore.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

constexpr Compression kTwoBits = {.kind = CompressionKind::kTwoBits, .threshold = 0.5};
constexpr Compression kHalf = {.kind = CompressionKind::kFloat16}, kBrain = {.kind = CompressionKind::kBFloat16};

// stored += rate * sum
KeyUpdater AddTimes(float rate) {
  return [rate](const Key&, DType, const void* sum, void* stored, int64_t elements) {
    for (int64_t i = 0; i < elements; ++i) static_cast<float*>(stored)[i] += rate * static_cast<const float*>(sum)[i];
  };
}

class CompressionTest : public testing::TestWithParam<KVStoreType> {
 protected:
  std::unique_ptr<KVStore> Make(const Compression& compression) const {
    auto store = KVStore::Create(GetParam(), engine_);
    store->SetCompression(compression);
    return store;
  }
  Tensor On(int device, const HostTensor& value) const {
    Tensor tensor(engine_, TestDevice(device), value.dtype(), value.shape());
    tensor.CopyFrom(value);
    return tensor;
  }
  void Push(KVStore* store, const Key& key, const std::vector<HostTensor>& values) const {
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < values.size(); ++i) tensors.push_back(On(static_cast<int>(i), values[i]));
    store->Push(key, tensors);
  }
  HostTensor Pull(KVStore* store, const Key& key, const Shape& shape, DType dtype = DType::kFloat32) const {
    const Tensor out(engine_, TestDevice(1), dtype, shape);
    store->Pull(key, std::vector<Tensor>{out});
    return out.ToHost();
  }

  const std::shared_ptr<Engine> engine_ = MakeThreadedEngine();
};

INSTANTIATE_TEST_SUITE_P(All, CompressionTest, testing::Values(KVStoreType::kLocal, KVStoreType::kDevice),
                         [](const auto& info) { return std::string(ToString(info.param)); });

// E43: every device pushes 0.4, then 0.1, 0.2, 0.3; values that a store is initialised with are not compressed.
TEST_P(CompressionTest, WhatIsBelowTheThresholdComesLater) {
  const Shape shape = {37};
  const auto store = Make(kTwoBits);
  store->Init("w", HostTensor::Full(DType::kFloat32, shape, 0.3f));
  store->SetUpdater(AddTimes(2));
  for (int devices : {1, 3}) {
    const double before = Pull(store.get(), "w", shape).At(0);
    const auto push = [&](double value) {
      Push(store.get(), "w",
           std::vector<HostTensor>(static_cast<size_t>(devices), HostTensor::Full(DType::kFloat32, shape, value)));
      return Pull(store.get(), "w", shape);
    };
    const float sent = 0.5f * 2 * static_cast<float>(devices), start = static_cast<float>(before);
    EXPECT_EQ(push(0.4), HostTensor::Full(DType::kFloat32, shape, start));
    EXPECT_EQ(push(0.1), HostTensor::Full(DType::kFloat32, shape, start + sent));
    EXPECT_EQ(push(0.2), HostTensor::Full(DType::kFloat32, shape, start + sent));
    EXPECT_EQ(push(0.3), HostTensor::Full(DType::kFloat32, shape, start + sent + sent));
    EXPECT_EQ(push(-0.6), HostTensor::Full(DType::kFloat32, shape, start + sent));
    store->SetResiduals({});  // the next round begins anew
  }
}

// What was sent and what is left make up what was pushed, whatever the order of devices and the number of them.
TEST_P(CompressionTest, NothingIsLost) {
  for (const Compression& compression : {kTwoBits, kHalf, kBrain}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      const Shape shape = {53};
      const auto store = Make(compression);
      store->Init(7, HostTensor(dtype, shape));
      store->SetUpdater([](const Key&, DType type, const void* sum, void* stored, int64_t elements) {
        Dispatch(type, [&]<class T>() {
          if constexpr (std::is_floating_point_v<T>) {
            for (int64_t i = 0; i < elements; ++i) static_cast<T*>(stored)[i] += static_cast<const T*>(sum)[i];
          }
        });
      });
      PhiloxStream random(1, "compression");
      std::vector<double> pushed(53);
      for (int step = 0; step < 50; ++step) {
        std::vector<Tensor> tensors;
        for (uint64_t n = 1 + random.Below(4), i = 0; i < n; ++i) {
          HostTensor value(dtype, shape);
          for (int64_t e = 0; e < 53; ++e) value.Set(e, static_cast<double>(random.Normal()) / 3);
          for (int64_t e = 0; e < 53; ++e) pushed[static_cast<size_t>(e)] += value.At(e);
          tensors.push_back(On(static_cast<int>(random.Below(4)), value));  // a place's device changes
        }
        store->Push(7, tensors);
      }
      const HostTensor stored = Pull(store.get(), 7, shape, dtype);
      const HostTensorMap residuals = store->Residuals();
      EXPECT_EQ(residuals.size(), 4u);
      for (int64_t e = 0; e < 53; ++e) {
        double all = stored.At(e);
        for (const auto& [name, residual] : residuals) all += residual.At(e);
        EXPECT_NEAR(all, pushed[static_cast<size_t>(e)], dtype == DType::kFloat32 ? 2e-5 : 1e-12)
            << ToString(compression);
        if (compression == kTwoBits) {
          EXPECT_EQ(stored.At(e), std::round(stored.At(e) * 2) / 2);  // steps of the threshold
        }
      }
    }
  }
}

// Without an updater the sum of what was sent replaces the value, and goes into `out`.
TEST_P(CompressionTest, PushPullGivesTheSumOfWhatWasSent) {
  const auto store = Make(kTwoBits);
  store->Init("w", HostTensor::Full(DType::kFloat32, {3}, 9));
  const HostTensor value = HostTensor::From({3}, {0.7f, -0.2f, -3.0f});
  const std::vector<Tensor> values = {On(0, value), On(1, value)}, out = {On(0, value), On(1, value)};
  store->PushPull("w", values, out);
  const HostTensor sum = HostTensor::From({3}, {1.0f, 0.0f, -1.0f});
  for (const Tensor& tensor : out) EXPECT_EQ(tensor.ToHost(), sum);
  EXPECT_EQ(Pull(store.get(), "w", {3}), sum);
  EXPECT_EQ(values[0].ToHost(), value);
  store->PushPull("w", values, values);  // in place: residuals 0.2, -0.2, -2.5
  EXPECT_EQ(values[1].ToHost(), sum);
}

// Nor what another place has sent with it: it is sent again.
TEST_P(CompressionTest, WhatIsNotFiniteHarmsNothing) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const auto store = Make(kTwoBits);
    store->Init("w", HostTensor::Full(DType::kFloat32, {40}, 1));
    store->SetUpdater(AddTimes(1));
    Push(store.get(), "w", std::vector<HostTensor>(2, HostTensor::Full(DType::kFloat32, {40}, 0.4)));
    const HostTensorMap before = store->Residuals();
    HostTensor spoilt = HostTensor::Full(DType::kFloat32, {40}, 0.4);
    spoilt.Set(33, bad);
    Push(store.get(), "w", {spoilt, HostTensor::Full(DType::kFloat32, {40}, 0.4)});
    EXPECT_EQ(Pull(store.get(), "w", {40}), HostTensor::Full(DType::kFloat32, {40}, 1));
    EXPECT_EQ(store->Residuals(), before);
    EXPECT_THROW(engine_->WaitAll(), NumericError);
    engine_->Recover();
    Push(store.get(), "w", std::vector<HostTensor>(2, HostTensor::Full(DType::kFloat32, {40}, 0.2)));
    EXPECT_EQ(Pull(store.get(), "w", {40}), HostTensor::Full(DType::kFloat32, {40}, 2));
  }
}

// Of a step that does not count nothing is left, of no key, and what is left has no scale: residuals are those of the
// steps that count, as if they were pushed by themselves, without one.
TEST_P(CompressionTest, AStepCountsAsAWholeAtAnyScale) {
  const Shape shape = {21};
  const std::vector<Key> keys = {"v", "w"};
  for (const Compression& compression : {kTwoBits, kHalf, kBrain}) {
    const auto steps = Make(compression), plain = Make(compression);
    for (KVStore* store : {steps.get(), plain.get()}) {
      for (const Key& key : keys) store->Init(key, HostTensor(DType::kFloat32, shape));
    }
    const VarPtr outcome = engine_->NewVar();
    PhiloxStream random(5, "steps");
    for (int step = 0; step < 12; ++step) {
      const double scale = std::ldexp(1, step * 5 % 7);
      const bool counts = step % 3 != 1;
      steps->BeginStep(scale, outcome);
      for (const Key& key : keys) {
        std::vector<HostTensor> values(2, HostTensor(DType::kFloat32, shape)), scaled = values;
        for (size_t place = 0; place < 2; ++place) {
          for (int64_t e = 0; e < 21; ++e) {
            values[place].Set(e, static_cast<double>(random.Normal()) / 3);
            scaled[place].Set(e, scale * values[place].At(e));
          }
        }
        if (!counts && key == keys[1]) scaled[0].Set(11, std::numeric_limits<double>::infinity());
        Push(steps.get(), key, scaled);
        if (counts) Push(plain.get(), key, values);
      }
      engine_->Push({.name = "outcome", .device = Cpu(), .writes = {outcome}, .run = [counts](const OpContext&) {
                       if (!counts) Throw<NumericError>("overflow");
                     }});
      steps->EndStep();
      EXPECT_EQ(std::isfinite(Pull(steps.get(), keys[1], shape).At(11)), counts);
      EXPECT_EQ(steps->Residuals(), plain->Residuals()) << ToString(compression) << " " << step;
      for (const Key& key : keys) {
        HostTensor sum = Pull(plain.get(), key, shape);
        for (int64_t e = 0; e < 21; ++e) sum.Set(e, scale * sum.At(e));
        if (counts) {
          EXPECT_EQ(Pull(steps.get(), key, shape), sum) << ToString(compression) << " " << step;
        }
      }
    }
    EXPECT_THROW(engine_->WaitAll(), NumericError);
    engine_->Recover();
  }
}

// A store goes on from saved values and residuals to the bit.
TEST_P(CompressionTest, ResidualsAreSavedAndLoaded) {
  const Shape shape = {2, 21};
  PhiloxStream random(3, "resume");
  std::vector<std::vector<HostTensor>> pushes;
  for (int step = 0; step < 20; ++step) {
    pushes.emplace_back();
    for (int d = 0; d < 3; ++d) {
      pushes.back().emplace_back(DType::kFloat32, shape);
      for (int64_t e = 0; e < 42; ++e) pushes.back().back().Set(e, static_cast<double>(random.Normal()));
    }
  }
  for (const Compression& compression : {kTwoBits, kHalf}) {
    const auto whole = Make(compression), first = Make(compression), second = Make(compression);
    for (KVStore* store : {whole.get(), first.get()}) store->Init("w", HostTensor(DType::kFloat32, shape));
    for (KVStore* store : {whole.get(), first.get(), second.get()}) store->SetUpdater(AddTimes(0.1f));
    for (const auto& push : pushes) Push(whole.get(), "w", push);
    for (size_t i = 0; i < 9; ++i) Push(first.get(), "w", pushes[i]);
    second->Init("w", Pull(first.get(), "w", shape));
    second->SetResiduals(first->Residuals());
    for (size_t i = 9; i < pushes.size(); ++i) Push(second.get(), "w", pushes[i]);
    EXPECT_EQ(Pull(second.get(), "w", shape), Pull(whole.get(), "w", shape));
    EXPECT_EQ(second->Residuals(), whole->Residuals());
  }
}

TEST_P(CompressionTest, OtherTypesAndRowsAreSentAsTheyAre) {
  const auto store = Make(kTwoBits);
  store->Init("counts", HostTensor(DType::kInt32, {4}));
  Push(store.get(), "counts", std::vector<HostTensor>(2, HostTensor::Full(DType::kInt32, {4}, 21)));
  EXPECT_EQ(Pull(store.get(), "counts", {4}, DType::kInt32), HostTensor::Full(DType::kInt32, {4}, 42));
  EXPECT_TRUE(store->Residuals().empty());
  store->Init("empty", HostTensor(DType::kFloat32, {0, 3}));
  Push(store.get(), "empty", std::vector<HostTensor>(2, HostTensor(DType::kFloat32, {0, 3})));
  EXPECT_EQ(Pull(store.get(), "empty", {0, 3}), HostTensor(DType::kFloat32, {0, 3}));
  store->SetCompression({});
  store->Init("w", HostTensor(DType::kFloat32, {4}));
  Push(store.get(), "w", {HostTensor::Full(DType::kFloat32, {4}, 0.3)});
  EXPECT_EQ(Pull(store.get(), "w", {4}), HostTensor::Full(DType::kFloat32, {4}, 0.3f));
}

TEST_P(CompressionTest, WrongUseIsAnError) {
  const auto store = Make(kTwoBits);
  for (const double threshold : {0.0, -1.0, 1e300, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(store->SetCompression({.kind = CompressionKind::kTwoBits, .threshold = threshold}), Error);
  }
  store->Init("w", HostTensor(DType::kFloat32, {4}));
  Push(store.get(), "w", {HostTensor::Full(DType::kFloat32, {4}, 0.3)});
  const HostTensorMap kept = store->Residuals();
  EXPECT_THROW(store->SetResiduals({{"v/0", HostTensor(DType::kFloat32, {4})}}), Error);
  EXPECT_THROW(store->SetResiduals({{"w/1", HostTensor(DType::kFloat32, {4})}}), Error);
  EXPECT_THROW(store->SetResiduals({{"w/0", HostTensor(DType::kFloat32, {5})}}), ShapeError);
  EXPECT_EQ(store->Residuals(), kept);
  store->BeginStep(1, engine_->NewVar());
  const Tensor out(engine_, TestDevice(0), DType::kFloat32, {5});
  EXPECT_THROW(store->PushPull("w", std::vector{out.Slice(0, 4)}, std::vector{out.Slice(0, 4), out.Slice(1, 5)}),
               Error);  // they overlap: nothing was pushed
  Push(store.get(), "w", {HostTensor::Full(DType::kFloat32, {4}, 0.1)});
  EXPECT_THROW(Push(store.get(), "w", {HostTensor::Full(DType::kFloat32, {4}, 0.1)}), Error);
  EXPECT_EQ(store->Residuals(), kept);
  store->EndStep();
  EXPECT_NE(store->Residuals(), kept);
  EXPECT_EQ(store->Residuals().at("w/0").At(0), 0.3f + 0.1f);
  store->SetResiduals(kept);
  store->SetCompression({});
  EXPECT_THROW(store->SetResiduals(kept), Error);
}

// What is beyond float16 is sent as its largest number until all of it is.
TEST(Compression, LargeNumbersTakeSeveralPushes) {
  float value = 100000, residual = 0, sum = 0;
  uint16_t packed = 0;
  Pack(kHalf, DType::kFloat32, 1, &value, 1, &residual, &residual, &packed);
  Unpack(kHalf, DType::kFloat32, &packed, 1, /*add=*/true, &sum);
  EXPECT_EQ(sum, 65504.0f);
  value = 0;
  for (int i = 0; i < 2; ++i) {
    Pack(kHalf, DType::kFloat32, 1, &value, 1, &residual, &residual, &packed);
    Unpack(kHalf, DType::kFloat32, &packed, 1, /*add=*/true, &sum);
  }
  EXPECT_EQ(sum, 100000.0f);
}

TEST(Compression, BytesAndNames) {
  EXPECT_EQ(PackedBytes(kTwoBits, 0), 0);
  EXPECT_EQ(PackedBytes(kTwoBits, 16), 4);
  EXPECT_EQ(PackedBytes(kTwoBits, 17), 8);
  EXPECT_EQ(PackedBytes(kHalf, 17), 34);
  EXPECT_EQ(ToString(kTwoBits), "2bit(threshold=0.5)");
  EXPECT_EQ(ToString(kBrain), "bfloat16");
  EXPECT_EQ(ToString(Compression{}), "none");
}

}  // namespace
}  // namespace bindery
