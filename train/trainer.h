// Trainer: the whole of training in a few lines. It binds the symbol to the devices when it sees the first data, fills
// the parameters, runs epochs, measures, saves and resumes.
//
//   Trainer trainer(ModelByName("lenet"), {.devices = {Cpu(0), Cpu(1)}, .optimizer = "sgd(lr=0.05, momentum=0.9)"});
//   trainer.Fit(train, {.epochs = 10, .validation = &test, .checkpoints = "run1"});
//   auto accuracy = trainer.Score(test);
//
// A run can be stopped anywhere and resumed to the bit: a checkpoint holds all that the future depends on. The same
// program on the same devices gives the same bits again.
//
// Arrays are known by their names: an iterator may provide them in another order than the first one did, but others are
// an error. Iterators that repeat their data for ever (DataIter::repeats) are for Fit, and for a number of batches.
//
// Where a batch does not fit in a device's memory, it is computed in micro-batches (train/updater/micro_batches.h), one
// after the other: one step all the same, with one divisor, one decision whether it is committed, and metrics of the
// whole batch. docs/training.md says where it is not as one batch: batch-norm.
//
// With TrainerOptions::processes a run is that of several processes (docs/several_machines.md). They all do the same:
// bind the same graph, and call Fit and Score with their parts of the same data (DataIter::parts). A step is one of all
// of them; what they report is of all, but within an epoch, where it is each one's own. The first one's parameters are
// those that all begin with, and it alone writes checkpoints. One that fails ends the run of all.
//
// Thread safety: one thread at a time; RequestStop may come from any thread or signal handler.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "executor/executor_group.h"
#include "symbol/model.h"
#include "train/balance.h"
#include "train/checkpoint/checkpoint.h"
#include "train/data/data_iter.h"
#include "train/data/feed.h"
#include "train/loop/extension.h"
#include "train/metrics/default_metrics.h"
#include "train/metrics/metrics.h"
#include "train/metrics/step_measurement.h"
#include "train/optimizers/multipliers.h"
#include "train/updater/micro_batches.h"
#include "train/updater/updater.h"

