#include "engine/cuda/gpu.h"

#include <type_traits>
#include <utility>

#include "base/error.h"
#include "engine/cuda/image.h"
#include "engine/cuda/stream.h"

namespace bindery::cuda {

namespace {

// Errors of work that ran, which the driver tells whoever calls next.
bool IsOfWork(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_UNKNOWN: return true;
    default: return false;
  }
}

// A driver of an older major version than the toolkit's may not take the images that the toolkit makes, and says then only
// that one cannot be loaded.
constexpr int kLeastDriver = CUDA_VERSION / 1000 * 1000;

}  // namespace

std::vector<GpuFacts> FindGpus(const RuntimeApi& api) {
  const auto check = [&](CUresult result, const char* call) { CheckCall(api, result, "CUDA", call); };
  check(api.init(0), "cuInit");
  int count = 0;
  check(api.device_get_count(&count), "cuDeviceGetCount");
  if (count == 0) Throw<DeviceError>("this machine has no GPU that CUDA can use");
  int driver = 0;
  check(api.driver_get_version(&driver), "cuDriverGetVersion");
  if (driver < kLeastDriver) {
    Throw<DeviceError>("the NVIDIA driver is too old: it is for CUDA {}.{}, one for CUDA {} is needed{}", driver / 1000,
                       driver % 1000 / 10, kLeastDriver / 1000, kLeastDriver == 13000 ? " (580 or later)" : "");
  }
  std::vector<GpuFacts> found(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    GpuFacts& gpu = found[static_cast<size_t>(i)];
    check(api.device_get(&gpu.handle, i), "cuDeviceGet");
    char name[256] = {};
    check(api.device_get_name(name, sizeof name - 1, gpu.handle), "cuDeviceGetName");
    gpu.name = name;
    size_t bytes = 0;
    check(api.device_total_mem(&bytes, gpu.handle), "cuDeviceTotalMem");
    gpu.bytes = static_cast<int64_t>(bytes);
    const auto get = [&](CUdevice_attribute attribute, int* value) {
      check(api.device_get_attribute(value, attribute, gpu.handle), "cuDeviceGetAttribute");
    };
    get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &gpu.major);
    get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &gpu.minor);
    get(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &gpu.multiprocessors);
    get(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, &gpu.pools);
    get(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, &gpu.mapping);
    get(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, &gpu.stream_writes);
  }
  return found;
}

Gpu::Gpu(const RuntimeApi& runtime, int index, const std::vector<GpuFacts>& all)
    : api(runtime), device(Cuda(index)), facts(all[static_cast<size_t>(index)]) {
  if (facts.major < kLeastMajor) {
    Throw<DeviceError>("{} is not available: {} has compute capability {}.{}, {}.0 is needed", device, facts.name,
                       facts.major, facts.minor, kLeastMajor);
  }
  const auto need = [&](int has, const char* what) {
    if (!has) Throw<DeviceError>("{} is not available: {} has no {} with this driver", device, facts.name, what);
  };
  need(facts.pools, "pools of memory in the order of streams");
  need(facts.mapping, "memory mapped into reserved addresses");
  need(facts.stream_writes, "writes of 64 bits by streams");
  Check(api.device_primary_ctx_retain(&context_, facts.handle), "cuDevicePrimaryCtxRetain");
  const Scope scope(*this);
  Check(api.stream_create_with_priority(&memory_stream_, CU_STREAM_NON_BLOCKING, 0), "cuStreamCreateWithPriority");

  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = facts.handle};
  Check(api.mem_pool_create(&pool_, &properties), "cuMemPoolCreate");
  for (const GpuFacts& other : all) {
    int reaches = other.handle == facts.handle;
    if (!reaches) {
      Check(api.device_can_access_peer(&reaches, other.handle, facts.handle), "cuDeviceCanAccessPeer");
    }
    if (!reaches) continue;
    access_.push_back({.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = other.handle},
                       .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  }
  Check(api.mem_pool_set_access(pool_, access_.data(), access_.size()), "cuMemPoolSetAccess");
  LoadKernels();
}

void Gpu::LoadKernels() {
  CUmodule module = nullptr;
  Check(api.module_load_data(&module, bindery_cuda_image), "cuModuleLoadData");
  [&]<size_t... kIndices>(std::index_sequence<kIndices...>) {
    (Check(api.module_get_function(&kernels_[kIndices], module, std::tuple_element_t<kIndices, AllKernels>::kName),
           std::tuple_element_t<kIndices, AllKernels>::kName),
     ...);
  }
  (std::make_index_sequence<kNumKernels>());
}

CUfunction Gpu::KernelIn(const unsigned long long* image, const char* name) {
  const Scope scope(*this);
  const std::lock_guard lock(modules_mutex_);
  CUmodule& module = modules_[image];
  if (!module) Check(api.module_load_data(&module, image), "cuModuleLoadData");
  CUfunction function = nullptr;
  Check(api.module_get_function(&function, module, name), name);
  return function;
}

void* Gpu::LibraryHandle(const void* library, const std::function<void*()>& make) {
  const Scope scope(*this);
  const std::lock_guard lock(handles_mutex_);
  const auto found = handles_.find(library);
  if (found != handles_.end()) return found->second;
  return handles_[library] = make();
}

