#include "engine/cuda/runtime_api.h"

#include <dlfcn.h>

#include <mutex>
#include <optional>
#include <type_traits>

#include "base/error.h"

namespace bindery::cuda {
namespace {

struct Chosen {
  std::mutex mutex;
  std::optional<RuntimeApi> api;
};
Chosen& TheChosen() {
  static Chosen& chosen = *new Chosen;
  return chosen;
}

// Counts the calls of one of the table's functions.
template <auto kFunction, std::atomic<int64_t> Counters::*kCounter>
void Count(RuntimeApi* api) {
  static std::remove_reference_t<decltype(api->*kFunction)> original;
  original = api->*kFunction;
  api->*kFunction = [](auto... arguments) {
    ++(TheCounters().*kCounter);
    return original(arguments...);
  };
}

RuntimeApi Counted(RuntimeApi api) {
  Count<&RuntimeApi::mem_alloc_from_pool_async, &Counters::allocations>(&api);
  Count<&RuntimeApi::mem_host_alloc, &Counters::allocations>(&api);
  Count<&RuntimeApi::mem_create, &Counters::allocations>(&api);
  Count<&RuntimeApi::stream_synchronize, &Counters::synchronizations>(&api);
  Count<&RuntimeApi::graph_instantiate, &Counters::captures>(&api);
  Count<&RuntimeApi::graph_launch, &Counters::graph_launches>(&api);
  return api;
}

}  // namespace

RuntimeApi OpenRuntime(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: its threads live on
  if (!handle) Throw<DeviceError>("no NVIDIA driver: {}", dlerror());
  return {.find = LibraryFunctions(handle, "the NVIDIA driver is too old: " + library)};
}

Counters& TheCounters() {
  static Counters counters;
  return counters;
}

void UseRuntime(const RuntimeApi& api) {
  const std::lock_guard lock(TheChosen().mutex);
  TheChosen().api = Counted(api);
}

const RuntimeApi& Runtime() {
  const std::lock_guard lock(TheChosen().mutex);
  std::optional<RuntimeApi>& api = TheChosen().api;
  if (!api) api = Counted(OpenRuntime("libcuda.so.1"));
  return *api;
}

std::string TextOf(const RuntimeApi& api, CUresult result) {
  const char *name = nullptr, *text = nullptr;
  if (api.get_error_name(result, &name) != CUDA_SUCCESS) return fmt::format("error {}", static_cast<int>(result));
  api.get_error_string(result, &text);
  return fmt::format("{} ({})", text ? text : "no text", name);
}

void CheckCall(const RuntimeApi& api, CUresult result, const std::string& who, const char* call) {
  if (result != CUDA_SUCCESS) Throw<DeviceError>("{}: {}: {}", who, call, TextOf(api, result));
}

}  // namespace bindery::cuda
