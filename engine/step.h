// A step is a value: a sequence of parts, each of them work of one lane of one device that says what it reads, creates
// and updates. The layers append theirs: the executor load, forward, collectives and backward, kvstore the reduction,
// train the update and the commit. Nothing but the order and the accesses says what waits for what.
//
// A StepRange is a stretch of that sequence made ready: pushed once per step, without allocation or look-up.
#pragma once

#include <memory>
#include <vector>

#include "engine/engine.h"

namespace bindery {

using StepParts = std::vector<Operation>;  // in order

class StepRange {
 public:
  StepRange() = default;  // of no parts
  StepRange(std::shared_ptr<Engine> engine, StepParts parts);

  // Every part gets the payload, which lives until the last of them is over.
  void Push(const std::shared_ptr<const void>& payload = nullptr) const {
    for (const PreparedPtr& operation : operations_) engine_->Push(operation, payload);
  }

 private:
  std::shared_ptr<Engine> engine_;
  std::vector<PreparedPtr> operations_;
};

}  // namespace bindery
