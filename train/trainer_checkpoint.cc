// Trainer: models and checkpoints.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/parse_number.h"
#include "executor/data_parallel_executor_group.h"
#include "executor/tuning.h"
#include "symbol/graph.h"
#include "train/checkpoint/best_checkpoint.h"
#include "train/checkpoint/run_info.h"
#include "train/metrics/training_metric.h"
#include "train/trainer.h"

namespace bindery {
namespace {

constexpr const char* kBalance = "balance";  // in a checkpoint's info: Balancer::Text

std::string Text(const Symbol& symbol) { return SerializeModel({.symbol = symbol}); }

// The first lines in which two graphs differ, for a message.
std::string FirstDifference(const Symbol& theirs, const Symbol& ours) {
  const std::string a = theirs.DebugString(), b = ours.DebugString();
  if (a == b) return "its constants have other numbers, as those of label_scale have of other rows";
  size_t begin = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()) && a[i] == b[i]; ++i) {
    if (a[i] == '\n') begin = i + 1;
  }
  const auto line = [begin](const std::string& text) { return text.substr(begin, text.find('\n', begin) - begin); };
  return fmt::format("it has `{}` where this one has `{}`", line(a), line(b));
}

// Throws CheckpointError unless the checkpoint has just the values of this model.
void CheckValues(const Checkpoint& checkpoint, const std::vector<StoredParameter>& parameters) {
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

// Does a variable leave open what training gave, but for the batch's extent?
bool LeavesOpen(const Node& node, const DataDesc& given) {
  if (!node.declared_shape || (!node.declared_dtype && given.dtype != DType::kFloat32)) return true;
  Shape shape = *node.declared_shape;
  if (given.BatchAxis() >= 0 && given.BatchAxis() < shape.rank()) shape.Set(given.BatchAxis(), 1);
  return !shape.IsKnown();
}

// What training gave where the graph leaves that open.
void NoteInputs(const std::vector<DataDesc>& data, Model* model) {
  std::map<std::string, TrainedInput> inputs;
  for (const NodePtr& node : Graph::Of(model->symbol).nodes) {
    const auto given = std::ranges::find(data, node->name(), &DataDesc::name);
    if (!node->is_variable() || given == data.end() || !LeavesOpen(*node, *given)) continue;
    Shape shape = given->shape;
    if (given->BatchAxis() >= 0) shape.Set(given->BatchAxis(), kUnknownDim);
    inputs[node->name()] = {given->dtype, shape};
  }
  SetTrainedInputs(inputs, model);
}

// "validation accuracy 0.98"; no value if it is none.
std::optional<std::pair<std::string, double>> ParseBest(const std::string& text) {
  const size_t space = text.rfind(' ');
  if (space == std::string::npos) return std::nullopt;
  const auto value = ParseNumber<double>(std::string_view(text).substr(space + 1));
  if (!value) return std::nullopt;
  return std::pair(text.substr(0, space), *value);
}

}  // namespace

Model Trainer::ToModel() const {
  // Once bound, values have the dtypes they are trained in, not those of a loaded file.
  Model model{.symbol = symbol_, .params = params_, .aux = aux_, .metadata = metadata_};
  if (!group_) return model;
  group_->GetParams(&model.params, &model.aux);
  if (updater_) NoteInputs(group_->options().data, &model);
  return model;
}

// What is told of the data: unless somebody has said otherwise, the model says it from now on.
void Trainer::TakeMetadata(const DataIter& train) {
  for (const auto& [name, text] : train.Metadata()) {
    const auto [own, is_new] = metadata_.emplace(name, text);
    if (is_new || own->second == text) continue;
    LogLine(LogLevel::kInfo,
            fmt::format("the model's \"{}\" is not that of the data that it is trained on, and stays as it is", name));
  }
}

Model Trainer::ToAveragedModel() const {
  Model model = ToModel();
  for (auto& [name, value] : Averages()) model.params[name] = std::move(value);
  return model;
}

HostTensorMap Trainer::Averages() const {
  if (updater_) return updater_->Averages();
  return pending_ && pending_->step > 0 ? Updater::AveragesIn(pending_->state) : HostTensorMap();
}

std::map<std::string, std::string> Trainer::Info() const {
  RunInfo info = RunInfoOf({.devices = options_.devices,
                            .workload = options_.workload,
                            .fixed_params = options_.fixed_params,
                            .param_dtypes = options_.param_dtypes,
                            .switches = {.policy = options_.policy, .tuning = options_.tuning},
                            .placements = options_.placements});
  info["precision"] = options_.precision;
  info["loss scale"] = options_.loss_scale;
  info["average"] = options_.average;
  info["multipliers"] = ToText(options_.multipliers);
  if (options_.reproducible_block != 0) {
    info[kReproducibleBlock] = fmt::format("{}", options_.reproducible_block);
  } else if (micro_batches() != MicroBatches::kAutomatic) {
    info["micro-batches"] = fmt::format("{}", micro_batches());
  }
  if (group_) info["threads per device"] = fmt::format("{}", group_->threads_per_device());
  return info;
}

std::string Trainer::BestSoFar() const {
  return best_ ? fmt::format("{} {}", best_->first, best_->second) : std::string();
}

