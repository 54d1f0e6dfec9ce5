#include "engine/cuda/cublaslt_api.h"

#include <dlfcn.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/cuda/gpu.h"
#include "engine/cuda/library.h"
#include "engine/cuda/switch.h"

namespace bindery::cuda {
namespace {

constexpr char kLibrary[] = "libcublasLt.so.13";

struct Chosen {
  std::mutex mutex;
  std::optional<CublasLtPtr> api;
};
Chosen& TheChosen() {
  static Chosen& chosen = *new Chosen;
  return chosen;
}

std::atomic<bool>& Tf32() {
  static std::atomic<bool> used = SwitchOf("BINDERY_TF32", false);
  return used;
}

}  // namespace

CublasLtPtr OpenCublasLt(const std::string& library) {
  std::string problem;
  void* const handle = OpenLibrary(library, &problem);
  if (!handle) Throw<DeviceError>("{}", problem);
  auto api = std::make_shared<CublasLtApi>();
  const auto find = [&]<class Function>(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(handle, name));
    if (!function) Throw<DeviceError>("{} has no {}", library, name);
  };
  find("cublasLtCreate", api->create);
  find("cublasLtGetStatusName", api->get_status_name);
  find("cublasLtMatmulDescCreate", api->matmul_desc_create);
  find("cublasLtMatmulDescDestroy", api->matmul_desc_destroy);
  find("cublasLtMatmulDescSetAttribute", api->matmul_desc_set_attribute);
  find("cublasLtMatrixLayoutCreate", api->matrix_layout_create);
  find("cublasLtMatrixLayoutDestroy", api->matrix_layout_destroy);
  find("cublasLtMatrixLayoutSetAttribute", api->matrix_layout_set_attribute);
  find("cublasLtMatmulPreferenceCreate", api->matmul_preference_create);
  find("cublasLtMatmulPreferenceDestroy", api->matmul_preference_destroy);
  find("cublasLtMatmulPreferenceSetAttribute", api->matmul_preference_set_attribute);
  find("cublasLtMatmulAlgoGetHeuristic", api->matmul_algo_get_heuristic);
  find("cublasLtMatmul", api->matmul);
  return api;
}

void UseCublasLt(CublasLtPtr api) {
  const std::lock_guard lock(TheChosen().mutex);
  TheChosen().api = std::move(api);
}

CublasLtPtr CublasLt() {
  const std::lock_guard lock(TheChosen().mutex);
  std::optional<CublasLtPtr>& api = TheChosen().api;
  if (api) return *api;
  if (!SwitchOf("BINDERY_CUBLASLT", true)) return *(api = nullptr);
  try {
    api = OpenCublasLt(kLibrary);
  } catch (const DeviceError& error) {
    api = nullptr;
    LogLine(LogLevel::kWarning, fmt::format("products on GPUs are by own kernels: no cuBLASLt: {}", error.message()));
  }
  return *api;
}

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
