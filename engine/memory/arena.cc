#include "engine/memory/arena.h"

#include <algorithm>
#include <limits>

#include "base/checked.h"
#include "base/error.h"
#include "engine/backend.h"
#include "engine/cpu/pages.h"
#include "engine/memory/storage.h"

namespace bindery {

std::shared_ptr<Arena> Arena::Make(Device device, std::shared_ptr<Engine> engine, int64_t reserve) {
  if (!engine) Throw("an arena needs an engine");
  if (reserve < 1) Throw("{}: an arena reserves at least 1 byte, got {}", device, reserve);
  return Backend::Of(device).MakeArena(device, engine, reserve);
}

void Arena::Grow(int64_t bytes, int threads) {
  if (threads < 1) Throw("{}: an arena grows with at least 1 thread, got {}", device_, threads);
  if (bytes <= committed_) return;
  const auto fail = [&](const std::string& reason) {
    Throw<DeviceError>("{}: cannot grow the arena from {} to {} bytes: {}", device_, committed_, bytes, reason);
  };
  if (limit_ > 0 && bytes > limit_) fail(fmt::format("its limit is {}", limit_));
  if (bytes > reserved_) {
    const bool limited = AvailableAddressSpace() != std::numeric_limits<int64_t>::max();
    fail(fmt::format("its address space ends at {}{}", reserved_,
                     limited ? ", because that of the process is limited (ulimit -v)" : ""));
  }
  int64_t target = RoundUp(bytes, granule_);
  if (limit_ > 0 && target > limit_) target = std::min(target, RoundUp(bytes, PageBytes()));
  std::string reason = Commit(committed_, target, threads);
  if (!reason.empty()) {  // but for what the pool holds, perhaps
    DefaultStorage()->ReleasePool();
    reason = Commit(committed_, target, threads);
  }
  if (!reason.empty()) fail(reason);
  committed_ = target;
}

void Arena::SetLimit(int64_t bytes) {
  if (bytes < 0) Throw("{}: the limit of an arena must be >= 0, got {}", device_, bytes);
  limit_ = bytes;
}

}  // namespace bindery
