#include "engine/cuda/nvrtc_api.h"

#include <utility>

namespace bindery::cuda {

NvrtcPtr OpenNvrtc(const std::string& library) { return ChosenLibrary<NvrtcApi>::Open(library); }
void UseNvrtc(NvrtcPtr api) { ChosenLibrary<NvrtcApi>::The().Use(std::move(api)); }
NvrtcPtr Nvrtc() { return ChosenLibrary<NvrtcApi>::The().Get(); }

}  // namespace bindery::cuda
