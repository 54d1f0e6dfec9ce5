// The headers that NVRTC compiles, as text: made of the files themselves (BUILD).
#pragma once

#include "executor/kernels/cuda/fused_source.h"

namespace bindery::cuda {

inline constexpr size_t kNumFusedTexts = 8;
extern const FusedHeader kFusedTexts[kNumFusedTexts];

}  // namespace bindery::cuda
