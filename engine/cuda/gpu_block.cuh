// The blocks of a GPU (kernels_body.h).
#pragma once

#include <bit>
#include <cstdint>

namespace bindery::cuda {

struct GpuBlock {
  __device__ int index() const { return static_cast<int>(blockIdx.x); }
  __device__ int count() const { return static_cast<int>(gridDim.x); }
  __device__ int threads() const { return static_cast<int>(blockDim.x); }

  template <class F>
  __device__ void Each(const F& f) const {
    f(static_cast<int>(threadIdx.x));
    __syncthreads();
  }
  // Of whole warps.
  template <class F>
  __device__ uint64_t Least(const F& f) const {
    __shared__ uint64_t of_warps[32];
    uint64_t least = f(static_cast<int>(threadIdx.x));
    for (int step = 16; step > 0; step /= 2) {
      const uint64_t other = __shfl_down_sync(~0u, least, step);
      least = other < least ? other : least;
    }
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = least;
    __syncthreads();
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) least = of_warps[warp] < least ? of_warps[warp] : least;
    __syncthreads();
    return least;
  }
  __device__ void SetLeast(uint64_t* address, uint64_t value) const {
    atomicMin(reinterpret_cast<unsigned long long*>(address), static_cast<unsigned long long>(value));
  }
  __device__ bool Claim(uint64_t* address, uint64_t value) const {
    if (*static_cast<volatile uint64_t*>(address) == value) return false;  // a look costs less than an exchange
    return atomicExch(reinterpret_cast<unsigned long long*>(address), static_cast<unsigned long long>(value)) != value;
  }

  // A word of host memory, after all that was written before.
  __device__ void TellHost(uint64_t* word, uint64_t value) const {
    __threadfence_system();
    *static_cast<volatile uint64_t*>(word) = value;
  }

  // Of whole warps.
  template <class F, class Join>
  __device__ auto Reduce(const F& f, const Join& join) const {
    using T = decltype(f(0));
    T* const of_warps = Shared<Warps<T>>().of;
    T mine = f(static_cast<int>(threadIdx.x));
    for (int step = 16; step > 0; step /= 2) mine = join(mine, Below(mine, step));
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = mine;
    __syncthreads();
    mine = of_warps[0];
    for (unsigned warp = 1; warp < blockDim.x / 32; ++warp) mine = join(mine, of_warps[warp]);
    __syncthreads();
    return mine;
  }

  template <class T>
  __device__ T MultiplyAdd(T a, T b, T c) const {
    return fma(a, b, c);
  }
  template <class T>
  __device__ T& Shared() const {
    __shared__ alignas(16) unsigned char memory[sizeof(T)];
    return *reinterpret_cast<T*>(memory);
  }
  template <class T>
  class Own {  // in registers
   public:
    __device__ explicit Own(const GpuBlock&) {}
    __device__ T& operator[](int) { return mine_; }

   private:
    T mine_;
  };

 private:
  template <class T>
  struct Warps {
    T of[32];
  };
  // The value of the thread that is `step` further on.
  template <class T>
  static __device__ T Below(const T& value, int step) {
    static_assert(sizeof(T) % 4 == 0);
    struct Words {
      unsigned of[sizeof(T) / 4];
    };
    Words words = std::bit_cast<Words>(value);
    for (unsigned& word : words.of) word = __shfl_down_sync(~0u, word, step);
    return std::bit_cast<T>(words);
  }
};

}  // namespace bindery::cuda
