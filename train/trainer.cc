// Trainer: binding, measuring, predicting. Training is in trainer_fit.cc, a single step in trainer_step.cc, what has to
// do with checkpoints in trainer_checkpoint.cc.
#include "train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/log.h"
#include "symbol/graph.h"
#include "symbol/ops/loss.h"
#include "train/initializer.h"
#include "train/memory.h"
#include "train/metrics/pairs.h"
#include "train/metrics/training_metric.h"
#include "train/precision.h"
#include "train/predictions.h"
#include "train/trainer_step.h"

namespace bindery {
namespace {

// Where nothing is measured: outputs are looked at all the same, whether they are finite.
class NoMetric final : public Metric {
 public:
  std::string name() const override { return ""; }
  int partial_size() const override { return 1; }
  MetricGraph AsGraph(const MetricArrays&) const override { return {.partial = Doubles({0})}; }
  NamedValues Values(std::span<const double>) const override { return {}; }
};

// Equal but for the extents, and the types of what is cast to that of its variable.
bool SameArrays(const Symbol& symbol, const std::vector<DataDesc>& bound, const std::vector<DataDesc>& given) {
  std::set<std::string> declared;
  for (const NodePtr& node : Graph::Of(symbol).nodes) {
    if (node->is_variable() && node->declared_dtype) declared.insert(node->name());
  }
  return std::ranges::equal(bound, given, [&](const DataDesc& x, const DataDesc& y) {
    return x.name == y.name && (x.dtype == y.dtype || declared.contains(x.name)) && x.shape.rank() == y.shape.rank() &&
           x.layout == y.layout;
  });
}

}  // namespace

Trainer::Trainer(const Symbol& symbol, const TrainerOptions& options) : symbol_(symbol), options_(options) {
  // Texts are checked now, not in the middle of a run.
  ParseSchedule(options_.schedule, MakeOptimizer(options_.optimizer)->options().learning_rate);
  Initializer{options_.initializer};
  options_.loss_scale = LossScaleFor(options_.precision, options_.loss_scale);
  ParseLossScaling(options_.loss_scale);
  balancer_ = Balancer(ParseBalancing(options_.balance), options_.workload, options_.devices.size());
  if (!options_.balance.empty() && !options_.placements.empty()) {
    Throw("balance: parts of replicas are bound for their shares: there is none with placements");
  }
  if (options_.metrics == kMetricsOfHeads) options_.metrics = DefaultMetrics(symbol);
  if (!ParseAveraging(options_.average) && options_.use_average) Throw("use_average needs an average, e.g. ema(0.999)");
  metric_ = MakeMetrics();
  if (InProcesses() && options_.reproducible_block != 0) {
    Throw("reproducible blocks are of one process: their bits would depend on the others");
  }
  if (InProcesses() && options_.tuning != Tuning::kOff) {
    Throw(
        "tuning {} chooses kernels by what one process measures, and others would choose others: it is for one process",
        ToString(options_.tuning));
  }
}

std::unique_ptr<TrainingMetric> Trainer::MakeMetrics() const {
  if (options_.more_metrics.empty()) {
    return std::make_unique<TrainingMetric>(
        options_.metrics.empty() ? std::make_unique<NoMetric>() : MakeMetric(options_.metrics), symbol_);
  }
  std::vector<std::shared_ptr<const Metric>> all;
  if (!options_.metrics.empty()) all.push_back(MakeMetric(options_.metrics));
  all.insert(all.end(), options_.more_metrics.begin(), options_.more_metrics.end());
  return std::make_unique<TrainingMetric>(std::make_unique<CompositeMetric>(std::move(all)), symbol_);
}

std::string Trainer::MetricsText() const {
  std::string text = options_.metrics;
  for (const auto& metric : options_.more_metrics) text += (text.empty() ? "" : ",") + metric->name();
  return text;
}

Trainer::Trainer(const Model& model, const TrainerOptions& options) : Trainer(model.symbol, options) {
  params_ = model.params;
  aux_ = model.aux;
  metadata_ = model.metadata;
}

void Trainer::Bind(const std::vector<DataDesc>& data, const std::vector<DataDesc>& labels, bool for_training) {
  if (group_ && group_->options().for_training) return;  // for good: the optimizer's state is of this group
  if (group_ && !for_training && SameArrays(symbol_, group_->options().data, data) &&
      (labels.empty() || SameArrays(symbol_, group_->options().labels, labels))) {
    return;
  }
  const std::optional<LossScaling> loss_scale = ParseLossScaling(options_.loss_scale);
  const Symbol in_precision = InPrecision(symbol_, options_.precision, data, labels);
  const Symbol symbol = for_training && loss_scale ? ScaleLosses(in_precision) : in_precision;
  const std::shared_ptr<const Optimizer> optimizer = MakeOptimizer(options_.optimizer);
  const GroupOptions whole{.devices = options_.devices,
                           .workload = options_.workload,
                           .data = data,
                           .labels = labels,
                           .for_training = for_training,
                           .sparse_gradients = UpdatesRows(),
                           .fixed_params = options_.fixed_params,
                           .param_dtypes = options_.param_dtypes,
                           .mirror = options_.mirror,
                           .engine = options_.engine,
                           .threads_per_device = ThreadsPerDevice(),
                           .seed = options_.seed,
                           .switches = {.policy = options_.policy, .tuning = options_.tuning},
                           .bucket_bytes = options_.bucket_bytes,
                           .placements = options_.placements};
  const int64_t block = options_.reproducible_block;
  if (block != 0 && options_.tuning != Tuning::kOff) {
    Throw(
        "reproducible blocks give the same bits on all machines, kernels chosen by what they cost do not: tuning {} "
        "is for trainings without such blocks",
        ToString(options_.tuning));
  }
  // For predictions, batches may be smaller than those to be trained on.
  const int64_t pieces =
      for_training ? options_.micro_batches : std::min(options_.micro_batches, BatchSizeOf(whole.data));
  const bool average = ParseAveraging(options_.average).has_value();
  GroupOptions bound = whole;
  MicroBatches cut{.batch_size = BatchSizeOf(whole.data), .block = block};
  if (block != 0) {
    bound = ForBlocks(whole, block);
    if (bound.mirror.bytes == Mirror::kAutomatic) {
      bound.mirror = PlanBatch(1, options_.memory_limit, symbol, bound, optimizer.get(), average).mirror;
    }
  } else {
    const BatchPlan plan = PlanBatch(pieces, options_.memory_limit, symbol, whole, optimizer.get(), average);
    cut = plan.cut;
    if (cut.pieces > 1) bound = ForMicroBatches(whole, cut.largest());
    bound.mirror = plan.mirror;
  }
  auto group = MakeGroup(symbol, bound);
  SetInitialParams(group.get(), ToModel(), Initializer(options_.initializer), options_.seed);
  if (for_training) JoinProcesses(data, labels, group.get());
  std::unique_ptr<Updater> updater;
  if (for_training) {
    updater = std::make_unique<Updater>(
        group.get(), UpdaterOptions{.optimizer = optimizer,
                                    .schedule = ParseSchedule(options_.schedule, optimizer->options().learning_rate),
                                    .kvstore = options_.kvstore,
                                    .store = options_.store,
                                    .processes = options_.processes,
                                    .loss_scale = loss_scale,
                                    .average = ParseAveraging(options_.average),
                                    .multipliers = options_.multipliers,
                                    .block = block,
                                    .workload = block != 0 ? options_.workload : std::vector<double>()});
    if (pending_) {
      CheckOptimizerState(*updater, pending_->state, pending_->optimizer);
      updater->SetNumbers(pending_->numbers);
      updater->SetState(pending_->state);
      updater->SetStep(pending_->step);
      pending_.reset();
    }
  }
  if (!group_) LogWithoutUnits(options_.precision, options_.devices);
  params_.clear();
  aux_.clear();
  group_ = std::move(group);
  cut_ = cut;
  updater_ = std::move(updater);
}

void Trainer::Prepare(const DataIter& train) {
  TellingOthers([&] { BindFor(train, true); });
}

// Of a table, where an update needs no more than the rows that a batch touched.
bool Trainer::UpdatesRows() const {
  return !InProcesses() && !ParseAveraging(options_.average) && MakeOptimizer(options_.optimizer)->measure() == nullptr;
}

Feed Trainer::BindFor(const DataIter& data, bool for_training) {
  if (InProcesses()) CheckParts(data, for_training);
  Bind(data.ProvideData(), data.ProvideLabel(), for_training);
  return Feed(group_->options(), data);
}

// The averages in place of what is trained, while it lives.
class Trainer::AveragesInPlace {
 public:
  explicit AveragesInPlace(Trainer* trainer) : group_(*trainer->group_) {
    if (!trainer->options_.use_average) return;
    const HostTensorMap averages = trainer->Averages();
    if (averages.empty()) return;
    group_.GetParams(&params_, &aux_);
    HostTensorMap params = params_;
    for (const auto& [name, value] : averages) params[name] = value;
    group_.SetParams(params, aux_);
  }
  ~AveragesInPlace() {
    if (params_.empty()) return;
    try {
      group_.SetParams(params_, aux_);
    } catch (const std::exception& e) {
      LogLine(LogLevel::kError, fmt::format("the averages stay in place of what is trained: {}", e.what()));
    }
  }

