// A step is a value: a sequence of parts, each of them work of one lane of one device that says what it reads, creates
// and updates. The layers append theirs: the executor load, forward, collectives and backward, kvstore the reduction,
// train the update and the commit. Nothing but the order and the accesses says what waits for what.
//
// A StepRange is a stretch of that sequence made ready: pushed once per step, without allocation or look-up.
//
// Parts of one lane of which the later needs what the earlier creates become one engine operation, where nothing
// between them stands in the way and no other lane would have to wait longer. It fails as one: with any of its parts,
// all that they were to create. So parts that update in place stay by themselves: another's failure must not touch what
// they do.
//
// Where all of these parts are of one GPU, their operations are joined (Engine::Join): they begin and end together,
// each failing by itself, so that the GPU's stream may launch them as one; and so do those of other ranges, where
// whoever pushes them joins them, too. Its collective lane has nobody to work with then, and its work goes to the
// compute lane.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/engine.h"

namespace bindery {

using StepParts = std::vector<Operation>;  // in order

class StepRange {
 public:
  StepRange() = default;  // of no parts
  // `awaited`: what others wait for that are not among these parts.
  StepRange(std::shared_ptr<Engine> engine, StepParts parts, const std::vector<VarPtr>& awaited = {});

  // Every part gets the payload, which lives until the last of them is over.
  void Push(const std::shared_ptr<const void>& payload = nullptr) const;
  int num_operations() const { return static_cast<int>(operations_.size()); }

 private:
  std::shared_ptr<Engine> engine_;
  std::vector<PreparedPtr> operations_;
  std::optional<Device> alone_;  // all of them are of this GPU, or of one of another kind than CPUs
};

}  // namespace bindery
