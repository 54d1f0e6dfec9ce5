// PrefetchIter: prepares the next batches of another iterator on a thread of its own, while the last one is trained.
//
// What it hands out, and its state at every moment, are those of the other iterator used alone: errors come where their
// batch would have, and SaveState gives the place behind the last batch handed out, not that of the thread. In a fork,
// which has no such thread, Next, Reset and LoadState throw Error.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "base/forks.h"
#include "train/data/data_iter.h"

namespace bindery {

class PrefetchIter : public DataIter {
 public:
  // Up to `depth` batches are ready ahead.
  explicit PrefetchIter(std::unique_ptr<DataIter> source, int depth = 2);
  ~PrefetchIter() override;  // waits for at most one batch being made
  PrefetchIter(const PrefetchIter&) = delete;
  PrefetchIter& operator=(const PrefetchIter&) = delete;

  std::vector<DataDesc> ProvideData() const override { return data_; }
  std::vector<DataDesc> ProvideLabel() const override { return label_; }
  int64_t batch_size() const override { return batch_size_; }
  int64_t samples() const override { return samples_; }

  // An error of the source is thrown by every call until a Reset or LoadState. One of these that fails goes back to the
  // place of the last batch handed out.
  std::shared_ptr<const Batch> Next() override;
  void Reset() override;

  int64_t epoch() const override { return handed_out_.epoch; }
  double epoch_detail() const override { return handed_out_.epoch_detail; }
  double previous_epoch_detail() const override { return handed_out_.previous_epoch_detail; }
  bool is_new_epoch() const override { return handed_out_.is_new_epoch; }
  bool repeats() const override { return source_->repeats(); }
  int64_t parts() const override { return parts_; }

  IterState SaveState() const override { return handed_out_.state; }
  void LoadState(const IterState& state) override;
  std::map<std::string, std::string> Metadata() const override { return source_->Metadata(); }

 private:
  // The source right after it returned `batch`.
  struct Item {
    std::shared_ptr<const Batch> batch;  // null: the epoch is over
    std::exception_ptr error;
    IterState state;
    int64_t epoch = 0;
    double epoch_detail = 0, previous_epoch_detail = -1;
    bool is_new_epoch = false;
    bool last() const { return batch == nullptr; }  // the thread ends with it
  };
  Item Describe(std::shared_ptr<const Batch> batch) const;
  void Run();
  void Stop();  // afterwards the source is this thread's alone
  void Start();
  void Restart(const std::function<void()>& move);

  struct Queue {
    std::mutex mutex;  // guards:
    std::condition_variable changed;
    std::deque<Item> ready;
    bool stop = false;

    std::thread thread;
  };

  const UsedByThreads<DataIter> source_;
  const size_t depth_;
  const std::vector<DataDesc> data_, label_;
  const int64_t batch_size_, samples_, parts_;
  Item handed_out_;  // its batch is not kept
  const UsedByThreads<Queue> queue_;
};

}  // namespace bindery
