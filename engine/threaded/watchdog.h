// Watchdog: tells whether some device is at one and the same thing for too long. Private to engine/.
//
// It has no thread and costs a running operation nothing: whoever waits looks at what all workers and their streams are
// doing, ten times within the limit but at least once a second, and makes a few short strings of it. So a step that
// takes longer than that allocates. Only time in which somebody looked counts, so that a process that was stopped for
// an hour, by a debugger say, finds no device hanging when it goes on.
//
// What a stream can give up (engine/can_give_up.h) is given up, where nothing else hangs that it may wait for: it then
// fails, and is told to hang only if it has not ended when as much time has passed again. What only waits for such work
// is not: its time begins anew.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace bindery {

struct Worker;

// What a watchdog has seen of one worker.
struct Sight {
  uint64_t number = 0;    // of the piece of work
  std::string what = {};  // empty: nothing
  bool by_stream = false;
  std::chrono::duration<double> seconds{0};
  bool told = false;
};

// Not thread safe: the engine's lock protects it.
class Watchdog {
 public:
  // What is allowed to take longer than `milliseconds` is nothing; 0: everything.
  explicit Watchdog(int milliseconds);

  std::chrono::milliseconds period() const { return period_; }  // between two looks
  // Which devices hang, at what, and since when; "" if none does. `news`: one of them did not at the last look.
  std::string Look(std::span<const std::unique_ptr<Worker>> workers, bool* news);

 private:
  const std::chrono::duration<double> limit_;
  std::chrono::milliseconds period_;
  std::chrono::steady_clock::time_point looked_ = {};
};

}  // namespace bindery
