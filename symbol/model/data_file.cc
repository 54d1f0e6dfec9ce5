#include "symbol/model/data_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/checked.h"
#include "symbol/model/source.h"

namespace bindery {

DataFile::~DataFile() { Close(); }

void DataFile::Close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

void DataFile::Open(const std::string& file) {
  if (descriptor_ >= 0 && file == open_file_) return;
  if (folder_.empty()) Throw<ModelError>("data file {}: a model in memory has no folder", QuotedName(file));
  Close();
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
    descriptor_ = ::openat(folder, step.c_str(), flags);
    const int error = errno;
    ::close(folder);
    errno = error;
    if (is_last) break;
    folder = std::exchange(descriptor_, -1);
    rest.remove_prefix(slash + 1);
  }
  if (descriptor_ < 0) {
    const int error = errno;
    if (error == ELOOP) Throw<DataError>("data file {}: a link, expected a regular file", QuotedName(file));
    Throw<DataError>("cannot open data file {}: {}; it belongs beside the model", QuotedName(file),
                     std::generic_category().message(error));
  }
  open_file_ = file;
  struct stat status;
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    Close();
    Throw<DataError>("data file {}: not a regular file", QuotedName(file));
  }
  file_bytes_ = status.st_size;
}

void DataFile::CheckRange(int64_t offset, int64_t bytes) const {
  if (offset >= 0 && offset <= file_bytes_ && bytes <= file_bytes_ - offset) return;
  Throw<ModelError>("data file {}: bytes {} to {} are beyond its end, it has {}", QuotedName(open_file_), offset,
                    CheckedAdd(offset, bytes), file_bytes_);
}

void DataFile::Read(int64_t offset, int64_t bytes, void* to) const {
  int64_t done = 0;
  while (done < bytes) {
    const ssize_t got =
        ::pread(descriptor_, static_cast<char*>(to) + done, static_cast<size_t>(bytes - done), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      Throw<DataError>("cannot read data file {}: {}", QuotedName(open_file_),
                       got < 0 ? std::generic_category().message(errno) : "it was cut off meanwhile");
    }
    done += got;
  }
}

}  // namespace bindery
