#include "symbol/ops/indexing.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "executor/evaluate.h"
#include "tests/executor/cases/operator_cases.h"
#include "tests/executor/graph_runner.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

TEST(Operators, Indexing) { CheckOperators(IndexingCases()); }

TEST(Operators, Order) { CheckOperators(OrderCases()); }

TEST(Indexing, RaisesWithTheNodesName) {
  const Symbol y = Take(Variable("x"), Variable("i"), {}, "lookup");
  for (const KernelPolicy policy : {KernelPolicy::kFast, KernelPolicy::kReference}) {
    EXPECT_EQ(MessageOf<DataError>([&] {
                EvaluateNode(*y.entry().node, {Values({3}, {1, 2, 3}), Values({2}, {0, -4})}, Mode::kPredict, policy);
              }),
              "DataError: Take \"lookup\": index -4 is not in -3..2");
  }
}

TEST(Indexing, WrapsNumbersBeyondAllExtents) {
  const HostTensor x = Values({3}, {1, 2, 3});
  HostTensor large(DType::kUInt64, {2});
  large.data<uint64_t>()[0] = (uint64_t{1} << 63) + 1;                                        // 0 modulo 3
  large.data<uint64_t>()[1] = (uint64_t{1} << 62) + 4;                                        // 2
  const HostTensor numbers = Values({6}, {HUGE_VAL, -HUGE_VAL, NAN, 0x1p80, -0x1p80, -4.5});  // 2^80 is 1 modulo 3
  const Symbol y = Take(Variable("x"), Variable("i"), {.mode = IndexMode::kWrap}, "y");
  const auto taken = [&](const HostTensor& indices, KernelPolicy policy) {
    return EvaluateNode(*y.entry().node, {x, indices}, Mode::kPredict, policy)[0];
  };
  for (const KernelPolicy policy : {KernelPolicy::kFast, KernelPolicy::kReference}) {
    ExpectNear(taken(numbers, policy), Values({6}, {1, 1, 1, 2, 3, 2}), 0, "of numbers");
  }
  ExpectNear(taken(large, KernelPolicy::kFast), Values({2}, {1, 3}), 0, "of integers");
}

}  // namespace
}  // namespace bindery
