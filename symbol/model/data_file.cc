#include "symbol/model/data_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/checked.h"
#include "symbol/model/source.h"

namespace bindery {

void DataFile::Open(const std::string& file) {
  if (open_ && file == open_->path()) return;
  if (folder_.empty()) Throw<ModelError>("data file {}: a model in memory has no folder", QuotedName(file));
  open_.reset();
  std::string path = file, complaint = fmt::format("data file {}", QuotedName(file));
  int descriptor = -1;
  std::string_view rest = file;
  int folder = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  while (folder >= 0) {
    const size_t slash = rest.find('/');
    const std::string step(rest.substr(0, slash));
    const bool is_last = slash == std::string_view::npos;
    if (step.empty() || step == "." || step == ".." || step.find('\0') != std::string::npos) {
      ::close(folder);
      Throw<ModelError>("data file {}: expected the name of a file in the model's folder", QuotedName(file));
    }
    // Not blocking: opening a pipe would wait for its writer.
    const int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | (is_last ? O_NONBLOCK | O_NOCTTY : O_DIRECTORY);
    descriptor = ::openat(folder, step.c_str(), flags);
    const int error = errno;
    ::close(folder);
    errno = error;
    if (is_last) break;
    folder = std::exchange(descriptor, -1);
    rest.remove_prefix(slash + 1);
  }
  if (descriptor < 0) {
    const int error = errno;
    if (error == ELOOP) Throw<DataError>("data file {}: a link, expected a regular file", QuotedName(file));
    Throw<DataError>("cannot open data file {}: {}; it belongs beside the model", QuotedName(file),
                     std::generic_category().message(error));
  }
  open_.emplace(descriptor, std::move(path), std::move(complaint));
}

void DataFile::CheckRange(int64_t offset, int64_t bytes) const {
  if (offset >= 0 && offset <= open_->size() && bytes <= open_->size() - offset) return;
  Throw<ModelError>("data file {}: bytes {} to {} are beyond its end, it has {}", QuotedName(open_->path()), offset,
                    CheckedAdd(offset, bytes), open_->size());
}

}  // namespace bindery
