#include "engine/cuda/report.h"

#include <dlfcn.h>

#include "base/error.h"
#include "engine/cuda/gpu.h"
#include "engine/cuda/library.h"
#include "engine/cuda/runtime_api.h"

namespace bindery {
namespace {

// Of "13.0" and the like in one number: major * `unit`, minor * `small`, patch.
std::string Version(size_t number, size_t unit, size_t small) {
  return fmt::format("{}.{}.{}", number / unit, number % unit / small, number % small);
}

template <class Function>
Function* Find(const char* file, const char* name) {
  void* const library = cuda::OpenLibrary(file);
  return library ? reinterpret_cast<Function*>(dlsym(library, name)) : nullptr;
}

CudaReport::Library CublasLt() {
  const auto get = Find<size_t()>("libcublasLt.so.13", "cublasLtGetVersion");
  return {"cuBLASLt", get ? Version(get(), 10000, 100) : ""};
}

CudaReport::Library Cudnn() {
  const auto get = Find<size_t()>("libcudnn.so.9", "cudnnGetVersion");
  return {"cuDNN", get ? Version(get(), 10000, 100) : ""};
}

CudaReport::Library Nccl() {
  const auto get = Find<int(int*)>("libnccl.so.2", "ncclGetVersion");
  int number = 0;
  return {"NCCL", get && get(&number) == 0 ? Version(static_cast<size_t>(number), 10000, 100) : ""};
}

CudaReport::Library Nvrtc() {
  const auto get = Find<int(int*, int*)>("libnvrtc.so.13", "nvrtcVersion");
  int major = 0, minor = 0;
  return {"NVRTC", get && get(&major, &minor) == 0 ? fmt::format("{}.{}", major, minor) : ""};
}

}  // namespace

CudaReport ReportCuda() {
  CudaReport report{.libraries = {CublasLt(), Cudnn(), Nccl(), Nvrtc()}};
  try {
    const cuda::RuntimeApi& api = cuda::Runtime();
    int version = 0;
    cuda::CheckCall(api, api.driver_get_version(&version), "cuda", "cuDriverGetVersion");
    report.driver = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
    for (const cuda::GpuFacts& gpu : cuda::FindGpus(api)) {
      report.gpus.push_back({gpu.name, gpu.bytes, fmt::format("{}.{}", gpu.major, gpu.minor)});
    }
  } catch (const DeviceError& error) {
    report.problem = error.message();
  }
  return report;
}

CudaCounts CountCuda() {
  const cuda::Counters& counters = cuda::TheCounters();
  return {counters.allocations, counters.synchronizations, counters.waits, counters.waits_of_callers};
}

}  // namespace bindery
