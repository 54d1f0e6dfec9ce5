// One GPU: its context, memory, kernels, and whether it still works. Private to engine/cuda.
//
// A GPU that fails, by a kernel that reads where nothing is, say, has lost everything on it, for this process: what had
// not ended by then fails, and so does whatever comes later. The driver does not tell which work it was; the streams
// know how far they came (stream.h), so the message can.
//
// Thread safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/device.h"
#include "engine/cuda/runtime_api.h"
#include "engine/cuda/step_args.h"

namespace bindery {
class Arena;
class Engine;
}  // namespace bindery

namespace bindery::cuda {

class CudaStream;

struct GpuFacts {
  CUdevice handle = 0;
  std::string name;
  int64_t bytes = 0;         // of memory
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 1;
  int pools = 0, mapping = 0, stream_writes = 0;  // 1: there are memory pools, mapped memory, 64-bit writes by streams
};
inline constexpr int kLeastMajor = 8;  // GPUs of a lower compute capability are not used
// Throws DeviceError, with the reason, if there is none.
std::vector<GpuFacts> FindGpus(const RuntimeApi& api);

class Gpu {
 public:
  // `all`: of the machine, in order. Never destroyed: tensors may be static.
  Gpu(const RuntimeApi& api, int index, const std::vector<GpuFacts>& all);
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const RuntimeApi& api;
  const Device device;
  const GpuFacts facts;

  // The calling thread uses this GPU's context while it lives; then what it used before.
  class Scope {
   public:
    explicit Scope(const Gpu& gpu) : gpu_(gpu), entered_(gpu.Enter()) {}
    ~Scope() {
      if (entered_) gpu_.Leave();
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const Gpu& gpu_;
    const bool entered_;
  };
  bool Enter() const noexcept;  // false, and the GPU fails, if the driver refuses
  void Leave() const noexcept;

  // Throws DeviceError unless `result` is success.
  void Check(CUresult result, const char* call) const { CheckCall(api, result, ToString(device), call); }

  // Of a call that enqueues work. Where the GPU has failed meanwhile, by earlier work, nothing is thrown: the operation
  // fails by its fence, with the error of what it waits for, if that is why.
  void CheckWork(CUresult result, const char* call) const;
  // The same of a library, which tells by `problem`, empty if there is none, what went wrong, but not whether the GPU has
  // failed. `stream`: it enqueued on this one, and the driver can be asked; null: while it is captured, it cannot.
  void CheckLibrary(const std::string& problem, const char* call, CUstream stream) const;

  // Null when memory is short. Memory is given and taken in the order of a stream of its own, so that neither stops the
  // device.
  void* Allocate(int64_t bytes);
  void Free(void* memory) noexcept;
  void FinishFrees() const;           // until then only Allocate gets the memory that was freed
  void* AllocateHost(int64_t bytes);  // which all GPUs can copy from and to
  void FreeHost(void* memory) noexcept;
  // By the stream of memory, and over when it returns; `host` is of AllocateHost.
  void Zero(void* memory, int64_t bytes);
  void CopyNow(const void* from, void* to, int64_t bytes, bool to_host);

  // Who may use its memory: itself, and whoever reaches it.
  const std::vector<CUmemAccessDesc>& access() const { return access_; }
  CUcontext context() const { return context_; }

  template <class Args>
  CUfunction Kernel() const {
    return KernelOf<Args>(std::make_index_sequence<kNumKernels>());
  }

  // A kernel of another image, which lives as long as the process and is loaded with the first of its kernels. Throws
  // DeviceError if the driver refuses it.
  CUfunction KernelIn(const unsigned long long* image, const char* name);

  // What a library has for this GPU, by something of the library's own: made by the first who asks, in the GPU's context,
  // and kept for ever, null, too.
  void* LibraryHandle(const void* library, const std::function<void*()>& make);

  // One that waits for no other by itself; `goes_first`: its work, where that of others is ready, too. Throws
  // DeviceError. None is ever destroyed: NVIDIA's libraries remember the one that they were given last.
  CUstream TakeStream(bool goes_first) const;
  void GiveBack(CUstream stream, bool goes_first) const noexcept;  // all that was put on it is over
  CUevent TakeEvent() noexcept;                                    // null if the GPU fails
  void GiveBack(CUevent event) noexcept;

  // By an error of work that runs, or one that leaves unknown what runs. All but the first are ignored.
  void Fail(CUresult result) const noexcept;
  void FailUnless(CUresult result) const noexcept {
    if (result != CUDA_SUCCESS) Fail(result);
  }
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  std::string failure() const;  // "cuda:0 is lost: ..."

  void Add(const CudaStream* stream);
  void Remove(const CudaStream* stream) noexcept;

 private:
  static constexpr size_t kNumKernels = std::tuple_size_v<AllKernels>;
  template <class Args, size_t... kIndices>
  CUfunction KernelOf(std::index_sequence<kIndices...>) const {
    return kernels_[((std::is_same_v<Args, std::tuple_element_t<kIndices, AllKernels>> ? kIndices : 0) + ...)];
  }
  void LoadKernels();

  CUcontext context_ = nullptr;
  CUstream memory_stream_ = nullptr;
  CUmemoryPool pool_ = nullptr;
  std::vector<CUmemAccessDesc> access_;
  std::array<CUfunction, kNumKernels> kernels_ = {};
  std::mutex modules_mutex_;
  std::map<const unsigned long long*, CUmodule> modules_;

  std::mutex handles_mutex_;
  std::map<const void*, void*> handles_;

  mutable std::mutex streams_kept_mutex_;
  mutable std::map<bool, std::vector<CUstream>> free_streams_;  // by goes_first
  mutable std::map<bool, size_t> num_streams_;

  std::mutex events_mutex_;
  std::vector<CUevent> free_events_;
  size_t num_events_ = 0;

  mutable std::mutex streams_mutex_;  // taken before those of streams
  std::vector<const CudaStream*> streams_;
  mutable std::mutex failure_mutex_;  // taken after all others
  mutable std::string failure_;
  mutable std::atomic<bool> failed_ = false;
};

// Its address space is reserved once; memory is mapped into it as it grows.
std::shared_ptr<Arena> MakeCudaArena(Gpu& gpu, const std::shared_ptr<Engine>& engine, int64_t reserve);

// Those that this process uses so far, by their numbers (engine/cuda/backend.cc). Throws DeviceError if there are no
// GPUs.
std::vector<Gpu*> GpusInUse();

}  // namespace bindery::cuda
