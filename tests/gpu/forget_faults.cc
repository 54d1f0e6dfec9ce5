// Tests of several files in one program: what those of one suite did to the engine on purpose, no other one hears of.
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/engine.h"

namespace bindery {
namespace {

class ForgetFaults : public testing::EmptyTestEventListener {
  void OnTestSuiteEnd(const testing::TestSuite&) override {
    try {
      DefaultEngine()->WaitAll();
    } catch (const Error&) {
    }
  }
};

[[maybe_unused]] const bool kListens = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new ForgetFaults);
  return true;
}();

}  // namespace
}  // namespace bindery
