#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <mutex>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/philox.h"
#include "engine/range_work.h"
#include "engine/team.h"
#include "tests/kvstore/prepared_reduction.h"
#include "tests/message_of.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

TEST(CutBuckets, CoversEveryElementOnceInEqualParts) {
  PhiloxStream random(3, "cut");
  for (int round = 0; round < 300; ++round) {
    std::vector<int64_t> elements(1 + random.Below(5));
    int64_t total = 0;
    for (int64_t& count : elements) total += count = static_cast<int64_t>(random.Below(random.Below(2) ? 40 : 5000));
    const int parts = 1 + static_cast<int>(random.Below(6));
    const auto cut = CutBuckets(elements, parts);
    ASSERT_EQ(cut.size(), static_cast<size_t>(parts));
    std::vector<int64_t> next(elements.size());
    for (const auto& part : cut) {
      int64_t size = 0;
      for (const auto& [bucket, begin, end] : part) {
        ASSERT_EQ(begin, next[static_cast<size_t>(bucket)]);
        ASSERT_LT(begin, end);
        ASSERT_TRUE(end == elements[static_cast<size_t>(bucket)] || end % 16 == 0);
        next[static_cast<size_t>(bucket)] = end;
        size += end - begin;
      }
      ASSERT_LE(size, total / parts + 1 + 16 * static_cast<int64_t>(elements.size()));
    }
    ASSERT_EQ(next, elements);
  }
}

TEST(CutBuckets, SizesNearTheLimit) {
  const int64_t huge = int64_t{1} << 61;
  const auto cut = CutBuckets({huge}, 3);
  EXPECT_EQ(cut[2][0].end, huge);
  EXPECT_NEAR(static_cast<double>(cut[1][0].end), 2.0 / 3 * static_cast<double>(huge), 1e3);
}

TEST(SumInto, EveryAliasingOfReplicasAndSources) {
  const int64_t n = 30000;  // more than a block, more than the serial threshold
  TeamScope team(2);
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16, DType::kInt32}) {
    for (int mask = 1; mask < 16; ++mask) {  // which of 3 sources and one other tensor are replicas
      std::vector<HostTensor> tensors;
      for (int i = 0; i < 4; ++i) {
        tensors.emplace_back(dtype, Shape{n});
        for (int64_t e = 0; e < n; ++e) tensors.back().Set(e, static_cast<double>((e * 7 + i * 13) % 31 - 9));
      }
      std::vector<const void*> sources;
      std::vector<void*> replicas;
      for (int i = 0; i < 3; ++i) sources.push_back(tensors[static_cast<size_t>(i)].raw());
      for (int i = 3; i >= 0; --i) {
        if (mask >> i & 1) replicas.push_back(tensors[static_cast<size_t>(i)].raw());
      }
      SumInto(dtype, sources, replicas, n);
      for (int64_t e = 0; e < n; e += 7) {
        for (int i = 0; i < 4; ++i) {
          double expected = static_cast<double>((e * 7 + i * 13) % 31 - 9);
          if (mask >> i & 1) {
            expected = 0;
            for (int k = 0; k < 3; ++k) expected += static_cast<double>((e * 7 + k * 13) % 31 - 9);
          }
          ASSERT_EQ(tensors[static_cast<size_t>(i)].At(e), expected)
              << ToString(dtype) << " " << mask << " " << i << " " << e;
        }
      }
    }
  }
}

// The trainer's face of a store, for both engines.
class ReductionTest : public testing::TestWithParam<bool> {
 protected:
  ReductionTest() : engine_(GetParam() ? MakeThreadedEngine() : MakeInlineEngine()) {}