namespace bindery {

class Monitor;
class TrainingMetric;

struct TrainerOptions {
  std::vector<Device> devices = {Cpu(0)};
  std::vector<double> workload = {};      // empty: equal
  Placements placements = {};             // of parts that have devices of their own (GroupOptions)
  std::string optimizer = "sgd";          // MakeOptimizer
  std::string schedule = "constant";      // ParseSchedule; base: the optimizer's learning rate
  std::string initializer = "xavier";     // Initializer
  std::string metrics = kMetricsOfHeads;  // MakeMetric, or this: DefaultMetrics of the symbol; empty: none
  std::string precision = {};             // ParsePrecision; empty: as the graph says
  std::string loss_scale = {};            // ParseLossScaling; empty: none, but "dynamic" for float16
  std::string average = {};               // ParseAveraging; empty: none
  // Score, Predict and Save, and so validation, use the averages of trained parameters, once there are any. Running
  // statistics stay those that training has seen.
  bool use_average = false;
  // Metrics beside those of `metrics`: of your own (MeanOf), or without a text.
  std::vector<std::shared_ptr<const Metric>> more_metrics = {};
  // Of a batch of the size that the first iterator has; others are cut in pieces no larger than those. Or
  // MicroBatches::kAutomatic: the fewest with which what is planned (train/memory.h) fits in `memory_limit` bytes of
  // each device, 0 being what it has.
  int64_t micro_batches = 1;
  // What is computed again in backward in place of being kept, with the same bits (docs/mirror.md). Where its bytes are
  // Mirror::kAutomatic, so much as makes a batch fit, and if nothing does, and micro_batches are automatic, too, in as
  // few of these as fit with it.
  Mirror mirror = {};
  int64_t memory_limit = 0;  // bytes of each device that automatic micro_batches and mirrors may take; 0: what it has
  // Not 0: batches are computed in blocks of that many samples, and the same bits come out on any number of devices of
  // one kind, by any workload and with any micro-batches, which do not count then (train/updater/blocks.h,
  // docs/reproducible.md). Each device has one thread.
  int64_t reproducible_block = 0;
  std::string balance = {};  // ParseBalancing: the workload follows measured speeds of devices; empty: it stays
  KVStoreType kvstore = KVStoreType::kDevice;
  StoreFactory store = {};                     // UpdaterOptions; one for each binding for training
  ProcessesPtr processes = nullptr;            // that train together; null: this one alone
  std::vector<std::string> fixed_params = {};  // names or patterns: stay as they are (GroupOptions)
  MultiplierList multipliers = {};             // of learning rate and weight decay, by patterns: {{"conv*", 0.1}}
  ParamDTypes param_dtypes = {};               // GroupOptions
  uint64_t seed = 0;                           // of initial values and random operators
  int threads_per_device = 0;                  // of CPUs; 0: the cores that this process has, shared out evenly
  KernelPolicy policy = KernelPolicy::kFast;
  Tuning tuning = Tuning::kOff;  // CompileSwitches; not with reproducible blocks, whose bits depend on no measurement
  std::shared_ptr<Engine> engine = nullptr;
  std::optional<int64_t> bucket_bytes = std::nullopt;  // GroupOptions
  // Noted in checkpoints (Checkpoint::info) beside what the trainer notes; nothing is made of it here.
  std::map<std::string, std::string> info = {};
};

struct BatchReport {
  int64_t epoch = 0;    // from 0
  int64_t batch = 0;    // in the epoch, from 1
  int64_t batches = 0;  // in an epoch
  int64_t step = 0;     // updates so far
  int64_t samples = 0;  // of the epoch so far
  double learning_rate = 0;
  double seconds = 0;  // of the epoch so far, in this run
  // Training metrics of the epoch so far. Those of the last steps, which may be in flight still, are not in it yet.
  const Metric* metric = nullptr;
};
struct EpochReport {
  int64_t epoch = 0;
  int64_t step = 0;
  int64_t samples = 0;                                            // trained on, in this run
  double seconds = 0, samples_per_second = 0, learning_rate = 0;  // seconds in this run
  NamedValues train, validation = {};
  // Best value so far of what is watched (FitOptions::watch), of the validation, or the training if there is none, runs
  // before a resume included.
  bool best = false;
};

struct FitOptions {
  int64_t epochs = 1;  // in all, those of earlier calls and before a resume included
  // Of an epoch: it ends after so many, wherever in the data that is, and the next one goes on from there. 0: a sweep.
  int64_t epoch_batches = 0;
  DataIter* validation = nullptr;
  // Folder; empty: none are written. That is done while the run goes on (Snapshot, train/extensions/snapshots.h): what it
  // fails by, the next step throws, or the end, at which all are written. It is this run's meanwhile: Fit throws
  // DataError if another one, of whatever process, is writing there.
  std::string checkpoints = {};
  int64_t checkpoint_every = 0;  // steps; 0: at the end of each epoch. At the end and on a stop in any case
  int keep = 3;                  // checkpoints kept
  bool keep_best = false;        // and, however old, that of the best epoch: every epoch's end is one then
  bool resume = false;           // continue from the newest valid checkpoint in the folder, if there is one
  // Checkpoints in the folder that are ahead of this trainer are another run's: Fit throws CheckpointError rather than
  // replace them, unless it resumes or this is set.
  bool overwrite = false;
  std::function<void(const BatchReport&)> on_batch = {};
  std::function<void(const EpochReport&)> on_epoch = {};
  // What else happens (train/loop/extension.h). What is reported: at each moment "train/<metric>", of the epoch so far,
  // once there is one, and "train/learning-rate"; where an epoch ends, "validation/<metric>". The model is called
  // "main". A sweep is an epoch, whatever the iterator carries over, and the end of the last batch of a sweep is the
  // end of the epoch.
  std::vector<Extension> extensions = {};
  Monitor* monitor = nullptr;        // is told of every step; one that it watches is waited for (train/loop/monitor.h)
  std::optional<Trigger> stop = {};  // ends it before all epochs are done: EarlyStopping, say
  // The metric that epochs are judged by (EpochReport::best, `keep_best`, the schedule "plateau"), one of the trainer's:
  // as they are called in reports. Empty: the first one.
  std::string watch = {};
  Better better = Better::kAuto;  // of what is watched (LargerIsBetter)
};

struct FitResult {
  int64_t epochs = 0, steps = 0;
  bool stopped = false;                // by RequestStop or Loop::Stop
  NamedValues train, validation = {};  // of the last epoch; no training values if a checkpoint had all epochs
  std::string checkpoint = {};         // the last one written
};

class Trainer {
 public:
  Trainer(const Symbol& symbol, const TrainerOptions& options = {});
  // With parameters: for prediction or fine-tuning. Parameters that the model lacks are initialised.
  Trainer(const Model& model, const TrainerOptions& options = {});
  ~Trainer();

