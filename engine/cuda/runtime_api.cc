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
  RuntimeApi api;
  // The names of the versions that cuda.h means.
  const auto find = [&]<class Function>(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(handle, name));
    if (!function) Throw<DeviceError>("the NVIDIA driver is too old: {} has no {}", library, name);
  };
  find("cuInit", api.init);
  find("cuDriverGetVersion", api.driver_get_version);
  find("cuGetErrorName", api.get_error_name);
  find("cuGetErrorString", api.get_error_string);
  find("cuDeviceGetCount", api.device_get_count);
  find("cuDeviceGet", api.device_get);
  find("cuDeviceGetName", api.device_get_name);
  find("cuDeviceGetAttribute", api.device_get_attribute);
  find("cuDeviceTotalMem_v2", api.device_total_mem);
  find("cuDeviceCanAccessPeer", api.device_can_access_peer);
  find("cuDevicePrimaryCtxRetain", api.device_primary_ctx_retain);
  find("cuCtxPushCurrent_v2", api.ctx_push_current);
  find("cuCtxPopCurrent_v2", api.ctx_pop_current);
  find("cuCtxGetStreamPriorityRange", api.ctx_get_stream_priority_range);
  find("cuMemPoolCreate", api.mem_pool_create);
  find("cuMemPoolSetAccess", api.mem_pool_set_access);
  find("cuMemAllocFromPoolAsync", api.mem_alloc_from_pool_async);
  find("cuMemFreeAsync", api.mem_free_async);
  find("cuMemHostAlloc", api.mem_host_alloc);
  find("cuMemFreeHost", api.mem_free_host);
  find("cuMemGetAllocationGranularity", api.mem_get_allocation_granularity);
  find("cuMemAddressReserve", api.mem_address_reserve);
  find("cuMemAddressFree", api.mem_address_free);
  find("cuMemCreate", api.mem_create);
  find("cuMemRelease", api.mem_release);
  find("cuMemMap", api.mem_map);
  find("cuMemUnmap", api.mem_unmap);
  find("cuMemSetAccess", api.mem_set_access);
  find("cuMemsetD8Async", api.memset_d8_async);
  find("cuMemcpyHtoDAsync_v2", api.memcpy_htod_async);
  find("cuMemcpyDtoHAsync_v2", api.memcpy_dtoh_async);
  find("cuMemcpyDtoDAsync_v2", api.memcpy_dtod_async);
  find("cuMemcpyPeerAsync", api.memcpy_peer_async);
  find("cuStreamCreateWithPriority", api.stream_create_with_priority);
  find("cuStreamSynchronize", api.stream_synchronize);
  find("cuStreamQuery", api.stream_query);
  find("cuStreamWaitEvent", api.stream_wait_event);
  find("cuStreamWriteValue64_v2", api.stream_write_value64);
  find("cuStreamBeginCapture_v2", api.stream_begin_capture);
  find("cuStreamEndCapture", api.stream_end_capture);
  find("cuGraphInstantiateWithFlags", api.graph_instantiate);
  find("cuGraphLaunch", api.graph_launch);
  find("cuGraphDestroy", api.graph_destroy);
  find("cuGraphExecDestroy", api.graph_exec_destroy);
  find("cuEventCreate", api.event_create);
  find("cuEventRecord", api.event_record);
  find("cuModuleLoadData", api.module_load_data);
  find("cuModuleGetFunction", api.module_get_function);
  find("cuLaunchKernel", api.launch_kernel);
  return api;
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
