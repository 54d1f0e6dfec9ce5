// ParameterExchange: what a module's replicas tell each other. Gradients go to the first replica, where they add up;
// it is updated, and the others get its values when these have changed.
//
//   backward on every replica -> gradients of each -> sum -> gradients += scale * sum       Accumulate
//   values of the first replica -= rate * gradients                                         Update
//   values of the others = those of the first, where anybody has changed either             Sync
//
// Sums are in the order of the replicas, always. All of it is asynchronous. Errors: a backward that fails makes the
// gradients that were adding up fail, until they are zeroed; an update by gradients that failed changes nothing. But
// where a GPU's kernel finds data that it cannot work on, what was enqueued behind it has run: parameters fail, too.
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/collective.h"
#include "engine/step.h"
#include "engine/tensor.h"
#include "executor/executor_group.h"
#include "kvstore/kvstore.h"

namespace bindery {

class ExchangedValue;

// How replicas exchange.
enum class Exchange : uint8_t {
  kFlat,   // whole buffers, by collectives: one sum and one copy for each buffer
  kStore,  // parameter by parameter, by a KVStore
};

struct ExchangeOptions {
  Exchange exchange = Exchange::kFlat;
  KVStoreType kvstore = KVStoreType::kDevice;  // of kStore
  StoreFactory store = {};                     // of kStore: one of the user's own, which gets what one replica has, too
  // Of kFlat: others than those of one process's memory, which take their place, with a warning in the log, where this
  // throws, gives nothing, or refuses the devices.
  std::function<std::unique_ptr<Collectives>(const std::shared_ptr<Engine>&)> collectives = {};
};

// Parameters of one type that lie one behind the other: one array for all values on each replica (replicas whose
// devices share memory have those of parameters together), one for the gradients that add up on the first. In it they
// are stored as kernels like them, in the order of `names`.
struct ParameterBuffer {
  std::vector<std::string> names = {};
  std::vector<Tensor> values = {};  // per replica: flat; some may be the same (EachOnce)
  Tensor gradients = {};            // flat; with the first replica. Undefined for what has none: states, fixed ones
};

class ParameterExchange {
 public:
  // The group is bound for training, has no gradients by rows, and outlives this. Throws Error for a store of the user's
  // that does not come, and with kFlat.
  ParameterExchange(ExecutorGroup* group, const ExchangeOptions& options);
  ~ParameterExchange();

  void Accumulate(double scale);
  void ZeroGradients();
  void Update(double rate);
  // Gives the first replica's values to those that have others, buffers alone that have changed since they were equal,
  // whoever changed them, by operations of the engine. Returns how many. A buffer whose first replica failed stays: who
  // reads it hears of it.
  int Sync();
  bool NeedsSync() const;
  void SetEqual();  // the replicas are equal now

  const std::vector<ParameterBuffer>& buffers() const { return buffers_; }
  // Plain, on the host; waits. Gradients of those that have some.
  HostTensor Gradient(const std::string& name) const;
  void SetGradient(const std::string& name, const HostTensor& value);
  bool any_gradients() const;  // anybody has written some since they were zeroed
  bool by_given_collectives() const { return given_ != nullptr; }

  // Where a parameter is stored; nullptr if there is none. In buffers().
  struct Place {
    int buffer = 0;
    const StoredParameter* stored = nullptr;
  };
  std::optional<Place> Find(const std::string& name) const;
  // As stored, flat: shares the buffer's memory.
  Tensor ValueOf(const Place& place, size_t replica) const;
  Tensor FirstValueOf(const Place& place) const { return ValueOf(place, 0); }
  Tensor GradientOf(const Place& place) const;

 private:
  using Versions = std::vector<std::optional<uint64_t>>;
  struct Block {
    const ParameterStore* store = nullptr;
    int index = 0;                        // in it
    std::vector<Tensor> values = {};      // the buffer's, each once
    Versions equal = {};                  // when the replicas were equal
    std::optional<uint64_t> zeroed = {};  // when the gradients were
    StepRange sum_up = {}, spread = {};
    PreparedPtr add = {}, update = {};
    Tensor scaled = {};  // room for what is added to its gradients or, by these, to its values: one after the other
    // What goes through a store: parameter by parameter, and what adds these sums to the gradients.
    std::vector<std::shared_ptr<const ExchangedValue>> exchanged = {};
    std::vector<PreparedPtr> add_exchanged = {};
  };
  void Add(DataParallelExecutorGroup* stage, int index);
  void Prepare(Block* block, const ParameterBuffer& buffer);
  void PrepareStore(Block* block, const ParameterBuffer& buffer);
  StepRange Collect(Collective what, const std::string& name, const Bucket& bucket);
  PreparedPtr PrepareAdd(const char* name, const Tensor& from, const Tensor& to, bool may_fail, Block* block) const;
  Versions VersionsOf(const Block& block) const;

  std::shared_ptr<Engine> engine_;
  int threads_ = 1;  // of a CPU
  Exchange exchange_;
  bool own_store_ = false;
  std::unique_ptr<Collectives> given_, memory_;
  std::unique_ptr<KVStore> store_;
  std::vector<ParameterBuffer> buffers_;
  std::vector<Block> blocks_;  // by buffer
  bool added_ = false;         // since gradients were zeroed; of those that failed nothing else tells
};

}  // namespace bindery
