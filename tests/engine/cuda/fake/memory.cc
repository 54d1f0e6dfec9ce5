// The driver's functions that give and take memory.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "tests/engine/cuda/fake/state.h"

namespace bindery::cuda::fake {
namespace {

constexpr size_t kGranularity = size_t{2} << 20;
constexpr int kUninitialised = 0xcd;
constexpr size_t kFillUpTo = size_t{4} << 20;

CUresult MemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  *pool = reinterpret_cast<CUmemoryPool>(&GpuAt(properties->location.id));
  return CUDA_SUCCESS;
}
CUresult MemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* access, size_t count) {
  FakeGpu& gpu = *reinterpret_cast<FakeGpu*>(pool);
  const std::lock_guard lock(gpu.mutex);
  for (size_t i = 0; i < count; ++i) gpu.pool_access.insert(access[i].location.id);
  return CUDA_SUCCESS;
}
CUresult MemAllocFromPoolAsync(CUdeviceptr* memory, size_t bytes, CUmemoryPool pool, CUstream handle) {
  return OnStream("cuMemAllocFromPoolAsync", handle, [&](FakeStream& stream) {
    FakeGpu& gpu = *reinterpret_cast<FakeGpu*>(pool);
    void* const piece =
        bytes == 0 || gpu.faults.RefusesAllocation() ? nullptr : gpu.memory.Allocate(static_cast<int64_t>(bytes));
    if (!piece) return CUDA_ERROR_OUT_OF_MEMORY;
    std::memset(gpu.memory.View(piece), kUninitialised, std::min(bytes, kFillUpTo));
    const auto address = *memory = reinterpret_cast<CUdeviceptr>(piece);
    {
      const std::lock_guard lock(gpu.mutex);
      gpu.pieces[address] = {.bytes = bytes, .ready = false, .mapped = false, .access = gpu.pool_access};
    }
    stream.Enqueue({[&gpu, address] {
      const std::lock_guard lock(gpu.mutex);
      gpu.pieces[address].ready = true;
      return CUDA_SUCCESS;
    }});
    return CUDA_SUCCESS;
  });
}
CUresult MemFreeAsync(CUdeviceptr memory, CUstream handle) {
  return OnStream("cuMemFreeAsync", handle, [&](FakeStream& stream) {
    FakeGpu& gpu = stream.gpu;
    stream.Enqueue({[&gpu, memory] {
      const std::lock_guard lock(gpu.mutex);
      const auto piece = gpu.pieces.find(memory);
      if (piece == gpu.pieces.end() || piece->second.mapped) {
        Violation(fmt::format("{:#x} is freed on GPU {}, where nothing is (any more)", memory, gpu.index));
      } else {
        gpu.memory.Free(reinterpret_cast<void*>(memory), static_cast<int64_t>(piece->second.bytes));
        gpu.pieces.erase(piece);
      }
      return CUDA_SUCCESS;
    }});
    return CUDA_SUCCESS;
  });
}

CUresult MemHostAlloc(void** memory, size_t bytes, unsigned flags) {
  if (!Current("cuMemHostAlloc")) return CUDA_ERROR_INVALID_CONTEXT;
  if (const CUresult result = RefuseWhileCapturing("cuMemHostAlloc")) return result;
  if (flags != CU_MEMHOSTALLOC_PORTABLE) return Refuse("cuMemHostAlloc", "memory that only one device can use");
  *memory = std::aligned_alloc(64, static_cast<size_t>(RoundUp(static_cast<int64_t>(bytes), 64)));
  if (!*memory) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(TheState().mutex);
  TheState().pinned[static_cast<const char*>(*memory)] = {.bytes = bytes};
  return CUDA_SUCCESS;
}
CUresult MemFreeHost(void* memory) {
  if (const CUresult result = RefuseWhileCapturing("cuMemFreeHost")) return result;
  const std::lock_guard lock(TheState().mutex);
  if (TheState().pinned.erase(static_cast<const char*>(memory)) == 0) return Refuse("cuMemFreeHost", "no such memory");
  std::free(memory);
  return CUDA_SUCCESS;
}

