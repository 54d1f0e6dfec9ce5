// The records of the threaded engine: workers, operations made ready for them, single runs of these, and threads that
// wait. Private to engine/; the life of a run is told in engine.cc.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "engine/operation.h"
#include "engine/stream.h"
#include "engine/threaded/access_queue.h"
#include "engine/threaded/watchdog.h"

namespace bindery {

struct Run;

struct Worker {
  explicit Worker(std::unique_ptr<Stream> stream) : stream(std::move(stream)) {}

  const std::unique_ptr<Stream> stream;
  std::thread thread;
  std::atomic<uint64_t> sequence{0};  // changes when there is something new: what a spinning worker looks at
  std::condition_variable wake;
  bool parked = false;
  bool keeps = false;  // its stream, what work uses that may be over
  // Runs that are ready: by priority, of equal ones in the order in which they became so.
  Run* first = nullptr;
  Run* last = nullptr;
  void Add(Run* run);
  Run* Take();  // nullptr: there is none
  // For the watchdog.
  const Operation* current = nullptr;
  uint64_t taken = 0;              // runs so far
  std::atomic<bool> waits{false};  // for other devices, before it begins
  Sight sight;
};

class ThreadedOperation final : public PreparedOperation {
 public:
  using PreparedOperation::PreparedOperation;

  Worker* worker = nullptr;
  std::vector<std::unique_ptr<Run>> runs;  // as many as were ever in flight together
  Run* free = nullptr;                     // those that are not
};

struct Pushed {
  std::shared_ptr<ThreadedOperation> operation;
  std::shared_ptr<const void> payload;
};

struct Run : Claim {
  std::vector<Pushed> parts;  // while in flight: one, or those that are joined, in order
  std::vector<PendingAccess> accesses;
  Worker* worker = nullptr;
  int priority = 0;
  Run** home = nullptr;  // the free list that it is of
  Run* next = nullptr;   // in the worker's queue or that list
};

inline void Worker::Add(Run* run) {
  if (!last || last->priority >= run->priority) {
    run->next = nullptr;
    (last ? last->next : first) = run;
    last = run;
    return;
  }
  Run** place = &first;  // some run has less
  while ((*place)->priority >= run->priority) place = &(*place)->next;
  run->next = *place;
  *place = run;
}

inline Run* Worker::Take() {
  Run* const run = first;
  if (!run) return nullptr;
  first = run->next;
  if (!first) last = nullptr;
  return run;
}

// A thread in Wait(var). Lives on its stack, and is gone as soon as `done` is set.
struct Waiter : Claim {
  PendingAccess access;
  bool tell = true;  // wants to know of an error
  std::exception_ptr error;
  std::vector<FencePtr> fences;
  Failures::LateErrors late;
  std::atomic<bool> done{false};
};

}  // namespace bindery
