// An Optimizer as the updater in a KVStore: what is pushed is a sum of gradients, what is pulled are new parameters.
//
//   KeyedOptimizer optimizer(MakeOptimizer("sgd(lr=0.1, momentum=0.9)"), {.rescale = 1.0 / batch});
//   kv->SetUpdater(optimizer.updater());
//   ...
//   SaveModel({.params = optimizer.State()}, "optimizer.pb");           // and later, in another run
//   optimizer.SetState(LoadModel("optimizer.pb").params);
//
// The same step as Updater's, for programs that push and pull by key themselves.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/host_tensor.h"
#include "kvstore/kvstore.h"
#include "train/optimizers/multipliers.h"
#include "train/optimizers/optimizer.h"
#include "train/optimizers/schedule.h"

namespace bindery {

struct KeyUpdaterOptions {
  SchedulePtr schedule = nullptr;  // by steps; default: the optimizer's learning rate, constant
  double rescale = 1;              // of the sums, where the optimizer has none of its own: 1 / samples
  std::map<std::string, Annotations> annotations = {};  // of parameters, for MultipliersOf: Symbol::AllAnnotations()
};

// Keeps the optimizer's state, one for each key; a key's steps count its pushes. Keys that are text are names of
// parameters (MultipliersOf); numbers have the full rate and decay.
// Thread safety: different keys may be updated at the same time; State and SetState wait for updates that run.
class KeyedOptimizer {
 public:
  // Throws Error for what goes by norms of all gradients, and for schedules that go by epochs.
  explicit KeyedOptimizer(std::shared_ptr<const Optimizer> optimizer, KeyUpdaterOptions options = {});

  // For KVStore::SetUpdater; shares the state and outlives this object. Throws ShapeError if a key comes back with
  // another size or dtype.
  KeyUpdater updater() const;
  // The same for KVStore::SetRowUpdater: rows that are pushed are updated with their states, others stay as they are. A
  // key is pushed by rows or whole, as one likes. Throws Error for an optimizer that goes by norms of whole values.
  RowUpdater row_updater() const;

  // All state, as it is now: read a pulled value first, or Engine::WaitAll, so that nothing pushed is on its way. Flat
  // tensors "<key>:<state>", e.g. "fc1_weight:momentum", and "<key>:step", the key's updates so far.
  HostTensorMap State() const;
  // Goes on from there; keys it does not have begin anew. Throws CheckpointError if the optimizer has other states, or
  // tensors do not fit each other; nothing has changed then. Sizes and dtypes are compared at a key's next update.
  void SetState(const HostTensorMap& state);

 private:
  class States;
  std::shared_ptr<States> states_;
};

// The updater alone, for a run whose optimizer state nobody saves.
KeyUpdater MakeKeyUpdater(std::shared_ptr<const Optimizer> optimizer, KeyUpdaterOptions options = {});

}  // namespace bindery
