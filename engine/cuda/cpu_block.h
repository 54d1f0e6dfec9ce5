// Blocks of threads on a CPU, one thread after the other (kernels_body.h): for tests of kernels without a GPU. Included
// before the kernels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#define __device__  // nvcc's word for what runs on GPUs

namespace bindery::cuda {

class CpuBlock {
 public:
  CpuBlock(int index, int count, int threads) : index_(index), count_(count), threads_(threads) {}
  int index() const { return index_; }
  int count() const { return count_; }
  int threads() const { return threads_; }

  // Every other block runs backwards: nobody may count on an order.
  template <class F>
  void Each(const F& f) const {
    for (int i = 0; i < threads_; ++i) f(index_ % 2 == 0 ? i : threads_ - 1 - i);
  }
  template <class F>
  uint64_t Least(const F& f) const {
    uint64_t least = ~uint64_t{0};
    Each([&](int thread) { least = std::min(least, f(thread)); });
    return least;
  }
  void SetLeast(uint64_t* address, uint64_t value) const { *address = std::min(*address, value); }
  bool Claim(uint64_t* address, uint64_t value) const { return std::exchange(*address, value) != value; }

  // In the order of a GPU's: within a warp by halves, then warp after warp.
  template <class F, class Join>
  auto Reduce(const F& f, const Join& join) const {
    using T = decltype(f(0));
    std::vector<T> of(static_cast<size_t>(threads_));
    Each([&](int thread) { of[static_cast<size_t>(thread)] = f(thread); });
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
    static thread_local T memory;
    return memory;
  }
  template <class T>
  class Own {
   public:
    explicit Own(const CpuBlock& block) : of_(static_cast<size_t>(block.threads())) {}
    T& operator[](int thread) { return of_[static_cast<size_t>(thread)]; }

   private:
    std::vector<T> of_;
  };

 private:
  static constexpr int kWarp = 32;
  const int index_, count_, threads_;
};

// A whole launch.
template <class Args>
void RunOnCpu(const Args& args, int blocks, int threads) {
  for (int block = 0; block < blocks; ++block) Run(CpuBlock(block, blocks, threads), args);
}

}  // namespace bindery::cuda
