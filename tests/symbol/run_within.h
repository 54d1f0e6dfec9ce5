// What files from strangers may cost: functions that are run in processes of little memory.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "tests/message_of.h"

namespace bindery {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;  // needs terabytes of address space itself
#else
inline constexpr bool kSanitized = false;
#endif

// Does `f` run without an exception in a process that may take only `more` bytes?
inline bool RunsWithin(int64_t more, const std::function<void()>& f) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (!kSanitized) {
      const std::string statm = ReadFile("/proc/self/statm");
      const rlim_t limit = static_cast<rlim_t>(std::stoll(statm) * ::sysconf(_SC_PAGESIZE) + more);
      const rlimit limits{limit, limit};
      ::setrlimit(RLIMIT_AS, &limits);
    }
    int status = 0;
    try {
      f();
    } catch (const std::exception& error) {
      fprintf(stderr, "%s\n", error.what());
      status = 1;
    }
    ::_exit(status);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

inline void ExpectErrorWithin(int64_t more, const std::string& expected, const std::function<void()>& f) {
  EXPECT_TRUE(RunsWithin(more, [&] {
    const std::string message = MessageOf<Error>(f);
    if (message.find(expected) == std::string::npos) throw Error("expected " + expected + ", got " + message);
  })) << expected;
}

}  // namespace bindery
