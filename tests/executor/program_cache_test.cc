#include "executor/group/program_cache.h"

#include <gtest/gtest.h>

namespace bindery {
namespace {

std::shared_ptr<const Program> ProgramOf(int steps) {
  auto program = std::make_shared<Program>();
  program->plan.steps.resize(static_cast<size_t>(steps));
  return program;
}

TEST(ProgramCache, DropsTheLeastRecentlyUsedBeyondItsBudget) {
  ProgramCache cache(int64_t{120} << 10, 1);  // five steps' worth
  const auto get = [&](const std::string& name, int steps) {
    CompileOptions options;
    options.parameters = {name};
    return cache.Get(ProgramKey(options), [&] { return ProgramOf(steps); });
  };
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

TEST(ProgramCache, KeepsTheLastOnesWhateverTheirSize) {
  ProgramCache cache(1, 3);
  for (int i = 0; i < 10; ++i) {
    CompileOptions options;
    options.shapes = {{"data", {i + 1, 4}}};
    cache.Get(ProgramKey(options), [] { return ProgramOf(5); });
    EXPECT_EQ(cache.size(), std::min(i + 1, 3));
  }
}

// Each pair would be one text if names were strung together.
TEST(ProgramKey, NamesMayHoldAnything) {
  const auto with = [](auto&& change) {
    CompileOptions options;
    change(options);
    return ProgramKey(options);
  };
  const auto named = [&](const std::set<std::string>& parameters, const std::set<std::string>& frozen = {}) {
    return with([&](CompileOptions& o) {
      o.parameters = parameters;
      o.frozen = frozen;
    });
  };
  EXPECT_FALSE(named({"a,b"}) == named({"a", "b"}));
  EXPECT_FALSE(named({}, {"a!b"}) == named({}, {"a", "b"}));
  EXPECT_FALSE(named({}, {"a"}) == named({"a"}, {}));
  EXPECT_FALSE(with([](CompileOptions& o) {
                 o.grad_req = {{"a=1;b", GradReq::kWrite}};
               }) == with([](CompileOptions& o) {
                 o.grad_req = {{"a", GradReq::kWrite}, {"b", GradReq::kWrite}};
               }));
  EXPECT_FALSE(with([](CompileOptions& o) {
                 o.shapes = {{"a(2);b", {2}}};
               }) == with([](CompileOptions& o) {
                 o.shapes = {{"a", {2}}, {"b", {2}}};
               }));
  EXPECT_FALSE(with([](CompileOptions& o) { o.observe = "fc"; }) == named({}));
  EXPECT_TRUE(named({"a", "b"}) == named({"b", "a"}));
  EXPECT_EQ(named({"a"}).hash(), named({"a"}).hash());
  // Formats are not part of it.
  EXPECT_TRUE(with([](CompileOptions& o) { o.storage_formats = {{"w", Format::Plain()}}; }) == named({}));
}

}  // namespace
}  // namespace bindery
