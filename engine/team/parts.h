// What both bodies of Team share. Private to engine/.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <mutex>

#include "engine/team.h"

namespace bindery {

// The size that TeamScope set in this thread; 0 = none.
int& TeamSizeOfThread();

// Throws Error unless threads >= 1 (TeamScope) or grain >= 1 (TeamFor).
void CheckTeamSize(int threads);
void CheckGrain(int64_t grain);

// The threads for a loop of TeamFor: 1 runs it serially.
inline int TeamOf(int64_t n, int64_t grain, int64_t serial_below) {
  CheckGrain(grain);
  return n <= serial_below ? 1 : TeamSize();
}

struct TeamPart {
  int64_t begin, end;
};

// Part `index` of `count` of [0, n): whole grains, divided as evenly as they go. The last parts take the rest, for the
// last grain may be short.
inline TeamPart PartOf(int64_t n, int64_t grain, int count, int index) {
  const int64_t grains = n / grain + (n % grain != 0), share = grains / count, rest = grains % count;
  const auto border = [&](int64_t i) {
    const int64_t position = i * share + std::max<int64_t>(0, i - (count - rest));  // in grains
    return position == grains ? n : position * grain;
  };
  return {border(index), border(index + 1)};
}

// Runs one part; of the exceptions of all parts it keeps that of the lowest.
class TeamJob {
 public:
  TeamJob(int64_t n, int64_t grain, int parts, TeamBody body, const void* context)
      : n_(n), grain_(grain), parts_(parts), failed_part_(parts), body_(body), context_(context) {}

  int parts() const { return parts_; }

  void RunPart(int index) noexcept {
    try {
      const TeamPart part = PartOf(n_, grain_, parts_, index);
      body_(context_, part.begin, part.end, index);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (index < failed_part_) {
        failed_part_ = index;
        error_ = std::current_exception();
      }
    }
  }

  void RethrowError() {  // after all parts
    if (error_) std::rethrow_exception(error_);
  }

 private:
  const int64_t n_, grain_;
  const int parts_;
  int failed_part_;
  const TeamBody body_;
  const void* const context_;
  std::mutex mutex_;
  std::exception_ptr error_;
};

// While a part runs in the team's own thread, loops inside it are serial, as they are in the helpers.
class SerialInside {
 public:
  SerialInside() : previous_(TeamSizeOfThread()) { TeamSizeOfThread() = 1; }
  ~SerialInside() { TeamSizeOfThread() = previous_; }
  SerialInside(const SerialInside&) = delete;
  SerialInside& operator=(const SerialInside&) = delete;

 private:
  const int previous_;
};

}  // namespace bindery