  PreparedReduction Prepare(KVStoreType type, std::vector<Bucket> buckets, RangeFunction function = nullptr,
                            int threads = 1) {
    return {engine_, KVStore::Create(type, engine_)->MakeReduction(std::move(buckets), std::move(function), threads)};
  }
  Tensor Make(int device, int64_t elements, double value, DType dtype = DType::kFloat32) const {
    Tensor tensor(engine_, TestDevice(device), dtype, {elements});
    tensor.Fill(value);
    return tensor;
  }
  Bucket MakeBucket(int sources, int replicas, int64_t elements, double value, double replica = 0) const {
    Bucket bucket;
    for (int i = 0; i < sources; ++i) bucket.sources.push_back(Make(i, elements, value + i));
    for (int i = 0; i < replicas; ++i) bucket.replicas.push_back(Make(i, elements, replica));
    return bucket;
  }
  void Spoil(const Tensor& tensor) const {
    engine_->Push({.name = "spoil",
                   .device = tensor.device(),
                   .reads = {},
                   .writes = {tensor.var()},
                   .updates = {},
                   .run = [](const OpContext&) { Throw<NumericError>("not finite"); }});
  }
  static void ExpectAll(const Bucket& bucket, double value) {
    for (const Tensor& tensor : bucket.replicas) {
      ASSERT_EQ(tensor.ToHost(), HostTensor::Full(tensor.dtype(), tensor.shape(), value));
    }
  }
  // replica += sum of sources
  static void AddAll(int, int64_t begin, int64_t end, std::span<const void* const> sources,
                     std::span<void* const> replicas) {
    for (int64_t i = 0; i < end - begin; ++i) {
      for (void* replica : replicas) {
        for (const void* source : sources) static_cast<float*>(replica)[i] += static_cast<const float*>(source)[i];
      }
    }
  }

  const std::shared_ptr<Engine> engine_;
};

