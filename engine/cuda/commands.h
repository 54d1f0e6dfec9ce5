// What one operation puts on its stream, as a list: enqueued when the operation has named all of it, one by one, or as a
// graph that was captured from the same list (recording.h). So whatever changes from one run of an operation to the next
// is seen, and nobody has to promise that it does not. Private to engine/cuda.
//
// The work is cut into pieces (stream.h), numbered from 1 in each list. How far it came is written in one of two forms:
// where it is enqueued one by one, by the stream, as numbers that go on from list to list; in a graph, which is the same
// each time, by kernels, as numbers within the list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/cuda/gpu.h"

namespace bindery::cuda {

enum class CopyKind : uint8_t { kToDevice, kToHost, kWithin, kBetween };

struct CopyCommand {
  CopyKind kind = CopyKind::kWithin;
  const void* from = nullptr;
  void* to = nullptr;
  size_t bytes = 0;
  CUcontext from_context = nullptr, to_context = nullptr;  // kBetween: of the two GPUs
  bool operator==(const CopyCommand&) const = default;
};

// Of a library of NVIDIA's: enqueues on the stream what `plan` says, at these addresses, the same each time and in memory
// that it was given, so that the stream may be one that is captured. Returns what went wrong; empty: nothing.
using LibraryFunction = std::string (*)(const void* plan, std::span<void* const> addresses, CUstream stream);

// Of a library that works on several GPUs at once, for one run of an operation of one of them. Such work may fail, or
// wait for a GPU that is lost, without the driver telling: so whoever waits for it looks. Thread safe.
class AcrossGpus {
 public:
  virtual ~AcrossGpus() = default;
  // On all of them; `stream`, of the operation's GPU, goes on when all have done it. Called once.
  virtual void Enqueue(CUstream stream) = 0;
  virtual void Look() noexcept = 0;  // ends what would never end; without locks
  // Ends it, by `why`. False: it cannot be now, or has been.
  virtual bool GiveUp(const std::string& why) = 0;
  // ", behind ...": what such work of others its own waits for, which nobody else tells; empty: for none.
  virtual std::string Behind() const = 0;
  virtual std::string Problem() const = 0;  // of work that is over: why it is not what was asked for; empty: it is
};

// Where it is said how far the work came.
struct ProgressWords {
  CUdeviceptr done = 0;        // of host memory: the last piece that is done, counted on
  uint64_t* within = nullptr;  // of host memory: the last one that is done within a graph
  uint64_t* piece = nullptr;   // of the device's: FaultRing's
  uint64_t* heard = nullptr;
  uint64_t* base = nullptr;  // of the device's: the last piece before the graph
};

class Commands {
 public:
  static constexpr int kPiecesPerMark = 8;  // of a graph, which marks the end of each part, too

  void Clear();
  // A kernel with arguments of `bytes` bytes; `name` lives as long as the program.
  void Launch(CUfunction kernel, const char* name, const void* arguments, size_t bytes, unsigned blocks,
              unsigned threads);
  // `name` as above. The plan lives as long as this, and recordings of it.
  void Call(LibraryFunction function, const char* name, const std::shared_ptr<const void>& plan,
            std::span<void* const> addresses);
  void Call(const std::shared_ptr<AcrossGpus>& across);  // never as a graph
  void Copy(const CopyCommand& copy);
  void Fill(void* to, unsigned char value, size_t bytes);
  void NumberPiece(int piece);  // in the device's memory
  void EndPiece(int piece, bool of_part);

  int work() const { return work_; }               // commands but for ends of pieces
  bool numbers() const { return numbers_; }        // does some kernel need the number of its piece?
  bool may_repeat() const { return may_repeat_; }  // as a graph
  const std::vector<std::shared_ptr<const void>>& plans() const { return plans_; }  // of calls
  bool operator==(const Commands& other) const;

  // Enqueues all of it, but for the end of the last piece. `before`: pieces of the stream that come before it. Throws as
  // Gpu::CheckWork does; `piece` is the one it came to, from 0.
  void Enqueue(const Gpu& gpu, CUstream stream, const ProgressWords& words, uint64_t before, int* piece) const;
  // The same in the form of a graph.
  void Capture(const Gpu& gpu, CUstream stream, const ProgressWords& words) const;

 private:
  enum class Kind : uint8_t { kLaunch, kCall, kCallAcross, kCopy, kFill, kNumberPiece, kEndPiece };
  struct Command {
    Kind kind = Kind::kLaunch;
    bool marks = false;       // kEndPiece: in a graph, too
    unsigned char value = 0;  // kFill
    unsigned blocks = 0, threads = 0;
    int piece = 0;
    CUfunction kernel = nullptr;
    LibraryFunction function = nullptr;
    const void* plan = nullptr;
    AcrossGpus* across = nullptr;
    const char* name = nullptr;
    size_t arguments = 0, bytes = 0;  // of arguments_, which has a call's addresses, too; of a fill
    CopyCommand copy = {};
    void* to = nullptr;
    bool operator==(const Command&) const = default;
  };
  struct alignas(16) Sixteen {
    std::byte of[16];
    bool operator==(const Sixteen&) const = default;
  };
  size_t AddArguments(const void* arguments, size_t bytes);  // where they are
  void EnqueueOne(const Gpu& gpu, CUstream stream, const Command& command, bool captures) const;

  std::vector<Command> list_;
  std::vector<Sixteen> arguments_;
  std::vector<std::shared_ptr<const void>> plans_;
  int work_ = 0;
  bool numbers_ = false, may_repeat_ = true;
};

// Of a kernel of the engine's image, by one block of one thread.
template <class Args>
void LaunchOne(const Gpu& gpu, CUstream stream, Args args) {
  void* arguments[] = {&args};
  gpu.CheckWork(gpu.api.launch_kernel(gpu.Kernel<Args>(), 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr),
                Args::kName);
}

}  // namespace bindery::cuda
