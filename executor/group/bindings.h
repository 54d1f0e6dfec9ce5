// Bindings: the sets of programs, one per device with samples, that a group has bound: each for the shapes of a batch,
// a mode, what is watched and how the batch is shared out. They are found again when they are met again, so that
// batches of any size may follow each other, and go when their programs leave the cache or their arrays move.
//
// Holds what they are bound to: parameters, arenas and the devices' executors. Not thread safe.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "executor/group/device_executor.h"
#include "executor/group/metric.h"
#include "executor/group/options.h"
#include "executor/group/step.h"

namespace bindery {

struct Binding {
  Mode mode = Mode::kPredict;
  std::string watch = {};
  std::vector<Shape> shapes = {};        // of the inputs
  std::vector<SampleRange> ranges = {};  // per device
  bool cut_beforehand = false;           // ranges as the caller cut them, not by workload
  int split = 0;                         // by which workload
  int addresses = 0;                     // sum of the executors' addresses_version() when bound
  std::unique_ptr<GroupStep> step = nullptr;
  std::vector<std::unique_ptr<GroupMetric>> metrics = {};  // those measured last

  int64_t samples() const { return ranges.back().end; }
  const std::vector<GroupStep::Participant>& participants() const { return step->participants(); }
  const SampleRange& RangeOf(const GroupStep::Participant& p) const { return ranges[p.executor->index()]; }
  const ValueType& OutputType(int head) const;  // of the first device's share
  Shape OutputShape(int head) const;            // of the whole batch's
};

// What a device with samples would run.
struct DevicePlan {
  Device device;
  SampleRange samples;
  Plan plan;
};

class Bindings {
 public:
  // On the memory of `shared`, unless it is null, or on the weights in the options: throws Error if their devices or
  // its engine are others. `spec` stays the caller's.
  Bindings(const GroupSpec& spec, std::shared_ptr<Engine> engine, const Bindings* shared);

  // Found or made. Whoever holds it may still ask where its arrays are, but run it only if it was the last one found.
  // `ranges`: if not the usual split. Throws Error, ShapeError, ModelError, DeviceError.
  std::shared_ptr<Binding> Find(const std::vector<Shape>& shapes, Mode mode, const std::string& watch,
                                const std::vector<SampleRange>* ranges = nullptr);

  // Which workload the options have: bindings that were shared out by another one are not found. Their programs stay.
  int split() const { return split_; }
  void SetSplit(int split) { split_ = split; }

  // What Find would make for the inputs as described: only compiled, nothing is allocated on a device.
  static std::vector<DevicePlan> MakePlans(const GroupSpec& spec);

  const std::shared_ptr<Engine>& engine() const { return engine_; }
  const std::shared_ptr<ParameterStore>& store() const { return store_; }
  const std::vector<std::unique_ptr<DeviceExecutor>>& executors() const { return executors_; }
  const std::shared_ptr<ProgramCache>& programs() const { return programs_; }
  const std::vector<int>& updated_blocks() const { return updated_blocks_; }  // of the store, by training

 private:
  std::unique_ptr<Binding> Make(const std::vector<Shape>& shapes, Mode mode, const std::string& watch,
                                const std::vector<SampleRange>& ranges);
  int AddressesVersion() const;

  const GroupSpec& spec_;
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<ParameterStore> store_;
  std::vector<std::shared_ptr<Arena>> arenas_;
  std::vector<std::unique_ptr<DeviceExecutor>> executors_;  // wait for what they pushed
  std::shared_ptr<ProgramCache> programs_;
  std::list<std::shared_ptr<Binding>> bindings_;  // most recently used first
  std::vector<int> updated_blocks_;
  int split_ = 0;
};

}  // namespace bindery