  // Throws DataError, ShapeError, NumericError (an output or a gradient is not finite; names the first value that was
  // not) and what the devices threw. The parameters and running statistics are then those before the failed step. Fit
  // hears of it when it has pushed one or two steps more, which changed nothing either: it sets the iterator back, and
  // the next Fit goes on with the batch after the failed one.
  // Throws HangError if a device hangs (engine/engine.h). The steps in flight stay there: if the device comes back, the
  // next Fit goes on as if nothing had been.
  // Throws NumericError, too, where a checkpoint is due and at the end, if a parameter, a running statistic or a state
  // of the optimizer is not finite: the values stay as they are and no checkpoint is written, so that the last one is
  // good.
  FitResult Fit(DataIter& train, const FitOptions& options);
  // What the first Fit on these data would do before its first step, now: binds, fills the parameters, makes the
  // optimizer. Throws what that would. Nothing if the trainer is bound for training already.
  void Prepare(const DataIter& train);
  // Metrics over one sweep, or so many batches of it, without padding. `metrics` empty: all of the trainer's. Throws
  // DataError if there is no batch, NumericError if an output is not finite.
  NamedValues Score(DataIter& data, const std::string& metrics = {}, int64_t batches = 0);
  // Outputs over one sweep, or so many batches of it, joined along their batch axes, without padding, in the order of
  // the batches: rows of a shuffling iterator come shuffled (Batch::index). Needs no labels. Throws DataError if there
  // is no batch, Error for several batches of an output without batch axis.
  std::vector<HostTensor> Predict(DataIter& data, int64_t batches = 0);
  // The same batch by batch, of any number: `visit(batch, outputs)`, until it returns false or the sweep is over.
  using VisitPrediction = std::function<bool(const Batch& batch, const std::vector<HostTensor>& outputs)>;
  void PredictEach(DataIter& data, const VisitPrediction& visit);
  // One batch: the data of the last binding, in its order. Before any, the arguments that are neither labels nor have a
  // value, in the order of ListArguments; throws DataError if they are not as many.
  std::vector<HostTensor> Predict(const std::vector<HostTensor>& data);

  // Of several processes each may call these alone, also while the others train or are about to: averages and the
  // optimizer's state are shared out among them, who give theirs when they next exchange something. Throws Error with
  // the reason of one that has stopped.
  Model ToModel() const;          // the symbol with its parameters as they are now
  Model ToAveragedModel() const;  // with averages in place of those that are trained, where there are any
  void Save(const std::string& path) const { SaveModel(options_.use_average ? ToAveragedModel() : ToModel(), path); }
  // Everything; after the first Fit has begun. From inside a Fit (on_batch) it waits for the steps in flight, and
  // throws what Fit would.
  Checkpoint ToCheckpoint(DataIter* train = nullptr);
  // The next Fit goes on from there. Throws CheckpointError if the checkpoint is of another graph or other data, or if
  // its optimizer kept other state, and HangError while steps in flight do not end; nothing has changed then. (Before
  // the first Fit, an optimizer's state that does not fit shows in Fit.) Other devices, schedules, settings of the
  // optimizer and so on are possible, and logged as warnings.
  void Restore(const Checkpoint& checkpoint, DataIter* train = nullptr);

  // Ends Fit before its next step (with processes all of them, some steps later), with a checkpoint if a folder is
  // given; without one running, the next Fit before its first. Async-signal-safe.
  void RequestStop() { stop_.store(true, std::memory_order_relaxed); }
  // Fit writes a checkpoint after its present step, if a folder is given, and goes on. Async-signal-safe.
  void RequestCheckpoint() { save_.store(true, std::memory_order_relaxed); }

  // By what epochs are judged, and the best value so far, as checkpoints note it: "validation accuracy 0.98" (kBestValue,
  // train/checkpoint/best_checkpoint.h). Empty: there is none. In an extension it is that of this moment.
  std::string BestSoFar() const;

  const Symbol& symbol() const { return symbol_; }
  const TrainerOptions& options() const { return options_; }
  // nullptr until bound.
  ExecutorGroup* group() { return group_.get(); }
  Updater* updater() { return updater_.get(); }
  // Of a batch; those of the options until bound for training.
  int64_t micro_batches() const { return updater_ ? cut_.pieces : options_.micro_batches; }
  // By which the next training batch is shared out: as the options say, or as devices have been measured.
  const std::vector<double>& workload() const { return balancer_.workload(); }
  // With a balance: no more is measured, also after a resume; the workload stays as it is now.
  void FreezeWorkload() { balancer_.Freeze(); }

 private:
  // What a checkpoint has for the updater, kept until there is one.
  struct UpdaterState {
    HostTensorMap state;
    std::string optimizer;  // whose state it is
    int64_t step = 0;
    Updater::Numbers numbers = {};
  };

