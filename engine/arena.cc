#include "engine/arena.h"

#include "base/error.h"
#include "engine/backend.h"

namespace bindery {

std::shared_ptr<Arena> Arena::Make(Device device, std::shared_ptr<Engine> engine, int64_t reserve) {
  if (!engine) Throw("an arena needs an engine");
  if (reserve < 1) Throw("{}: an arena reserves at least 1 byte, got {}", device, reserve);
  return Backend::Of(device).MakeArena(device, engine, reserve);
}

}  // namespace bindery
