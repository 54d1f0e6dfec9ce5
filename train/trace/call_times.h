// How long each call of a group's programs takes: forward and backward run once more, on the values that the last step
// has left on the devices, each call timed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/executor_group.h"
#include "executor/group/device_executor.h"
#include "executor/plan/operations.h"
#include "train/trace/trace.h"

namespace bindery {

struct CallTime {
  std::shared_ptr<const BoundProgram> bound;  // whose plan has the call
  int call = 0;
  Phase phase = Phase::kForward;
  bool derives = false;  // makes a value of parameters alone, as after each update
  Device device = {};
  int stage = 0, replica = 0;
  int64_t begin = 0, end = 0;  // Trace::Now()

  const PlanCall& plan_call() const { return bound->plan().calls[static_cast<size_t>(call)]; }
  const PlanValue* output() const;  // the first there is
};

// In the order in which they began, device by device. Calls of a CPU follow each other as in a step, and CPUs compute at
// the same time; on other devices each call is waited for, so that a time holds launching it, too. Between segments the
// collectives of the plan run. Waits for what is in flight first, and for the end.
//
// Parameters, running statistics, the optimizer and random numbers stay as they are, so that a training goes on to the
// same bits. Gradients that add up (GradReq::kAdd) have what was run added: call it where they have been used.
//
// Throws Error if no batch has been run, and what the calls throw.
std::vector<CallTime> RunAgain(ExecutorGroup* group);

void WaitForSteps(const ExecutorGroup& group);  // until those in flight have updated the parameters, or failed

// A slice for each call, in one for its phase on its device ("forward, run again").
void AddSlices(const std::vector<CallTime>& times, Trace* trace);

// Bytes of what it reads and writes, each once.
int64_t BytesOf(const Plan& plan, const PlanCall& call);

}  // namespace bindery
