// The library prints nothing but by this: it hands lines to a callback. The default one writes warnings and errors to
// standard error, "bindery: warning: ...", and leaves out what cannot be written at once; nullptr discards all. Thread
// safe: one line at a time, and after SetLogCallback has returned, the callback before it is not running. A callback
// must not log itself. What it throws is lost.
#pragma once

#include <functional>
#include <string>

namespace bindery {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
using LogCallback = std::function<void(LogLevel, const std::string&)>;

void SetLogCallback(LogCallback callback);
void LogLine(LogLevel level, const std::string& message);

}  // namespace bindery
