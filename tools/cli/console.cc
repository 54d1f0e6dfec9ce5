#include "tools/cli/console.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>

#include "base/log.h"

namespace bindery::cli {
namespace {

bool is_quiet = false, is_silent = false;
std::string silent_name;

}  // namespace

void BeSilent(const std::string& name) {
  is_silent = true;
  silent_name = name;
  BeQuiet();
  SetLogCallback([](LogLevel, const std::string&) {});
}
bool IsSilent() { return is_silent; }

void SayIfSilent(const std::string& line) {
  if (!is_silent) return;
  const std::string text = fmt::format("bindery: {}: {}\n", silent_name, line);
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void BeQuiet() { is_quiet = true; }
bool IsQuiet() { return is_quiet; }

void KeepStandardStreams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // The lowest number that is free: this one.
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF) ::open("/dev/null", O_RDONLY);
  }
}

std::string Wrapped(const std::string& text, const std::string& indent) {
  constexpr size_t kColumns = 100;
  std::istringstream words(text);
  std::string lines, line;
  for (std::string word, next; words >> word; word.clear()) {
    // A line that begins with a sign would be an item of a list.
    while (words >> std::ws && (words.peek() == '-' || words.peek() == '+') && words >> next) word += " " + next;
    if (!line.empty() && line.size() + 1 + word.size() > kColumns) {
      lines += line + "\n";
      line = indent + word;
    } else {
      line += (line.empty() ? "" : " ") + word;
    }
  }
  return lines + line + "\n";
}

}  // namespace bindery::cli
