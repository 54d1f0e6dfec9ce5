// Neighbours in memory, as one access of a thread. NVRTC compiles this, too.
#pragma once

#include <bit>
#include <cstdint>

#ifndef __CUDACC__
#define __device__  // nvcc's word for what runs on GPUs
#endif

namespace bindery::cuda {

// Elements that are read and written by one instruction where their address allows it.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Pack {
  T v[kCount];
};

// Are all these addresses those of packs?
template <class... Packs>
__device__ bool Aligned(const Packs*... packs) {
  return ((std::bit_cast<uintptr_t>(packs) % alignof(Packs) == 0) && ...);
}

}  // namespace bindery::cuda
