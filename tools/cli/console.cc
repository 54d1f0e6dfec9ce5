#include "tools/cli/console.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace bindery::cli {
namespace {

bool is_quiet = false;

}  // namespace

void BeQuiet() { is_quiet = true; }
bool IsQuiet() { return is_quiet; }

void KeepStandardStreams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // The lowest number that is free: this one.
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF) ::open("/dev/null", O_RDONLY);
  }
}

}  // namespace bindery::cli
