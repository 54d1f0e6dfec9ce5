// Extensions that save: checkpoints of the whole run, and models.
#pragma once

#include <functional>
#include <string>

#include "train/loop/extension.h"

namespace bindery {

// Checkpoints "step-0000001234.ckpt" in a folder (CheckpointStore). Nothing is saved that is not finite: NumericError,
// and the last checkpoint stays the last.
// A step waits until the values are copied and seen to be finite; a thread of its own writes the copy. One is written at
// a time: the next one that is due waits for it, so that each of them is written, and there is one copy. What the
// writing fails by, the next step throws, or the end of the run, which waits for the last one. While a run is on, the
// folder is its own: where another one is writing there, it throws DataError before its first step (FolderLock).
struct SnapshotOptions {
  std::string folder;
  Trigger trigger = EveryEpochs();
  int keep = 3;           // the newest ones
  bool autoload = true;   // the first run begins with the newest that can be read, if there is one
  bool on_error = false;  // one more when a run fails; not one of several processes, whose states are apart then
  // When one is written: at the step behind that, or at the end; in the loop's thread.
  std::function<void(const std::string& path)> on_save = {};
};
// Saves at the end of a run, too, unless it failed, or is just what was loaded.
Extension Snapshot(SnapshotOptions options);

// The model with the best `value` so far (LargerIsBetter), as a file (SaveModel), whose folder is made. A value that is
// reported at the end of each epoch ("validation/accuracy"), unless `check` says when there is one (AtMaximum).
Extension BestModel(std::string path, const std::string& value, const std::string& model = "main",
                    Better better = Better::kAuto, Trigger check = EveryEpochs());

}  // namespace bindery