INSTANTIATE_TEST_SUITE_P(Engines, ReductionTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Threaded" : "Inline"; });

TEST_P(ReductionTest, SumsBucketsIntoReplicas) {
  for (const KVStoreType type : {KVStoreType::kLocal, KVStoreType::kDevice}) {
    for (const int devices : {1, 2, 3}) {
      const std::vector<Bucket> buckets = {MakeBucket(devices, devices, 1, 1), MakeBucket(devices, devices, 100003, 2),
                                           MakeBucket(1, devices, 50, 3)};
      const auto reduction = Prepare(type, buckets);
      const double n = devices, pairs = n * (n - 1) / 2;
      for (int step = 0; step < 3; ++step) {
        reduction.Run();
        ExpectAll(buckets[0], n + pairs);
        ExpectAll(buckets[1], 2 * n + pairs);
        ExpectAll(buckets[2], 3);
      }
    }
  }
}

TEST_P(ReductionTest, FunctionSeesEveryRangeOnce) {
  if (!OnCpusOnly()) GTEST_SKIP() << "ranges and workers are those of memory that the host addresses";
  for (const KVStoreType type : {KVStoreType::kLocal, KVStoreType::kDevice}) {
    std::mutex mutex;
    std::set<std::array<int64_t, 3>> ranges;
    std::set<std::thread::id> threads;
    const std::vector<Bucket> buckets = {MakeBucket(3, 3, 1000, 0), MakeBucket(2, 3, 77, 0)};
    const auto reduction =
        Prepare(type, buckets, [&](int bucket, int64_t begin, int64_t end, auto sources, auto replicas) {
          const std::lock_guard lock(mutex);
          const Bucket& b = buckets[static_cast<size_t>(bucket)];
          EXPECT_EQ(sources.size(), b.sources.size());
          EXPECT_EQ(replicas.size(), 3u);
          for (size_t i = 0; i < sources.size(); ++i)
            EXPECT_EQ(sources[i], static_cast<float*>(b.sources[i].data()) + begin);
          for (size_t i = 0; i < replicas.size(); ++i)
            EXPECT_EQ(replicas[i], static_cast<float*>(b.replicas[i].data()) + begin);
          EXPECT_TRUE(ranges.insert({bucket, begin, end}).second);
          threads.insert(std::this_thread::get_id());
        });
    reduction.Run();
    engine_->WaitAll();
    std::map<int64_t, int64_t> next;
    for (const auto& [bucket, begin, end] : ranges) {
      EXPECT_EQ(begin, next[bucket]);
      next[bucket] = end;
    }
    EXPECT_EQ(next[0], 1000);
    EXPECT_EQ(next[1], 77);
    EXPECT_EQ(threads.size(), type == KVStoreType::kDevice && GetParam() ? 3u : 1u);
  }
}

TEST_P(ReductionTest, TeamsShareLongRanges) {
  if (!OnCpusOnly()) GTEST_SKIP() << "teams are CPUs'";
  for (const KVStoreType type : {KVStoreType::kLocal, KVStoreType::kDevice}) {
    for (const int devices : {1, 2}) {
      const std::vector<Bucket> buckets = {MakeBucket(devices, devices, 10, 1),
                                           MakeBucket(devices, devices, 200003, 2)};
      std::mutex mutex;
      std::set<std::thread::id> threads;
      const auto add = [&](int bucket, int64_t begin, int64_t end, auto sources, auto replicas) {
        {
          const std::lock_guard lock(mutex);
          threads.insert(std::this_thread::get_id());
        }
        AddAll(bucket, begin, end, sources, replicas);
      };
      Prepare(type, buckets, add, 3).Run();
      ExpectAll(buckets[0], devices == 1 ? 1 : 3);
      ExpectAll(buckets[1], devices == 1 ? 2 : 5);
      const size_t workers = GetParam() && type == KVStoreType::kDevice ? static_cast<size_t>(devices) : 1;
      EXPECT_GE(threads.size(), 1 + workers);
      EXPECT_LE(threads.size(), 3 * workers);
      Prepare(type, buckets, nullptr, 3).Run();  // without a function: sums
      ExpectAll(buckets[1], devices == 1 ? 2 : 5);
    }
  }
}

TEST_P(ReductionTest, IsOrderedWithWhatIsPushedBeforeAndAfter) {
  for (const int devices : {1, 3}) {
    const std::vector<Bucket> buckets = {MakeBucket(devices, devices, 5000, 1)};
    const Bucket& bucket = buckets[0];
    const auto reduction = Prepare(KVStoreType::kDevice, buckets, AddAll);
    double expected = 0;
    for (int step = 1; step <= 200; ++step) {
      for (const Tensor& source : bucket.sources) source.Fill(step % 7);
      reduction.Run();
      expected += devices * (step % 7);
      if (step % 10 == 0) {  // a reader and a writer right behind
        for (const Tensor& replica : bucket.replicas) {
          const Tensor copy = Make(devices, 5000, 0);
          copy.CopyFrom(replica);
          replica.Fill(0);
          ASSERT_EQ(copy.ToHost(), HostTensor::Full(DType::kFloat32, {5000}, expected)) << step;
        }
        expected = 0;
      }
    }
  }
}

TEST_P(ReductionTest, AFailedSourceLeavesReplicasAlone) {
  for (const KVStoreType type : {KVStoreType::kLocal, KVStoreType::kDevice}) {
    for (const int devices : {1, 3}) {
      for (const bool with_function : {false, true}) {
        const std::vector<Bucket> buckets = {MakeBucket(devices, devices, 3000, 1, 5),
                                             MakeBucket(devices, devices, 9, 1, 5)};
        const auto reduction = Prepare(type, buckets, with_function ? RangeFunction(AddAll) : nullptr);
        Spoil(buckets[0].sources.back());
        reduction.Run();
        for (const Bucket& bucket : buckets) ExpectAll(bucket, 5);
        reduction.Run();
        for (const Bucket& bucket : buckets) ExpectAll(bucket, 5);
        buckets[0].sources.back().Fill(devices);
        reduction.Run();
        const double sum = devices * (devices + 1) / 2;
        for (const Bucket& bucket : buckets) ExpectAll(bucket, with_function ? 5 + sum : sum);
        EXPECT_THROW(engine_->WaitAll(), NumericError);
      }
    }
  }
}

TEST_P(ReductionTest, AFunctionThatThrowsFailsTheReplicas) {
  for (const KVStoreType type : {KVStoreType::kLocal, KVStoreType::kDevice}) {
    for (const int devices : {1, 3}) {
      if (TestDevices() != "cpu" && (TestDevices() != "mixed" || devices > 1)) continue;  // see the next test
      std::atomic<bool> fail = true;
      const std::vector<Bucket> buckets = {MakeBucket(devices, devices, 3000, 1)};
      const auto reduction =
          Prepare(type, buckets, [&](int b, int64_t begin, int64_t end, auto sources, auto replicas) {
            if (fail && end == 3000) Throw<NumericError>("element {} is not finite", end - 1);
            AddAll(b, begin, end, sources, replicas);
          });
      reduction.Run();
      for (const Tensor& replica : buckets[0].replicas) {
        try {
          replica.Wait();
          FAIL();
        } catch (const NumericError& error) {
          EXPECT_STREQ(error.what(), "NumericError: operation \"reduce\" failed: element 2999 is not finite");
        }
      }
      fail = false;
      reduction.Run();  // failed replicas stay failed
      for (const Tensor& replica : buckets[0].replicas) EXPECT_THROW(replica.Wait(), NumericError);
      for (const Tensor& replica : buckets[0].replicas) replica.Fill(0);
      reduction.Run();  // until they are written
      ExpectAll(buckets[0], devices * (devices + 1) / 2);
      EXPECT_THROW(engine_->WaitAll(), NumericError);
      EXPECT_NO_THROW(engine_->WaitAll());
    }
  }
}

TEST_P(ReductionTest, ThroughTheHostAFunctionThatThrowsTouchesNothing) {
  if (OnCpusOnly()) GTEST_SKIP() << "on CPUs it works in place: the test before";
  std::atomic<bool> fail = true;
  const std::vector<Bucket> buckets = {MakeBucket(3, 3, 3000, 1, 5)};
  const auto reduction =
      Prepare(KVStoreType::kDevice, buckets, [&](int b, int64_t begin, int64_t end, auto sources, auto replicas) {
        AddAll(b, begin, end, sources, replicas);
        if (fail) Throw<NumericError>("element {} is not finite", end - 1);
      });
  reduction.Run();
  ExpectAll(buckets[0], 5);
  EXPECT_THROW(engine_->WaitAll(), NumericError);
  fail = false;
  reduction.Run();
  ExpectAll(buckets[0], 11);
}

TEST_P(ReductionTest, MayGoWhileItRuns) {
  const std::vector<Bucket> buckets = {MakeBucket(3, 3, 100000, 1)};
  for (int i = 0; i < 20; ++i) Prepare(KVStoreType::kDevice, buckets).Run();
  ExpectAll(buckets[0], 6);
}

TEST_P(ReductionTest, ReplicasMayBeTheSources) {
  std::vector<Bucket> buckets(1);
  for (int i = 0; i < 3; ++i) buckets[0].sources.push_back(Make(i, 70000, i + 1));
  buckets[0].replicas = buckets[0].sources;
  const auto reduction = Prepare(KVStoreType::kDevice, buckets);
  reduction.Run();
  ExpectAll(buckets[0], 6);
  reduction.Run();
  ExpectAll(buckets[0], 18);
}

TEST_P(ReductionTest, Errors) {
  const auto expect = [&](const std::string& message, std::vector<Bucket> buckets) {
    try {
      Prepare(KVStoreType::kDevice, std::move(buckets));
      FAIL() << "no error, expected: " << message;
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), message);
    }
  };
  expect("Error: a reduction needs at least one bucket", {});
  expect("Error: bucket 0 has no sources", {{.sources = {}, .replicas = {Make(0, 4, 0)}}});
  expect("Error: bucket 0 has no replicas", {{.sources = {Make(0, 4, 0)}, .replicas = {}}});
  expect("ShapeError: bucket 1, source 1: expected 4 elements of float32 as in source 0, got 5 of float32",
         {MakeBucket(2, 2, 4, 0), {.sources = {Make(0, 4, 0), Make(1, 5, 0)}, .replicas = {Make(0, 4, 0)}}});
  expect("ShapeError: bucket 0, replica 0: expected 4 elements of float32 as in source 0, got 4 of float64",
         {{.sources = {Make(0, 4, 0)}, .replicas = {Make(0, 4, 0, DType::kFloat64)}}});
  const Tensor whole = Make(0, 8, 0);
  expect("Error: bucket 0: the memory of replica 0 overlaps that of source 0",
         {{.sources = {whole.Slice(0, 4)}, .replicas = {whole.Slice(2, 6)}}});
  expect("Error: bucket 0: the memory of replica 1 overlaps that of replica 0",
         {{.sources = {Make(0, 4, 0)}, .replicas = {whole.Slice(0, 4), whole.Slice(1, 5)}}});
  expect("Error: bucket 0, source 0: the tensor is empty", {{.sources = {Tensor()}, .replicas = {whole}}});
}

TEST(ReductionResults, ThreadedEqualsInline) {
  std::vector<HostTensor> results;
  for (const auto& engine : {MakeInlineEngine(), MakeThreadedEngine()}) {
    for (const KVStoreType type : {KVStoreType::kLocal, KVStoreType::kDevice}) {
      PhiloxStream random(5, "reduction");
      Bucket bucket;
      for (int d = 0; d < 3; ++d) {
        HostTensor values(DType::kFloat32, {54321});
        for (float& x : values.data<float>()) x = random.Normal();
        bucket.sources.emplace_back(engine, TestDevice(d), DType::kFloat32, values.shape());
        bucket.sources.back().CopyFrom(values);
        bucket.replicas.emplace_back(engine, TestDevice(d), DType::kFloat32, values.shape());
      }
      PreparedReduction(engine, KVStore::Create(type, engine)->MakeReduction({bucket})).Run();
      for (const Tensor& replica : bucket.replicas) results.push_back(replica.ToHost());
    }
  }
  for (const HostTensor& result : results) EXPECT_EQ(result, results[0]);
}

}  // namespace
}  // namespace bindery
