// fork() copies a process, but none of its other threads: who waits for one of them there waits for ever.
#pragma once

#include <atomic>

namespace bindery {

// A member of what has threads.
class OfProcess {
 public:
  OfProcess();  // of the present one

  bool IsHere() const { return forks_ == forks.load(std::memory_order_relaxed); }
  // Throws Error in a fork, saying what has been left behind: "the engine".
  void Check(const char* what) const {
    if (!IsHere()) [[unlikely]]
      Fail(what);
  }

 private:
  [[noreturn]] static void Fail(const char* what);

  static std::atomic<int> forks;  // from the first process that has made one of these to this one
  int forks_;
};

}  // namespace bindery
