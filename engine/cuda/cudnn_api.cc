#include "engine/cuda/cudnn_api.h"

#include <map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "engine/cuda/gpu.h"

namespace bindery::cuda {
namespace {

// Of a GPU.
struct Handles {
  std::mutex mutex = {};
  std::map<const void*, std::weak_ptr<CudnnHandle>> of = {};  // streams
  std::vector<std::unique_ptr<CudnnHandle>> free = {};
  std::unique_ptr<CudnnHandle> planning = {};
  bool told = false;  // that one cannot be made
};
Handles& HandlesOf(const CudnnApi& api, Gpu& gpu) {
  return *static_cast<Handles*>(
      gpu.LibraryHandle(reinterpret_cast<const void*>(api.create), []() -> void* { return new Handles; }));
}

// Under the lock, in the GPU's context.
std::unique_ptr<CudnnHandle> Make(const CudnnApi& api, const Gpu& gpu, Handles* handles) {
  auto made = std::make_unique<CudnnHandle>();
  const cudnnStatus_t status = api.create(&made->handle);
  if (status == CUDNN_STATUS_SUCCESS) return made;
  if (!std::exchange(handles->told, true)) {
    LogLine(LogLevel::kWarning, fmt::format("convolutions on {} are by own kernels: cudnnCreate: {}", gpu.device,
                                            api.get_error_string(status)));
  }
  return nullptr;
}

}  // namespace

CudnnPtr OpenCudnn(const std::string& library) { return ChosenLibrary<CudnnApi>::Open(library); }
void UseCudnn(CudnnPtr api) { ChosenLibrary<CudnnApi>::The().Use(std::move(api)); }
CudnnPtr Cudnn() { return ChosenLibrary<CudnnApi>::The().Get(); }

std::shared_ptr<CudnnHandle> HandleOf(const CudnnApi& api, Gpu& gpu, const void* stream) {
  Handles* const handles = &HandlesOf(api, gpu);
  const Gpu::Scope scope(gpu);
  const std::lock_guard lock(handles->mutex);
  std::erase_if(handles->of, [](const auto& each) { return each.second.expired(); });
  if (std::shared_ptr<CudnnHandle> found = handles->of[stream].lock()) return found;
  std::unique_ptr<CudnnHandle> made;
  if (!handles->free.empty()) {
    made = std::move(handles->free.back());
    handles->free.pop_back();
  } else if (made = Make(api, gpu, handles); !made) {
    return nullptr;
  }
  std::shared_ptr<CudnnHandle> handle(made.release(), [handles](CudnnHandle* back) {
    const std::lock_guard lock(handles->mutex);
    handles->free.emplace_back(back);
  });
  handles->of[stream] = handle;
  return handle;
}

CudnnHandle* PlanningHandleOf(const CudnnApi& api, Gpu& gpu) {
  Handles& handles = HandlesOf(api, gpu);
  const Gpu::Scope scope(gpu);
  const std::lock_guard lock(handles.mutex);
  if (!handles.planning) handles.planning = Make(api, gpu, &handles);
  return handles.planning.get();
}

}  // namespace bindery::cuda
