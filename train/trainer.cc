#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/log.h"
#include "train/array_iter.h"
#include "train/initializer.h"

namespace bindery {
namespace {

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string Join(const std::vector<double>& numbers) {
  std::string text;
  for (const double number : numbers) text += fmt::format("{}{}", text.empty() ? "" : ",", number);
  return text;
}

// Throws CheckpointError unless the checkpoint has just the values of this model.
void CheckFits(const Checkpoint& checkpoint, const std::vector<StoredParameter>& parameters) {
  const char* kOther = "the checkpoint is of another model";
  std::vector<std::string> names;
  for (const StoredParameter& p : parameters) {
    const HostTensorMap& values = p.auxiliary ? checkpoint.model.aux : checkpoint.model.params;
    const auto value = values.find(p.name);
    if (value == values.end()) Throw<CheckpointError>("{}: it has no \"{}\"", kOther, p.name);
    if (value->second.shape() != p.shape) {
      Throw<CheckpointError>("{}: its \"{}\" is {}, expected {}", kOther, p.name, value->second.shape(), p.shape);
    }
    names.push_back(p.name);
  }
  for (const HostTensorMap* values : {&checkpoint.model.params, &checkpoint.model.aux}) {
    for (const auto& [name, value] : *values) {
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;
      Throw<CheckpointError>("{}: it has \"{}\" besides", kOther, name);
    }
  }
}

// Is a larger value better? By the first metric: rates of success are, losses and errors are not.
bool LargerIsBetter(const std::string& metric) { return metric.starts_with("accuracy") || metric.starts_with("top"); }

std::string Join(const std::vector<Device>& devices) {
  std::string text;
  for (const Device& device : devices) text += (text.empty() ? "" : ",") + ToString(device);
  return text;
}

std::string DescribeDevices(const std::string& devices, const std::string& workload) {
  return workload.empty() ? devices : fmt::format("{} with workload {}", devices, workload);
}

std::string Text(const Symbol& symbol) { return SerializeModel({.symbol = symbol}); }

}  // namespace

Trainer::Trainer(const Symbol& symbol, const TrainerOptions& options) : symbol_(symbol), options_(options) {
  // Texts are checked now, not in the middle of a run.
  MakeOptimizer(options_.optimizer);
  ParseSchedule(options_.schedule);
  Initializer{options_.initializer};
  train_metric_ = MakeMetric(options_.metrics);
}

Trainer::Trainer(const Model& model, const TrainerOptions& options) : Trainer(model.symbol, options) {
  params_ = model.params;
  aux_ = model.aux;
  metadata_ = model.metadata;
}

Trainer::~Trainer() = default;

void Trainer::Bind(const std::vector<DataDesc>& data, const std::vector<DataDesc>& labels, bool for_training) {
  if (group_ && (!for_training || group_->options().for_training)) return;
  if (group_) {   // bound for prediction before: keep the values
    group_->GetParams(&params_, &aux_);
    group_.reset();
  }
  group_ = std::make_unique<DataParallelExecutorGroup>(
      symbol_, GroupOptions{.devices = options_.devices, .workload = options_.workload, .data = data, .labels = labels,
                            .for_training = for_training, .fixed_params = options_.fixed_params, .engine = options_.engine,
                            .threads_per_device = options_.threads_per_device, .seed = options_.seed, .policy = options_.policy});
  SetInitialParams();
  if (!for_training) return;
  std::shared_ptr<const Optimizer> optimizer = MakeOptimizer(options_.optimizer);
  updater_ = std::make_unique<Updater>(group_.get(), UpdaterOptions{.optimizer = optimizer,
                                                                    .schedule = ParseSchedule(options_.schedule, optimizer->options().learning_rate),
                                                                    .kvstore = options_.kvstore});
}

void Trainer::SetInitialParams() {
  std::map<std::string, ValueType> missing;
  for (const StoredParameter& p : group_->store().parameters()) {
    const HostTensorMap& given = p.auxiliary ? aux_ : params_;
    if (!given.contains(p.name)) missing[p.name] = {.dtype = p.dtype, .shape = p.shape};
  }
  HostTensorMap args = params_, aux = aux_;
  for (auto& [name, value] : InitialValues(symbol_, missing, Initializer(options_.initializer), options_.seed)) {
    (group_->store().Find(name)->auxiliary ? aux : args)[name] = std::move(value);
  }
  group_->SetParams(args, aux);
}

FitResult Trainer::Fit(DataIter& train, const FitOptions& options) {
  Bind(train.ProvideData(), train.ProvideLabel(), true);
  std::optional<CheckpointStore> store;
  if (!options.checkpoints.empty()) store.emplace(options.checkpoints, options.keep);
  if (options.resume) {
    if (!store) Throw("resume needs a folder of checkpoints");
    if (const std::optional<Checkpoint> newest = store->LoadNewest()) {
      Restore(*newest, &train);
      const bool done = epoch_ >= options.epochs;
      Log(LogLevel::kInfo, done ? fmt::format("the checkpoint of step {} has {} epochs already: nothing is left to train", newest->step, epoch_)
                                : fmt::format("going on after step {}, in epoch {}", newest->step, epoch_ + 1));
    } else {
      Log(LogLevel::kInfo, fmt::format("there is no checkpoint in \"{}\" yet: starting anew", options.checkpoints));
    }
  }
  FitResult result;
  const auto save = [&] {
    if (store) result.checkpoint = store->Save(ToCheckpoint(&train));
  };
  const int64_t batches = (train.samples() + train.batch_size() - 1) / train.batch_size();
  std::optional<double> best;
  while (epoch_ < options.epochs && !result.stopped) {
    const auto start = std::chrono::steady_clock::now();
    if (batch_in_epoch_ == 0) train_metric_->Reset();
    int64_t samples = 0;
    int64_t saved_at = -1;
    while (const BatchPtr batch = train.Next()) {
      updater_->Update(batch);
      group_->UpdateMetric(train_metric_.get(), batch->label);
      CheckFinite();
      ++batch_in_epoch_;
      samples += group_->batch_size();
      if (options.on_batch) {
        options.on_batch({.epoch = epoch_, .batch = batch_in_epoch_, .batches = batches, .step = updater_->step(), .samples = samples,
                          .learning_rate = updater_->schedule().LearningRate(updater_->step()), .seconds = SecondsSince(start),
                          .metric = train_metric_.get()});
      }
      if (options.checkpoint_every > 0 && updater_->step() % options.checkpoint_every == 0) {
        save();
        saved_at = updater_->step();
      }
      if (stop_.load(std::memory_order_relaxed)) {
        result.stopped = true;
        break;
      }
    }
    if (result.stopped) {
      if (saved_at != updater_->step()) save();
      break;
    }
    train.Reset();
    EpochReport report{.epoch = epoch_, .step = updater_->step(), .seconds = SecondsSince(start), .train = train_metric_->Get()};
    report.samples_per_second = static_cast<double>(samples) / report.seconds;
    report.learning_rate = updater_->schedule().LearningRate(updater_->step());
    ++epoch_;
    batch_in_epoch_ = 0;
    if (options.validation) report.validation = Score(*options.validation);
    const NamedValues& judged = options.validation ? report.validation : report.train;
    if (!judged.empty()) {
      const double value = judged[0].second;
      report.best = !best || (LargerIsBetter(judged[0].first) ? value > *best : value < *best);
      if (report.best) best = value;
    }
    if (options.checkpoint_every == 0 || epoch_ == options.epochs) save();
    result.train = report.train;
    result.validation = report.validation;
    if (options.on_epoch) options.on_epoch(report);
  }
  // Nothing was left to train: the values are those of the last epoch all the same.
  if (!result.stopped && options.validation && result.validation.empty()) result.validation = Score(*options.validation);
  stop_.store(false, std::memory_order_relaxed);   // not at the beginning: a stop requested while binding counts
  result.epochs = epoch_;
  result.steps = updater_->step();
  return result;
}

// A loss that is no longer finite never comes back; better to stop at once.
void Trainer::CheckFinite() const {
  for (const auto& [name, value] : train_metric_->Get()) {
    if (std::isfinite(value) || train_metric_->total().empty()) continue;
    throw NumericError(fmt::format("{} is {} at step {}: training has diverged; lower the learning rate or look at the data", name, value, updater_->step()));
  }
}

NamedValues Trainer::Evaluate(DataIter& data, Metric* metric) {
  Bind(data.ProvideData(), data.ProvideLabel(), false);
  metric->Reset();
  data.Reset();
  while (const BatchPtr batch = data.Next()) {
    group_->Forward(batch, Mode::kPredict);
    group_->UpdateMetric(metric, batch->label);
  }
  data.Reset();
  return metric->Get();
}

NamedValues Trainer::Score(DataIter& data, const std::string& metrics) {
  const std::unique_ptr<Metric> metric = MakeMetric(metrics.empty() ? options_.metrics : metrics);
  return Evaluate(data, metric.get());
}

std::vector<HostTensor> Trainer::Predict(DataIter& data) {
  Bind(data.ProvideData(), data.ProvideLabel(), false);
  std::vector<std::vector<HostTensor>> parts;
  data.Reset();
  while (const BatchPtr batch = data.Next()) {
    group_->Forward(batch, Mode::kPredict);
    const std::vector<Tensor> outputs = group_->Outputs();
    parts.resize(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) parts[i].push_back(outputs[i].ToHost());
  }
  data.Reset();
  std::vector<HostTensor> whole;
  for (const std::vector<HostTensor>& list : parts) whole.push_back(Concatenate(list, 0));
  return whole;
}

std::vector<HostTensor> Trainer::Predict(const std::vector<HostTensor>& data) {
  std::vector<DataDesc> descs;
  if (group_) {
    descs = group_->options().data;
  } else {
    const std::vector<std::string> arguments = symbol_.ListArguments();
    for (size_t i = 0; i < data.size(); ++i) descs.push_back({arguments.at(i), data[i].shape(), data[i].dtype()});
  }
  Bind(descs, {}, false);
  auto batch = std::make_shared<Batch>();
  batch->data = data;
  group_->Forward(BatchPtr(std::move(batch)), Mode::kPredict);
  std::vector<HostTensor> outputs;
  for (const Tensor& output : group_->Outputs()) outputs.push_back(output.ToHost());
  return outputs;
}

Model Trainer::ToModel() const {
  Model model{.symbol = symbol_, .params = params_, .aux = aux_, .metadata = metadata_};
  if (group_) group_->GetParams(&model.params, &model.aux);
  return model;
}

Checkpoint Trainer::ToCheckpoint(const DataIter* train) const {
  if (!updater_) Throw("there is nothing to save before the first Fit");
  Checkpoint checkpoint{.model = ToModel(), .optimizer_state = updater_->State(), .optimizer = updater_->optimizer().Text(),
                        .schedule = updater_->schedule().Text(), .step = updater_->step(), .epoch = epoch_,
                        .batch_in_epoch = batch_in_epoch_, .seed = options_.seed};
  if (train) checkpoint.iterator = train->SaveState();
  if (batch_in_epoch_ > 0) checkpoint.metric_totals.assign(train_metric_->total().begin(), train_metric_->total().end());
  checkpoint.metrics = options_.metrics;
  checkpoint.info["devices"] = Join(options_.devices);
  checkpoint.info["workload"] = Join(options_.workload);
  checkpoint.info["initializer"] = options_.initializer;
  checkpoint.info["kernels"] = options_.policy == KernelPolicy::kFast ? "fast" : "reference";
  return checkpoint;
}

void Trainer::WarnOfDifferences(const Checkpoint& checkpoint) const {
  const auto warn = [](const std::string& message) { Log(LogLevel::kWarning, message); };
  if (!checkpoint.model.symbol.empty() && Text(checkpoint.model.symbol) != Text(symbol_)) {
    warn("the checkpoint has the same parameters, but another graph: this run goes on with its own");
  }
  const auto info = [&](const char* key) {
    const auto found = checkpoint.info.find(key);
    return found == checkpoint.info.end() ? "" : found->second;
  };
  const std::string devices = Join(options_.devices), workload = Join(options_.workload);
  if (info("devices") != devices || info("workload") != workload) {
    warn(fmt::format("the checkpoint was trained on {}, this run goes on on {}: results are equal up to rounding, not to the bit",
                     DescribeDevices(info("devices"), info("workload")), DescribeDevices(devices, workload)));
  }
  if (!updater_) return;
  if (checkpoint.optimizer != updater_->optimizer().Text() || checkpoint.schedule != updater_->schedule().Text()) {
    warn(fmt::format("the checkpoint was trained by {} with {}, this run goes on by {} with {}", checkpoint.optimizer,
                     checkpoint.schedule, updater_->optimizer().Text(), updater_->schedule().Text()));
  }
}

void Trainer::Restore(const Checkpoint& checkpoint, DataIter* train) {
  if (group_) CheckFits(checkpoint, group_->store().parameters());
  WarnOfDifferences(checkpoint);
  params_ = checkpoint.model.params;
  aux_ = checkpoint.model.aux;
  options_.seed = checkpoint.seed;
  if (group_) {
    group_->SetParams(params_, aux_);
    group_->SetSeed(checkpoint.seed);
  }
  epoch_ = checkpoint.epoch;
  batch_in_epoch_ = checkpoint.batch_in_epoch;
  if (checkpoint.metrics == options_.metrics) train_metric_->SetTotal(checkpoint.metric_totals);
  if (train && !checkpoint.iterator.empty()) train->LoadState(checkpoint.iterator);
  if (!updater_) return;
  updater_->SetState(checkpoint.optimizer_state);
  updater_->SetStep(checkpoint.step);
}

}  // namespace bindery
