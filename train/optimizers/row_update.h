// RowUpdate: an optimizer's step on the rows of a table that a sum of rows names; others stay as they are, with their
// states (docs/sparse.md).
#pragma once

#include <span>
#include <vector>

#include "engine/kernels/row_sums.h"
#include "train/optimizers/optimizer.h"

namespace bindery {

class RowUpdate {
 public:
  // `weights`: whole tables of one content, all of which get the new rows; `states`: the optimizer's, whole. By the
  // calling thread's team. Nothing has changed if it throws. Not for rules that go by norms (Optimizer::measure).
  void Run(const Optimizer& optimizer, const UpdateArgs& args, const RowSums& sums, std::span<void* const> weights,
           std::span<void* const> states);

 private:
  RowBytes weights_;
  std::vector<RowBytes> states_;
};

}  // namespace bindery
