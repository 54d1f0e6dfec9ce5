#include "engine/step.h"

#include <utility>

namespace bindery {

StepRange::StepRange(std::shared_ptr<Engine> engine, StepParts parts) : engine_(std::move(engine)) {
  for (Operation& part : parts) operations_.push_back(engine_->Prepare(std::move(part)));
}

}  // namespace bindery
