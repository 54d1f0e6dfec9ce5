// A lane of a GPU: a CUDA stream, and how far it came. Private to engine/cuda and executor/kernels/cuda.
//
// The work of a stream is numbered piece by piece: after each piece the stream writes the piece's number to a word of
// host memory. So the host sees without a call what is done, what runs, and, if the GPU fails, what had not ended. A
// piece is the work of one part of an operation, or of one node, if the work says which. It is enqueued when the
// operation ends, or the last of those that are joined, as one graph if it is what was enqueued there before
// (recording.h).
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/can_give_up.h"
#include "engine/cuda/commands.h"
#include "engine/cuda/gpu.h"
#include "engine/cuda/padding.h"
#include "engine/cuda/recording.h"
#include "engine/stream.h"

namespace bindery::cuda {

class Progress;  // the CUDA stream and its words, which fences share

class CudaStream final : public Stream, public CanGiveUp {
 public:
  CudaStream(Gpu& gpu, Lane lane);
  ~CudaStream() override;

  std::exception_ptr Begin(const std::string& operation, std::span<const FenceUse> uses) override;
  FencePtr End(std::shared_ptr<const void> operation, std::shared_ptr<const void> payload) override;
  bool joins() const override { return GraphsAreUsed(); }
  void Join() override;
  void Part() noexcept override;
  std::exception_ptr Synchronize() noexcept override;
  bool WaitFor(std::chrono::milliseconds time) const noexcept override;
  Work Doing() const override;
  // Work that is done on several GPUs (CallAcross), which is all that its operation does.
  bool MayGiveUp(uint64_t number) const override;
  bool IsBehind(uint64_t number) const override;
  bool GiveUp(uint64_t number, const std::string& why) override;

  static constexpr int64_t kThreads = 256;  // of a block

  // Work, between Begin and End. `what` names it in errors; empty: the operation alone does. What the driver refuses of
  // it fails the operation by its fence.
  template <class Args>
  void Launch(Args args, int64_t threads, const std::string& what = {}) {  // at least so many, together
    ClearPadding(&args);
    LaunchKernel(gpu_.Kernel<Args>(), Args::kName, &args, sizeof args, threads, what);
  }
  // `name` lives as long as the program.
  void LaunchKernel(CUfunction kernel, const char* name, const void* arguments, size_t bytes, int64_t threads,
                    const std::string& what);
  // Of a library (commands.h); the plan is kept until that work is done.
  void CallLibrary(LibraryFunction function, const char* name, const std::shared_ptr<const void>& plan,
                   std::span<void* const> addresses, const std::string& what);
  void CallAcross(std::shared_ptr<AcrossGpus> across, const std::string& what = {});  // kept until it is done
  void Copy(const CopyCommand& copy, const std::string& what = {});
  void Fill(void* to, unsigned char value, size_t bytes, const std::string& what = {});
  void Keep(std::shared_ptr<const void> object);  // until that work is done
  // Of device memory, for whoever works on the stream now: a word, and what comes of parts of arrays.
  uint64_t* word() const { return words_; }
  UpdateSquares* partial() const { return reinterpret_cast<UpdateSquares*>(words_ + kWords); }
  static constexpr int64_t kMaxParts = 4096;
  // For kernels that may find data they cannot work on: the operation fails with a DataError that names the piece, whose
  // number must be in the device's memory before such a kernel runs. What was enqueued behind it runs all the same, on
  // whatever the kernel left, and fails when it is over.
  FaultRing faults(Refusal* refused = nullptr) const;
  void NumberPiece(const std::string& what);

  // While it lives, work that does not say what it is, of flat kernels say, is `what`.
  class Naming {
   public:
    Naming(CudaStream& stream, std::string what) : stream_(stream) { stream.naming_ = std::move(what); }
    ~Naming() { stream_.naming_.clear(); }
    Naming(const Naming&) = delete;
    Naming& operator=(const Naming&) = delete;

   private:
    CudaStream& stream_;
  };
  Gpu& gpu() const { return gpu_; }

 private:
  class Batch;                               // what one operation enqueued: its fence
  void EnterPiece(const std::string& what);  // a new one, unless it is the same
  void Submit() noexcept;
  void Forget();                                     // lets go of what finished operations kept
  const Batch* FirstUnfinished() const;              // under the mutex; null: there is none
  const Batch* UnfinishedAt(uint64_t number) const;  // the same, if it is at that piece of work

  static constexpr int kWords = 4;

  Gpu& gpu_;
  std::shared_ptr<Progress> progress_;
  uint64_t* words_ = nullptr;  // of device memory: word(), and those of ProgressWords
  uint64_t issued_ = 0;        // pieces so far
  std::string naming_;
  Commands commands_;  // of one operation, or of those that are joined; empty between them
  Pieces pieces_;
  std::vector<std::shared_ptr<Batch>> batches_;  // that are over, and not yet submitted
  Recordings::Operations operations_;            // theirs
  bool joining_ = false;
  size_t numbered_ = 0;  // the last piece whose number the device's memory will have
  Recordings recordings_;
  std::shared_ptr<Batch> open_;  // between Begin and End
  bool entered_ = false;         // has the driver accepted the GPU's context there?
  mutable std::mutex mutex_;
  std::deque<std::shared_ptr<Batch>> in_flight_;
  std::exception_ptr first_error_;
};

// A stream of a GPU. Throws Error for another kind.
CudaStream& CudaStreamOf(Stream& stream);

}  // namespace bindery::cuda
