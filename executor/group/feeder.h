// Feeder: what becomes of a batch before it runs. Does it fit the descriptions, in which shapes is it computed, what is
// each device's share of it, and which numbers does the step get that random operators and divisors read (StepBlock).
//
// What it makes is loaded by the devices' executors. Not thread safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/memory/payload_pool.h"
#include "executor/batch.h"
#include "executor/group/bindings.h"
#include "executor/group/device_feed.h"
#include "executor/group/input_ranges.h"
#include "executor/group/options.h"
#include "executor/step_counter.h"

namespace bindery {

class Feeder {
 public:
  // `spec` stays the caller's.
  Feeder(const GroupSpec& spec, std::shared_ptr<Engine> engine);

  // The shapes that a batch is computed in, its own, without padding rows; returns its samples, if it is batched.
  // Throws DataError, ShapeError unless it can run in `mode`; of `values` on the host, SampleError for one that is none
  // of its input (InputRanges). `is_cut`: on one device, in place of a share.
  std::optional<int64_t> CheckBatch(const Batch& batch, Mode mode, std::vector<Shape>* shapes, bool values,
                                    bool is_cut = false) const;
  // The same of the next run's, with a look at values unless whoever set the step has had it (StepNumber).
  std::optional<int64_t> ShapesOf(const Batch& batch, Mode mode, std::vector<Shape>* shapes,
                                  bool is_cut = false) const {
    return CheckBatch(batch, mode, shapes, !steps_.checked(), is_cut);
  }
  // One batch per device, as one. Throws DataError, ShapeError unless they fit together.
  struct Joined {
    std::vector<Shape> shapes;
    std::vector<SampleRange> ranges;
  };
  Joined Join(const std::vector<BatchPtr>& per_device, Mode mode) const;

  void SetStep(const StepNumber& step) { steps_.Set(step); }
  void EndStep() { steps_.End(); }
  bool tentative() const { return steps_.tentative(); }
  // What the next run is given: one batch, or one per device, whose samples are shared out by `ranges`. Allocates
  // nothing once it is warm.
  std::shared_ptr<const StepInput> Next(std::span<const BatchPtr> batches, Mode mode,
                                        const std::vector<SampleRange>& ranges);
  // Ends the step, by these rates of its update: what brings them to all devices; null if the last run has.
  std::shared_ptr<const StepInput> NextRates(const StepRates& rates);
  // What else it is given, by participant, if some of its arrays lie on devices; else nothing.
  std::vector<DeviceFeed> NextFromDevices(std::span<const BatchPtr> batches, const Binding& binding) const;

 private:
  const std::vector<Tensor>* PiecesOf(const Batch& batch, size_t input) const;  // nullptr: it is on the host
  Shape ShapeOf(const Batch& batch, size_t input) const;
  void CheckValues(const Batch& batch, const std::vector<Shape>& shapes, Mode mode) const;

  const GroupSpec& spec_;
  std::shared_ptr<Engine> engine_;
  mutable InputRanges ranges_;  // remembers what it has found out
  PayloadPool<StepInput> inputs_;
  const bool adds_up_;  // a gradient is added to those of the runs before
  StepCounter steps_;
  int turn_ = 0;                    // of the next run (Loader)
  std::optional<StepBlock> block_;  // on the devices
};

}  // namespace bindery
