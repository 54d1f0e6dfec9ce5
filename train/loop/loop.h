// Loop: a whole training, of a learner and extensions.
//
//   Loop loop(&learner, UntilEpoch(20));
//   loop.Extend(Snapshot({.folder = "run1"}));  // goes on from what is there already
//   loop.Extend(PrintReport({"epoch", "main/loss"}, [](const std::string& line) { std::puts(line.c_str()); }));
//   loop.Run();
//
// An update, then all extensions that are due, and so on until the stop trigger is due. It is asked before the first
// update, and then behind what reports and reads, and before what saves: a run that has ended goes on as one that has.
// At the beginning, the extensions' `begin`, those of lower priority first: what saves loads, and then the others see
// where it is.
// Where an update or an extension throws: the extensions' on_error, then what follows any run (their `end`,
// Learner::Finalize), then it is thrown on. Run may be called again and goes on where it was.
//
// Thread safety: one thread at a time; Stop from any.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <string>
#include <vector>

#include "train/loop/extension.h"
#include "train/loop/learner.h"

namespace bindery {

class Loop {
 public:
  // The learner must outlive the loop. `stop`: UntilEpoch, UntilIteration, Either of them and EarlyStopping, or any
  // other trigger.
  Loop(Learner* learner, Trigger stop);

  // A name that is taken gets a number: "log", "log_1". Throws Error for an extension that does nothing, and while it
  // runs.
  void Extend(Extension extension);
  void Run();  // throws what the learner and the extensions do; Error while it runs
  // Ends this run before its next update, or the next run, before its first, if none is on. Async-signal-safe.
  void Stop() { stop_requested_.store(true, std::memory_order_relaxed); }

  Learner& learner() { return *learner_; }
  const Moment& now() const { return now_; }
  Observation& observation() { return observation_; }  // of this moment
  bool stopped() const { return stopped_; }            // the last Run ended by Stop
  bool failed() const { return failed_; }              // the last Run ended by an error, or is just doing so

  // The learner's, with the state of extensions and triggers, by their names. Restoring, triggers that the checkpoint
  // does not know begin anew, and extensions keep the state they have; what only the checkpoint knows is left out.
  Checkpoint ToCheckpoint();
  void Restore(Checkpoint checkpoint);

 private:
  void Begin();
  void LookAround();
  void Serialize(Archive* archive);
  void HandleError(const std::exception_ptr& error);
  std::exception_ptr End(std::exception_ptr error);
  double Seconds() const;

  Learner* learner_;
  Trigger stop_;
  std::vector<Extension> extensions_;  // by priority
  Moment now_;
  Observation observation_;
  double seconds_before_ = 0;  // of the parts that are over
  std::chrono::steady_clock::time_point start_ = {};
  bool running_ = false, over_ = false, stopped_ = false, failed_ = false;
  std::atomic<bool> stop_requested_{false};
};

// Due whenever so much is done: how runs end. (EveryEpochs(20) is not due in a run that is resumed after epoch 20.)
Trigger UntilEpoch(double epoch);
Trigger UntilIteration(int64_t iteration);

}  // namespace bindery
