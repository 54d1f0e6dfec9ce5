#include "engine/cpu/arena.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "engine/cpu/pages.h"

namespace bindery {
namespace {

// Under a limit of address space an arena takes this part of what is left: other arenas, parameters, threads need some.
constexpr int64_t kShareOfLimit = 4;

class CpuArena final : public Arena {
 public:
  CpuArena(Device device, Engine* engine, int64_t bytes) : Arena(device, engine, bytes, kHugePageBytes) {
    base_ = ReservePages(bytes);
    if (!base_) Throw<DeviceError>("{}: the system refuses {} bytes of address space for an arena", device, bytes);
  }
  ~CpuArena() override { ReleasePages(base_, reserved()); }

 private:
  std::string Commit(int64_t begin, int64_t end, int threads) override {
    if (CommitPages(base_ + begin, end - begin, threads)) return "";
    return fmt::format("out of memory, the system has {} available", AvailableMemory());
  }
};

}  // namespace

std::shared_ptr<Arena> MakeCpuArena(Device device, const std::shared_ptr<Engine>& engine, int64_t reserve) {
  const int64_t most = std::min({reserve, MachineMemory(), AvailableAddressSpace() / kShareOfLimit});
  return std::make_shared<CpuArena>(device, engine.get(), RoundUp(most, kHugePageBytes));
}

}  // namespace bindery
