// KVStore: named tensors, summed over devices. It does not know that what it sums are gradients.
//
// Two faces. The classic one, by key: Init, Push, Pull, with the updater in the store:
//
//   auto kv = KVStore::Create(KVStoreType::kDevice);
//   kv->Init("w", value);
//   kv->Push("w", grads);        // the sum over the list; without updater it replaces the stored value,
//   kv->Pull("w", values);       // with one: updater(key, sum, stored)
//
// Of a large table some rows alone may be pushed and pulled: PushRows, PullRows. Where the way between devices is narrow,
// values may be sent in fewer bits: SetCompression.
//
// Others than these may take their place where gradients are exchanged: StoreFactory, kvstore/wrapped_store.h.
//
// And the face beneath it for a trainer: MakeReduction over flat buckets, parts of a step that sum, update and spread
// in one pass over memory.
//
// Order of sums is the order of the list, always, so results do not depend on timing. Everything is asynchronous, by
// the engine of the tensors; errors of an operation travel in the tensors. Types: `local` sums on the first device's
// worker; `device` gives each device's worker an equal range of the elements.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/host_tensor.h"
#include "engine/kernels/row_sums.h"
#include "engine/range_work.h"
#include "engine/row_tensors.h"
#include "kvstore/compression.h"
#include "kvstore/processes.h"

namespace bindery {

enum class KVStoreType { kLocal, kDevice };
const char* ToString(KVStoreType type);
KVStoreType ParseKVStoreType(std::string_view text);  // throws Error naming the choices

// A key is an integer or a string; one store takes one kind only.
using Key = std::variant<int64_t, std::string>;
std::string ToString(const Key& key);

// Called as an engine operation on host-addressable memory of the store's device: `sum` and `stored` have one dtype and
// `elements` elements; it changes `stored`.
using KeyUpdater = std::function<void(const Key& key, DType dtype, const void* sum, void* stored, int64_t elements)>;

// The same for rows: `sums` of those that were pushed, `stored` the whole value; it changes these rows of it.
using RowUpdater = std::function<void(const Key& key, const RowSums& sums, void* stored, int64_t elements)>;

// A reduction over fixed buckets: parts of a step, and variables that tell how the last run went: one of them carries
// its error, if it has one.
struct Reduction {
  StepParts parts;
  std::vector<VarPtr> outcome;
};
struct ReductionHooks {
  RangeLooks looks = {};
  std::vector<VarPtr> gates = {};  // variables that must be whole
};

class KVStore {
 public:
  // Without an engine: DefaultEngine().
  static std::unique_ptr<KVStore> Create(KVStoreType type, std::shared_ptr<Engine> engine = nullptr);
  // Of several processes (`dist_sync` elsewhere), all of which make the same calls: values are summed over each one's
  // devices and then over the processes, in their order, to the same bits on all, and updaters run on each. Init takes
  // the first process's value. No rows, and no MakeReduction: a trainer has TrainerOptions::processes.
  static std::unique_ptr<KVStore> Create(KVStoreType type, std::shared_ptr<Engine> engine, ProcessesPtr processes);
  virtual ~KVStore() = default;

  virtual KVStoreType type() const = 0;
  virtual int rank() const = 0;  // of this process
  virtual int size() const = 0;  // processes
  virtual void Barrier() = 0;    // returns when all processes have come to it

