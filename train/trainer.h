// Trainer: the whole of training in a few lines. It binds the symbol to the devices when it sees the first data, fills the
// parameters, runs epochs, measures, saves and resumes.
//
//   Trainer trainer(LeNet(10), {.devices = {Cpu(0), Cpu(1)}, .optimizer = "sgd(lr=0.05, momentum=0.9)"});
//   trainer.Fit(train, {.epochs = 10, .validation = &test, .checkpoints = "run1"});
//   auto accuracy = trainer.Score(test);
//
// A run can be stopped anywhere and resumed to the bit: a checkpoint holds all that the future depends on. The same
// program on the same devices gives the same bits again.
//
// Thread safety: one thread at a time; RequestStop may come from any thread or signal handler.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "executor/data_parallel_executor_group.h"
#include "symbol/model.h"
#include "train/checkpoint.h"
#include "train/data_iter.h"
#include "train/metrics.h"
#include "train/updater.h"

namespace bindery {

struct TrainerOptions {
  std::vector<Device> devices = {Cpu(0)};
  std::vector<double> workload = {};                 // empty: equal
  std::string optimizer = "sgd";                     // MakeOptimizer
  std::string schedule = "constant";                 // ParseSchedule; base: the optimizer's learning rate
  std::string initializer = "xavier";                // MakeInitializer
  std::string metrics = "accuracy,cross-entropy";    // MakeMetric
  KVStoreType kvstore = KVStoreType::kDevice;
  std::vector<std::string> fixed_params = {};
  uint64_t seed = 0;                                 // of initial values and random operators
  int threads_per_device = 0;
  KernelPolicy policy = KernelPolicy::kFast;
  std::shared_ptr<Engine> engine = nullptr;
};

using NamedValues = std::vector<std::pair<std::string, double>>;   // metric name, value

struct BatchReport {
  int64_t epoch = 0;             // from 0
  int64_t batch = 0;             // in the epoch, from 1
  int64_t batches = 0;           // in an epoch
  int64_t step = 0;              // updates so far
  int64_t samples = 0;           // of the epoch so far
  double learning_rate = 0;
  double seconds = 0;            // of the epoch so far
  const Metric* metric = nullptr;   // training metrics of the epoch so far
};
struct EpochReport {
  int64_t epoch = 0;
  int64_t step = 0;
  double seconds = 0, samples_per_second = 0, learning_rate = 0;
  NamedValues train, validation = {};
  bool best = false;             // best validation value (or training value, without validation) so far
};

struct FitOptions {
  int64_t epochs = 1;            // in all, those before a resume included
  DataIter* validation = nullptr;
  std::string checkpoints = {};  // folder; empty: none are written
  int64_t checkpoint_every = 0;  // steps; 0: at the end of each epoch. At the end and on a stop in any case
  int keep = 3;                  // checkpoints kept
  bool resume = false;           // continue from the newest valid checkpoint in the folder, if there is one
  std::function<void(const BatchReport&)> on_batch = {};
  std::function<void(const EpochReport&)> on_epoch = {};
};

struct FitResult {
  int64_t epochs = 0, steps = 0;
  bool stopped = false;          // by RequestStop
  NamedValues train, validation = {};   // of the last epoch; no training values if a checkpoint had all epochs
  std::string checkpoint = {};   // the last one written
};

class Trainer {
 public:
  Trainer(const Symbol& symbol, const TrainerOptions& options = {});
  // With parameters: for prediction or fine-tuning. Parameters that the model lacks are initialised.
  Trainer(const Model& model, const TrainerOptions& options = {});
  ~Trainer();

  // Throws DataError, ShapeError, NumericError (the loss is no longer finite) and what the devices threw. The parameters
  // are then those before the failed step.
  FitResult Fit(DataIter& train, const FitOptions& options);
  // Metrics over one sweep, without padding. `metrics` empty: the trainer's.
  NamedValues Score(DataIter& data, const std::string& metrics = {});
  // Outputs over one sweep, concatenated along axis 0, without padding. Needs no labels.
  std::vector<HostTensor> Predict(DataIter& data);
  std::vector<HostTensor> Predict(const std::vector<HostTensor>& data);

  Model ToModel() const;                             // the symbol with its parameters as they are now
  void Save(const std::string& path) const { SaveModel(ToModel(), path); }
  // Everything; bound trainers only (after the first Fit, Score or Predict).
  Checkpoint ToCheckpoint(const DataIter* train = nullptr) const;
  void Restore(const Checkpoint& checkpoint, DataIter* train = nullptr);

  // Ends Fit after the current step, or the next Fit after its first, with a checkpoint if a folder is given.
  // Async-signal-safe.
  void RequestStop() { stop_.store(true, std::memory_order_relaxed); }

  const Symbol& symbol() const { return symbol_; }
  const TrainerOptions& options() const { return options_; }
  // nullptr until bound.
  DataParallelExecutorGroup* group() { return group_.get(); }
  Updater* updater() { return updater_.get(); }

 private:
  void Bind(const std::vector<DataDesc>& data, const std::vector<DataDesc>& labels, bool for_training);
  void SetInitialParams();
  NamedValues Evaluate(DataIter& data, Metric* metric);
  void CheckFinite() const;
  void WarnOfDifferences(const Checkpoint& checkpoint) const;

  Symbol symbol_;
  TrainerOptions options_;
  HostTensorMap params_, aux_;                       // initial or loaded values, until bound
  std::map<std::string, std::string> metadata_;
  std::unique_ptr<DataParallelExecutorGroup> group_;
  std::unique_ptr<Updater> updater_;
  std::unique_ptr<Metric> train_metric_;
  int64_t epoch_ = 0, batch_in_epoch_ = 0;
  std::atomic<bool> stop_{false};
};

}  // namespace bindery
