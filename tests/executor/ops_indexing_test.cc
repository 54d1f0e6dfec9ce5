#include <gtest/gtest.h>

#include "base/error.h"
#include "executor/evaluate.h"
#include "symbol/ops/indexing.h"
#include "tests/executor/graph_runner.h"
#include "tests/executor/operator_cases.h"
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

}  // namespace
}  // namespace bindery
