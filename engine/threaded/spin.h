// Short waits without the kernel: for hand-overs that usually take less than a microsecond.
#pragma once

#include <chrono>
#include <thread>

namespace bindery {

inline void CpuPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Looks at `done` for up to `microseconds`; returns its last answer. Yields now and then, so that a machine with more
// threads than cores lets the one it is waiting for run.
template <class Done>
bool SpinUntil(int microseconds, const Done& done) {
  if (done()) return true;
  if (microseconds == 0) return false;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::microseconds(microseconds);
  for (;;) {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      CpuPause();
    }
    if (std::chrono::steady_clock::now() >= deadline) return done();
    std::this_thread::yield();
  }
}

}  // namespace bindery
