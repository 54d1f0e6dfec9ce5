// Which parts of a step become one operation, and how it fails.
#include "engine/step.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

class StepRangeTest : public testing::TestWithParam<bool> {
 protected:
  StepRangeTest() : engine_(GetParam() ? MakeThreadedEngine() : MakeInlineEngine()) {
    for (VarPtr& var : vars_) var = engine_->NewVar();
  }
  // Appends its name to the log of its device when it runs.
  Operation Part(const std::string& name, int device, std::vector<int> reads, std::vector<int> writes,
                 std::vector<int> updates = {}) {
    Operation part{.name = name, .device = Cpu(device), .run = [=, this](const OpContext&) {
                     log_[device] += name;
                     if (name == failing_) throw DataError("no");
                   }};
    for (const int i : reads) part.reads.push_back(vars_[i]);
    for (const int i : writes) part.writes.push_back(vars_[i]);
    for (const int i : updates) part.updates.push_back(vars_[i]);
    return part;
  }
  bool Fails(int var) {
    try {
      engine_->Wait(vars_[var]);
      return false;
    } catch (const DataError&) {
      return true;
    }
  }

  std::shared_ptr<Engine> engine_;
  VarPtr vars_[6];
  std::string log_[2], failing_;
};

INSTANTIATE_TEST_SUITE_P(Engines, StepRangeTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Threaded" : "Inline"; });

// Two devices' forward and backward, in a step's order: variable d is the arena of device d, 2 + d its gradients.
TEST_P(StepRangeTest, WhatNeedsItsPredecessorJoinsIt) {
  const StepRange range(engine_, {Part("a", 0, {}, {0}), Part("b", 1, {}, {1}), Part("c", 0, {0}, {0, 2}),
                                  Part("d", 1, {1}, {1, 3}), Part("e", 0, {2, 3}, {4})});
  EXPECT_EQ(range.num_operations(), 3);
  for (int i = 0; i < 2; ++i) range.Push();
  engine_->WaitAll();
  EXPECT_EQ(log_[0] + "," + log_[1], "aceace,bdbd");
}

TEST_P(StepRangeTest, ItFailsAsOneAndTellsWhichPartItWas) {
  const StepRange range(engine_, {Part("a", 0, {5}, {0}), Part("c", 0, {0}, {0, 2})});
  EXPECT_EQ(range.num_operations(), 1);
  failing_ = "c";
  range.Push();
  EXPECT_EQ(MessageOf<DataError>([&] { engine_->Wait(vars_[2]); }), "DataError: operation \"c\" failed: no");
  EXPECT_TRUE(Fails(0));
  failing_ = "";
  range.Push();  // creates anew what it reads itself
  EXPECT_FALSE(Fails(2));
  EXPECT_THROW(engine_->WaitAll(), DataError);
}

TEST_P(StepRangeTest, OthersStayByThemselves) {
  const auto operations = [&](StepParts parts) { return StepRange(engine_, std::move(parts)).num_operations(); };
  EXPECT_EQ(operations({Part("a", 0, {}, {0}), Part("b", 0, {}, {1})}), 2);       // nothing needed
  EXPECT_EQ(operations({Part("a", 0, {}, {0}), Part("b", 0, {0}, {}, {1})}), 2);  // it updates in place
  EXPECT_EQ(operations({Part("a", 0, {}, {}, {0}), Part("b", 0, {0}, {1})}), 2);  // updated, not created
  EXPECT_EQ(operations({Part("a", 0, {}, {0}), Part("b", 1, {0}, {1})}), 2);      // another device
  EXPECT_EQ(operations({Part("a", 0, {}, {0}), Part("b", 1, {}, {}, {2}), Part("c", 0, {0, 2}, {0})}), 3);  // between
  // Another lane waits for the first part alone.
  EXPECT_EQ(operations({Part("a", 0, {}, {0}), Part("b", 0, {0}, {1}), Part("c", 1, {0}, {2})}), 3);
  // Others, too, who are not of the range.
  const StepParts two = {Part("a", 0, {}, {0, 2}), Part("b", 0, {0}, {0, 1})};
  EXPECT_EQ(StepRange(engine_, two).num_operations(), 1);
  EXPECT_EQ(StepRange(engine_, two, {vars_[2]}).num_operations(), 2);
}

}  // namespace
}  // namespace bindery
