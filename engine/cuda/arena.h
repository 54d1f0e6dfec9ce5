// The arena of a GPU: address space reserved once, memory mapped into it as it grows. Private to engine/cuda.
#pragma once

#include "engine/cuda/gpu.h"
#include "engine/memory/arena.h"

namespace bindery::cuda {

std::shared_ptr<Arena> MakeCudaArena(Gpu& gpu, const std::shared_ptr<Engine>& engine, int64_t reserve);

}  // namespace bindery::cuda
