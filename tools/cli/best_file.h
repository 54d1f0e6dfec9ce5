// train --best FILE: the model of the best epoch of a run, those before a resume included.
#pragma once

#include <string>

#include "train/checkpoint/checkpoint.h"
#include "train/loop/extension.h"
#include "train/trainer.h"

namespace bindery::cli {

// The run's checkpoints know which value was the best, and which file has its model. Where that is another file or none,
// the model comes from the checkpoint of the best epoch (--keep-best); where there is none either, a warning says that
// the file waits for a better epoch.
class BestFile {
 public:
  // `checkpoints`: the run's folder; empty: there is none.
  BestFile(std::string path, std::string checkpoints) : path_(std::move(path)), checkpoints_(std::move(checkpoints)) {}
  BestFile(const BestFile&) = delete;
  BestFile& operator=(const BestFile&) = delete;

  // Writes it at the end of each epoch that is the best, before the epoch's checkpoint. Both must outlive the extension.
  Extension Writer(const Trainer* trainer);
  bool is_there() const { return !file_.empty(); }  // the best epoch's, written by this run or its past

 private:
  void Begin(const Trainer& trainer);
  void Write(const Model& model);

  const std::string path_, checkpoints_;
  std::string file_;  // whose model is that of the best epoch; empty: none
  std::string best_;  // Trainer::BestSoFar, when it was looked at last
};

}  // namespace bindery::cli
