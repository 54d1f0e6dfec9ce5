#include "engine/cuda/report.h"

#include <string>

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

// `version` asks the library's function of that name; empty if that fails.
template <class Function, class Version>
CudaReport::Library Look(const char* name, const std::string& file, const char* function, const Version& version) {
  CudaReport::Library library{.name = name};
  try {
    const LibraryFunctions find = cuda::OpenFunctions(file);
    Function* const get = find(function);
    library.version = version(get);
    if (library.version.empty()) library.problem = fmt::format("{} failed", function);
  } catch (const DeviceError& error) {
    const bool is_absent =
        error.message().starts_with(file + ":") && error.message().ends_with("No such file or directory");
    library.problem = is_absent ? "no " + file : error.message();
  }
  return library;
}

CudaReport::Library CublasLt() {
  return Look<size_t()>("cuBLASLt", "libcublasLt.so.13", "cublasLtGetVersion",
                        [](const auto& get) { return Version(get(), 10000, 100); });
}

CudaReport::Library Cudnn() {
  return Look<size_t()>("cuDNN", "libcudnn.so.9", "cudnnGetVersion",
                        [](const auto& get) { return Version(get(), 10000, 100); });
}

CudaReport::Library Nccl() {
  return Look<int(int*)>("NCCL", "libnccl.so.2", "ncclGetVersion", [](const auto& get) {
    int number = 0;
    return get(&number) == 0 ? Version(static_cast<size_t>(number), 10000, 100) : "";
  });
}

CudaReport::Library Nvrtc() {
  return Look<int(int*, int*)>("NVRTC", "libnvrtc.so.13", "nvrtcVersion", [](const auto& get) {
    int major = 0, minor = 0;
    return get(&major, &minor) == 0 ? fmt::format("{}.{}", major, minor) : "";
  });
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
  return {counters.allocations,      counters.synchronizations, counters.waits,
          counters.waits_of_callers, counters.captures,         counters.graph_launches};
}

}  // namespace bindery
