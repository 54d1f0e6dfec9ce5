#include "engine/team.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "engine/team/parts.h"

namespace bindery {

int& TeamSizeOfThread() {
  static thread_local int size = 0;
  return size;
}

int TeamSize() { return std::max(TeamSizeOfThread(), 1); }

int NumCores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) return std::max(CPU_COUNT(&cores), 1);
  return std::max(static_cast<int>(std::thread::hardware_concurrency()), 1);  // more than 1024 cores
}

void CheckTeamSize(int threads) {
  if (threads < 1) Throw("a team needs at least 1 thread, got {}", threads);
}

void CheckGrain(int64_t grain) {
  if (grain < 1) Throw("a parallel loop needs a grain of at least 1, got {}", grain);
}

}  // namespace bindery
