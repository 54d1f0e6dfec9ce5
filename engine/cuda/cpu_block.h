// Blocks of threads on a CPU, one thread after the other (kernels_body.h): for tests of kernels without a GPU. Included
// before the kernels.
#pragma once

#include <algorithm>
#include <cstdint>

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

 private:
  const int index_, count_, threads_;
};

// A whole launch.
template <class Args>
void RunOnCpu(const Args& args, int blocks, int threads) {
  for (int block = 0; block < blocks; ++block) Run(CpuBlock(block, blocks, threads), args);
}

}  // namespace bindery::cuda
