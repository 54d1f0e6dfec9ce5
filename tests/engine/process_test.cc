// Processes that fork, or end, while an engine is at work.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "engine/engine.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

Operation Adding(int* sum, const VarPtr& var) {
  return {.name = "add", .device = Cpu(), .updates = {var}, .run = [sum](const OpContext&) { ++*sum; }};
}

// In the fork: 0 if all is as it should be. What waited for a thread that is not there, the alarm would end.
int UseInFork(const std::shared_ptr<Engine>& engine, const VarPtr& var, const PreparedPtr& prepared) {
  alarm(60);
  int sum = 0;
  const std::string expected = "Error: the engine was made before this process was forked";
  const auto refused = [&](const auto& call) { return MessageOf(call).starts_with(expected); };
  if (!refused([&] { engine->Push(Adding(&sum, var)); })) return 1;
  if (!refused([&] { engine->Push(prepared); })) return 2;
  if (!refused([&] { engine->Wait(var); })) return 3;
  if (!refused([&] { engine->WaitAll(); })) return 4;
  if (!refused([&] { engine->Recover(); })) return 5;
  if (!refused([&] { engine->Version(var); })) return 6;
  engine->WaitIdle(var);  // as destructors do
  // One that is made here works.
  const std::shared_ptr<Engine> own = MakeThreadedEngine();
  const VarPtr ours = own->NewVar();
  for (int i = 0; i < 10; ++i) own->Push(Adding(&sum, ours));
  own->Wait(ours);
  return sum == 10 ? 0 : 7;
}

TEST(ProcessDeathTest, AForkIsToldThatItHasNoThreads) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer ends forks that begin threads";
#endif
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
  GTEST_SKIP() << "ThreadSanitizer ends forks that begin threads";
#endif
#endif
  int sum = 0;
  std::shared_ptr<Engine> engine = MakeThreadedEngine();
  VarPtr var = engine->NewVar();
  const PreparedPtr prepared = engine->Prepare(Adding(&sum, var));
  engine->Push(prepared);
  engine->Wait(var);
  EXPECT_EXIT(
      {
        const int result = UseInFork(engine, var, prepared);
        engine.reset();  // waits for nobody either
        _exit(result);
      },
      testing::ExitedWithCode(0), "");
  // Here all is as it was.
  engine->Push(prepared);
  engine->Wait(var);
  EXPECT_EQ(sum, 2);
}

// In the process that is to end: an operation is under way from before exit() until after its first handlers.
[[noreturn]] void EndWhileAtWork(int said) {
  static std::atomic<bool> is_ending{false};
  const std::shared_ptr<Engine> engine = DefaultEngine();
  std::atomic<bool> begun{false};
  engine->Push({.name = "slow", .device = Cpu(), .writes = {engine->NewVar()}, .run = [&](const OpContext&) {
                  begun = true;
                  while (!is_ending) std::this_thread::yield();
                  std::this_thread::sleep_for(std::chrono::milliseconds(50));
                  (void)!write(said, "x", 1);
                }});
  while (!begun) std::this_thread::yield();
  std::atexit([] { is_ending = true; });
  std::exit(7);
}

TEST(ProcessDeathTest, WhatIsUnderWayEndsBeforeTheProcess) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EXIT(EndWhileAtWork(ends[1]), testing::ExitedWithCode(7), "");
  close(ends[1]);
  char said = 0;
  EXPECT_EQ(read(ends[0], &said, 1), 1);
  close(ends[0]);
}

}  // namespace
}  // namespace bindery
