#include "engine/memory/arena.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "engine/cuda/gpu.h"

namespace bindery::cuda {
namespace {

CUmemAllocationProp Properties(const Gpu& gpu) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu.facts.handle};
  return properties;
}

// What memory is mapped by: some 2 MiB.
int64_t Granularity(const Gpu& gpu) {
  const Gpu::Scope scope(gpu);
  const CUmemAllocationProp properties = Properties(gpu);
  size_t bytes = 0;
  gpu.Check(gpu.api.mem_get_allocation_granularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
            "cuMemGetAllocationGranularity");
  return static_cast<int64_t>(bytes);
}

class CudaArena final : public Arena {
 public:
  CudaArena(Gpu& gpu, Engine* engine, int64_t bytes, int64_t granularity)
      : Arena(gpu.device, engine, bytes, granularity), gpu_(gpu), granularity_(granularity) {
    const Gpu::Scope scope(gpu);
    CUdeviceptr base = 0;
    gpu.Check(gpu.api.mem_address_reserve(&base, static_cast<size_t>(bytes), 0, 0, 0), "cuMemAddressReserve");
    base_ = reinterpret_cast<char*>(base);
  }
  ~CudaArena() override {
    const Gpu::Scope scope(gpu_);
    for (const Mapping& mapping : mappings_) gpu_.api.mem_unmap(AddressOf(mapping.begin), mapping.bytes);
    gpu_.api.mem_address_free(AddressOf(0), static_cast<size_t>(reserved()));
  }

 private:
  struct Mapping {
    int64_t begin;
    size_t bytes;
  };

  CUdeviceptr AddressOf(int64_t offset) const { return reinterpret_cast<CUdeviceptr>(base_ + offset); }

  // Under a limit the arena may grow by less than what memory is mapped by.
  std::string Commit(int64_t, int64_t end, int) override {
    if (end <= mapped_) return "";
    const Mapping mapping{mapped_, static_cast<size_t>(RoundUp(end, granularity_) - mapped_)};
    mappings_.reserve(mappings_.size() + 1);
    const Gpu::Scope scope(gpu_);
    gpu_.FinishFrees();
    const CUresult result = Map(mapping);
    if (result != CUDA_SUCCESS) return TextOf(gpu_.api, result);
    try {
      gpu_.Zero(base_ + mapping.begin, static_cast<int64_t>(mapping.bytes));
    } catch (...) {  // the next attempt maps the same addresses
      gpu_.api.mem_unmap(AddressOf(mapping.begin), mapping.bytes);
      throw;
    }
    mappings_.push_back(mapping);
    mapped_ += static_cast<int64_t>(mapping.bytes);
    return "";
  }

  CUresult Map(const Mapping& mapping) {
    const CUmemAllocationProp properties = Properties(gpu_);
    const CUdeviceptr address = AddressOf(mapping.begin);
    CUmemGenericAllocationHandle memory = 0;
    CUresult result = gpu_.api.mem_create(&memory, mapping.bytes, &properties, 0);
    if (result != CUDA_SUCCESS) return result;
    result = gpu_.api.mem_map(address, mapping.bytes, 0, memory, 0);
    gpu_.api.mem_release(memory);  // it lives as long as it is mapped
    if (result != CUDA_SUCCESS) return result;
    result = gpu_.api.mem_set_access(address, mapping.bytes, gpu_.access().data(), gpu_.access().size());
    if (result != CUDA_SUCCESS) gpu_.api.mem_unmap(address, mapping.bytes);
    return result;
  }

  Gpu& gpu_;
  const int64_t granularity_;
  int64_t mapped_ = 0;
  std::vector<Mapping> mappings_;
};

}  // namespace

std::shared_ptr<Arena> MakeCudaArena(Gpu& gpu, const std::shared_ptr<Engine>& engine, int64_t reserve) {
  const int64_t granularity = Granularity(gpu);
  const int64_t bytes = RoundUp(std::min(reserve, gpu.facts.bytes), granularity);
  return std::make_shared<CudaArena>(gpu, engine.get(), bytes, granularity);
}

}  // namespace bindery::cuda
