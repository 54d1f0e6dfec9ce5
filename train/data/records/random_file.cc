#include "train/data/records/random_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace bindery {

RandomFile::RandomFile(std::string path) : path_(std::move(path)) {
  // Without waiting for the other end, where the name is that of a pipe.
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file_ < 0) Throw<DataError>("cannot read \"{}\": {}", path_, std::generic_category().message(errno));
  struct stat about {};
  if (::fstat(file_, &about) != 0 || !S_ISREG(about.st_mode)) {
    ::close(file_);
    Throw<DataError>("cannot read \"{}\": not a regular file", path_);
  }
  size_ = about.st_size;
}

RandomFile::~RandomFile() { ::close(file_); }

void RandomFile::Read(int64_t offset, int64_t size, void* to) const {
  for (int64_t done = 0; done < size;) {
    const ssize_t got = ::pread(file_, static_cast<char*>(to) + done, static_cast<size_t>(size - done), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) Throw<DataError>("cannot read \"{}\": {}", path_, std::generic_category().message(errno));
    if (got == 0)
      Throw<DataError>("\"{}\": it ends at byte {}, but had {} when it was opened", path_, offset + done, size_);
    done += got;
  }
}

std::string RandomFile::Read(int64_t offset, int64_t size) const {
  std::string bytes(static_cast<size_t>(size), '\0');
  Read(offset, size, bytes.data());
  return bytes;
}

}  // namespace bindery
