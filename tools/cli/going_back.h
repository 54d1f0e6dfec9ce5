// train --resume best: later checkpoints are set aside before it is known whether the run can go on from there.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "train/checkpoint/checkpoint.h"

namespace bindery::cli {

class GoingBack {
 public:
  // GoBackToBest (train/checkpoint/best_checkpoint.h), and what that throws.
  explicit GoingBack(const CheckpointStore& store);
  ~GoingBack();  // unless it is kept, all have their names again, the oldest first; what fails is warned of
  GoingBack(const GoingBack&) = delete;

  void Keep() { renamed_.clear(); }

 private:
  std::vector<std::pair<std::string, std::string>> renamed_;  // from, to; the newest first
};

}  // namespace bindery::cli
