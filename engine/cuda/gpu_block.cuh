// The blocks of a GPU (kernels_body.h).
#pragma once

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
};

}  // namespace bindery::cuda