CUstream Gpu::TakeStream(bool goes_first) const {
  const std::lock_guard lock(streams_kept_mutex_);
  std::vector<CUstream>& free = free_streams_[goes_first];
  if (!free.empty()) {
    const CUstream stream = free.back();
    free.pop_back();
    return stream;
  }
  free.reserve(++num_streams_[goes_first]);  // now, so that giving it back needs no memory
  const Scope scope(*this);
  int least = 0, greatest = 0;
  Check(api.ctx_get_stream_priority_range(&least, &greatest), "cuCtxGetStreamPriorityRange");
  CUstream stream = nullptr;
  Check(api.stream_create_with_priority(&stream, CU_STREAM_NON_BLOCKING, goes_first ? greatest : least),
        "cuStreamCreateWithPriority");
  return stream;
}

void Gpu::GiveBack(CUstream stream, bool goes_first) const noexcept {
  const std::lock_guard lock(streams_kept_mutex_);
  if (!failed()) free_streams_.find(goes_first)->second.push_back(stream);
}

bool Gpu::Enter() const noexcept {
  const CUresult result = api.ctx_push_current(context_);
  FailUnless(result);
  return result == CUDA_SUCCESS;
}

void Gpu::Leave() const noexcept {
  CUcontext mine = nullptr;
  api.ctx_pop_current(&mine);
}

void Gpu::CheckWork(CUresult result, const char* call) const {
  if (IsOfWork(result)) Fail(result);
  if (!failed()) Check(result, call);
}

void Gpu::CheckLibrary(const std::string& problem, const char* call, CUstream stream) const {
  if (problem.empty()) return;
  if (stream) {
    const CUresult result = api.stream_query(stream);
    if (IsOfWork(result)) Fail(result);
  }
  if (!failed()) Throw<DeviceError>("{}: {}: {}", device, call, problem);
}

void* Gpu::Allocate(int64_t bytes) {
  const Scope scope(*this);
  CUdeviceptr memory = 0;
  const CUresult result = api.mem_alloc_from_pool_async(&memory, static_cast<size_t>(bytes), pool_, memory_stream_);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return nullptr;
  Check(result, "cuMemAllocFromPoolAsync");
  Check(api.stream_synchronize(memory_stream_), "cuStreamSynchronize");
  return reinterpret_cast<void*>(memory);
}

void Gpu::Free(void* memory) noexcept {
  const Scope scope(*this);
  api.mem_free_async(reinterpret_cast<CUdeviceptr>(memory), memory_stream_);  // a lost GPU's memory is lost
}

void Gpu::FinishFrees() const {
  const Scope scope(*this);
  Check(api.stream_synchronize(memory_stream_), "cuStreamSynchronize");
}

void* Gpu::AllocateHost(int64_t bytes) {
  const Scope scope(*this);
  void* memory = nullptr;
  const CUresult result = api.mem_host_alloc(&memory, static_cast<size_t>(bytes), CU_MEMHOSTALLOC_PORTABLE);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return nullptr;
  Check(result, "cuMemHostAlloc");
  return memory;
}

void Gpu::FreeHost(void* memory) noexcept {
  const Scope scope(*this);
  api.mem_free_host(memory);
}

void Gpu::Zero(void* memory, int64_t bytes) {
  const Scope scope(*this);
  Check(api.memset_d8_async(reinterpret_cast<CUdeviceptr>(memory), 0, static_cast<size_t>(bytes), memory_stream_),
        "cuMemsetD8Async");
  Check(api.stream_synchronize(memory_stream_), "cuStreamSynchronize");
}

void Gpu::CopyNow(const void* from, void* to, int64_t bytes, bool to_host) {
  const Scope scope(*this);
  const auto size = static_cast<size_t>(bytes);
  if (to_host) {
    Check(api.memcpy_dtoh_async(to, reinterpret_cast<CUdeviceptr>(from), size, memory_stream_), "cuMemcpyDtoHAsync");
  } else {
    Check(api.memcpy_htod_async(reinterpret_cast<CUdeviceptr>(to), from, size, memory_stream_), "cuMemcpyHtoDAsync");
  }
  Check(api.stream_synchronize(memory_stream_), "cuStreamSynchronize");
}

CUevent Gpu::TakeEvent() noexcept {
  {
    const std::lock_guard lock(events_mutex_);
    if (!free_events_.empty()) {
      const CUevent event = free_events_.back();
      free_events_.pop_back();
      return event;
    }
    free_events_.reserve(++num_events_);  // now, so that giving it back needs no memory
  }
  const Scope scope(*this);  // a failure here asks the streams, whose locks are taken before that of events
  CUevent event = nullptr;
  FailUnless(api.event_create(&event, CU_EVENT_DISABLE_TIMING));
  return event;
}

void Gpu::GiveBack(CUevent event) noexcept {
  const std::lock_guard lock(events_mutex_);
  if (event) free_events_.push_back(event);
}

void Gpu::Fail(CUresult result) const noexcept {
  const std::lock_guard streams_lock(streams_mutex_);
  if (failed()) return;
  std::string text = fmt::format("{} is lost: {}", device, TextOf(api, result));
  const char* before = ", in ";
  for (const CudaStream* stream : streams_) {  // what ran: nothing else can have failed
    if (const std::string what = stream->Doing().what; !what.empty()) {
      text += before + what;
      before = " or ";
    }
  }
  const std::lock_guard lock(failure_mutex_);
  failure_ = std::move(text);
  failed_.store(true, std::memory_order_release);
}

std::string Gpu::failure() const {
  const std::lock_guard lock(failure_mutex_);
  return failure_;
}

void Gpu::Add(const CudaStream* stream) {
  const std::lock_guard lock(streams_mutex_);
  streams_.push_back(stream);
}

void Gpu::Remove(const CudaStream* stream) noexcept {
  const std::lock_guard lock(streams_mutex_);
  std::erase(streams_, stream);
}

}  // namespace bindery::cuda
