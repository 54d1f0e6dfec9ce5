#include "engine/cuda/nvrtc_api.h"

#include <utility>

#include "engine/cuda/library.h"

namespace bindery::cuda {
namespace {

ChosenLibrary<NvrtcApi>& Chosen() {
  static auto& chosen =
      *new ChosenLibrary<NvrtcApi>({.name = "BINDERY_NVRTC",
                                    .file = "libnvrtc.so.13",
                                    .open = &OpenNvrtc,
                                    .without = "elementwise operators on GPUs are launched one by one: no NVRTC"});
  return chosen;
}

}  // namespace

NvrtcPtr OpenNvrtc(const std::string& library) {
  const LibraryFunctions find(library);
  auto api = std::make_shared<NvrtcApi>();
  find("nvrtcGetErrorString", api->get_error_string);
  find("nvrtcVersion", api->version);
  find("nvrtcCreateProgram", api->create_program);
  find("nvrtcDestroyProgram", api->destroy_program);
  find("nvrtcCompileProgram", api->compile_program);
  find("nvrtcGetProgramLogSize", api->get_program_log_size);
  find("nvrtcGetProgramLog", api->get_program_log);
  find("nvrtcGetCUBINSize", api->get_cubin_size);
  find("nvrtcGetCUBIN", api->get_cubin);
  return api;
}

void UseNvrtc(NvrtcPtr api) { Chosen().Use(std::move(api)); }
NvrtcPtr Nvrtc() { return Chosen().Get(); }

}  // namespace bindery::cuda
