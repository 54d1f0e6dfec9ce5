// The blocks of a GPU (kernels_body.h).
#pragma once

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
  template <class F>
  __device__ bool Any(const F& f) const {
    return __syncthreads_or(f(static_cast<int>(threadIdx.x))) != 0;
  }
};

}  // namespace bindery::cuda
