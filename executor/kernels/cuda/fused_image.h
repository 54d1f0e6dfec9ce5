// Images of fused kernels' sources, compiled by NVRTC, and kept: in memory for as long as the process lives, and in
// files of a folder of the user's for other processes.
//
// A file is named after the source, the headers, the compiler's options and version, and the kind of GPU, and says how
// long its image is and what its checksum: so one of another version of Bindery is not found, and one that is damaged
// is made again. A folder that cannot be written is no error. One that is not the user's own, or that others may write
// to, is left alone: what lies there would run on GPUs.
//
// Thread safe: different sources are compiled at the same time, one by whoever asks first, and the others wait for it.
#pragma once

#include <string>

#include "engine/cuda/nvrtc_api.h"

namespace bindery::cuda {

// For GPUs of this compute capability, 90 for 9.0; never freed, and the same for the same source. Null, and a line was
// logged, if NVRTC finds an error in the source; then it is not asked for it again. Any other refusal is not the
// source's: the capability is left out.
const unsigned long long* FusedImage(const NvrtcApi& api, const std::string& source, int capability);

// For GPUs of this capability nothing is compiled any more: a line is logged, the first time, and FusedImage is null.
void LeaveOutFused(int capability, const std::string& reason);
bool IsLeftOutOfFused(int capability);
// A driver has refused the image: its file is removed, and the capability left out.
void RefuseFused(const NvrtcApi& api, const std::string& source, int capability, const std::string& reason);

// Compiles it without looking for it anywhere. Throws DeviceError with NVRTC's reason and what it says of the source.
std::string CompileFused(const NvrtcApi& api, const std::string& source, int capability);

// Where files are: bindery/fused in XDG_CACHE_HOME, or else in .cache of HOME; "": nowhere, for there is neither.
std::string FusedFolder();
// From now on there instead, "" nowhere, and what is in memory is not found again, nor what was left out: for tests.
void UseFusedFolder(const std::string& folder);

}  // namespace bindery::cuda
