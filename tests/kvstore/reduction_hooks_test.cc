// What may keep a reduction from touching anything.
#include <gtest/gtest.h>

#include <atomic>

#include "base/error.h"
#include "tests/kvstore/prepared_reduction.h"
#include "tests/message_of.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

class ReductionHooksTest : public testing::TestWithParam<bool> {
 protected:
  ReductionHooksTest() : engine_(GetParam() ? MakeThreadedEngine() : MakeInlineEngine()) {}

  // Sources of 1, 2, 3 ... and replicas of 0.
  Bucket MakeBucket(int devices, int64_t elements) const {
    Bucket bucket;
    for (int d = 0; d < devices; ++d) {
      bucket.sources.emplace_back(engine_, TestDevice(d), DType::kFloat32, Shape{elements}).Fill(d + 1);
      bucket.replicas.emplace_back(engine_, TestDevice(d), DType::kFloat32, Shape{elements});
    }
    return bucket;
  }
  static void ExpectAll(const Bucket& bucket, double value) {
    for (const Tensor& replica : bucket.replicas) {
      EXPECT_EQ(replica.ToHost(), HostTensor::Full(DType::kFloat32, replica.shape(), value));
    }
  }
  static void AddAll(int, int64_t begin, int64_t end, std::span<const void* const> sources,
                     std::span<void* const> replicas) {
    for (void* replica : replicas) {
      for (const void* source : sources) {
        for (int64_t i = 0; i < end - begin; ++i)
          static_cast<float*>(replica)[i] += static_cast<const float*>(source)[i];
      }
    }
  }

  std::shared_ptr<Engine> engine_;
};

INSTANTIATE_TEST_SUITE_P(Engines, ReductionHooksTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Threaded" : "Inline"; });

TEST_P(ReductionHooksTest, LooksAndGatesComeBeforeTheFirstChange) {
  for (const KVStoreType type : {KVStoreType::kLocal, KVStoreType::kDevice}) {
    for (const int devices : {1, 3}) {
      const std::vector<Bucket> buckets = {MakeBucket(devices, 3000), MakeBucket(devices, 70)};
      std::atomic<bool> refuse = true;
      std::atomic<int64_t> seen = 0;
      const VarPtr gate = engine_->NewVar();
      const auto first = [&](int, int64_t begin, int64_t end, std::span<const void* const> sources,
                             std::span<void* const> replicas) {
        EXPECT_EQ(sources.size(), static_cast<size_t>(devices));
        EXPECT_EQ(replicas.size(), static_cast<size_t>(devices));
        seen += end - begin;
      };
      const auto second = [&](int bucket, int64_t, int64_t end, std::span<const void* const>, std::span<void* const>) {
        EXPECT_EQ(seen, 3070);  // the first look is over
        if (refuse && bucket == 1 && end == 70) Throw<NumericError>("no");
      };
      const PreparedReduction reduction(
          engine_, KVStore::Create(type, engine_)->MakeReduction(buckets, AddAll, 2, {{first, second}, {gate}}));
      const auto outcome = [&] {
        for (const VarPtr& var : reduction.outcome()) engine_->Wait(var);
      };
      reduction.Run();
      EXPECT_EQ(MessageOf<NumericError>(outcome), "NumericError: operation \"reduce\" failed: no");
      for (const Bucket& bucket : buckets) ExpectAll(bucket, 0);
      seen = 0;
      refuse = false;
      engine_->Push(
          {.name = "close", .device = Cpu(), .reads = {}, .writes = {gate}, .updates = {}, .run = [](const OpContext&) {
             throw DataError("closed");
           }});
      reduction.Run();
      EXPECT_THROW(outcome(), DataError);
      for (const Bucket& bucket : buckets) ExpectAll(bucket, 0);
      engine_->Push(
          {.name = "open", .device = Cpu(), .reads = {}, .writes = {gate}, .updates = {}, .run = [](const OpContext&) {
           }});
      seen = 0;
      reduction.Run();
      EXPECT_NO_THROW(outcome());
      for (const Bucket& bucket : buckets) ExpectAll(bucket, devices * (devices + 1) / 2);
      EXPECT_THROW(engine_->WaitAll(), NumericError);
    }
  }
}

}  // namespace
}  // namespace bindery
