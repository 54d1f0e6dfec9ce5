// Kernels of the fake: the bodies for CPUs, found by name.
#include <algorithm>
#include <string_view>
#include <tuple>

#include "engine/cuda/cpu_block.h"
#include "engine/cuda/image.h"
#include "engine/cuda/kernels_body.h"
#include "tests/engine/cuda/fake/state.h"

namespace bindery::cuda::fake {
namespace {

// A kernel: what launches it with a copy of its arguments.
struct FakeKernel {
  std::string_view name;
  std::function<CUresult()> (*bind)(const FakeGpu& gpu, const void* arguments, int blocks, int threads);
};
template <class Args>
std::function<CUresult()> BindKernel(const FakeGpu& gpu, const void* arguments, int blocks, int threads) {
  return [&gpu, args = *static_cast<const Args*>(arguments), blocks, threads]() mutable {
    bool found = true;
    args.Addresses([&](auto& address) {
      if (!address) return;
      char* const view = Resolve(gpu, reinterpret_cast<CUdeviceptr>(address), 1, Args::kName);
      found = found && view;
      address = reinterpret_cast<std::remove_reference_t<decltype(address)>>(view);
    });
    if (!found) return CUDA_ERROR_ILLEGAL_ADDRESS;
    RunOnCpu(args, blocks, threads);
    return CUDA_SUCCESS;
  };
}
const std::vector<FakeKernel>& Kernels() {
  static const auto kernels = []<class... Args>(std::type_identity<std::tuple<Args...>>) {
    return std::vector<FakeKernel>{{Args::kName, &BindKernel<Args>}...};
  }(std::type_identity<AllKernels>());
  return kernels;
}

CUresult ModuleLoadData(CUmodule* module, const void* image) {
  if (!Current("cuModuleLoadData")) return CUDA_ERROR_INVALID_CONTEXT;
  if (image != bindery_cuda_image) return Refuse("cuModuleLoadData", "no such image", CUDA_ERROR_INVALID_IMAGE);
  *module = reinterpret_cast<CUmodule>(&TheState());
  return CUDA_SUCCESS;
}
CUresult ModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  const auto found = std::ranges::find(Kernels(), name, &FakeKernel::name);
  if (found == Kernels().end()) return Refuse("cuModuleGetFunction", name, CUDA_ERROR_NOT_FOUND);
  *function = reinterpret_cast<CUfunction>(const_cast<FakeKernel*>(&*found));
  return CUDA_SUCCESS;
}
CUresult LaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned threads_y,
                      unsigned threads_z, unsigned shared, CUstream handle, void** arguments, void** extra) {
  return OnStream("cuLaunchKernel", handle, [&](FakeStream& stream) {
    if (x == 0 || threads == 0 || threads > 1024 || y * z * threads_y * threads_z != 1 || shared > 48 << 10 || extra) {
      return Refuse("cuLaunchKernel", "a launch of this form");
    }
    const auto& kernel = *reinterpret_cast<const FakeKernel*>(function);
    stream.Enqueue(kernel.bind(stream.gpu, arguments[0], static_cast<int>(x), static_cast<int>(threads)), true);
    return CUDA_SUCCESS;
  });
}

}  // namespace

void FillKernels(RuntimeApi* api) {
  api->module_load_data = &ModuleLoadData;
  api->module_get_function = &ModuleGetFunction;
  api->launch_kernel = &LaunchKernel;
}

}  // namespace bindery::cuda::fake