  class AveragesInPlace;  // trainer.cc
  class Fitting;          // trainer_fit.cc
  // Throws without a change.
  void Bind(const std::vector<DataDesc>& data, const std::vector<DataDesc>& labels, bool for_training);
  Feed BindFor(const DataIter& data, bool for_training);
  bool UpdatesRows() const;
  FitResult FitAlone(DataIter& train, const FitOptions& options);
  // Pushes a step on the batch that the iterator has just given, and waits for the one before the last: two are in
  // flight. If that one failed: throws, with nothing in flight and the iterator behind the failed batch. If it
  // overflowed the loss scale, the iterator is set back like that, too, and false returned: the batch comes again.
  bool Step(const BatchPtr& batch, DataIter* iterator);
  std::vector<BatchPtr> Pieces(const BatchPtr& batch) const;  // of a training batch
  // Before a step is pushed that is to be measured: nothing else runs. False as Step.
  bool BeginMeasuring(DataIter* iterator);
  // Waits for the oldest step in flight, and counts its metrics. False if those behind it were given back.
  bool Settle(DataIter* iterator);
  bool SettleAll(DataIter* iterator);
  void GiveBackUntouched(const IterState& after, DataIter* iterator);
  // What an error of a step says, with the first value that was not finite.
  std::exception_ptr Explain(std::exception_ptr error, const BatchPtr& batch, int64_t step);
  std::string FirstBadValue(const BatchPtr& batch, int64_t step);
  void TakeMetadata(const DataIter& train);
  void Resume(const FitOptions& options, Loop* loop);
  // Is it the best value of the set ("validation") so far? Then it is kept.
  bool IsBest(const std::string& set, const std::string& metric, double value, bool larger);
  // Calls visit(batch) for the batches of a sweep, arranged for the group, until it returns false, or for so many.
  void Sweep(DataIter& data, int64_t batches, const std::function<bool(const BatchPtr&)>& visit);
  HostTensorMap Averages() const;  // of trained parameters, also where only a checkpoint has them; none yet: empty
  std::vector<std::string> InputsWithoutValue() const;
  std::map<std::string, std::string> Info() const;  // of a run, for its checkpoints
  void CheckFits(const Checkpoint& checkpoint) const;
  // Throws CheckpointError unless the updater can go on with the state of the checkpoint's `optimizer`.
  static void CheckOptimizerState(const Updater& updater, const HostTensorMap& state, const std::string& optimizer);
  void WarnOfDifferences(const Checkpoint& checkpoint) const;
  std::unique_ptr<TrainingMetric> MakeMetrics() const;  // of the options
  // With processes; nothing without (trainer_processes.cc).
  int ThreadsPerDevice() const;  // GroupOptions
  bool InProcesses() const { return options_.processes && options_.processes->size() > 1; }
  bool IsFirst() const { return !InProcesses() || options_.processes->rank() == 0; }
  // Runs it; what it throws the others are told of.
  template <class Function>
  auto TellingOthers(const Function& run) {
    try {
      return run();
    } catch (const std::exception& error) {
      LeaveProcesses(error);
      throw;
    }
  }
  void LeaveProcesses(const std::exception& error) const noexcept;
  void CheckParts(const DataIter& data, bool for_training) const;
  void CheckSameData(const DataIter& data) const;
  void TakeOfFirst(NamedValues* values) const;
  // When a group is bound for training: throws Error unless all train the same; takes the first one's values.
  void JoinProcesses(const std::vector<DataDesc>& data, const std::vector<DataDesc>& labels,
                     ExecutorGroup* group) const;
  void ShareValues(bool merge_statistics, ExecutorGroup* group) const;
  void SumOverProcesses(TrainingMetric* metric) const;
  int64_t SamplesOfAll() const;  // of the epoch, in this run
  std::optional<Checkpoint> FromFirst(std::optional<Checkpoint> checkpoint) const;
  bool IsAskedToStop() const;
  std::string MetricsText() const;

  Symbol symbol_;
  TrainerOptions options_;
  HostTensorMap params_, aux_;  // initial or loaded values, until bound
  std::map<std::string, std::string> metadata_;
  std::unique_ptr<ExecutorGroup> group_;
  MicroBatches cut_;  // of batches for the group
  std::unique_ptr<Updater> updater_;
  Balancer balancer_;
  std::optional<UpdaterState> pending_;
  std::unique_ptr<TrainingMetric> metric_;
  struct InFlight {
    BatchPtr batch;
    IterState after;   // of the iterator, when it had given the batch
    int64_t step = 0;  // its number, from 1
    int64_t samples = 0;
    StepMeasurement measurement;
  };
  InFlight flying_[Updater::kInFlight];  // the first `in_flight_`, oldest first
  int64_t in_flight_ = 0;
  int64_t samples_ = 0;    // of the epoch, in this run
  int64_t untouched_ = 0;  // batches behind a failed step, while it is dealt with
  int64_t epoch_ = 0, batch_in_epoch_ = 0;
  std::optional<std::pair<std::string, double>> best_;  // "validation accuracy" and its value
  std::atomic<bool> stop_{false}, save_{false};
  std::optional<int64_t> best_step_;  // the last one of the best epoch so far; batches without a step do not leave it
};

}  // namespace bindery
