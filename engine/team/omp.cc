// Team on OpenMP: the thread that asks is the master of its own libgomp team, which oneDNN uses too.
#include <omp.h>

#include "engine/team.h"
#include "engine/team/parts.h"

namespace bindery {
namespace {

// OpenMP's own setting in this thread before the outermost TeamScope.
thread_local int omp_threads_outside = 0;

}  // namespace

TeamScope::TeamScope(int threads) : previous_(TeamSizeOfThread()) {
  CheckTeamSize(threads);
  if (previous_ == 0) omp_threads_outside = omp_get_max_threads();
  TeamSizeOfThread() = threads;
  omp_set_num_threads(threads);
}

TeamScope::~TeamScope() {
  TeamSizeOfThread() = previous_;
  omp_set_num_threads(previous_ == 0 ? omp_threads_outside : previous_);
}

void TeamFor(int64_t n, int64_t grain, int64_t serial_below, TeamBody body, const void* context) {
  const int team = TeamOf(n, grain, serial_below);
  if (team == 1) return body(context, 0, n, 0);
  TeamJob job(n, grain, team, body, context);
  {
    const SerialInside serial;
#pragma omp parallel num_threads(team)
    {
      // One part each, unless the runtime gives fewer threads than asked for (inside another region, or by its limits).
      for (int part = omp_get_thread_num(); part < team; part += omp_get_num_threads()) job.RunPart(part);
    }
  }
  job.RethrowError();
}

}  // namespace bindery
