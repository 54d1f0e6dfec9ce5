// ArrayIter: batches from arrays in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/host_tensor.h"
#include "train/data/batch_pool.h"
#include "train/data/data_iter.h"

namespace bindery {

// What becomes of the samples that do not fill a last batch.
enum class LastBatch {
  kShort,     // a batch of fewer samples, trained exactly
  kPad,       // filled up with the first samples of the sweep, again and again if need be; Batch::pad tells how many
  kDiscard,   // left out
  kRollOver,  // kept: they begin the first batch after Reset
  kRepeat,    // the next sweep fills it up at once, and so on for ever: Next never returns null, is_new_epoch tells
};

struct ArrayIterOptions {
  int64_t batch_size = 1;
  bool shuffle = false;  // another permutation in every sweep, by (seed, number of the sweep)
  uint64_t seed = 0;
  LastBatch last_batch = LastBatch::kShort;
  std::string data_name = "data", label_name = "softmax_label";  // of arrays that are given without names
};

// One array of samples, in order along the batch axis of `layout` (see DataDesc). Several iterators may share it.
struct ArrayData {
  std::string name;
  std::shared_ptr<const HostTensor> values;
  std::string layout = {};
};

class ArrayIter : public DataIter {
 public:
  // Throws DataError, saying which array: different numbers of samples, a batch size that does not go with the data.
  ArrayIter(std::vector<ArrayData> data, std::vector<ArrayData> label, const ArrayIterOptions& options);
  // One array of each, called as the options say.
  ArrayIter(HostTensor data, HostTensor label, const ArrayIterOptions& options);

  std::vector<DataDesc> ProvideData() const override { return Describe(data_); }
  std::vector<DataDesc> ProvideLabel() const override { return Describe(label_); }
  int64_t batch_size() const override { return options_.batch_size; }
  int64_t samples() const override { return samples_; }

  std::shared_ptr<const Batch> Next() override { return NextPart(0, 1); }
  std::shared_ptr<const Batch> NextPart(int64_t part, int64_t parts) override;
  void Reset() override;
  void HardReset();  // Reset that forgets what was kept for the next sweep

  int64_t epoch() const override { return now_.epoch; }
  double epoch_detail() const override { return Detail(now_); }
  double previous_epoch_detail() const override { return started_ ? Detail(previous_) : -1; }
  bool is_new_epoch() const override { return is_new_epoch_; }
  bool repeats() const override { return options_.last_batch == LastBatch::kRepeat; }
  int64_t sweep() const { return sweep_; }  // the number of the present one: those begun before, finished or not

  IterState SaveState() const override;
  void LoadState(const IterState& state) override;

 private:
  struct Place {
    int64_t epoch = 0;
    int64_t position = 0;  // samples of the sweep handed out; -n: n of the one before are still due
  };
  std::vector<DataDesc> Describe(const std::vector<ArrayData>& arrays) const;
  double Detail(const Place& place) const;
  void BeginSweep(int64_t position);
  int64_t SampleAt(int64_t position);  // the sample's number; of the sweep before if negative
  const std::vector<int64_t>& Order(int64_t sweep);
  std::vector<int64_t> TakeRows(Batch* batch);

  const std::vector<ArrayData> data_, label_;
  const ArrayIterOptions options_;
  int64_t samples_ = 0;
  int64_t checksum_ = 0;  // of all data and labels: a state belongs to them
  BatchPool batches_;

  Place now_, previous_;
  bool started_ = false, is_new_epoch_ = false;
  bool at_end_ = false;  // Next returns null until Reset
  int64_t sweep_ = 0;    // number of the permutation: sweeps begun before, finished or not
  // The permutations in use, of which only the number is state: the current one and the one before.
  struct Permutation {
    int64_t sweep = -1;
    std::vector<int64_t> order;
  };
  Permutation permutations_[2];
};

}  // namespace bindery
