#include <exception>
#include <mutex>
#include <utility>

#include "engine/engine.h"

namespace bindery {
namespace {

struct Default {
  // exit() destroys no object of those who use the engine, but what its operations use: so it waits for them.
  ~Default() {
    if (!engine || engine.use_count() == 1) return;  // the engine itself does
    try {
      engine->WaitAll();
    } catch (const std::exception&) {
      // Nobody is there any more to be told; or a fork, or an operation that ends it all.
    }
  }

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
