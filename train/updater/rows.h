// Private to train/updater/*.cc: tables whose gradients are kept by rows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/kernels/row_sums.h"
#include "train/optimizers/row_update.h"
#include "train/updater/updater.h"

namespace bindery {

[[noreturn]] void ThrowNotFinite(const std::string& parameter, int64_t element, double value);

// One of them, in memory that the host addresses.
class Updater::Table {
 public:
  Table(Updater* updater, int block);
  // Of the rows that the last backward touched on any device. Throws NumericError if a sum is not finite.
  void Sum();
  // These rows and their states, in all replicas.
  void Update();
  void AppendSources(std::vector<VarPtr>* vars) const;
  void AppendValues(std::vector<VarPtr>* vars) const;
  Device device() const { return updater_.blocks_[static_cast<size_t>(block_)].stage->devices()[0]; }

 private:
  const Piece& piece() const { return updater_.blocks_[static_cast<size_t>(block_)].pieces[0]; }
  void CheckFinite() const;

  Updater& updater_;
  const int block_;  // of the updater
  RowSums sums_;
  RowUpdate update_;
  std::vector<std::shared_ptr<RowGradient>> sources_;
  std::vector<RowsAt> now_;
  std::vector<VarPtr> values_;
  std::vector<void*> weights_, states_;
};

}  // namespace bindery
