// What devices combine, in place on CPUs and through the host elsewhere.
#include "engine/collective.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

class CollectiveTest : public testing::TestWithParam<bool> {
 protected:
  CollectiveTest() : engine_(GetParam() ? MakeThreadedEngine() : MakeInlineEngine()) {}

  // On device d the values 10 d, 10 d + 1 ..., or zeros.
  std::vector<Tensor> Make(int devices, int64_t elements, bool values) const {
    std::vector<Tensor> tensors;
    for (int d = 0; d < devices; ++d) {
      HostTensor host(DType::kFloat32, {elements});
      for (int64_t i = 0; values && i < elements; ++i) host.Set(i, static_cast<double>(10 * d + i));
      tensors.emplace_back(engine_, TestDevice(d), DType::kFloat32, host.shape()).CopyFrom(host);
    }
    return tensors;
  }
  StepRange Prepare(Collective what, std::vector<Bucket> buckets, bool shared_out) const {
    StepParts parts;
    MemoryCollectives(engine_, shared_out)->Append(what, "combine", std::move(buckets), &parts);
    return StepRange(engine_, std::move(parts));
  }

  std::shared_ptr<Engine> engine_;
};

INSTANTIATE_TEST_SUITE_P(Engines, CollectiveTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Threaded" : "Inline"; });

TEST_P(CollectiveTest, GivesEveryReplicaTheSame) {
  for (const bool shared_out : {false, true}) {
    for (const int devices : {1, 3}) {
      const std::vector<Tensor> a = Make(devices, 100, true), b = Make(devices, 7, true),
                                sums = Make(devices, 100, false), all = Make(devices, 7 * devices, false),
                                first = Make(devices, 7, false);
      Prepare(Collective::kAllReduceSum, {{a, sums}, {b, b}}, shared_out).Push();  // the second in place
      Prepare(Collective::kAllGather, {{Make(devices, 7, true), all}}, shared_out).Push();
      Prepare(Collective::kBroadcast, {{{all[0].Slice(0, 7)}, first}}, shared_out).Push();
      const int tens = 10 * devices * (devices - 1) / 2;  // their sum over the devices
      for (int d = 0; d < devices; ++d) {
        const HostTensor sum = sums[d].ToHost(), in_place = b[d].ToHost(), gathered = all[d].ToHost();
        for (int i = 0; i < 100; ++i) EXPECT_EQ(sum.At(i), tens + devices * i);
        for (int i = 0; i < 7; ++i) EXPECT_EQ(in_place.At(i), tens + devices * i);
        for (int i = 0; i < 7 * devices; ++i) EXPECT_EQ(gathered.At(i), 10 * (i / 7) + i % 7);
        EXPECT_EQ(first[d].ToHost(), Make(1, 7, true)[0].ToHost());
      }
    }
  }
}

// Ranges of any sizes, the middle one empty; the sum of the first device's range may replace a source.
TEST_P(CollectiveTest, SumsRangesAndGathersThem) {
  for (const int devices : {1, 3}) {
    const std::vector<Tensor> sources = Make(devices, 40, true);
    std::vector<Tensor> ranges, all;
    for (int d = 0; d < devices; ++d) {
      const int64_t elements = devices == 1 ? 40 : d == 0 ? 33 : d == 1 ? 0 : 7;
      ranges.push_back(Make(d + 1, elements, false).back());
      all.push_back(Make(d + 1, 40, false).back());
    }
    Prepare(Collective::kReduceScatterSum, {{sources, ranges}}, true).Push();
    Prepare(Collective::kAllGather, {{ranges, all}}, true).Push();
    const int tens = 10 * devices * (devices - 1) / 2;
    for (int d = 0; d < devices; ++d) {
      const HostTensor sum = all[d].ToHost();
      for (int i = 0; i < 40; ++i) EXPECT_EQ(sum.At(i), tens + devices * i);
    }
  }
}

TEST_P(CollectiveTest, OneFailedSourceFailsEveryReplica) {
  const std::vector<Tensor> sources = Make(3, 5, true), replicas = Make(3, 15, false);
  const StepRange gather = Prepare(Collective::kAllGather, {{sources, replicas}}, false);
  engine_->Push({.name = "fail",
                 .device = sources[1].device(),
                 .reads = {},
                 .writes = {sources[1].var()},
                 .updates = {},
                 .run = [](const OpContext&) { throw DataError("no"); }});
  gather.Push();
  for (const Tensor& replica : replicas) EXPECT_THROW(replica.ToHost(), DataError);
  sources[1].Fill(0);
  gather.Push();
  for (const Tensor& replica : replicas) EXPECT_EQ(replica.ToHost().At(14), 24);
}

TEST_P(CollectiveTest, RefusesWhatDoesNotFit) {
  EXPECT_THROW(Prepare(Collective::kAllGather, {{Make(2, 5, true), Make(2, 5, false)}}, false), ShapeError);
  EXPECT_THROW(Prepare(Collective::kAllReduceSum, {{Make(2, 5, true), Make(2, 6, false)}}, false), ShapeError);
  EXPECT_THROW(Prepare(Collective::kReduceScatterSum, {{Make(2, 5, true), Make(2, 3, false)}}, false), ShapeError);
  EXPECT_THROW(Prepare(Collective::kBroadcast, {{Make(2, 5, true), Make(2, 5, false)}}, false), Error);
  EXPECT_THROW(Prepare(Collective::kAllReduceSum, {}, false), Error);
}

}  // namespace
}  // namespace bindery
