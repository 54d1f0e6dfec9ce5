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
// Sums are in the order of the processes, and the same bits for all of them: each sums ranges of the elements of its
// own, and gives them to the others. What is computed of sums, element by element, may be shared out likewise:
// ReduceScatterSum, the work, AllGatherRanges.
//
// Offers. What each process has ranges of, one may want as a whole when the others do not know of it, for a checkpoint,
// say: it asks, and the others give theirs from within whatever they call next, which then goes on.
//
// Thread safety: collective calls may come from several threads, one after the other. While steps of a trainer are in
// flight, they make calls of their own, from the engine's threads: others come in between at no fixed place.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace bindery {

class Processes {
 public:
  Processes(int rank, int size);
  virtual ~Processes() = default;
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  int rank() const { return rank_; }  // of this one, from 0
  int size() const { return size_; }
  // Cores for its devices, at least 1: those that it may run on, shared out among all processes that may run there.
  int cores() const { return cores_; }

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

  // Elements begin..end-1.
  struct Range {
    int64_t begin = 0, end = 0;
    bool operator==(const Range&) const = default;
  };
  // Those that belong to this process, of so many elements: in order, each to one process. The same in every run.
  std::vector<Range> OwnRanges(DType dtype, int64_t elements) const;
  struct Shared {
    DType dtype = DType::kFloat32;
    void* whole = nullptr;  // `elements` of them
    void* own = nullptr;    // of OwnRanges, one behind the other
    int64_t elements = 0;
  };
  // `own` becomes the sum over the processes, as by AllReduceSum; `whole` stays as it is.
  void ReduceScatterSum(std::span<const Shared> values, std::span<const double> weights = {});
  // `whole` becomes what all have of it. Of any type.
  void AllGatherRanges(std::span<const Shared> values);

  // All processes offer the same, in the same order, until they withdraw it. `offered` is called when one asks, by a
  // thread that makes a collective call; what it gives (`whole`: none) stays as it is until that is over, and there as
  // long as `keeps` is. No calls of this object from inside.
  struct Given {
    std::vector<Shared> values = {};
    std::shared_ptr<const void> keeps = {};
  };
  using Offered = std::function<Given()>;
  int64_t Offer(Offered offered);  // its number
  void Withdraw(int64_t offer);    // waits for a call of `offered`, but not for other processes
  // Of an offer, by those who want it: the values' wholes. The others need not know.
  void Ask(int64_t offer, std::span<void* const> wholes);

  // Says to the others that this process cannot go on, and why; once. It waits until each of them has come to its next
  // call, and before that until a call of another thread of this process has ended.
  void Leave(const std::string& why) noexcept;

 protected:
  void ShareCores();  // a collective call, of whoever makes processes that may be on one machine
  // Have all processes ended their calls, so that none is within one where another is not? Not before one has left.
  bool parted() const { return parted_; }

  // What an implementation gives. Each throws Error when it cannot; after that nothing is called any more. Sizes above
  // 0, of at most kMostBytes.
  static constexpr int64_t kMostBytes = int64_t{1} << 19;  // what is exchanged stays in a core's cache
  virtual void DoAllGather(const void* mine, void* all, int64_t bytes) = 0;
  virtual void DoBroadcast(void* data, int64_t bytes) = 0;
  // Of `mine` the part that belongs to process i goes to it; `all` gets what each has for this one. `bytes`: of a part.
  virtual void DoAllToAll(const void* mine, void* all, int64_t bytes) = 0;

 private:
  enum class Call : int32_t { kBarrier, kAllGather, kTexts, kBroadcast, kText, kSum, kScatter, kRanges, kAsk, kLeave };
  static const char* NameOf(Call call);
  // Before every call: throws unless all make the same one, of the same `bytes` and, where these are of different things,
  // of the same ones. Those who ask for an offer get it first.
  void Meet(Call call, int64_t bytes, uint64_t things = 0);
  [[noreturn]] void Break(const std::string& why);
  void Guarded(const std::function<void()>& run);  // what `run` throws ends it all
  void Gather(const void* mine, void* all, int64_t bytes);
  void Spread(void* data, int64_t bytes);
  // Values are exchanged piece by piece, of each of which every process has a part.
  struct Piece {
    int64_t begin = 0, elements = 0;
    int64_t part = 0;                    // elements that each exchanges; the last ones' may be fewer
    int64_t own_begin = 0, own_end = 0;  // within the piece
  };
  template <class Visit>
  void ForEachPiece(DType dtype, int64_t elements, const Visit& visit) const;
  // `from`, `to`: of the piece's first element; `sum`, `own`: of the first of its own.
  void SumPiece(DType dtype, const Piece& piece, const char* from, char* sum, std::span<const double> weights);
  void GatherPiece(DType dtype, const Piece& piece, const char* own, char* to);
  void GatherRanges(const Shared& value);
  std::optional<Given> Offering(int64_t offer);  // none: it has been withdrawn
  void Give(int64_t offer, std::span<void* const> wholes);

  const int rank_, size_;
  int cores_;
  std::mutex mutex_;    // guards:
  std::string broken_;  // why nothing is exchanged any more; empty: all is well
  bool parted_ = false;
  std::vector<char> buffer_, sums_;
  std::span<void* const> asked_;  // where to, while this one asks
  std::mutex offers_mutex_;       // taken behind that one, never while others are waited for; guards:
  std::map<int64_t, Offered> offers_;
  int64_t last_offer_ = 0;
};
using ProcessesPtr = std::shared_ptr<Processes>;

}  // namespace bindery
