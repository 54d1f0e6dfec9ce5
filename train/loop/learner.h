// Learner: what a Loop runs. One update after the other, of one model or of several, by whatever rule
// (train/loop/model_learner.h; a Trainer has one of its own).
//
// Thread safety: none; one thread at a time.
#pragma once

#include <string>
#include <vector>

#include "symbol/model.h"
#include "train/checkpoint/checkpoint.h"
#include "train/loop/trigger.h"
#include "train/updater/updater.h"

namespace bindery {

class Loop;

class Learner {
 public:
  virtual ~Learner() = default;
  virtual void Update() = 0;
  // Where it is; the loop knows what is previous, and the time.
  virtual Moment now() const = 0;
  // Reports values of what was trained since the last call.
  virtual void Observe(Observation* observation) = 0;

  // All that its future depends on; waits for what is in flight. Restore throws CheckpointError for what does not fit,
  // and nothing has changed then.
  virtual Checkpoint ToCheckpoint() = 0;
  virtual void Restore(const Checkpoint& checkpoint) = 0;

  virtual std::vector<std::string> model_names() const = 0;
  // Of one of these models; throw Error for another name.
  virtual Model ToModel(const std::string& name) const = 0;
  virtual Updater& updater(const std::string& name) = 0;

  virtual void Connect(Loop*) {}  // when a loop is made of it
  virtual void Finalize() {}      // when the loop's run has ended, however
};

}  // namespace bindery