 private:
  ExecutorGroup& group_;
  HostTensorMap params_, aux_;  // what was there
};

void Trainer::Sweep(DataIter& data, int64_t batches, const std::function<bool(const BatchPtr&)>& visit) {
  if (batches < 0) Throw("a number of batches is at least 1, or 0 for all; got {}", batches);
  if (data.repeats() && batches == 0) {
    Throw(
        "the iterator repeats its data for ever: to score or predict, choose another last batch, or a number of "
        "batches");
  }
  const Feed feed = BindFor(data, false);
  const AveragesInPlace averages(this);
  data.Reset();
  int64_t visited = 0;
  bool more = true;
  while (more && (batches == 0 || visited < batches)) {
    const BatchPtr batch = feed.Arrange(data.Next());
    if (!batch) break;
    ++visited;
    more = visit(batch);
  }
  data.Reset();
  if (visited == 0) Throw<DataError>("the data have no batch");
}

NamedValues Trainer::Score(DataIter& data, const std::string& metrics, int64_t batches) {
  const std::unique_ptr<TrainingMetric> metric =
      metrics.empty() ? MakeMetrics() : std::make_unique<TrainingMetric>(MakeMetric(metrics), symbol_);
  TellingOthers([&] {
    Sweep(data, batches, [&](const BatchPtr& batch) {
      try {
        ScoreBatch(group_.get(), cut_, batch, metric.get());
      } catch (const NumericError& e) {
        Throw<NumericError>("{}: the model has diverged, or the data are not finite", WithoutOperation(e.message()));
      }
      return true;
    });
    if (data.parts() > 1) SumOverProcesses(metric.get());
  });
  return metric->Get();
}

std::vector<HostTensor> Trainer::Predict(DataIter& data, int64_t batches) {
  std::vector<std::vector<HostTensor>> parts(static_cast<size_t>(symbol_.size()));
  Sweep(data, batches, [&](const BatchPtr& batch) {
    std::vector<HostTensor> outputs = PredictBatch(group_.get(), cut_, batch);
    for (size_t i = 0; i < outputs.size(); ++i) parts[i].push_back(std::move(outputs[i]));
    return true;
  });
  std::vector<HostTensor> whole;
  for (size_t i = 0; i < parts.size(); ++i) {
    const ValueType& type = group_->OutputType(static_cast<int>(i));
    if (type.batch_axis < 0 && parts[i].size() > 1) {
      Throw<ModelError>(
          "output \"{}\" has no batch axis, so its values of {} batches cannot be joined; predict in one batch, or "
          "leave the output out",
          group_->output_names()[i], parts[i].size());
    }
    whole.push_back(Joined(std::move(parts[i]), type));
  }
  return whole;
}

void Trainer::PredictEach(DataIter& data, const VisitPrediction& visit) {
  Sweep(data, 0, [&](const BatchPtr& batch) { return visit(*batch, PredictBatch(group_.get(), cut_, batch)); });
}

std::vector<std::string> Trainer::InputsWithoutValue() const {
  const std::set<std::string> labels = ListLabels(symbol_);
  std::vector<std::string> inputs;
  for (const std::string& name : symbol_.ListArguments()) {
    if (!labels.contains(name) && !params_.contains(name)) inputs.push_back(name);
  }
  return inputs;
}

std::vector<HostTensor> Trainer::Predict(const std::vector<HostTensor>& data) {
  if (!group_) {
    const std::vector<std::string> names = InputsWithoutValue();
    if (names.size() != data.size()) {
      Throw<DataError>("{} arrays were given, but {} arguments have no value: {}; an iterator would say which are data",
                       data.size(), names.size(), fmt::join(names, ", "));
    }
    std::vector<DataDesc> descs;
    std::map<std::string, Annotations> annotations = symbol_.AllAnnotations();
    for (size_t i = 0; i < data.size(); ++i) {
      descs.push_back({names[i], data[i].shape(), data[i].dtype(), annotations[names[i]]["layout"]});
    }
    Bind(descs, {}, false);
  }
  const AveragesInPlace averages(this);
  auto batch = std::make_shared<Batch>();
  batch->data = data;
  return PredictBatch(group_.get(), cut_, batch);
}

}  // namespace bindery
