// SampleIter: batches of a SampleSource, made by several workers whose number changes nothing but the time.
//
//   SampleIter train(samples, {.batch_size = 64, .shuffle = true, .seed = 1, .workers = 4});
//   PrefetchIter ahead(std::make_unique<SampleIter>(samples, options));    // while the last batch is trained
//
// Order and epochs are an ArrayIter's of the samples' numbers, so are the kinds of last batch. A sample drawn in sweep
// n (they are counted from 0) is made as that sweep's, wherever the batch lies.
//
// Parts. With `parts` processes, each takes its part of every batch (PartOf, train/data/part_iter.h): together they train
// just the batches that one process would, and the state of one is that of all, also for another number of them.
//
// Damaged samples. They are errors, which come again at the same place; or skipped: the row becomes padding, a warning
// is logged, and skipped() counts. A batch of which no sample is left is passed over: the next one counts as both. But
// it is an error as one part of several, the others of which are trained, and where no sample of a sweep is left.
#pragma once

#include "train/data/array_iter.h"
#include "train/data/samples/sample_source.h"
#include "train/data/samples/workers.h"

namespace bindery {

struct SampleIterOptions {
  int64_t batch_size = 1;  // of all parts together
  bool shuffle = false;    // another permutation in every sweep, by (seed, number of the sweep)
  uint64_t seed = 0;
  LastBatch last_batch = LastBatch::kShort;
  int workers = 1;
  int64_t part = 0, parts = 1;
  bool skip_damaged = false;
};

class SampleIter : public DataIter {
 public:
  // Throws DataError for options that make no sense.
  SampleIter(SampleSourcePtr source, const SampleIterOptions& options);

  std::vector<DataDesc> ProvideData() const override { return Describe(source_->data()); }
  std::vector<DataDesc> ProvideLabel() const override { return Describe(source_->labels()); }
  int64_t batch_size() const override { return options_.batch_size / options_.parts; }
  int64_t samples() const override { return numbers_.samples(); }  // of all parts together

  std::shared_ptr<const Batch> Next() override;
  void Reset() override { numbers_.Reset(); }

  int64_t epoch() const override { return numbers_.epoch(); }
  double epoch_detail() const override { return numbers_.epoch_detail(); }
  double previous_epoch_detail() const override { return numbers_.previous_epoch_detail(); }
  bool is_new_epoch() const override { return numbers_.is_new_epoch(); }
  bool repeats() const override { return numbers_.repeats(); }
  int64_t parts() const override { return options_.parts; }

  int64_t skipped() const { return skipped_; }  // damaged samples so far, by this part; "skipped" in the state

  IterState SaveState() const override;
  void LoadState(const IterState& state) override;
  std::map<std::string, std::string> Metadata() const override { return source_->Metadata(); }

 private:
  std::vector<DataDesc> Describe(const std::vector<SampleArray>& arrays) const;
  // Makes the batch of rows `index`, of which the first `samples` are real; each with the sweep that it is of. If none
  // can be made, it has no samples, and `why_lost` tells the last one's error; nullptr: that is thrown.
  std::shared_ptr<Batch> Make(std::vector<int64_t> index, const std::vector<int64_t>& sweeps, int64_t samples,
                              std::string* why_lost);
  void Skip(const std::vector<std::exception_ptr>& errors, std::string* why_lost, Batch* batch);

  const SampleSourcePtr source_;
  const SampleIterOptions options_;
  const int64_t fingerprint_;
  ArrayIter numbers_;
  int64_t skipped_ = 0;
  BatchPool batches_;
  Workers workers_;
};

}  // namespace bindery
