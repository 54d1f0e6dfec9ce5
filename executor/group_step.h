// GroupStep: several replicas running one step together. A step is: on every device the segments, and between two
// segments, where the plan says so, an exchange across devices; at the end of forward in training mode, the running
// statistics move once, by the merged batch statistics, unless one would not be finite (or, in a tentative step, their
// candidates do, see ParameterStore); in backward, the gradients of
// devices that sit out become zero.
//
// Made once for a set of bound programs (one for each device that has samples); running it pushes prepared operations.
#pragma once

#include <memory>
#include <vector>

#include "engine/host_call.h"
#include "executor/replica.h"

namespace bindery {

class GroupStep {
 public:
  struct Participant {
    Replica* replica;
    std::shared_ptr<const BoundProgram> bound;
    bool operator==(const Participant&) const = default;
  };

  // At least one participant; all programs come from one symbol and one set of options but for shapes. `store`: also
  // the devices that sit out get the new running statistics, and zero gradients where requests are kWrite.
  GroupStep(std::shared_ptr<Engine> engine, const ParameterStore& store, std::vector<Participant> participants);

  void Forward(bool tentative = false) { Push(Phase::kForward, tentative); }
  void Backward() { Push(Phase::kBackward, false); }
  const std::vector<Participant>& participants() const { return participants_; }
  const Plan& plan() const { return participants_.front().bound->plan(); }

 private:
  void Push(Phase phase, bool tentative);
  void PrepareExchanges();
  std::unique_ptr<HostCall> PrepareStatistics(const ParameterStore& store, bool tentative) const;
  void PrepareIdle(Engine* engine, const ParameterStore& store);

  std::shared_ptr<Engine> engine_;
  std::vector<Participant> participants_;
  std::vector<std::unique_ptr<HostCall>> exchanges_;             // per segment; nullptr where there is none
  std::unique_ptr<HostCall> statistics_, tentative_statistics_;  // nullptr where there are none
  std::vector<PreparedPtr> idle_;  // per device that sits out and block of gradients: zeroes them
  int forward_segments_ = 0;
};

}  // namespace bindery
