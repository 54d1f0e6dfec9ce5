// Checkpoint: all that a run's future depends on, as a value and as a file.
//
// A file is written atomically and checksummed, as a whole and per tensor; reading one verifies everything and either
// gives exactly what was saved or throws CheckpointError naming file and place, without allocating beyond the limits.
// Tensors are plain: a checkpoint can be restored on other devices.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "symbol/model.h"

namespace bindery {

struct Checkpoint {
  Model model = {};                            // symbol, parameters, auxiliary states
  HostTensorMap optimizer_state = {};          // "<parameter>:<state>"
  std::string optimizer = {}, schedule = {};   // as text
  std::map<std::string, double> numbers = {};  // of the schedule and the loss scale (Updater::ToNumbers)
  int64_t step = 0;                            // updates done
  int64_t epoch = 0;                           // epochs completed
  int64_t batch_in_epoch = 0;                  // batches of the current epoch already taken from the iterator
  uint64_t seed = 0;
  std::map<std::string, int64_t> iterator = {};  // of the training data (IterState)
  std::vector<double> metric_totals = {};        // of the current epoch's training metric
  std::string metrics = {};                      // as text
  std::map<std::string, std::string> info = {};  // devices, workload, kernel choices, anything
};

// Throws DataError if the file cannot be written, or its header would be too large to be read, Error for a step, an epoch
// or a batch below 0; the old file is then untouched.
void SaveCheckpoint(const Checkpoint& checkpoint, const std::string& path);
Checkpoint LoadCheckpoint(const std::string& path, const ModelLimits& limits = {});
// The same bytes without a file, for another process.
std::string CheckpointToBytes(const Checkpoint& checkpoint);
Checkpoint CheckpointFromBytes(const std::string& bytes, const ModelLimits& limits = {});
// Its info alone: verifies the header, and reads no tensor. Throws CheckpointError.
std::map<std::string, std::string> LoadCheckpointInfo(const std::string& path);

// A folder of checkpoints "step-0000001234.ckpt". Half-written files of a killed run are ignored, and removed by Save;
// not so those that somebody is just writing there (base/files.h).
// Thread safety: one thread at a time; one process writes, of any number that read: trainings hold a FolderLock.
class CheckpointStore {
 public:
  // keep >= 1, else Error; the folder is made on the first save.
  explicit CheckpointStore(std::string folder, int keep = 3);

  // Then removes all but the newest `keep` and, if the run keeps it, that of the best epoch (best_checkpoint.h); returns
  // the path. Files of later steps are not of this run's past (it was resumed before them, or is another run): they are
  // renamed first (set_aside.h), so that nobody resumes from them. Throws as SaveCheckpoint does.
  std::string Save(const Checkpoint& checkpoint);
  // The newest that can be read; damaged ones are skipped with a warning (base/log.h). No value if there is none at
  // all; CheckpointError if there are some but all are damaged.
  std::optional<Checkpoint> LoadNewest() const;
  // The info of the newest one whose header can be read; no value if there is none.
  std::optional<std::map<std::string, std::string>> NewestInfo() const;
  std::vector<std::string> List() const;  // paths, oldest first
  // The newest, if it is of a later step than that: a run which has come so far has not written it, and would take its
  // place.
  std::optional<std::string> AheadOf(int64_t step) const;

 private:
  std::string folder_;
  int keep_;
};

}  // namespace bindery
