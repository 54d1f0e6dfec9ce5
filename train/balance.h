// Balance: the workload by which batches are shared out follows how fast devices are seen to be.
//
// Every so many steps one is measured: nothing else runs, and for each device the time is taken from the begin of the
// step to the end of its backward. What a device computes in a second moves its speed, an average in which the last
// measurement counts by `damping`, so that noise does not swing it. Batches are shared out by speeds (largest remainder,
// SplitBatch), but by others than before only when the step is expected to become faster by `gain`: new shares are new
// programs. Speeds are taken as if time were proportional to samples, and a device that waits for another within the
// step (running statistics are merged, `sync`) seems slower than it is: then it takes more measurements to get there.
//
// A measured step costs that two steps in flight do not overlap. What is trained is the same up to rounding, as with any
// other workload; with blocks (train/updater/blocks.h), whole ones are shared out and it is the same to the bit.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "executor/executor_group.h"
#include "train/updater/updater.h"

namespace bindery {

struct Balancing {
  int64_t every = 50;    // steps
  int64_t first = 3;     // the first step that is measured, from 1: those before warm up
  double damping = 0.5;  // in (0, 1]
  double gain = 0.05;    // of the step's time, in [0, 1)
  int64_t until = 0;     // the last step that may be measured, counted in this run; 0: there is none
  std::string Text() const;
  bool operator==(const Balancing&) const = default;
};

// "measured", or with settings, "measured(every=20, damping=0.5, gain=0.05, first=3, until=0)"; empty: none. Throws
// Error for another name or settings, or numbers that make no sense.
std::optional<Balancing> ParseBalancing(std::string_view text);

// The rule alone, of devices that have computed `samples` each in `seconds` each: speeds in samples a second. A device
// without samples keeps its speed. Those that have none yet (0) take theirs as it is measured, or, without samples, the
// mean of the others.
void MoveSpeeds(const std::vector<int64_t>& samples, const std::vector<double>& seconds, double damping,
                std::vector<double>* speeds);
// What part of a step's time goes, by these speeds (> 0), if what the devices have, `samples` each, is shared out by
// speeds; below 0: it becomes slower.
double GainOf(const std::vector<int64_t>& samples, const std::vector<double>& speeds);

// Thread safety: one thread at a time.
class Balancer {
 public:
  Balancer() = default;  // of nothing
  // `workload` as in GroupOptions: where it begins.
  Balancer(std::optional<Balancing> balancing, const std::vector<double>& workload, size_t devices);

  bool on() const { return balancing_.has_value(); }
  const std::vector<double>& workload() const { return workload_; }
  bool frozen() const { return frozen_; }
  void Freeze() { frozen_ = true; }

  bool IsDue() const;                // is the next step to be measured?
  void BeginStep(Updater* updater);  // it is about to be pushed: it has the workload that the last measurement has made
  // When forward and backward of a step that nothing else runs beside have been pushed: waits for them, moves speeds,
  // and, if that pays, the workload of the next step, which is logged. `samples`: of each device; `begun`: before they
  // were pushed. A step that fails is no measurement.
  void Measure(const Updater& updater, ExecutorGroup& group, const std::vector<int64_t>& samples,
               std::chrono::steady_clock::time_point begun);

  // Workload, speeds and whether they are frozen, for a checkpoint. Set leaves out those of another number of devices,
  // and throws CheckpointError for what cannot be read; nothing has changed then.
  std::string Text() const;
  void Set(const std::string& text);

 private:
  std::optional<Balancing> balancing_;
  std::vector<double> workload_, speeds_;
  bool frozen_ = false, changed_ = false;  // the latter: since the updater was told
  int64_t steps_ = 0;                      // in this run
};

}  // namespace bindery
