// To go back to the best checkpoint and to be able to think better of it: GoBackToBest (best_checkpoint.h) for who does
// not know yet whether a run can go on from there. Private to the program.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "train/checkpoint/checkpoint.h"

namespace bindery {

class GoingBack {
 public:
  // Renames as GoBackToBest does, and throws what it throws, with all names as they were.
  explicit GoingBack(const CheckpointStore& store);
  ~GoingBack();  // unless it is kept, all have their names again, the oldest first; what fails is warned of
  GoingBack(const GoingBack&) = delete;

  const std::string& best() const { return best_; }  // its path; empty: there is none, and nothing was renamed
  void Keep() { renamed_.clear(); }

 private:
  void TakeBack();

  std::string best_;
  std::vector<std::pair<std::string, std::string>> renamed_;  // from, to; in the order of the renaming
};

}  // namespace bindery
