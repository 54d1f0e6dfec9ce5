// A store's reduction, made ready to run.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "kvstore/kvstore.h"

namespace bindery {

class PreparedReduction {
 public:
  PreparedReduction(std::shared_ptr<Engine> engine, Reduction reduction)
      : range_(std::move(engine), std::move(reduction.parts)), outcome_(std::move(reduction.outcome)) {}
  void Run() const { range_.Push(); }
  const std::vector<VarPtr>& outcome() const { return outcome_; }

 private:
  StepRange range_;
  std::vector<VarPtr> outcome_;
};

}  // namespace bindery
