#include "base/log.h"

#include <mutex>
#include <utility>

namespace bindery {
namespace {

struct Sink {
  std::mutex mutex;
  LogCallback callback;
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
