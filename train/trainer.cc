// Trainer: binding, training, measuring, predicting. A single step is in trainer_step.cc, what has to do with
// checkpoints in trainer_checkpoint.cc.
#include "train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>

#include "base/log.h"
#include "base/names.h"
#include "symbol/graph.h"
#include "symbol/ops/loss.h"
#include "train/initializer.h"
#include "train/metrics/training_metric.h"
#include "train/precision.h"
#include "train/trainer_step.h"

namespace bindery {
namespace {

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Is a larger value better? Rates of success are, losses and errors are not.
bool LargerIsBetter(const std::string& metric) { return metric.starts_with("accuracy") || metric.starts_with("top"); }

// Equal but for the extents.
bool SameArrays(const std::vector<DataDesc>& a, const std::vector<DataDesc>& b) {
  return std::ranges::equal(a, b, [](const DataDesc& x, const DataDesc& y) {
    return x.name == y.name && x.dtype == y.dtype && x.shape.rank() == y.shape.rank() && x.layout == y.layout;
  });
}

// For each of `wanted`, its place among `given`. Throws DataError unless just these are given.
std::vector<size_t> PlacesOf(const char* what, const std::vector<DataDesc>& wanted,
                             const std::vector<DataDesc>& given) {
  std::vector<std::string> names;
  for (const DataDesc& desc : given) names.push_back(desc.name);
  std::vector<size_t> places;
  for (const DataDesc& desc : wanted) {
    const auto found = std::ranges::find(names, desc.name);
    if (found == names.end()) {
      Throw<DataError>("the iterator has no {} \"{}\"{}", what, desc.name, NameHint(desc.name, names));
    }
    places.push_back(static_cast<size_t>(found - names.begin()));
    const DataDesc& mine = given[places.back()];
    if (mine.BatchAxis() != desc.BatchAxis()) {
      Throw<DataError>("{} \"{}\": the iterator's samples lie along axis {}, expected axis {}", what, desc.name,
                       mine.BatchAxis(), desc.BatchAxis());
    }
  }
  if (given.size() != wanted.size()) {
    Throw<DataError>("the iterator has {} {} arrays, expected {}", given.size(), what, wanted.size());
  }
  return places;
}

bool InOrder(const std::vector<size_t>& places) { return std::ranges::is_sorted(places); }

// Outputs of several batches as one, in their order.
HostTensor Joined(const std::vector<HostTensor>& parts, ValueType type) {
  std::vector<HostTensor> views;
  for (const HostTensor& part : parts) {
    type.shape = part.shape();
    views.push_back(part.Reshape(type.SampleView()));
  }
  const HostTensor whole = Concatenate(views, 1);
  const int64_t extent = whole.shape()[1] * type.batch_fold.outer * type.batch_fold.inner;
  return whole.Reshape(parts[0].shape().With(type.batch_axis, extent));
}

}  // namespace

Trainer::Trainer(const Symbol& symbol, const TrainerOptions& options) : symbol_(symbol), options_(options) {
  // Texts are checked now, not in the middle of a run.
  ParseSchedule(options_.schedule, MakeOptimizer(options_.optimizer)->options().learning_rate);
  Initializer{options_.initializer};
  const auto precision = ParsePrecision(options_.precision);
  if (precision && precision->dtype == DType::kFloat16 && options_.loss_scale.empty()) options_.loss_scale = "dynamic";
  ParseLossScaling(options_.loss_scale);
  InPrecision(symbol_, options_.precision, {});
  if (!ParseAveraging(options_.average) && options_.use_average) Throw("use_average needs an average, e.g. ema(0.999)");
  metric_ = std::make_unique<TrainingMetric>(MakeMetric(options_.metrics), symbol_);
}

Trainer::Trainer(const Model& model, const TrainerOptions& options) : Trainer(model.symbol, options) {
  params_ = model.params;
  aux_ = model.aux;
  metadata_ = model.metadata;
}

void Trainer::Bind(const std::vector<DataDesc>& data, const std::vector<DataDesc>& labels, bool for_training) {
  if (group_ && group_->options().for_training) return;  // for good: the optimizer's state is of this group
  if (group_ && !for_training && SameArrays(group_->options().data, data) &&
      (labels.empty() || SameArrays(group_->options().labels, labels))) {
    return;
  }
  const std::optional<LossScaling> loss_scale = ParseLossScaling(options_.loss_scale);
  const Symbol symbol = InPrecision(symbol_, options_.precision, data);
  auto group =
      std::make_unique<DataParallelExecutorGroup>(for_training && loss_scale ? ScaleLosses(symbol) : symbol,
                                                  GroupOptions{.devices = options_.devices,
                                                               .workload = options_.workload,
                                                               .data = data,
                                                               .labels = labels,
                                                               .for_training = for_training,
                                                               .sparse_gradients = UpdatesRows(),
                                                               .fixed_params = options_.fixed_params,
                                                               .engine = options_.engine,
                                                               .threads_per_device = options_.threads_per_device,
                                                               .seed = options_.seed,
                                                               .switches = {.policy = options_.policy},
                                                               .bucket_bytes = options_.bucket_bytes});
  SetInitialParams(group.get(), ToModel());
  std::unique_ptr<Updater> updater;
  if (for_training) {
    std::shared_ptr<const Optimizer> optimizer = MakeOptimizer(options_.optimizer);
    updater = std::make_unique<Updater>(
        group.get(), UpdaterOptions{.optimizer = optimizer,
                                    .schedule = ParseSchedule(options_.schedule, optimizer->options().learning_rate),
                                    .kvstore = options_.kvstore,
                                    .loss_scale = loss_scale,
                                    .average = ParseAveraging(options_.average)});
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
  updater_ = std::move(updater);
}

// Of a table, where an update needs no more than the rows that a batch touched.
bool Trainer::UpdatesRows() const {
  return !ParseAveraging(options_.average) && MakeOptimizer(options_.optimizer)->measure() == nullptr;
}

void Trainer::SetInitialParams(DataParallelExecutorGroup* group, const Model& values) const {
  std::map<std::string, ValueType> missing;
  for (const StoredParameter& p : group->store().parameters()) {
    const HostTensorMap& given = p.auxiliary ? values.aux : values.params;
    if (!given.contains(p.name)) missing[p.name] = {.dtype = p.dtype, .shape = p.shape};
  }
  HostTensorMap params = values.params, aux = values.aux;
  for (auto& [name, value] : InitialValues(symbol_, missing, Initializer(options_.initializer), options_.seed)) {
    (group->store().Find(name)->auxiliary ? aux : params)[name] = std::move(value);
  }
  group->SetParams(params, aux);
}

Trainer::Feed Trainer::BindFor(const DataIter& data, bool for_training) {
  const std::vector<DataDesc> arrays = data.ProvideData(), labels = data.ProvideLabel();
  Bind(arrays, labels, for_training);
  Feed feed{.data = PlacesOf("data", group_->options().data, arrays), .labels = {}};
  const std::vector<DataDesc>& wanted = group_->options().labels;
  if (!wanted.empty() && !labels.empty()) feed.labels = PlacesOf("label", wanted, labels);
  return feed;
}

BatchPtr Trainer::Feed::Arrange(BatchPtr batch) const {
  if (!batch || (InOrder(data) && InOrder(labels))) return batch;
  auto arranged = std::make_shared<Batch>();
  for (const size_t place : data) arranged->data.push_back(batch->data[place]);
  for (const size_t place : labels) arranged->label.push_back(batch->label[place]);
  arranged->samples = batch->samples;
  arranged->pad = batch->pad;
  arranged->index = batch->index;
  return arranged;
}

bool Trainer::IsBest(const std::string& set, const std::string& metric, double value) {
  if (!std::isfinite(value)) return false;
  const std::string what = set + " " + metric;
  if (best_ && best_->first == what && !(LargerIsBetter(metric) ? value > best_->second : value < best_->second)) {
    return false;
  }
  best_ = {what, value};
  return true;
}

FitResult Trainer::Fit(DataIter& train, const FitOptions& options) {
  const Feed feed = BindFor(train, true);
  std::optional<CheckpointStore> store;
  if (!options.checkpoints.empty()) store.emplace(options.checkpoints, options.keep);
  if (options.resume) {
    if (!store) Throw("resume needs a folder of checkpoints");
    if (const std::optional<Checkpoint> newest = store->LoadNewest()) {
      Restore(*newest, &train);
      const bool done = epoch_ >= options.epochs;
      LogLine(LogLevel::kInfo,
              done ? fmt::format("the checkpoint of step {} has {} epochs already: nothing is left to train",
                                 newest->step, epoch_)
                   : fmt::format("going on after step {}, in epoch {}", newest->step, epoch_ + 1));
    } else {
      LogLine(LogLevel::kInfo, fmt::format("there is no checkpoint in \"{}\" yet: starting anew", options.checkpoints));
    }
  }
  FitResult result;
  int64_t saved_at = -1;
  const auto save = [&] {
    if (!store || saved_at == updater_->step()) return;
    const Checkpoint checkpoint = ToCheckpoint(&train);
    CheckFinite(checkpoint);
    result.checkpoint = store->Save(checkpoint);
    saved_at = updater_->step();
  };
  const auto next = [&]() -> BatchPtr {
    if (train.repeats() && batch_in_epoch_ > 0 && train.is_new_epoch()) return nullptr;
    return feed.Arrange(train.Next());
  };
  const int64_t batches = (train.samples() + train.batch_size() - 1) / train.batch_size();
  while (epoch_ < options.epochs) {
    const auto start = std::chrono::steady_clock::now();
    if (batch_in_epoch_ == 0) metric_->Reset();
    const int64_t before = batch_in_epoch_ * train.batch_size();  // samples trained on before a resume
    samples_ = 0;
    const auto take = [&](const BatchPtr& batch) {
      ++batch_in_epoch_;  // whatever becomes of it: the iterator is past it
      if (!Step(batch, &train)) return;
      if (options.on_batch) {
        options.on_batch({.epoch = epoch_,
                          .batch = batch_in_epoch_,
                          .batches = batches,
                          .step = updater_->step(),
                          .samples = before + samples_,
                          .learning_rate = updater_->LearningRateOf(updater_->step()),
                          .seconds = SecondsSince(start),
                          .metric = metric_.get()});
      }
      const bool due = options.checkpoint_every > 0 && updater_->step() % options.checkpoint_every == 0;
      if (save_.exchange(false, std::memory_order_relaxed) || due) save();
    };
    do {  // steps that overflow at the end give batches back
      BatchPtr batch;
      while (!(result.stopped = stop_.load(std::memory_order_relaxed)) && (batch = next())) take(batch);
    } while (!SettleAll(&train) && !result.stopped);
    if (result.stopped) {
      save();
      break;
    }
    if (batch_in_epoch_ == 0) Throw<DataError>("the training data have no batch");
    if (!train.repeats()) train.Reset();
    EpochReport report{.epoch = epoch_,
                       .step = updater_->step(),
                       .samples = samples_,
                       .seconds = SecondsSince(start),
                       .train = metric_->Get()};
    report.samples_per_second = static_cast<double>(samples_) / report.seconds;
    report.learning_rate = updater_->LearningRateOf(updater_->step());
    ++epoch_;
    batch_in_epoch_ = 0;
    saved_at = -1;  // a checkpoint of this step would be one of an unfinished epoch
    if (options.validation) report.validation = Score(*options.validation);
    const NamedValues& judged = options.validation ? report.validation : report.train;
    if (!judged.empty()) updater_->Judge(judged[0].second, LargerIsBetter(judged[0].first));
    report.best =
        !judged.empty() && IsBest(options.validation ? "validation" : "training", judged[0].first, judged[0].second);
    if (options.checkpoint_every == 0 || epoch_ == options.epochs) save();
    result.train = report.train;
    result.validation = report.validation;
    if (options.on_epoch) options.on_epoch(report);
  }
  if (saved_at != updater_->step()) CheckFinite(ToCheckpoint());
  // Nothing was left to train: the values are those of the last epoch all the same.
  if (!result.stopped && options.validation && result.validation.empty()) {
    result.validation = Score(*options.validation);
  }
  stop_.store(false, std::memory_order_relaxed);  // not at the beginning: a stop requested while binding counts
  result.epochs = epoch_;
  result.steps = updater_->step();
  return result;
}

// The averages in place of what is trained, while it lives.
class Trainer::AveragesInPlace {
 public:
  explicit AveragesInPlace(Trainer* trainer) : group_(*trainer->group_) {
    if (!trainer->options_.use_average || !trainer->updater_) return;
    const HostTensorMap averages = trainer->updater_->Averages();
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
  DataParallelExecutorGroup& group_;
  HostTensorMap params_, aux_;  // what was there
};

void Trainer::Sweep(DataIter& data, const std::function<void(const Batch&)>& visit) {
  if (data.repeats()) Throw("the iterator repeats its data for ever: to score or predict, choose another last batch");
  const Feed feed = BindFor(data, false);
  const AveragesInPlace averages(this);
  data.Reset();
  bool any = false;
  while (const BatchPtr batch = feed.Arrange(data.Next())) {
    group_->Forward(batch, Mode::kPredict);
    visit(*batch);
    any = true;
  }
  data.Reset();
  if (!any) Throw<DataError>("the data have no batch");
}

NamedValues Trainer::Score(DataIter& data, const std::string& metrics) {
  TrainingMetric metric(MakeMetric(metrics.empty() ? options_.metrics : metrics), symbol_);
  Sweep(data, [&](const Batch& batch) {
    try {
      group_->UpdateMetric(&metric, batch.label);
    } catch (const NumericError& e) {
      Throw<NumericError>("{}: the model has diverged, or the data are not finite", WithoutOperation(e.message()));
    }
  });
  return metric.Get();
}

std::vector<HostTensor> Trainer::Predict(DataIter& data) {
  std::vector<std::vector<HostTensor>> parts(static_cast<size_t>(symbol_.size()));
  std::vector<ValueType> types(parts.size());
  Sweep(data, [&](const Batch&) {
    const std::vector<Tensor> outputs = group_->Outputs();
    const Plan& plan = group_->plan();
    for (size_t i = 0; i < outputs.size(); ++i) {
      parts[i].push_back(outputs[i].ToHost());
      types[i] = plan.values[plan.outputs[i].value].type;
    }
  });
  std::vector<HostTensor> whole;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (types[i].batch_axis < 0 && parts[i].size() > 1) {
      Throw<ModelError>(
          "output \"{}\" has no batch axis, so its values of {} batches cannot be joined; predict in one batch, or "
          "leave the output out",
          group_->output_names()[i], parts[i].size());
    }
    whole.push_back(parts[i].size() == 1 ? std::move(parts[i][0]) : Joined(parts[i], types[i]));
  }
  return whole;
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
  group_->Forward(BatchPtr(std::move(batch)), Mode::kPredict);
  std::vector<HostTensor> outputs;
  for (const Tensor& output : group_->Outputs()) outputs.push_back(output.ToHost());
  return outputs;
}

}  // namespace bindery
