// fork() copies a process, but none of its other threads: who waits for one of them there waits for ever.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

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

// Owns what threads use. A fork leaves it as it is: there is no ending what they were at.
template <class T>
class UsedByThreads {
 public:
  explicit UsedByThreads(std::unique_ptr<T> value) : value_(std::move(value)) {}
  ~UsedByThreads() {
    if (!process_.IsHere()) (void)value_.release();
  }
  UsedByThreads(const UsedByThreads&) = delete;

  bool IsHere() const { return process_.IsHere(); }
  void Check(const char* what) const { process_.Check(what); }  // as OfProcess
  T* operator->() const { return value_.get(); }
  T& operator*() const { return *value_; }

 private:
  std::unique_ptr<T> value_;
  OfProcess process_;
};

}  // namespace bindery
