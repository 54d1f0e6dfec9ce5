#include "base/forks.h"

#include <pthread.h>

#include "base/error.h"

namespace bindery {

std::atomic<int> OfProcess::forks{0};

OfProcess::OfProcess() {
  [[maybe_unused]] static const int registered =
      pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  forks_ = forks.load(std::memory_order_relaxed);
}

void OfProcess::Fail(const char* what) {
  Throw(
      "{} was made before this process was forked, and its threads are not here: fork before the library is used, or "
      "let the fork begin a program anew (exec)",
      what);
}

}  // namespace bindery
