// What is logged while it lives: all lines, or those of one level.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"

namespace bindery {

class LogLines {
 public:
  explicit LogLines(std::optional<LogLevel> wanted = {}) {
    SetLogCallback([this, wanted](LogLevel level, const std::string& line) {
      const std::lock_guard lock(mutex_);
      if (level == wanted.value_or(level)) lines_.push_back(line);
    });
  }
  ~LogLines() { SetLogCallback(nullptr); }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;

  std::vector<std::string> lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  // Each with its end.
  std::string text() const {
    std::string text;
    for (const std::string& line : lines()) text += line + "\n";
    return text;
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    lines_.clear();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace bindery
