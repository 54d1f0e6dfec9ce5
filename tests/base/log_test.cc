#include "base/log.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace bindery {
namespace {

class LogTest : public testing::Test {
 protected:
  ~LogTest() override { SetLogCallback(nullptr); }
};

TEST_F(LogTest, DiscardsWithoutACallback) {
  SetLogCallback(nullptr);
  testing::internal::CaptureStderr();
  LogLine(LogLevel::kError, "nobody listens");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(LogTest, HandsLinesToTheLatestCallback) {
  std::vector<std::pair<LogLevel, std::string>> first, second;
  SetLogCallback([&](LogLevel level, const std::string& line) { first.emplace_back(level, line); });
  LogLine(LogLevel::kWarning, "one");
  SetLogCallback([&](LogLevel level, const std::string& line) { second.emplace_back(level, line); });
  LogLine(LogLevel::kDebug, "two");
  EXPECT_EQ(first, (std::vector<std::pair<LogLevel, std::string>>{{LogLevel::kWarning, "one"}}));
  EXPECT_EQ(second, (std::vector<std::pair<LogLevel, std::string>>{{LogLevel::kDebug, "two"}}));
}

TEST_F(LogTest, WhatACallbackThrowsIsLost) {
  int called = 0;
  SetLogCallback([&](LogLevel, const std::string&) {
    ++called;
    throw 1;
  });
  for (int i = 0; i < 2; ++i) EXPECT_NO_THROW(LogLine(LogLevel::kError, "line"));
  EXPECT_EQ(called, 2);
}

TEST_F(LogTest, OneLineAtATimeFromManyThreads) {
  std::vector<std::string> lines;  // not guarded: the log calls one at a time
  SetLogCallback([&](LogLevel, const std::string& line) { lines.push_back(line); });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 500; ++i) LogLine(LogLevel::kInfo, "line " + std::to_string(t));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lines.size(), 2000u);
}

}  // namespace
}  // namespace bindery
