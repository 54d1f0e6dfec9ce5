// Images of fused kernels' sources, compiled by NVRTC, and kept: in memory for as long as the process lives, and in
// files of a folder of the user's for other processes.
//
// A file is named after the source, the headers, the compiler's options and version, and the kind of GPU, and says how
// long its image is and what its checksum: so one of another version of Bindery is not found, and one that is damaged
// is made again. A folder that cannot be written is no error.
//
// Thread safe.
#pragma once

#include <string>

#include "engine/cuda/nvrtc_api.h"

namespace bindery::cuda {

// For GPUs of this compute capability, 90 for 9.0; never freed, and the same for the same source. Null, and a line was
// logged, if NVRTC refuses it; then it is not asked for it again.
const unsigned long long* FusedImage(const NvrtcApi& api, const std::string& source, int capability);

// Compiles it without looking for it anywhere. Throws DeviceError with NVRTC's reason and what it says of the source.
std::string CompileFused(const NvrtcApi& api, const std::string& source, int capability);

// Where files are: bindery/fused in XDG_CACHE_HOME, or else in .cache of HOME; "": nowhere, for there is neither.
std::string FusedFolder();
// From now on there instead, "" nowhere, and what is in memory is not found again: for tests.
void UseFusedFolder(const std::string& folder);

}  // namespace bindery::cuda
