#include "train/checkpoint/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/error.h"

namespace bindery {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostOfHolder = 200;  // bytes

std::string ThisProcess() {
  char host[kMostOfHolder / 2] = "";
  ::gethostname(host, sizeof(host) - 1);
  return fmt::format("process {} on {}", ::getpid(), host);
}

// What the file says; no more than a line of it, whoever wrote it.
std::string HolderIn(int descriptor) {
  char text[kMostOfHolder];
  const ssize_t size = ::pread(descriptor, text, sizeof(text), 0);
  std::string holder(text, static_cast<size_t>(std::max<ssize_t>(0, size)));
  holder.resize(std::min(holder.size(), holder.find('\n')));
  const auto is_odd = [](unsigned char c) { return c < ' ' || c > '~'; };
  return holder.empty() || std::ranges::any_of(holder, is_odd) ? "a process that has not said which" : holder;
}

[[noreturn]] void Refuse(const std::string& folder, const std::string& holder) {
  Throw<DataError>("another training is writing to \"{}\": {}", folder, holder);
}

}  // namespace

class FolderLock::Held {
 public:
  // Throws DataError if another process has it.
  explicit Held(const std::string& folder) : path_((fs::path(folder) / ".lock").string()) {
    while (descriptor_ < 0 && Open()) {
      if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
        const std::string holder = errno == EWOULDBLOCK ? HolderIn(descriptor_) : "";
        Close();
        if (!holder.empty()) Refuse(folder, holder);
        return;
      }
      // Removed by its last holder, or with its folder, before it was locked here: once more.
      if (!IsThere()) Close();
    }
    if (descriptor_ < 0) return;
    const std::string text = ThisProcess() + '\n';
    // For people: if it cannot be said, it is locked all the same.
    if (::ftruncate(descriptor_, 0) == 0) (void)!::pwrite(descriptor_, text.data(), text.size(), 0);
  }
  ~Held() {
    if (process_ == ::getpid() && IsThere()) ::unlink(path_.c_str());  // a fork's copy is not the holder
    Close();
  }
  Held(const Held&) = delete;

  std::thread::id thread() const { return thread_; }
  bool of_this_process() const { return process_ == ::getpid(); }

 private:
  // Not so if somebody has removed the folder: another holder's may be there.
  bool IsThere() const {
    struct stat mine, there;
    return descriptor_ >= 0 && ::fstat(descriptor_, &mine) == 0 && ::lstat(path_.c_str(), &there) == 0 &&
           mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
  }
  bool Open() {
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    // Of another user.
    if (descriptor_ < 0 && errno == EACCES) descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return descriptor_ >= 0;
  }
  void Close() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }

  const std::string path_;
  const pid_t process_ = ::getpid();
  const std::thread::id thread_ = std::this_thread::get_id();
  int descriptor_ = -1;
};

// Those of this process: locks of files do not tell its threads apart, nor one that asks again.
std::shared_ptr<FolderLock::Held> FolderLock::Take(const std::string& folder) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<Held>> known;
  std::error_code error;
  fs::create_directories(folder, error);
  const fs::path place = fs::canonical(folder, error);
  const std::lock_guard lock(mutex);
  std::erase_if(known, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<Held>& mine = known[error ? folder : place.string()];
  if (std::shared_ptr<Held> held = mine.lock(); held && held->of_this_process()) {
    if (held->thread() != std::this_thread::get_id()) Refuse(folder, "another thread of this process");
    return held;
  }
  auto held = std::make_shared<Held>(folder);
  mine = held;
  return held;
}

FolderLock::FolderLock(const std::string& folder) : held_(Take(folder)) {}

}  // namespace bindery