CUresult MemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  return *bytes = kGranularity, CUDA_SUCCESS;
}
CUresult MemAddressReserve(CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  FakeGpu* const gpu = Current("cuMemAddressReserve");
  if (!gpu) return CUDA_ERROR_INVALID_CONTEXT;
  if (bytes == 0 || bytes % kGranularity != 0) return Refuse("cuMemAddressReserve", "no multiple of the granularity");
  void* const memory = gpu->memory.Reserve(static_cast<int64_t>(bytes));
  if (!memory) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reinterpret_cast<CUdeviceptr>(memory);
  const std::lock_guard lock(gpu->mutex);
  gpu->reservations[*address] = bytes;
  return CUDA_SUCCESS;
}
CUresult MemAddressFree(CUdeviceptr address, size_t bytes) {
  FakeGpu* const gpu = Current("cuMemAddressFree");
  if (!gpu) return CUDA_ERROR_INVALID_CONTEXT;
  const std::lock_guard lock(gpu->mutex);
  const auto found = gpu->reservations.find(address);
  if (found == gpu->reservations.end() || found->second != bytes) return Refuse("cuMemAddressFree", "not reserved");
  const auto piece = gpu->pieces.lower_bound(address);
  if (piece != gpu->pieces.end() && piece->first < address + bytes) {
    return Refuse("cuMemAddressFree", "memory is mapped there");
  }
  gpu->memory.Unreserve(reinterpret_cast<void*>(address), static_cast<int64_t>(bytes));
  gpu->reservations.erase(found);
  return CUDA_SUCCESS;
}
CUresult MemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                   unsigned long long) {
  FakeGpu& gpu = GpuAt(properties->location.id);
  if (gpu.error != CUDA_SUCCESS) return gpu.error;
  if (bytes == 0 || bytes % kGranularity != 0) return Refuse("cuMemCreate", "no multiple of the granularity");
  if (gpu.faults.RefusesAllocation() || !gpu.memory.Commit(static_cast<int64_t>(bytes)))
    return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(TheState().mutex);
  *handle = TheState().next_handle++;
  TheState().handles[*handle] = {gpu.index, bytes};
  return CUDA_SUCCESS;
}
// Memory lives as long as it is mapped; here it is always mapped when it is released.
CUresult MemRelease(CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(TheState().mutex);
  return TheState().handles.erase(handle) ? CUDA_SUCCESS : Refuse("cuMemRelease", "no such memory");
}
CUresult MemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                unsigned long long) {
  FakeGpu* const gpu = Current("cuMemMap");
  if (!gpu) return CUDA_ERROR_INVALID_CONTEXT;
  {
    const std::lock_guard lock(TheState().mutex);
    const auto memory = TheState().handles.find(handle);
    if (memory == TheState().handles.end() || memory->second != std::pair(gpu->index, bytes) || offset != 0) {
      return Refuse("cuMemMap", "no such memory");
    }
  }
  const std::lock_guard lock(gpu->mutex);
  auto range = gpu->reservations.upper_bound(address);
  if (range == gpu->reservations.begin() || address + bytes > (--range)->first + range->second) {
    return Refuse("cuMemMap", "not reserved");
  }
  const auto next = gpu->pieces.lower_bound(address);
  if (next != gpu->pieces.end() && next->first < address + bytes) return Refuse("cuMemMap", "mapped already");
  gpu->pieces[address] = {.bytes = bytes, .ready = true, .mapped = true, .access = {}};
  std::memset(gpu->memory.View(reinterpret_cast<void*>(address)), kUninitialised, std::min(bytes, kFillUpTo));
  return CUDA_SUCCESS;
}
CUresult MemUnmap(CUdeviceptr address, size_t bytes) {
  FakeGpu* const gpu = Current("cuMemUnmap");
  if (!gpu) return CUDA_ERROR_INVALID_CONTEXT;
  const std::lock_guard lock(gpu->mutex);
  const auto piece = gpu->pieces.find(address);
  if (piece == gpu->pieces.end() || piece->second.bytes != bytes || !piece->second.mapped) {
    return Refuse("cuMemUnmap", "not mapped");
  }
  gpu->memory.Uncommit(static_cast<int64_t>(bytes));
  gpu->pieces.erase(piece);
  return CUDA_SUCCESS;
}
CUresult MemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access, size_t count) {
  FakeGpu* const gpu = Current("cuMemSetAccess");
  if (!gpu) return CUDA_ERROR_INVALID_CONTEXT;
  const std::lock_guard lock(gpu->mutex);
  const auto piece = gpu->pieces.find(address);
  if (piece == gpu->pieces.end() || piece->second.bytes != bytes) return Refuse("cuMemSetAccess", "not mapped");
  for (size_t i = 0; i < count; ++i) piece->second.access.insert(access[i].location.id);
  return CUDA_SUCCESS;
}

}  // namespace

void FillMemory(RuntimeApi* api) {
  api->mem_pool_create = &MemPoolCreate;
  api->mem_pool_set_access = &MemPoolSetAccess;
  api->mem_alloc_from_pool_async = &MemAllocFromPoolAsync;
  api->mem_free_async = &MemFreeAsync;
  api->mem_host_alloc = &MemHostAlloc;
  api->mem_free_host = &MemFreeHost;
  api->mem_get_allocation_granularity = &MemGetAllocationGranularity;
  api->mem_address_reserve = &MemAddressReserve;
  api->mem_address_free = &MemAddressFree;
  api->mem_create = &MemCreate;
  api->mem_release = &MemRelease;
  api->mem_map = &MemMap;
  api->mem_unmap = &MemUnmap;
  api->mem_set_access = &MemSetAccess;
}

}  // namespace bindery::cuda::fake
