// A stand-in for NVRTC (engine/cuda/nvrtc_api.h): it understands the sources of fused kernels alone, line for line, and
// the fake of the driver runs what they say, pack by pack, with the functions for CPUs. What a source says besides is a
// violation. Whatever is linked with the operators' kernels finds it.
#pragma once

#include <cstdint>
#include <string>

#include "engine/cuda/nvrtc_api.h"
#include "executor/kernels/cuda/fused_args.h"

namespace bindery::cuda::fake {

NvrtcPtr Nvrtc();

void RunFused(const std::string& source, const FusedArgs& args);  // of addresses of the host's

int64_t FusedCompiled();          // so far
int64_t FusedLaunched();          // so far
void RefuseSources(bool yes);     // with an error of the compiler's
void RefuseCapability(int of);    // sources for it, as one that this NVRTC does not know; 0: none
int64_t FusedAsked();             // to compile so far, what was refused, too
void SetNvrtcVersion(int minor);  // of 0, which NVIDIA's never was

}  // namespace bindery::cuda::fake
