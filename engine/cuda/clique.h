// GPUs that exchange by NCCL: its communicator, made once for each set of GPUs and kept; what they bring to each other,
// bytes only; and what becomes of that when NCCL fails or one of them is lost. Private to engine/cuda.
//
// What an operation brings is enqueued by its own stream's worker, for all GPUs, in one group of NCCL's calls. Each GPU
// has a stream for such work, whatever clique it is of: these wait for the operation's stream, and it for them. So all
// GPUs come to all such work in one order, that of enqueueing, under one lock, and none of it waits on a GPU for
// anything but work of NCCL's that begins at the same time, also among cliques that share GPUs. NVIDIA promises less
// than that there is no deadlock: any call of CUDA's, by any thread, may wait for all work on a GPU (docs/cuda.md).
//
// NCCL tells of errors late, or never: whoever waits for the work looks. A communicator that failed, or one of whose
// GPUs is lost, is aborted, which ends its work on the other GPUs. That work fails, as does whatever came after it on the
// GPUs and ran on what was in its place; the next work has a new communicator, if the GPUs still work. The same becomes
// of a communicator whose work hangs, as the engine's watchdog finds (CanGiveUp). While a call of NCCL's with a
// communicator does not return, nobody aborts that.
//
// Thread safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda/commands.h"
#include "engine/cuda/gpu.h"
#include "engine/cuda/nccl_api.h"
#include "engine/memory/storage.h"

namespace bindery::cuda {

class Communicator;  // of a clique, until it is aborted

class Clique {
 public:
  // Never destroyed, as GPUs are not. Throws DeviceError if the driver refuses a stream.
  Clique(NcclPtr api, std::vector<Gpu*> gpus);

  // Brought from one of the GPUs, by their places here, to others; null where it is not wanted.
  struct Piece {
    size_t from = 0;
    const void* source = nullptr;
    size_t bytes = 0;                         // > 0
    std::shared_ptr<const void> memory = {};  // whatever keeps the source's
    std::vector<std::shared_ptr<Chunk>> targets = {};
  };
  using Pieces = std::shared_ptr<const std::vector<Piece>>;
  // For one run of an operation of the first of the GPUs (CudaStream::CallAcross).
  std::shared_ptr<AcrossGpus> Call(Pieces pieces);

  // Makes the communicator, unless there is one. What went wrong; empty: nothing. Under the lock of all cliques.
  std::string Connect();

 private:
  class Exchange;
  struct Enqueued {
    std::shared_ptr<Communicator> communicator = nullptr;
    uint64_t number = 0;  // of the clique's exchanges
    std::string problem = {};
    // The last exchanges of cliques that share a GPU, this one too, that were not over: it comes after them.
    struct Other {
      const Clique* clique = nullptr;
      std::shared_ptr<Communicator> communicator = nullptr;  // of its last exchange
      uint64_t number = 0;
    };
    std::vector<Other> after = {};
  };
  Enqueued Enqueue(const std::vector<Piece>& pieces, CUstream stream);
  void Begin(CUstream stream) const;
  void Bring(const std::vector<Piece>& pieces) const;
  void BringPiece(const Piece& piece, bool to_all, NcclResult* result) const;
  void End(CUstream stream, uint64_t number);
  void FailIfItWaitsForLost() const noexcept;
  void Look(Communicator* communicator) noexcept;
  bool GiveUp(Communicator* communicator, const std::string& why);
  bool Shares(const Clique& other) const;  // some GPU
  uint64_t done() const;
  std::string Lost() const;  // what is to be said of a GPU that is; empty: none is
  std::string ToText() const;

  const NcclPtr api_;
  const std::vector<Gpu*> gpus_;
  std::vector<CUstream> streams_;  // of the GPUs, shared with other cliques
  CUevent begin_ = nullptr;        // of an exchange, on its operation's stream
  std::vector<CUevent> ends_;      // of its work on the streams; the first comes after the others
  uint64_t* done_ = nullptr;       // of host memory: the number of the last exchange that is over
  uint64_t issued_ = 0;
  std::atomic<uint64_t> awaited_ = 0;  // the last exchange for whose end the first GPU's stream waits, or has waited
  std::shared_ptr<Communicator> communicator_;
};

// The clique of these GPUs, each of which comes once, by NCCL. Null where there is no NCCL, or it makes no communicator
// for them: then a line was logged, once.
Clique* CliqueOf(const std::vector<Gpu*>& gpus);

}  // namespace bindery::cuda