Checkpoint Trainer::ToCheckpoint(DataIter* train) {
  if (!updater_) Throw("there is nothing to save before the first Fit");
  SettleAll(train);
  Checkpoint checkpoint{.model = ToModel(),
                        .optimizer_state = updater_->State(),
                        .optimizer = updater_->optimizer().Text(),
                        .schedule = updater_->schedule().Text(),
                        .numbers = updater_->ToNumbers(),
                        .step = updater_->step(),
                        .epoch = epoch_,
                        .batch_in_epoch = batch_in_epoch_,
                        .seed = options_.seed};
  if (train) checkpoint.iterator = train->SaveState();
  if (batch_in_epoch_ > 0) checkpoint.metric_totals.assign(metric_->total().begin(), metric_->total().end());
  checkpoint.metrics = MetricsText();
  checkpoint.info = Info();
  checkpoint.info["initializer"] = options_.initializer;
  if (balancer_.on()) checkpoint.info[kBalance] = balancer_.Text();
  if (options_.tuning != Tuning::kOff) checkpoint.info[kTuningChoices] = TuningChoices();
  if (best_) checkpoint.info[kBestValue] = BestSoFar();
  checkpoint.info.insert(options_.info.begin(), options_.info.end());
  return checkpoint;
}

void Trainer::CheckOptimizerState(const Updater& updater, const HostTensorMap& state, const std::string& optimizer) {
  try {
    updater.CheckState(state);
  } catch (const CheckpointError& e) {
    Throw<CheckpointError>(
        "the checkpoint was trained by {}, whose state {} cannot take over: {}; go on with the checkpoint's optimizer, "
        "average and fixed parameters, or start a new run",
        optimizer, updater.optimizer().Text(), e.message());
  }
}

void Trainer::CheckFits(const Checkpoint& checkpoint) const {
  if (group_) {
    std::vector<StoredParameter> parameters;
    for (const DataParallelExecutorGroup* stage : group_->stages()) {
      const auto& own = stage->store().parameters();
      parameters.insert(parameters.end(), own.begin(), own.end());
    }
    CheckValues(checkpoint, parameters);
  }
  const Symbol& graph = checkpoint.model.symbol;
  if (!graph.empty() && Text(graph) != Text(symbol_)) {
    Throw<CheckpointError>("the checkpoint is of another graph: {}", FirstDifference(graph, symbol_));
  }
  if (updater_) {
    CheckOptimizerState(*updater_, checkpoint.optimizer_state, checkpoint.optimizer);
    updater_->CheckNumbers(checkpoint.numbers);
  }
  const size_t totals = checkpoint.metric_totals.size();
  if (checkpoint.metrics == MetricsText() && totals != 0 && totals != static_cast<size_t>(metric_->total_size())) {
    Throw<CheckpointError>("the checkpoint has {} totals of the metrics {}, which have {}", totals, checkpoint.metrics,
                           metric_->total_size());
  }
}

void Trainer::WarnOfDifferences(const Checkpoint& checkpoint) const {
  const auto warn = [](const std::string& message) { LogLine(LogLevel::kWarning, message); };
  bindery::WarnOfDifferences(checkpoint.info, Info(), "the checkpoint");
  const std::shared_ptr<const Optimizer> optimizer = MakeOptimizer(options_.optimizer);
  const std::string schedule = ParseSchedule(options_.schedule, optimizer->options().learning_rate)->Text();
  if (checkpoint.optimizer != optimizer->Text() || checkpoint.schedule != schedule) {
    warn(fmt::format("the checkpoint was trained by {} with {}, this run goes on by {} with {}", checkpoint.optimizer,
                     checkpoint.schedule, optimizer->Text(), schedule));
  }
  if (checkpoint.batch_in_epoch > 0 && checkpoint.metrics != MetricsText()) {
    warn(fmt::format("the metrics of the epoch so far were {}: those of this run, {}, begin now", checkpoint.metrics,
                     MetricsText()));
  }
}

void Trainer::Restore(const Checkpoint& checkpoint, DataIter* train) {
  CheckFits(checkpoint);
  AdoptTuningChoices(ValueOf(checkpoint.info, kTuningChoices));
  Balancer balancer = balancer_;
  if (const auto balance = checkpoint.info.find(kBalance); balancer.on() && balance != checkpoint.info.end()) {
    balancer.Set(balance->second);
  }
  while (in_flight_ > 0) {  // of a Fit that ended by an exception
    try {
      Settle(nullptr);
    } catch (const HangError&) {
      throw;
    } catch (const Error&) {  // what became of them does not matter any more
    }
  }
  if (train && !checkpoint.iterator.empty()) train->LoadState(checkpoint.iterator);
  WarnOfDifferences(checkpoint);
  options_.seed = checkpoint.seed;
  if (group_) {
    for (DataParallelExecutorGroup* stage : group_->stages()) stage->store().Mend(/*set=*/true);
    group_->SetParams(checkpoint.model.params, checkpoint.model.aux);
    group_->SetSeed(checkpoint.seed);
  } else {
    params_ = checkpoint.model.params;
    aux_ = checkpoint.model.aux;
  }
  if (updater_) {
    updater_->SetNumbers(checkpoint.numbers);
    updater_->SetState(checkpoint.optimizer_state);
    updater_->SetStep(checkpoint.step);
  } else {
    pending_ = UpdaterState{.state = checkpoint.optimizer_state,
                            .optimizer = checkpoint.optimizer,
                            .step = checkpoint.step,
                            .numbers = checkpoint.numbers};
  }
  epoch_ = checkpoint.epoch;
  batch_in_epoch_ = checkpoint.batch_in_epoch;
  metric_->Reset();
  if (checkpoint.metrics == MetricsText()) metric_->SetTotal(checkpoint.metric_totals);
  balancer_ = std::move(balancer);
  const auto best = checkpoint.info.find(kBestValue);
  best_ = best == checkpoint.info.end() ? std::nullopt : ParseBest(best->second);
  best_step_ = IsOfBestEpoch(checkpoint.info) ? std::optional(checkpoint.step) : std::nullopt;
}

}  // namespace bindery
