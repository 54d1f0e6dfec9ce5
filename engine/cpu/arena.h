// The arena of a CPU device. Private to engine/.
#pragma once

#include "engine/memory/arena.h"

namespace bindery {

std::shared_ptr<Arena> MakeCpuArena(Device device, const std::shared_ptr<Engine>& engine, int64_t reserve);

}  // namespace bindery
