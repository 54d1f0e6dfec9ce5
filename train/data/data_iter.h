// DataIter: batches of a data set, epoch by epoch.
//
//   while (true) {                                       // epochs
//     while (auto batch = iter.Next()) Train(*batch);
//     iter.Reset();
//   }
//
// Epochs. `epoch` counts completed sweeps over the data, epoch_detail = epoch + (samples of the current sweep handed
// out) / samples. is_new_epoch: the batch just returned finished a sweep. previous_epoch_detail: epoch_detail before
// the last Next; -1 before the first. They are numbers of the batches handed out, never of batches prepared ahead.
//
// State. SaveState describes the place between two batches in a few integers; an equal iterator over the same data that
// loads them continues with exactly the next batch, whatever was drawn before.
//
// Thread safety: none; one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "executor/batch.h"

namespace bindery {

using IterState = std::map<std::string, int64_t>;

class DataIter {
 public:
  virtual ~DataIter() = default;

  virtual std::vector<DataDesc> ProvideData() const = 0;
  virtual std::vector<DataDesc> ProvideLabel() const = 0;
  virtual int64_t batch_size() const = 0;
  virtual int64_t samples() const = 0;  // of a sweep

  // The next batch; null at the end of the epoch, and until Reset. Throws DataError if the data are not valid. It stays
  // as it is while somebody holds it; its memory may be that of a later one then.
  virtual std::shared_ptr<const Batch> Next() = 0;
  // Begins the next sweep, wherever the current one is; does nothing if no batch of it was handed out.
  virtual void Reset() = 0;

  virtual int64_t epoch() const = 0;
  virtual double epoch_detail() const = 0;
  virtual double previous_epoch_detail() const = 0;
  virtual bool is_new_epoch() const = 0;
  // Does Next never return null? Then is_new_epoch tells where an epoch ends, and Reset is not needed.
  virtual bool repeats() const { return false; }

  // Among how many processes batches are shared out: each has an iterator of its own, which gives its part of every
  // batch, of batch_size() samples, while samples(), epochs and the state are those of all parts together.
  virtual int64_t parts() const { return 1; }

  virtual IterState SaveState() const = 0;
  // Throws CheckpointError for a state of another iterator, or one that does not fit the data.
  virtual void LoadState(const IterState& state) = 0;

  // What a model that is trained on the data is to know of them (Model::metadata): a Trainer tells it, unless the model
  // has an entry of that name.
  virtual std::map<std::string, std::string> Metadata() const { return {}; }

  // Next, but of one part of so many alone: the same rows of every batch, and the same state after it (PartIter). Here
  // the whole batch is made, and cut; what makes samples one by one had better make no others.
  virtual std::shared_ptr<const Batch> NextPart(int64_t part, int64_t parts);
};

}  // namespace bindery
