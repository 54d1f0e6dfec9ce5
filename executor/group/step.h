// GroupStep: the executors of several devices running one step together. Its parts (engine/step.h): load on every
// device; the segments of forward and of backward, and between two segments, where the plan says so, collectives over
// the devices. Forward in training mode moves candidates of the auxiliary states (ParameterStore), which a commit makes
// the states; devices that sit out get the others'. In backward, their gradients become zero.
//
// Made once for a set of bound programs (one for each device that has samples); each stretch of it that is ever run is
// made ready when it first is.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/step.h"
#include "executor/group/device_executor.h"
#include "executor/group/device_feed.h"

namespace bindery {

class GroupStep {
 public:
  struct Participant {
    DeviceExecutor* executor;
    std::shared_ptr<const BoundProgram> bound;
    bool operator==(const Participant&) const = default;
  };

  // At least one participant; all programs come from one symbol and one set of options but for shapes. `idle`: the
  // devices that sit out get the step block, too, the new states, and zero gradients where requests are kWrite.
  // `ranges`: per device. `independent`: those that sit out get the step block and nothing else.
  GroupStep(std::shared_ptr<Engine> engine, const ParameterStore& store, std::vector<Participant> participants,
            const std::vector<DeviceExecutor*>& idle, const std::vector<SampleRange>& ranges, bool independent = false);

  struct Extent {
    bool loads = false;   // with an input
    bool begins = false;  // candidates of states begin as these; otherwise they are as the last forward left them
    bool forward = false;
    bool commits = false;  // makes the candidates the states
    bool backward = false;
  };
  // What forward reads. A stretch of its own: in one operation with forward the next load would wait for both. `feeds`,
  // by participant: if some arrays lie on devices; that is not made ready beforehand.
  void Load(const std::shared_ptr<const StepInput>& input, const std::vector<DeviceFeed>& feeds);
  void Push(const Extent& extent);
  const std::vector<Participant>& participants() const { return participants_; }
  const Plan& plan() const { return participants_.front().bound->plan(); }

 private:
  void AppendSegments(Phase phase, const std::vector<std::vector<StepParts>>& segments);
  void AppendStates(const ParameterStore& store, bool independent);
  void AppendIdle(const ParameterStore& store, const std::vector<DeviceExecutor*>& idle);

  std::shared_ptr<Engine> engine_;
  std::vector<Participant> participants_;
  std::vector<std::vector<StepParts>> load_;  // by turn (Loader): per participant, then of those that sit out
  std::vector<StepRange> load_ranges_;        // by turn
  StepParts begin_, forward_, publish_, backward_;
  std::vector<VarPtr> awaited_;          // buckets of gradients
  std::optional<StepRange> ranges_[16];  // by extent
};

}  // namespace bindery
