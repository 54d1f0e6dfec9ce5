#include "engine/cuda/nvrtc_api.h"

#include <utility>

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
  return std::make_shared<const NvrtcApi>(NvrtcApi{.find = LibraryFunctions(library)});
}

void UseNvrtc(NvrtcPtr api) { Chosen().Use(std::move(api)); }
NvrtcPtr Nvrtc() { return Chosen().Get(); }

}  // namespace bindery::cuda
