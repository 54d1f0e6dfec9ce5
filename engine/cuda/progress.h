// How far a stream of a GPU came, and what of its work had a fault: a CUDA stream, and words of host memory that the GPU
// writes (stream.h). Private to engine/cuda.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>

#include "base/error.h"
#include "engine/cuda/commands.h"
#include "engine/cuda/gpu.h"
#include "engine/stream.h"

namespace bindery::cuda {

class Progress {
 public:
  Progress(Gpu& gpu, Lane lane) : gpu_(gpu), goes_first_(lane != Lane::kCompute) {
    void* const memory = gpu.AllocateHost(sizeof(Said));
    if (!memory) Throw<DeviceError>("{}: no memory of the host for a stream", gpu.device);
    said_ = new (memory) Said;
    stream_ = gpu.TakeStream(goes_first_);
  }
  ~Progress() {
    gpu_.GiveBack(stream_, goes_first_);
    gpu_.FreeHost(said_);
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  CUstream stream() const { return stream_; }
  CUdeviceptr word() const { return reinterpret_cast<CUdeviceptr>(&said_->done); }  // one address for all
  uint64_t* within() const { return &said_->within; }
  // Never less than it was, to whoever asked: what is done stays so.
  uint64_t done() const {
    const uint64_t said = SaidDone();
    uint64_t seen = seen_.load(std::memory_order_acquire);
    while (seen < said && !seen_.compare_exchange_weak(seen, said, std::memory_order_acq_rel)) {
    }
    return std::max(seen, said);
  }
  Fault* faults() const { return said_->faults; }
  // Of a piece that is done; null: none.
  const Fault* FaultOf(uint64_t piece) const {
    const Fault& fault = said_->faults[piece % FaultRing::kSize];
    return fault.piece == piece ? &fault : nullptr;
  }
  // Asks the driver whether the GPU still works.
  void Look() const noexcept {
    if (gpu_.failed()) return;
    const Gpu::Scope scope(gpu_);
    const CUresult result = gpu_.api.stream_query(stream_);
    if (result != CUDA_ERROR_NOT_READY) gpu_.FailUnless(result);
  }

 private:
  struct Said {  // by the GPU
    uint64_t done = 0, within = 0;
    Fault faults[FaultRing::kSize] = {};
  };
  // Within a graph it counts from `done`, and is 0 again before that changes: so for a moment, at a graph's end, this is
  // what it was before the graph.
  uint64_t SaidDone() const {
    const std::atomic_ref<uint64_t> done(said_->done), within(said_->within);
    for (uint64_t before = done.load(std::memory_order_acquire);;) {
      const uint64_t more = within.load(std::memory_order_acquire), after = done.load(std::memory_order_acquire);
      if (after == before) return before + more;
      before = after;
    }
  }

  Gpu& gpu_;
  const bool goes_first_;  // what other devices wait for
  Said* said_ = nullptr;
  CUstream stream_ = nullptr;
  mutable std::atomic<uint64_t> seen_ = 0;  // the most that done() has said
};

}  // namespace bindery::cuda
