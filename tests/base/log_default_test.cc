// What the log does before anybody sets a callback: so no test here sets one.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "base/log.h"

namespace bindery {
namespace {

// The process's standard error, to be restored.
class SavedStderr {
 public:
  ~SavedStderr() {
    dup2(saved_, STDERR_FILENO);
    close(saved_);
  }

 private:
  const int saved_ = dup(STDERR_FILENO);
};

TEST(DefaultLog, WritesWarningsAndErrorsALineEach) {
  testing::internal::CaptureStderr();
  LogLine(LogLevel::kDebug, "a");
  LogLine(LogLevel::kInfo, "b");
  LogLine(LogLevel::kWarning, "c\nd");
  LogLine(LogLevel::kError, "e");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "bindery: warning: c d\nbindery: error: e\n");
}

TEST(DefaultLog, OutlivesAReaderThatHasGone) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  {
    const SavedStderr saved;
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    LogLine(LogLevel::kWarning, "to nobody");  // SIGPIPE would end the test
  }
  close(ends[1]);
}

TEST(DefaultLog, WaitsForNoReader) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
  const std::string text(1000, 'x');
  while (write(ends[1], text.data(), text.size()) > 0) {
  }
  fcntl(ends[1], F_SETFL, 0);
  {
    const SavedStderr saved;
    dup2(ends[1], STDERR_FILENO);
    LogLine(LogLevel::kError, "into a full pipe");
  }
  for (const int end : ends) close(end);
}

TEST(DefaultLog, NeedsNoStderr) {
  const SavedStderr saved;
  close(STDERR_FILENO);
  LogLine(LogLevel::kError, "nowhere");
}

}  // namespace
}  // namespace bindery
