// BucketedModel: a model in training whose graph depends on its batch: sequences of each length, say, with a network
// unrolled to just that many steps. A function makes the network for a key; every key has programs of its own, and all
// share one set of parameters, one optimizer with its state, and working memory.
//
//   BucketedModel model([](int64_t length) { return NetOf(length); }, 40, {.devices = {Cpu(0), Cpu(1)}},
//                       {.optimizer = "adam(lr=0.01)", .metrics = "cross-entropy"});
//   model.Step(12, batch);                            // a batch of sequences of 12
//   model.Step(40, another);
//
// A key is bound when it is met first. From then on batches of all keys may follow each other and nothing is allocated
// for them: working memory is that of the largest. A step moves what its own network reaches; all other parameters stay
// as they are, and so do their states: no decay, no momentum. Steps are counted together: where the optimizer's rule or
// an average goes by their number (Adam's corrections), those of a parameter that is reached late are as of old means.
//
// The network of the default key is bound at once and must have all parameters and auxiliary states that the others
// have. Two steps are in flight (train/updater/updater.h). One that fails is thrown by a later call; it has changed
// nothing then.
//
// The host updates: where it cannot address the devices' memory, gradients and parameters are copied in each step.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "executor/data_parallel_executor_group.h"
#include "executor/group/metric.h"
#include "symbol/model.h"
#include "train/checkpoint/checkpoint.h"
#include "train/loop/trained_model.h"
#include "train/metrics/training_metric.h"
#include "train/updater/updater.h"

namespace bindery {

// What a key stands for: the symbol, and the shapes of a batch. Batches of any size follow, as in a group.
struct BucketNet {
  Symbol symbol = {};
  std::vector<DataDesc> data = {}, labels = {};
};
struct BucketBatch {
  int64_t key = 0;
  BatchPtr batch = nullptr;
};

class BucketedModel {
 public:
  using NetFn = std::function<BucketNet(int64_t key)>;

  // `group`: devices and the like; data and labels are the network's. `options`: as a TrainedModel's, but without
  // precision, report_replicas and micro_batches. `values`: those of a model to go on from; what is not there is
  // initialised. Throws what the group and the updater do.
  BucketedModel(NetFn make, int64_t default_key, const GroupOptions& group, const TrainedModelOptions& options = {},
                const Model& values = {});
  ~BucketedModel();

  // Forward, backward, update, on arrays in the order of that network's descriptions. Throws DataError, ShapeError for
  // a batch that does not fit, what binding a new key does, Error if its network has a parameter that the default one
  // has not, and what became of earlier steps: NumericError, the devices' errors. A step that overflows a dynamic loss
  // scale is taken again at once, if the scaling says so.
  void Step(int64_t key, const BatchPtr& batch);
  void Step(const BucketBatch& batch) { Step(batch.key, batch.batch); }
  void Settle();  // waits until no step is in flight
  // The metric's values over what was trained since the last call, of steps that are over. Empty: nothing was.
  NamedValues TakeMetric();

  // In prediction mode, merged; labels are not needed.
  std::vector<HostTensor> Predict(int64_t key, const BatchPtr& batch);
  // The options' metrics over all batches that `next` gives until it gives none. Throws DataError if there is none, or
  // one is without labels.
  NamedValues Score(const std::function<std::optional<BucketBatch>()>& next);

  // The key's replicas, which are bound if they are not yet; for whatever else is to be done with them.
  DataParallelExecutorGroup& group(int64_t key);
  Updater& updater() { return *updater_; }  // of the default key; step(), schedule and state are of all
  int64_t default_key() const { return default_key_; }
  std::vector<int64_t> keys() const;  // those that are bound, in order

  Model ToModel();  // the network of the default key, with the values
  // Values, optimizer, steps. Restore throws CheckpointError if it is of another network or state; nothing has changed
  // then.
  Checkpoint ToCheckpoint();
  void Restore(const Checkpoint& checkpoint);

 private:
  struct Bucket {
    Symbol symbol = {};  // without the loss
    std::unique_ptr<DataParallelExecutorGroup> group = nullptr;
    std::unique_ptr<Updater> updater = nullptr;
    std::unique_ptr<TrainingMetric> metric = nullptr;
  };
  struct InFlight {
    BucketBatch batch;
    int64_t step = 0;
    std::shared_ptr<Measurement> measurement = nullptr;
  };
  Symbol Bound(const Symbol& symbol) const;
  Bucket& BucketOf(int64_t key);
  void SettleOldest();

  NetFn make_;
  const int64_t default_key_;
  GroupOptions group_options_;
  TrainedModelOptions options_;
  std::map<std::string, std::string> metadata_;
  std::map<int64_t, Bucket> buckets_;
  Bucket* first_ = nullptr;  // of the default key
  Updater* updater_ = nullptr;
  std::unique_ptr<TrainingMetric> total_;
  bool any_ = false;  // was anything measured?
  std::vector<InFlight> in_flight_;
};

}  // namespace bindery
