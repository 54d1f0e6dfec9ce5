// Blocks of threads on a CPU (kernels_body.h), for tests of kernels without a GPU: one thread after the other, or real
// ones that wait for each other. Memory that a GPU leaves undefined is full of ones.
#pragma once

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace bindery::cuda {

// What the real threads of a block share.
class CpuBlockThreads {
 public:
  explicit CpuBlockThreads(int count) : barrier_(count) {}
  void Wait() { barrier_.arrive_and_wait(); }
  // What all threads have in common by their use number `use`: the first makes it.
  template <class T>
  std::shared_ptr<T> Common(int use, const T& start) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<void>& common = commons_[use];
    if (!common) common = std::make_shared<T>(start);
    return std::static_pointer_cast<T>(common);
  }
  void Forget(int use) {
    const std::lock_guard lock(mutex_);
    commons_.erase(use);
  }

 private:
  std::barrier<> barrier_;
  std::mutex mutex_;
  std::map<int, std::shared_ptr<void>> commons_;
};

class CpuBlock {
 public:
  CpuBlock(int index, int count, int threads) : index_(index), count_(count), threads_(threads) {}
  // Thread `thread` of a block of real ones.
  CpuBlock(int index, int count, int threads, int thread, CpuBlockThreads* others)
      : index_(index), count_(count), threads_(threads), thread_(thread), others_(others) {}
  int index() const { return index_; }
  int count() const { return count_; }
  int threads() const { return threads_; }

  // Every other block runs backwards: nobody may count on an order.
  template <class F>
  void Each(const F& f) const {
    if (others_) {
      f(thread_);
      return others_->Wait();
    }
    for (int i = 0; i < threads_; ++i) f(index_ % 2 == 0 ? i : threads_ - 1 - i);
  }
  template <class F>
  uint64_t Least(const F& f) const {
    return std::ranges::min(OfAll<uint64_t>(f));
  }
  void SetLeast(uint64_t* address, uint64_t value) const {
    std::atomic_ref least(*address);
    for (uint64_t old = least; value < old && !least.compare_exchange_weak(old, value);) {
    }
  }
  void TellHost(uint64_t* word, uint64_t value) const {
    std::atomic_ref(*word).store(value, std::memory_order_release);
  }
  bool Claim(uint64_t* address, uint64_t value) const { return std::atomic_ref(*address).exchange(value) != value; }

  // In the order of a GPU's: within a warp by halves, then warp after warp.
  template <class F, class Join>
  auto Reduce(const F& f, const Join& join) const {
    using T = decltype(f(0));
    std::vector<T> of = OfAll<T>(f);
    for (int warp = 0; warp < threads_; warp += kWarp) {
      const int size = std::min(kWarp, threads_ - warp);
      T* const mine = of.data() + warp;
      for (int step = kWarp / 2; step > 0; step /= 2) {
        for (int i = 0; i < step && i + step < size; ++i) mine[i] = join(mine[i], mine[i + step]);
      }
      if (warp > 0) of[0] = join(of[0], mine[0]);
    }
    return of[0];
  }

  template <class T>
  T MultiplyAdd(T a, T b, T c) const {
    return a * b + c;
  }
  template <class T>
  T& Shared() const {
    if (!others_) {
      static thread_local T memory;
      std::memset(static_cast<void*>(&memory), kUndefined, sizeof memory);
      return memory;
    }
    T undefined;
    std::memset(static_cast<void*>(&undefined), kUndefined, sizeof undefined);
    const std::shared_ptr<T> memory = Common(undefined);
    shared_.push_back(memory);
    return *memory;
  }
  template <class T>
  class Own {
   public:
    explicit Own(const CpuBlock& block) : of_(static_cast<size_t>(block.threads())) {
      std::memset(static_cast<void*>(of_.data()), kUndefined, of_.size() * sizeof(T));
    }
    T& operator[](int thread) { return of_[static_cast<size_t>(thread)]; }

   private:
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> of_;
  };

 private:
  static constexpr int kWarp = 32;
  static constexpr int kUndefined = 0xff;

  // f(thread) of all threads, by each real one for itself.
  template <class T, class F>
  std::vector<T> OfAll(const F& f) const {
    std::vector<T> of(static_cast<size_t>(threads_));
    if (!others_) {
      Each([&](int thread) { of[static_cast<size_t>(thread)] = f(thread); });
      return of;
    }
    const auto common = Common(of);
    Each([&](int thread) { (*common)[static_cast<size_t>(thread)] = f(thread); });
    return *common;
  }
  template <class T>
  std::shared_ptr<T> Common(const T& start) const {
    const int use = uses_++;
    std::shared_ptr<T> common = others_->Common(use, start);
    others_->Wait();
    if (thread_ == 0) others_->Forget(use);  // all have it
    return common;
  }

  const int index_, count_, threads_;
  const int thread_ = 0;
  CpuBlockThreads* const others_ = nullptr;
  mutable int uses_ = 0;  // of what real threads have in common
  mutable std::vector<std::shared_ptr<void>> shared_;
};

// A whole launch.
template <class Args>
void RunOnCpu(const Args& args, int blocks, int threads) {
  for (int block = 0; block < blocks; ++block) Run(CpuBlock(block, blocks, threads), args);
}
// The same by real threads, all blocks at once.
template <class Args>
void RunOnThreads(const Args& args, int blocks, int threads) {
  std::vector<std::unique_ptr<CpuBlockThreads>> of_blocks;
  std::vector<std::jthread> all;
  for (int block = 0; block < blocks; ++block) {
    CpuBlockThreads* const others = of_blocks.emplace_back(std::make_unique<CpuBlockThreads>(threads)).get();
    for (int thread = 0; thread < threads; ++thread) {
      all.emplace_back([=, &args] { Run(CpuBlock(block, blocks, threads, thread, others), args); });
    }
  }
}

}  // namespace bindery::cuda
