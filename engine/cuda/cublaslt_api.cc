#include "engine/cuda/cublaslt_api.h"

#include <atomic>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/cuda/gpu.h"
#include "engine/cuda/switch.h"

namespace bindery::cuda {
namespace {

ChosenLibrary<CublasLtApi>& Chosen() {
  static auto& chosen =
      *new ChosenLibrary<CublasLtApi>({.name = "BINDERY_CUBLASLT",
                                       .file = "libcublasLt.so.13",
                                       .open = &OpenCublasLt,
                                       .without = "products on GPUs are by own kernels: no cuBLASLt"});
  return chosen;
}

std::atomic<bool>& Tf32() {
  static std::atomic<bool> used = SwitchOf("BINDERY_TF32", false);
  return used;
}

}  // namespace

CublasLtPtr OpenCublasLt(const std::string& library) {
  return std::make_shared<const CublasLtApi>(CublasLtApi{.find = LibraryFunctions(library)});
}

void UseCublasLt(CublasLtPtr api) { Chosen().Use(std::move(api)); }
CublasLtPtr CublasLt() { return Chosen().Get(); }

cublasLtHandle_t HandleOf(const CublasLtApi& api, Gpu& gpu) {
  return static_cast<cublasLtHandle_t>(gpu.LibraryHandle(reinterpret_cast<const void*>(api.create), [&]() -> void* {
    cublasLtHandle_t handle = nullptr;
    const cublasStatus_t status = api.create(&handle);
    if (status == CUBLAS_STATUS_SUCCESS) return handle;
    LogLine(LogLevel::kWarning, fmt::format("products on {} are by own kernels: cublasLtCreate: {}", gpu.device,
                                            api.get_status_name(status)));
    return nullptr;
  }));
}

bool Tf32IsUsed() { return Tf32().load(std::memory_order_relaxed); }
void UseTf32(bool use) { Tf32() = use; }

}  // namespace bindery::cuda
