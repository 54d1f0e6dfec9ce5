// Threads of a test as processes that train together (kvstore/processes.h), each with an engine of its own.
#pragma once

#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "kvstore/processes.h"

namespace bindery {

class ThreadProcesses final : public Processes {
 public:
  struct Place {
    explicit Place(int size) : barrier(size), given(static_cast<size_t>(size)) {}
    std::barrier<> barrier;
    std::vector<const char*> given;
  };
  ThreadProcesses(int rank, int size, std::shared_ptr<Place> place) : Processes(rank, size), place_(std::move(place)) {
    ShareCores();
  }

 private:
  void DoAllGather(const void* mine, void* all, int64_t bytes) override {
    Meet(mine, [&] {
      for (int i = 0; i < size(); ++i) Copy(place_->given[static_cast<size_t>(i)], all, i, bytes);
    });
  }
  void DoBroadcast(void* data, int64_t bytes) override {
    Meet(data, [&] {
      if (rank() != 0) Copy(place_->given[0], data, 0, bytes);
    });
  }
  void DoAllToAll(const void* mine, void* all, int64_t bytes) override {
    Meet(mine, [&] {
      for (int i = 0; i < size(); ++i) Copy(place_->given[static_cast<size_t>(i)] + rank() * bytes, all, i, bytes);
    });
  }
  void Meet(const void* mine, const std::function<void()>& take) {
    place_->given[static_cast<size_t>(rank())] = static_cast<const char*>(mine);
    place_->barrier.arrive_and_wait();
    take();
    place_->barrier.arrive_and_wait();
  }
  static void Copy(const char* from, void* to, int place, int64_t bytes) {
    std::memcpy(static_cast<char*>(to) + place * bytes, from, static_cast<size_t>(bytes));
  }

  const std::shared_ptr<Place> place_;
};

// Runs one function in so many processes. Gives what each threw, "" for nothing.
inline std::vector<std::string> RunProcesses(int count, const std::function<void(const ProcessesPtr&)>& run) {
  const auto place = std::make_shared<ThreadProcesses::Place>(count);
  std::vector<std::string> errors(static_cast<size_t>(count));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      const auto processes = std::make_shared<ThreadProcesses>(rank, count, place);
      try {
        run(processes);
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
      processes->Leave("its program has ended");  // as programs do
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}
// The same, of what must not fail.
inline void ExpectProcesses(int count, const std::function<void(const ProcessesPtr&)>& run) {
  for (const std::string& error : RunProcesses(count, run)) EXPECT_EQ(error, "");
}

}  // namespace bindery
