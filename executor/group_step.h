// GroupStep: several replicas running one step together. A step is: on every device the segments, and between two
// segments, where the plan says so, collectives over the devices. Forward in training mode moves candidates of the
// auxiliary states (ParameterStore), which a commit makes the states; devices that sit out get the others'. In backward,
// their gradients become zero.
//
// Made once for a set of bound programs (one for each device that has samples); running it pushes prepared operations.
#pragma once

#include <memory>
#include <vector>

#include "engine/step.h"
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
  // the devices that sit out get the new states, and zero gradients where requests are kWrite.
  GroupStep(std::shared_ptr<Engine> engine, const ParameterStore& store, std::vector<Participant> participants);

  // `begins`: with candidates that are the states; otherwise they are as the last forward left them. `commits`: at once.
  void Forward(bool begins, bool commits);
  void Backward();
  const std::vector<Participant>& participants() const { return participants_; }
  const Plan& plan() const { return participants_.front().bound->plan(); }

 private:
  void Push(int begin, int end);  // these segments
  void PrepareExchanges();
  void PrepareStates(const ParameterStore& store);
  void PrepareIdle(Engine* engine, const ParameterStore& store);

  std::shared_ptr<Engine> engine_;
  std::vector<Participant> participants_;
  std::vector<StepRange> exchanges_;       // per segment
  StepRange begin_, broadcast_, publish_;  // of states
  std::vector<PreparedPtr> idle_;          // per device that sits out and block of gradients: zeroes them
  int forward_segments_ = 0;
};

}  // namespace bindery
