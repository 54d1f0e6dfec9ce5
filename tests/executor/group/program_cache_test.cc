#include "executor/group/program_cache.h"

#include <gtest/gtest.h>

namespace bindery {
namespace {

std::shared_ptr<const Program> ProgramOf(int steps) {
  auto program = std::make_shared<Program>();
  program->plan.calls.resize(static_cast<size_t>(steps));
  return program;
}

TEST(ProgramCache, DropsTheLeastRecentlyUsedBeyondItsBudget) {
  ProgramCache cache(int64_t{120} << 10, 1);  // five steps' worth
  const auto get = [&](const std::string& name, int steps) {
    CompileOptions options;
    options.signature.arguments = {{.name = name}};
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
    options.signature.arguments = {{.name = "data", .role = Role::kData, .shape = Shape{i + 1, 4}}};
    cache.Get(ProgramKey(options), [] { return ProgramOf(5); });
    EXPECT_EQ(cache.size(), std::min(i + 1, 3));
  }
}

TEST(ProgramKey, IsAllThatDecidesAProgramButFormats) {
  const auto key = [](auto&& change) {
    CompileOptions options;
    options.signature.arguments = {{.name = "data", .role = Role::kData, .shape = Shape{2, 3}}, {.name = "w"}};
    change(options);
    return ProgramKey(options);
  };
  const ProgramKey plain = key([](CompileOptions&) {});
  const auto differs = [&](auto&& change) { return !(key(change) == plain); };
  EXPECT_TRUE(differs([](CompileOptions& o) { o.signature.arguments[0].shape = Shape{3, 2}; }));
  EXPECT_TRUE(differs([](CompileOptions& o) { o.signature.arguments[0].batch_axis = 0; }));
  EXPECT_TRUE(differs([](CompileOptions& o) { o.signature.arguments[1].request = GradReq::kAdd; }));
  EXPECT_TRUE(differs([](CompileOptions& o) { o.signature.arguments[1].is_fixed = true; }));
  EXPECT_TRUE(differs([](CompileOptions& o) { o.signature.arguments[1].role = Role::kState; }));
  EXPECT_TRUE(differs([](CompileOptions& o) { o.observe = "fc"; }));
  EXPECT_TRUE(differs([](CompileOptions& o) { o.switches.fusion = false; }));
  EXPECT_TRUE(differs([](CompileOptions& o) { o.devices = 2; }));
  EXPECT_FALSE(differs([](CompileOptions& o) { o.signature.arguments[1].format = Format::ChannelsLast(4); }));
  EXPECT_EQ(key([](CompileOptions&) {}).hash(), plain.hash());
}

// Each pair would be one text if names were strung together.
TEST(ProgramKey, NamesMayHoldAnything) {
  const auto named = [](const std::vector<std::string>& names) {
    CompileOptions options;
    for (const std::string& name : names) options.signature.arguments.push_back({.name = name});
    return ProgramKey(options);
  };
  EXPECT_FALSE(named({"a,b"}) == named({"a", "b"}));
  EXPECT_FALSE(named({"a(2);b"}) == named({"a", "b"}));
  EXPECT_FALSE(named({"a", ""}) == named({"a"}));
  EXPECT_TRUE(named({"a", "b"}) == named({"a", "b"}));
}

}  // namespace
}  // namespace bindery
