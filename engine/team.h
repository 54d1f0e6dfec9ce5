// Team: the only place where our own loops become parallel. A device's worker thread owns a team of k threads (itself
// and k-1 helpers); a loop uses one thread or all k, nothing between, so that the OpenMP runtime never rebuilds its
// team.
//
// Two bodies of the same functions: team/omp.cc (OpenMP; the team that oneDNN uses too, so there is one pool in the
// process) and team/threads.cc (std::thread, for ThreadSanitizer, which cannot see OpenMP's barriers).
#pragma once

#include <cstdint>

namespace bindery {

// Size of the calling thread's team; 1 unless a TeamScope says otherwise.
int TeamSize();

// Sets the team's size for the calling thread while it lives (oneDNN primitives made or run inside it use that size).
class TeamScope {
 public:
  explicit TeamScope(int threads);  // >= 1
  ~TeamScope();
  TeamScope(const TeamScope&) = delete;
  TeamScope& operator=(const TeamScope&) = delete;

 private:
  int previous_;
};

int NumCores();  // that this process may run on (affinity), >= 1

// body(begin, end, thread) for `TeamSize()` contiguous parts of [0, n), differing by at most one `grain`; part borders
// are multiples of `grain`. Runs serially, as body(0, n, 0), when n <= serial_below. The first exception is rethrown.
// Takes a plain function and a context so that a call allocates nothing; the template below wraps any callable.
using TeamBody = void (*)(const void* context, int64_t begin, int64_t end, int thread);
void TeamFor(int64_t n, int64_t grain, int64_t serial_below, TeamBody body, const void* context);

template <class F>
void ParallelFor(int64_t n, int64_t grain, int64_t serial_below, const F& body) {
  TeamFor(
      n, grain, serial_below,
      [](const void* context, int64_t begin, int64_t end, int thread) {
        (*static_cast<const F*>(context))(begin, end, thread);
      },
      &body);
}

// Work of less than about 2 us is not worth waking anybody: this many simple float operations.
inline constexpr int64_t kSerialElements = 24 * 1024;

}  // namespace bindery
