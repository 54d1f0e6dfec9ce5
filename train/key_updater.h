// An Optimizer as the updater in a KVStore: what is pushed is a sum of gradients, what is pulled are new parameters.
//
//   kv->SetUpdater(MakeKeyUpdater(MakeOptimizer("sgd(lr=0.1, momentum=0.9)"), {.rescale = 1.0 / batch}));
//
// The same step as Updater's, for programs that push and pull by key themselves.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "kvstore/kvstore.h"
#include "train/multipliers.h"
#include "train/optimizer.h"
#include "train/schedule.h"

namespace bindery {

struct KeyUpdaterOptions {
  SchedulePtr schedule = nullptr;  // default: the optimizer's learning rate, constant
  double rescale = 1;              // of the sums, where the optimizer has none of its own: 1 / samples
  std::map<std::string, Annotations> annotations = {};  // of parameters, for MultipliersOf: Symbol::AllAnnotations()
};

// The updater keeps the optimizer's state, one for each key, as long as it is in the store; a key's steps count its
// pushes. Throws ShapeError if a key comes back with another size or dtype. Keys that are text are names of parameters
// (MultipliersOf); numbers have the full rate and decay.
// Thread safety: different keys may be updated at the same time.
KeyUpdater MakeKeyUpdater(std::shared_ptr<const Optimizer> optimizer, KeyUpdaterOptions options = {});

}  // namespace bindery
