#include "engine/cuda/nccl_api.h"

#include <dlfcn.h>

#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/cuda/library.h"
#include "engine/cuda/switch.h"

namespace bindery::cuda {
namespace {

constexpr char kLibrary[] = "libnccl.so.2";

struct Chosen {
  std::mutex mutex;
  std::optional<NcclPtr> api;
};
Chosen& TheChosen() {
  static Chosen& chosen = *new Chosen;
  return chosen;
}

}  // namespace

NcclPtr OpenNccl(const std::string& library) {
  std::string problem;
  void* const handle = OpenLibrary(library, &problem);
  if (!handle) Throw<DeviceError>("{}", problem);
  auto api = std::make_shared<NcclApi>();
  const auto find = [&]<class Function>(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(handle, name));
    if (!function) Throw<DeviceError>("{} has no {}", library, name);
  };
  find("ncclGetErrorString", api->get_error_string);
  find("ncclCommInitAll", api->comm_init_all);
  find("ncclCommAbort", api->comm_abort);
  find("ncclCommGetAsyncError", api->comm_get_async_error);
  find("ncclGroupStart", api->group_start);
  find("ncclGroupEnd", api->group_end);
  find("ncclBroadcast", api->broadcast);
  find("ncclSend", api->send);
  find("ncclRecv", api->receive);
  return api;
}

void UseNccl(NcclPtr api) {
  const std::lock_guard lock(TheChosen().mutex);
  TheChosen().api = std::move(api);
}

NcclPtr Nccl() {
  if (!SwitchOf("BINDERY_NCCL", true)) return nullptr;
  const std::lock_guard lock(TheChosen().mutex);
  std::optional<NcclPtr>& api = TheChosen().api;
  if (api) return *api;
  try {
    api = OpenNccl(kLibrary);
  } catch (const DeviceError& error) {
    api = nullptr;
    LogLine(LogLevel::kWarning, fmt::format("GPUs copy what they exchange: no NCCL: {}", error.message()));
  }
  return *api;
}

}  // namespace bindery::cuda
