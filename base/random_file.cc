#include "base/random_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace bindery {
namespace {

[[noreturn]] void Fail(const std::string& complaint, int error) {
  Throw<DataError>("{}: {} (errno {})", complaint, std::generic_category().message(error), error);
}

int Open(const std::string& path, const std::string& complaint) {
  // It would silently cut the name that the system sees.
  if (path.find('\0') != std::string::npos) Throw<DataError>("{}: the name contains a null character", complaint);
  for (;;) {
    // Not blocking, because opening a pipe would otherwise wait for its writer.
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (descriptor >= 0) return descriptor;
    if (errno != EINTR) Fail(complaint, errno);
  }
}

// Of a regular file; any other is closed.
int64_t SizeOf(int descriptor, const std::string& complaint) {
  struct stat status;
  const int error = ::fstat(descriptor, &status) == 0 ? 0 : errno;
  if (error == 0 && S_ISREG(status.st_mode)) return status.st_size;
  ::close(descriptor);
  if (error != 0) Fail(complaint, error);
  Throw<DataError>("{}: not a regular file", complaint);
}

}  // namespace

// The name in messages as far as the system would see it.
RandomFile::RandomFile(const std::string& path) : RandomFile(path, fmt::format("cannot read \"{}\"", path.c_str())) {}

RandomFile::RandomFile(std::string path, std::string complaint)
    : path_(std::move(path)), complaint_(std::move(complaint)), descriptor_(Open(path_, complaint_)),
      size_(SizeOf(descriptor_, complaint_)) {}

RandomFile::RandomFile(int descriptor, std::string path, std::string complaint)
    : path_(std::move(path)), complaint_(std::move(complaint)), descriptor_(descriptor),
      size_(SizeOf(descriptor_, complaint_)) {}

RandomFile::~RandomFile() { ::close(descriptor_); }

int64_t RandomFile::ReadSome(int64_t offset, int64_t size, void* to) const {
  int64_t done = 0;
  while (done < size) {
    const ssize_t got =
        ::pread(descriptor_, static_cast<char*>(to) + done, static_cast<size_t>(size - done), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) Fail(complaint_, errno);
    if (got == 0) break;
    done += got;
  }
  return done;
}

void RandomFile::Read(int64_t offset, int64_t size, void* to) const {
  const int64_t got = ReadSome(offset, size, to);
  if (got == size) return;
  Throw<DataError>("{}: there is no byte {}; it had {} when it was opened", complaint_, offset + got, size_);
}

std::string RandomFile::Read(int64_t offset, int64_t size) const {
  std::string bytes(static_cast<size_t>(size), '\0');
  Read(offset, size, bytes.data());
  return bytes;
}

}  // namespace bindery
