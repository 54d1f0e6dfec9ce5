// Processes that train together, on one machine or on several: their numbers, and what they exchange, in the host's
// memory. kvstore/mpi has those of MPI; the rest of Bindery knows them by this alone.
//
// Collective calls: every process makes the same ones in the same order, with arguments of the same sizes, and each
// waits for the others. Before anything is exchanged they tell each other which call it is: where that differs, all of
// them throw Error, and exchange nothing any more.
//
// Leaving. One that cannot go on, since a file of its own cannot be read, say, leaves: whatever the others call next
// throws Error with its reason, on all of them, so that nobody waits for what does not come. There is no way back: a
// training goes on from its checkpoint, by new processes. One that dies without a word is whoever's started them:
// mpirun ends the others.
//
// Sums are in the order of the processes, and the same bits for all of them: each sums a range of the elements, and
// gives it to the others.
//
// Thread safety: collective calls may come from several threads, one after the other. While steps of a trainer are in
// flight, they make calls of their own, from the engine's threads: others come in between at no fixed place.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace bindery {

class Processes {
 public:
  Processes(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~Processes() = default;
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  int rank() const { return rank_; }  // of this one, from 0
  int size() const { return size_; }

  void Barrier();  // returns when all have come to it
  // `mine` of each, one behind the other in their order: `all` has room for size() times `bytes`.
  void AllGather(const void* mine, void* all, int64_t bytes);
  std::vector<std::string> AllGather(const std::string& mine);  // of any lengths
  // Throws Error on all of them unless all have the same lines: "COMPLAINT: process 0 has A, process 2 has B".
  void CheckSame(const std::string& lines, const char* complaint);
  // What process 0 has, to all. The text's length is process 0's; the others' are replaced.
  void Broadcast(void* data, int64_t bytes);
  void Broadcast(std::string* text);
  // Values, in place: of float32 or float64, each process's times its weight (empty: 1). Those of one process alone stay
  // as they are.
  struct Values {
    DType dtype = DType::kFloat32;
    void* data = nullptr;
    int64_t elements = 0;
  };
  void AllReduceSum(std::span<const Values> values, std::span<const double> weights = {});

  // Says to the others that this process cannot go on, and why; once. It waits until each of them has come to its next
  // call, and before that until a call of another thread of this process has ended.
  void Leave(const std::string& why) noexcept;

 protected:
  // Have all processes ended their calls, so that none is within one where another is not? Not before one has left.
  bool parted() const { return parted_; }

  // What an implementation gives. Each throws Error when it cannot; after that nothing is called any more. Sizes above
  // 0, of at most kMostBytes.
  static constexpr int64_t kMostBytes = int64_t{1} << 22;
  virtual void DoAllGather(const void* mine, void* all, int64_t bytes) = 0;
  virtual void DoBroadcast(void* data, int64_t bytes) = 0;
  // Of `mine` the part that belongs to process i goes to it; `all` gets what each has for this one. `bytes`: of a part.
  virtual void DoAllToAll(const void* mine, void* all, int64_t bytes) = 0;

 private:
  enum class Call : int32_t { kBarrier, kAllGather, kTexts, kBroadcast, kText, kSum, kLeave };
  static const char* NameOf(Call call);
  // Before every call: throws unless all make the same one, of the same `bytes` and, where these are of different things,
  // of the same ones.
  void Meet(Call call, int64_t bytes, uint64_t things = 0);
  [[noreturn]] void Break(const std::string& why);
  template <class Function>
  void Guarded(const Function& run);  // what `run` throws ends it all
  void Gather(const void* mine, void* all, int64_t bytes);
  void Spread(void* data, int64_t bytes);
  template <class T>
  void Sum(T* data, int64_t elements, std::span<const double> weights);

  const int rank_, size_;
  std::mutex mutex_;    // guards:
  std::string broken_;  // why nothing is exchanged any more; empty: all is well
  bool parted_ = false;
  std::vector<char> buffer_, sums_;
};
using ProcessesPtr = std::shared_ptr<Processes>;

}  // namespace bindery
