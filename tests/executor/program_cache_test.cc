#include "executor/program_cache.h"

#include <gtest/gtest.h>

namespace bindery {
namespace {

std::shared_ptr<const Program> ProgramOf(int steps) {
  auto program = std::make_shared<Program>();
  program->plan.steps.resize(static_cast<size_t>(steps));
  return program;
}

TEST(ProgramCache, DropsTheLeastRecentlyUsedBeyondItsBudget) {
  ProgramCache cache(int64_t{100} << 10);  // five steps' worth
  const auto get = [&](const std::string& key, int steps) { return cache.Get(key, [&] { return ProgramOf(steps); }); };
  const auto a = get("a", 2), b = get("b", 2);
  EXPECT_EQ(get("a", 2), a);
  EXPECT_EQ(cache.hits(), 1);
  const auto c = get("c", 2);
  EXPECT_TRUE(cache.Holds(a.get()));
  EXPECT_FALSE(cache.Holds(b.get()));
  cache.Touch(b.get());  // which is gone
  cache.Touch(a.get());
  const auto d = get("d", 2);
  EXPECT_TRUE(cache.Holds(a.get()));
  EXPECT_FALSE(cache.Holds(c.get()));
  // The newest stays, however large.
  const auto e = get("e", 50);
  EXPECT_TRUE(cache.Holds(e.get()));
  EXPECT_EQ(cache.size(), 1);
  EXPECT_EQ(cache.misses(), 5);
}

}  // namespace
}  // namespace bindery
