// Kernels of the fake: the bodies for CPUs, found by name.
#include "tests/engine/cuda/fake/kernels.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "engine/cuda/image.h"
#include "engine/cuda/step_body.h"
#include "tests/engine/cuda/fake/state.h"

namespace bindery::cuda::fake {
namespace {

using Images = std::map<const unsigned long long*, std::vector<FakeKernel>>;
Images& AllImages() {
  static Images images;
  return images;
}
std::vector<FakeKernel> (*loader)(const void* image) = nullptr;
std::atomic<unsigned> other_threads = 0;
std::atomic<bool> real_threads = false, refuses_images = false;
std::atomic<int64_t> launches = 0;
std::mutex images_mutex;

[[maybe_unused]] const bool kEngines = (AddImage<AllKernels>(bindery_cuda_image), true);

CUresult ModuleLoadData(CUmodule* module, const void* image) {
  if (!Current("cuModuleLoadData")) return CUDA_ERROR_INVALID_CONTEXT;
  if (const CUresult result = RefuseWhileCapturing("cuModuleLoadData")) return result;
  const auto* const words = static_cast<const unsigned long long*>(image);
  const std::lock_guard lock(images_mutex);
  if (refuses_images && !AllImages().contains(words)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  if (!AllImages().contains(words) && loader) {
    if (std::vector<FakeKernel> kernels = loader(image); !kernels.empty()) AddImage(words, std::move(kernels));
  }
  const auto found = AllImages().find(words);
  if (found == AllImages().end()) return Refuse("cuModuleLoadData", "no such image", CUDA_ERROR_INVALID_IMAGE);
  *module = reinterpret_cast<CUmodule>(&found->second);
  return CUDA_SUCCESS;
}
CUresult ModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  const auto& kernels = *reinterpret_cast<const std::vector<FakeKernel>*>(module);
  const auto found = std::ranges::find(kernels, name, &FakeKernel::name);
  if (found == kernels.end()) return Refuse("cuModuleGetFunction", name, CUDA_ERROR_NOT_FOUND);
  *function = reinterpret_cast<CUfunction>(const_cast<FakeKernel*>(&*found));
  return CUDA_SUCCESS;
}
CUresult LaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned threads_y,
                      unsigned threads_z, unsigned shared, CUstream handle, void** arguments, void** extra) {
  return OnCapturingStream("cuLaunchKernel", handle, [&](FakeStream& stream) {
    if (x == 0 || threads == 0 || threads > 1024 || y * z * threads_y * threads_z != 1 || shared > 48 << 10 || extra) {
      return Refuse("cuLaunchKernel", "a launch of this form");
    }
    ++launches;
    const auto& kernel = *reinterpret_cast<const FakeKernel*>(function);
    if (const unsigned other = other_threads; other > 0 && !kernel.fixed_threads) threads = other;
    const Blocks blocks{static_cast<int>(x), static_cast<int>(threads), real_threads};
    stream.Enqueue(
        {kernel.bind(stream.gpu, arguments[0], blocks), std::string(kernel.name), kernel.accesses(arguments[0])});
    return CUDA_SUCCESS;
  });
}

}  // namespace

void AddImage(const unsigned long long* image, std::vector<FakeKernel> kernels) {
  AllImages()[image] = std::move(kernels);
}

void SetLoader(std::vector<FakeKernel> (*load)(const void* image)) { loader = load; }

void RefuseImages(bool yes) { refuses_images = yes; }

int64_t KernelLaunches() { return launches; }

void UseRealThreads(bool use) { real_threads = use; }
void SetThreads(int threads) { other_threads = static_cast<unsigned>(threads); }

void FillKernels(RuntimeApi* api) {
  api->module_load_data = &ModuleLoadData;
  api->module_get_function = &ModuleGetFunction;
  api->launch_kernel = &LaunchKernel;
}

}  // namespace bindery::cuda::fake
