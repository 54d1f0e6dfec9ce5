// Workers: threads that share out numbered pieces of work. Which thread does which piece is nobody's business.
// Thread safety: none; one thread at a time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/forks.h"

namespace bindery {

class Workers {
 public:
  // The caller's thread included. Throws Error unless it is 1 to 1024, and if one cannot be started.
  explicit Workers(int threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Calls work(0) .. work(count - 1), each once, and returns when all are done. `work` must not throw. Throws
  // Error in a fork, which has no such threads.
  void ForEach(int64_t count, const std::function<void(int64_t)>& work);

 private:
  void Run();
  void Stop();
  void Take(const std::function<void(int64_t)>& work, int64_t count);

  struct Work {
    std::atomic<int64_t> next = 0;

    std::mutex mutex;  // guards:
    std::condition_variable begun, ended;
    const std::function<void(int64_t)>* piece = nullptr;
    int64_t count = 0, round = 0;
    size_t busy = 0;
    bool stop = false;

    std::vector<std::thread> threads;
  };
  const UsedByThreads<Work> work_;
};

}  // namespace bindery
