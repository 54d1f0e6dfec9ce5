#include <mutex>
#include <utility>

#include "engine/engine.h"

namespace bindery {
namespace {

struct Default {
  std::mutex mutex;
  std::shared_ptr<Engine> engine;
};

Default& TheDefault() {
  static Default instance;
  return instance;
}

}  // namespace

std::shared_ptr<Engine> DefaultEngine() {
  Default& instance = TheDefault();
  const std::lock_guard lock(instance.mutex);
  if (!instance.engine) instance.engine = MakeThreadedEngine();
  return instance.engine;
}

void SetDefaultEngine(std::shared_ptr<Engine> engine) {
  Default& instance = TheDefault();
  {
    const std::lock_guard lock(instance.mutex);
    std::swap(instance.engine, engine);
  }
  // The old engine, if this was its last reference, waits for its operations here, outside the lock.
}

}  // namespace bindery
