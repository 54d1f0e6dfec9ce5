// Standard error, for people. Nobody may be there to read: a closed terminal, a full disk. That never ends a run.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace bindery::cli {

// Of several processes one speaks for all: from now on this one, "process 1 of 2", say, says nothing here, nor in the
// log; but for what the others will not hear of.
void BeSilent(const std::string& name);
bool IsSilent();
void SayIfSilent(const std::string& line);

// What cannot be written is lost.
inline void WriteToStandardError(const std::string& text) {
  if (IsSilent()) return;
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

template <class... Args>
void Say(fmt::format_string<Args...> format, Args&&... args) {
  WriteToStandardError(fmt::format(format, std::forward<Args>(args)...));
}

// What is told on the way and is neither a result nor what went wrong: not said once --quiet has asked for silence.
void BeQuiet();
bool IsQuiet();
template <class... Args>
void Tell(fmt::format_string<Args...> format, Args&&... args) {
  if (!IsQuiet()) Say(format, std::forward<Args>(args)...);
}

// Puts /dev/null, for reading, where a standard stream is closed: else the next file that is opened, a checkpoint say,
// would take its place and get its text. Writing to it fails, as it does to a closed stream.
void KeepStandardStreams();

// Words in lines of at most 100 columns, all but the first indented.
std::string Wrapped(const std::string& text, const std::string& indent = "");

}  // namespace bindery::cli