  // Classic interface. Errors (thrown at the call): key initialised twice, unknown key, mixed kinds of keys, another
  // shape or dtype, empty list. `priority`: of what is ready on a device's worker the highest is done first, of equal
  // ones in the order of the calls. No sum depends on it: calls of one key stay in their order.
  // The stored value is a copy, on the CPU of a HostTensor, on its own device of a Tensor: there the updater runs.
  virtual void Init(const Key& key, const HostTensor& value) = 0;
  virtual void Init(const Key& key, const Tensor& value) = 0;
  virtual void Push(const Key& key, std::span<const Tensor> values, int priority = 0) = 0;
  virtual void Pull(const Key& key, std::span<const Tensor> out, int priority = 0) = 0;
  // Push then Pull; `out` may be `values` (an all-reduce in place).
  virtual void PushPull(const Key& key, std::span<const Tensor> values, std::span<const Tensor> out,
                        int priority = 0) = 0;
  // Init (if new) then Pull.
  virtual void Broadcast(const Key& key, const Tensor& value, std::span<const Tensor> out) = 0;
  // nullptr removes it. Whoever pushes both whole values and rows sets both updaters: with one alone, pushing the other
  // throws Error.
  virtual void SetUpdater(KeyUpdater updater) = 0;
  // Rows of one number are added up, of each pair in their order and then in the order of the list; the sums take the
  // place of the stored rows, or are given to the updater of rows. Others stay as they are. Throws Error, too, for
  // memory that the host does not address, ShapeError for rows that do not fit; float32 and float64. A number beyond
  // the value fails it (DataError), as an updater that throws does.
  virtual void PushRows(const Key& key, std::span<const RowTensors> values, int priority = 0) = 0;
  // out.rows become the stored rows that out.numbers name, zero for those below 0; a number beyond the value fails
  // them.
  virtual void PullRows(const Key& key, std::span<const RowTensors> out, int priority = 0) = 0;
  virtual void SetRowUpdater(RowUpdater updater) = 0;  // nullptr removes it
  // From now on values that are pushed whole are sent like that, those of float32 and float64; what Init, PushRows and
  // MakeReduction get is not. What is not finite fails the push (NumericError), as a failed value does, and residuals
  // stay what they were. Another one than before drops all residuals. Throws Error for a threshold that is none.
  virtual void SetCompression(const Compression& compression) = 0;
  // Residuals, of every key and place in its list, "KEY/PLACE": what a store needs, with its values and what its updater
  // keeps, to go on to the bit. Set them when keys and compression are. Setting throws Error for keys that there are not
  // and without compression, ShapeError for what does not fit; nothing has changed then.
  virtual HostTensorMap Residuals() const = 0;  // waits
  virtual void SetResiduals(const HostTensorMap& residuals) = 0;
  // What is pushed from BeginStep to EndStep is one step's, which counts as a whole or not at all, and all of whose
  // values are times `scale` (a loss scale). It does not count if `outcome` has failed, by what was pushed to the engine
  // before EndStep: then residuals stay what they were before. They, and the threshold, are of values without the scale,
  // so it may be another one in each step. What is not finite fails no push of a step, but arrives as NaN, for whoever
  // judges the step by its sums. A key whose values are compressed is pushed once in a step; twice throws Error. A store
  // that keeps nothing between pushes needs neither.
  virtual void BeginStep(double /*scale*/, const VarPtr& /*outcome*/) {}
  virtual void EndStep() {}
  // Lists: keys[i] with values[i].
  void Push(std::span<const Key> keys, std::span<const std::vector<Tensor>> values, int priority = 0);
  void Pull(std::span<const Key> keys, std::span<const std::vector<Tensor>> out, int priority = 0);

  // The trainer's interface (engine/range_work.h). If a source or a gate failed, or a look did, no replica is
  // touched (they stay readable). Throws ShapeError unless all tensors of a bucket have one element count and dtype.
  // Without `function`: the sum goes into every replica. `threads`: of each device's worker (TeamScope), which share
  // its range when that is long enough.
  virtual Reduction MakeReduction(std::vector<Bucket> buckets, RangeFunction function = nullptr, int threads = 1,
                                  ReductionHooks hooks = {}) = 0;
};

// Makes a store of one's own, on this engine, for those who exchange gradients: TrainerOptions::store, UpdaterOptions,
// TrainedModelOptions, ModuleOptions. They Init each parameter that is trained, by name, with zeros, and in each step
// PushPull its gradients: `values` of the devices, in their order, to one `out`, which is what the store makes of them
// and all that is used: the sum, whether it is of values in fewer bits, or clipped. Values are sums over samples, times
// the loss scale if there is one, flat, in the kernels' layouts. What the store throws, at the call or in its
// operations, fails the step: the parameters are those of the last good one. But what is not finite it had better pass
// on, not throw: a dynamic loss scale goes by that. All but modules, which take no steps, say by BeginStep and EndStep
// which scale it is, and whether the step counts. What the store keeps is in no checkpoint.
using StoreFactory = std::function<std::unique_ptr<KVStore>(const std::shared_ptr<Engine>& engine)>;

}  // namespace bindery
