#include "base/log.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <csignal>
#include <ctime>
#include <mutex>
#include <utility>

namespace bindery {
namespace {

// A line, or nothing where it could not be written at once, as to a pipe that is full (poll promises room for PIPE_BUF
// bytes). Signals that a write may cause, and that end programs, are taken by the thread that caused them: a pipe's
// reader has gone, a file is as large as the process may make it.
void WriteToStderr(LogLevel level, const std::string& message) {
  if (level < LogLevel::kWarning) return;
  std::string line = (level == LogLevel::kError ? "bindery: error: " : "bindery: warning: ") + message;
  std::ranges::replace(line, '\n', ' ');
  line.resize(std::min<size_t>(line.size(), PIPE_BUF - 1));
  line += '\n';
  pollfd stream{STDERR_FILENO, POLLOUT, 0};
  if (poll(&stream, 1, 0) != 1 || !(stream.revents & POLLOUT)) return;
  sigset_t ours, before, pending;
  sigemptyset(&ours);
  sigpending(&pending);
  for (const int signal : {SIGPIPE, SIGXFSZ}) {
    if (!sigismember(&pending, signal)) sigaddset(&ours, signal);
  }
  pthread_sigmask(SIG_BLOCK, &ours, &before);
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) {
    const timespec now = {};
    sigtimedwait(&ours, nullptr, &now);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

struct Sink {
  std::mutex mutex;
  LogCallback callback = WriteToStderr;
};

// Never destroyed: threads may log while the process ends.
Sink& TheSink() {
  static Sink* const sink = new Sink;
  return *sink;
}

}  // namespace

void SetLogCallback(LogCallback callback) {
  Sink& sink = TheSink();
  std::lock_guard lock(sink.mutex);
  sink.callback = std::move(callback);
}

void LogLine(LogLevel level, const std::string& message) {
  Sink& sink = TheSink();
  std::lock_guard lock(sink.mutex);
  try {
    if (sink.callback) sink.callback(level, message);
  } catch (...) {  // many log who must not throw
  }
}

}  // namespace bindery
