#include "engine/cpu/arena.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "engine/cpu/pages.h"

namespace bindery {
namespace {

// Under a limit of address space an arena takes this part of what is left: other arenas, parameters, threads need some.
constexpr int64_t kShareOfLimit = 4;

class CpuArena final : public Arena {
 public:
  CpuArena(Device device, const std::shared_ptr<Engine>& engine, int64_t reserve)
      : device_(device), var_(engine->NewVar()),
        reserved_(
            RoundUp(std::min({reserve, MachineMemory(), AvailableAddressSpace() / kShareOfLimit}), kHugePageBytes)) {
    base_ = ReservePages(reserved_);
    if (!base_) Throw<DeviceError>("{}: the system refuses {} bytes of address space for an arena", device, reserved_);
  }
  ~CpuArena() override { ReleasePages(base_, reserved_); }

  void Grow(int64_t bytes, int threads) override {
    if (threads < 1) Throw("{}: an arena grows with at least 1 thread, got {}", device_, threads);
    if (bytes <= committed_) return;
    if (limit_ > 0 && bytes > limit_) Fail(bytes, fmt::format("its limit is {}", limit_));
    if (bytes > reserved_) {
      const bool limited = AvailableAddressSpace() != std::numeric_limits<int64_t>::max();
      Fail(bytes, fmt::format("its address space ends at {}{}", reserved_,
                              limited ? ", because that of the process is limited (ulimit -v)" : ""));
    }
    int64_t target = RoundUp(bytes, kHugePageBytes);
    if (limit_ > 0 && target > limit_) target = std::min(target, RoundUp(bytes, PageBytes()));
    if (!CommitPages(base_ + committed_, target - committed_, threads)) {
      Fail(bytes, fmt::format("out of memory, the system has {} available", AvailableMemory()));
    }
    committed_ = target;
  }

  char* base() const override { return base_; }
  int64_t committed() const override { return committed_; }
  void SetLimit(int64_t bytes) override {
    if (bytes < 0) Throw("{}: the limit of an arena must be >= 0, got {}", device_, bytes);
    limit_ = bytes;
  }
  Device device() const override { return device_; }
  const VarPtr& var() const override { return var_; }

 private:
  [[noreturn]] void Fail(int64_t bytes, const std::string& reason) const {
    Throw<DeviceError>("{}: cannot grow the arena from {} to {} bytes: {}", device_, committed_, bytes, reason);
  }

  const Device device_;
  const VarPtr var_;
  const int64_t reserved_;
  char* base_ = nullptr;
  int64_t committed_ = 0;
  int64_t limit_ = 0;
};

}  // namespace

std::shared_ptr<Arena> MakeCpuArena(Device device, const std::shared_ptr<Engine>& engine, int64_t reserve) {
  return std::make_shared<CpuArena>(device, engine, reserve);
}

}  // namespace bindery
