// TrainedModel: a model in training, for learners of one model or several: replicas on devices, the optimizer that
// updates them, and a metric over what was trained. On top of ExecutorGroup and Updater, which stay in
// reach for whatever steps a training consists of:
//
//   critic.Step(batch);                                  // forward, backward, metric, update
//
//   generator.group().Forward(noise);                    // or by hand
//   generator.group().Backward(critic.group().InputGradientsPerDevice());
//   generator.Apply(samples);
//
// Two steps are in flight (train/updater/updater.h). One that fails is thrown by a later call; it has changed nothing
// then.
//
// Thread safety: one thread at a time.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "executor/executor_group.h"
#include "symbol/model.h"
#include "train/data/data_iter.h"
#include "train/loop/observation.h"
#include "train/metrics/step_measurement.h"
#include "train/metrics/training_metric.h"
#include "train/updater/micro_batches.h"
#include "train/updater/updater.h"

namespace bindery {

struct TrainedModelOptions {
  std::string optimizer = "sgd";       // MakeOptimizer
  std::string schedule = "constant";   // ParseSchedule; base: the optimizer's learning rate
  std::string initializer = "xavier";  // Initializer, of what the model has no values of
  std::string metrics = {};            // MakeMetric, of each Step; empty: none
  std::string precision = {};          // ParsePrecision; empty: as the graph says
  std::string loss_scale = {};         // ParseLossScaling; empty: none, but "dynamic" for float16
  std::string average = {};            // ParseAveraging; empty: none
  // Of a batch as it is described, or MicroBatches::kAutomatic, with a limit: as of TrainerOptions. Replicas that are
  // bound are so for micro-batches (their gradients add up, GradReq::kAdd), and the number is given.
  int64_t micro_batches = 1;
  int64_t memory_limit = 0;  // also for GroupOptions::mirror, where that is automatic
  KVStoreType kvstore = KVStoreType::kDevice;
  StoreFactory store = {};  // UpdaterOptions
  // What training adds to the model's outputs: a loss head for a network of scores, say. It is bound, not saved.
  std::function<Symbol(const Symbol& outputs)> loss = {};
  bool report_replicas = false;  // the metric's values of each device's share, too, as "<name>/<device>/<metric>"
};

class TrainedModel {
 public:
  // Binds replicas; group.seed is also that of initial values. Throws what the group and the updater do.
  TrainedModel(const Model& model, const GroupOptions& group, const TrainedModelOptions& options = {});
  TrainedModel(const Symbol& symbol, const GroupOptions& group, const TrainedModelOptions& options = {})
      : TrainedModel(Model{.symbol = symbol}, group, options) {}
  // Takes replicas that are bound for training, and have their values. (`loss` and `precision` are theirs already: they
  // must be empty.)
  TrainedModel(std::unique_ptr<ExecutorGroup> replicas, const TrainedModelOptions& options = {});
  ~TrainedModel();

  ExecutorGroup& group() { return *group_; }
  Updater& updater() { return *updater_; }

  // On arrays in the group's order, in micro-batches if the options say so. Throws DataError, ShapeError for a batch
  // that does not fit, and what became of earlier steps: NumericError, the devices' errors. A step that overflows a
  // dynamic loss scale is taken again at once, with the same batch, if the scaling says so.
  void Step(const BatchPtr& batch);
  // On micro-batches as they are; several need replicas whose gradients add up.
  void Step(std::span<const BatchPtr> micro_batches);
  std::vector<BatchPtr> Cut(const BatchPtr& batch) const;  // what Step makes of it: one, unless the options say more
  // Updates by the gradients that are there, of so many samples. By hand, gradients that add up are to be zeroed first.
  void Apply(int64_t samples);
  void Settle();  // waits until no step is in flight

  // Reports the metric's values over what was trained since the last call, of steps that are over, as
  // "<name>/<metric>", weighted by samples.
  void Observe(const std::string& name, Observation* observation);
  // Over one sweep, without padding. Throws DataError if there is no batch. Empty text: the options' metrics.
  NamedValues Score(DataIter& data, const std::string& metrics = {});

  Model ToModel() const;  // the values as they are; the symbol without what `loss` added
  // Values, the optimizer's state and numbers, at places "model:<name>" and "optimizer:<name>" of the archive. Reading
  // throws CheckpointError for those of another graph or of another optimizer's state, possibly half-way. Another
  // precision, loss scale, schedule, number of devices and so on are possible, and logged as warnings.
  void Serialize(const std::string& name, Archive* archive);

 private:
  struct Totals {
    Totals(const TrainedModelOptions& options, const Symbol& symbol);
    TrainingMetric metric;
    double samples = 0;
  };
  struct InFlight {
    std::vector<BatchPtr> batches = {};  // none: by hand
    int64_t step = 0;
    StepMeasurement measurement = {};  // of nothing without metrics
  };
  struct Replicas {
    std::unique_ptr<ExecutorGroup> group;
    MicroBatches cut;
  };
  static Replicas Bind(const Model& model, const GroupOptions& group, const TrainedModelOptions& options);
  TrainedModel(Replicas replicas, const TrainedModelOptions& options);
  void SettleOldest();
  std::map<std::string, std::string> Info() const;  // of what may be another in a run that goes on

  Symbol symbol_;  // without the loss
  std::map<std::string, std::string> metadata_;
  TrainedModelOptions options_;
  std::optional<std::string> precision_;  // no value: that of replicas which were bound
  std::unique_ptr<ExecutorGroup> group_;
  MicroBatches cut_;
  std::unique_ptr<Updater> updater_;
  std::vector<Totals> totals_;  // of all devices, then of each if they are reported; none without metrics
  std::vector<InFlight> in_flight_;
};

}  // namespace bindery
