// Which host memory the streams of a kind of device can copy from and to: what was allocated for that, and nothing
// else. Private to engine/.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace bindery {

// Thread safe.
class StagingPieces {
 public:
  void Add(void* memory, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    pieces_[static_cast<const char*>(memory)] = bytes;
  }
  void Remove(void* memory) noexcept {
    const std::lock_guard lock(mutex_);
    pieces_.erase(static_cast<const char*>(memory));
  }
  bool Holds(const void* memory, int64_t bytes) const {
    const char* const begin = static_cast<const char*>(memory);
    const std::lock_guard lock(mutex_);
    auto piece = pieces_.upper_bound(begin);
    if (piece == pieces_.begin()) return false;
    --piece;
    return begin + bytes <= piece->first + piece->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<const char*, int64_t> pieces_;
};

}  // namespace bindery
