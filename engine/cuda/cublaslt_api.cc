#include "engine/cuda/cublaslt_api.h"

#include <atomic>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/cuda/gpu.h"
#include "engine/cuda/switch.h"

namespace bindery::cuda {
namespace {

std::atomic<bool>& Tf32() {
  static std::atomic<bool> used = SwitchOf("BINDERY_TF32", false);
  return used;
}

}  // namespace

CublasLtPtr OpenCublasLt(const std::string& library) { return ChosenLibrary<CublasLtApi>::Open(library); }
void UseCublasLt(CublasLtPtr api) { ChosenLibrary<CublasLtApi>::The().Use(std::move(api)); }
CublasLtPtr CublasLt() { return ChosenLibrary<CublasLtApi>::The().Get(); }

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
