#include "base/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <stdexcept>
#include <system_error>

#include "base/error.h"
#include "base/random_file.h"

namespace bindery {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

[[noreturn]] void Fail(const char* action, const std::string& path, int error) {
  Throw<DataError>("cannot {} \"{}\": {} (errno {})", action, path, std::generic_category().message(error), error);
}

// A null character would silently cut the name that the system sees.
void CheckPath(const char* action, const std::string& path) {
  if (path.find('\0') != std::string::npos) {
    Throw<DataError>("cannot {} \"{}\": the name contains a null character", action, path.c_str());
  }
}

// A descriptor that closes itself.
class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(const File&) = delete;
  ~File() { Close(); }

  bool IsOpen() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  // False if the system reports a late error of writing. Linux releases the descriptor whatever close says.
  bool Close() {
    const int descriptor = descriptor_;
    descriptor_ = -1;
    return descriptor < 0 || ::close(descriptor) == 0 || errno == EINTR;
  }

 private:
  int descriptor_;
};

template <class Call>
auto RetryInterrupted(Call call) {
  decltype(call()) result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Follows links, so that a link stays a link and its target is what gets replaced. Only regular files may be replaced:
// renaming over a device would remove it. `mode` keeps the permissions of the file replaced.
std::string Target(const std::string& path, std::optional<mode_t>* mode) {
  struct stat link;
  if (::lstat(path.c_str(), &link) != 0) {
    if (errno == ENOENT) return path;
    Fail("write", path, errno);
  }
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) Fail("write", path, errno);
  if (!S_ISREG(status.st_mode)) Throw<DataError>("cannot write \"{}\": not a regular file", path);
  *mode = status.st_mode & 0777;
  if (!S_ISLNK(link.st_mode)) return path;
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
  if (real == nullptr) Fail("write", path, errno);
  return real.get();
}

// A new file beside its target under a name of its own, removed unless it was moved into place. It is locked (flock)
// until then, so that nobody takes it for one that a killed process has left: who tidies up removes what can be locked.
class Temporary {
 public:
  explicit Temporary(const std::string& target)
      : target_(target), folder_(FolderOf(target)), path_(NewName(folder_)), file_(Open()) {
    if (file_.IsOpen()) return;
    if (errno == ENOENT) Throw<DataError>("cannot write \"{}\": there is no folder \"{}\"", target_, folder_);
    Fail("create a file beside", target_, errno);
  }
  ~Temporary() {
    if (!moved_) ::unlink(path_.c_str());
  }

  void SetMode(mode_t mode) {
    if (::fchmod(file_.descriptor(), mode) != 0) Fail("set the permissions of", target_, errno);
  }

  void Write(const char* data, size_t size) {
    while (size > 0) {
      const ssize_t written = RetryInterrupted([&] { return ::write(file_.descriptor(), data, size); });
      if (written < 0) Fail("write", target_, errno);
      data += written;
      size -= static_cast<size_t>(written);
    }
  }

  // The order makes it safe: contents on the disk, then the name, then the folder's record of the name.
  void MoveIntoPlace() {
    if (RetryInterrupted([&] { return ::fsync(file_.descriptor()); }) != 0) Fail("write", target_, errno);
    const File locked(::fcntl(file_.descriptor(), F_DUPFD_CLOEXEC, 0));  // which keeps the lock
    if (!locked.IsOpen() || !file_.Close()) Fail("write", target_, errno);
    if (::rename(path_.c_str(), target_.c_str()) != 0) Fail("replace", target_, errno);
    moved_ = true;
    const File folder(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder.IsOpen()) Fail("open the folder of", target_, errno);
    // EINVAL: a file system whose folders cannot be synchronised.
    if (RetryInterrupted([&] { return ::fsync(folder.descriptor()); }) != 0 && errno != EINVAL) {
      Fail("synchronise the folder of", target_, errno);
    }
  }

 private:
  // A random name: processes of one number may write to a shared folder from several machines or containers.
  static std::string NewName(const std::string& folder) {
    std::random_device random;
    return fmt::format("{}/.bindery-{:08x}{:08x}.tmp", folder, random(), random());
  }
  // Where it is removed before it is locked, once more. Some file systems have no locks: there it goes without.
  int Open() {
    for (;;) {
      const int descriptor =
          RetryInterrupted([&] { return ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
      if (descriptor < 0) return descriptor;
      RetryInterrupted([&] { return ::flock(descriptor, LOCK_EX); });
      struct stat status;
      if (::fstat(descriptor, &status) != 0 || status.st_nlink > 0) return descriptor;
      ::close(descriptor);
      path_ = NewName(folder_);
    }
  }

  const std::string target_, folder_;
  std::string path_;
  File file_;
  bool moved_ = false;
};

}  // namespace

std::string ReadFile(const std::string& path, int64_t limit) {
  const RandomFile file(path);
  const auto check_limit = [&](int64_t size) {
    if (size > limit) Throw<DataError>("cannot read \"{}\": {} bytes or more, the limit is {}", path, size, limit);
  };
  check_limit(file.size());
  std::string bytes;
  try {
    // The size is a hint: the file may grow or shrink meanwhile, and files of /proc claim to be empty.
    bytes.resize(static_cast<size_t>(file.size()) + 1);
    for (int64_t size = 0;;) {
      size += file.ReadSome(size, std::ssize(bytes) - size, bytes.data() + size);
      check_limit(size);
      if (size < std::ssize(bytes)) {
        bytes.resize(static_cast<size_t>(size));
        break;
      }
      bytes.resize(static_cast<size_t>(size + std::max<int64_t>(size, 4096)));
    }
  } catch (const std::bad_alloc&) {
    Throw<DataError>("cannot read \"{}\": {} bytes do not fit in memory", path, file.size());
  } catch (const std::length_error&) {
    Throw<DataError>("cannot read \"{}\": {} bytes do not fit in memory", path, file.size());
  }
  return bytes;
}

void WriteFileAtomically(const std::string& path, const std::function<void(const ByteSink&)>& writer) {
  CheckPath("write", path);
  std::optional<mode_t> mode;
  const std::string target = Target(path, &mode);
  Temporary file(target);
  if (mode) file.SetMode(*mode);
  std::string buffer;
  writer([&](const void* data, int64_t size) {
    const char* bytes = static_cast<const char*>(data);
    const size_t count = static_cast<size_t>(size);
    if (buffer.size() + count > kBufferBytes) {
      file.Write(buffer.data(), buffer.size());
      buffer.clear();
    }
    if (count >= kBufferBytes) {
      file.Write(bytes, count);
    } else if (count > 0) {
      buffer.append(bytes, count);
    }
  });
  file.Write(buffer.data(), buffer.size());
  file.MoveIntoPlace();
}

void WriteFileAtomically(const std::string& path, std::string_view bytes) {
  WriteFileAtomically(path, [bytes](const ByteSink& sink) { sink(bytes.data(), static_cast<int64_t>(bytes.size())); });
}

void MakeFolder(const std::string& path) {
  CheckPath("make the folder", path);
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) Fail("make the folder", path, error.value());
}

void MakeFolderOf(const std::string& file) { MakeFolder(FolderOf(file)); }

uint64_t Checksum(const void* data, int64_t size, uint64_t seed) {
  return XXH3_64bits_withSeed(data, static_cast<size_t>(size), seed);
}

}  // namespace bindery
