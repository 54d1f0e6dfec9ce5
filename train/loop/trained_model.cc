#include "train/loop/trained_model.h"

#include <fmt/format.h>

#include <utility>

#include "base/files.h"
#include "base/log.h"
#include "executor/data_parallel_executor_group.h"
#include "symbol/ops/loss.h"
#include "train/data/feed.h"
#include "train/initializer.h"
#include "train/metrics/metrics.h"
#include "train/precision.h"

namespace bindery {
namespace {

std::unique_ptr<ExecutorGroup> Bind(const Model& model, const GroupOptions& group, const TrainedModelOptions& options) {
  Symbol symbol = options.loss ? options.loss(model.symbol) : model.symbol;
  std::vector<DataDesc> others = group.labels;
  others.insert(others.end(), group.states.begin(), group.states.end());
  symbol = InPrecision(symbol, options.precision, group.data, others);
  if (!LossScaleFor(options.precision, options.loss_scale).empty()) symbol = ScaleLosses(symbol);
  LogWithoutUnits(options.precision, group.devices);
  std::unique_ptr<ExecutorGroup> bound = MakeGroup(symbol, group);
  SetInitialParams(bound.get(), model, Initializer(options.initializer), group.seed);
  return bound;
}

// What is left of the options where replicas are bound by them.
TrainedModelOptions OfReplicas(const TrainedModelOptions& options) {
  TrainedModelOptions left = options;
  left.loss_scale = LossScaleFor(options.precision, options.loss_scale);
  left.precision = {};
  left.loss = {};
  return left;
}

// Equal for equal graphs, for another one most probably another.
std::string FingerprintOf(const Symbol& symbol) {
  const std::string text = SerializeModel({.symbol = symbol});
  return fmt::format("{:016x}", Checksum(text.data(), static_cast<int64_t>(text.size())));
}

}  // namespace

TrainedModel::Totals::Totals(const TrainedModelOptions& options, const Symbol& symbol)
    : metric(MakeMetric(options.metrics), symbol) {}

TrainedModel::TrainedModel(const Model& model, const GroupOptions& group, const TrainedModelOptions& options)
    : TrainedModel(Bind(model, group, options), OfReplicas(options)) {
  symbol_ = model.symbol;
  metadata_ = model.metadata;
  options_.loss = options.loss;
}

TrainedModel::TrainedModel(std::unique_ptr<ExecutorGroup> replicas, const TrainedModelOptions& options)
    : symbol_(replicas->symbol()), options_(options), group_(std::move(replicas)) {
  if (options.loss) Throw("a loss cannot be added to replicas that are bound");
  if (ParsePrecision(options.precision)) Throw("replicas that are bound have their precision");
  const std::shared_ptr<const Optimizer> optimizer = MakeOptimizer(options.optimizer);
  updater_ = std::make_unique<Updater>(
      group_.get(), UpdaterOptions{.optimizer = optimizer,
                                   .schedule = ParseSchedule(options.schedule, optimizer->options().learning_rate),
                                   .kvstore = options.kvstore,
                                   .loss_scale = ParseLossScaling(options.loss_scale),
                                   .average = ParseAveraging(options.average)});
  if (options.metrics.empty()) return;
  const size_t parts = options.report_replicas ? 1 + group_->devices().size() : 1;
  for (size_t i = 0; i < parts; ++i) totals_.emplace_back(options, group_->symbol());
}

TrainedModel::~TrainedModel() {
  for (size_t i = 0; i < in_flight_.size();) {
    try {
      updater_->WaitFor(in_flight_[i].step);  // it uses the updater
      ++i;
    } catch (const HangError&) {  // until the device is back
    } catch (...) {               // nobody is left to be told, nor to do it again for
      ++i;
    }
  }
}

void TrainedModel::Step(const BatchPtr& batch) {
  const std::optional<LossScaling>& scaling = updater_->loss_scaling();
  if (scaling && scaling->dynamic) Settle();  // so that a batch is not lost behind one that overflows
  while (in_flight_.size() >= static_cast<size_t>(Updater::kInFlight)) SettleOldest();
  updater_->Compute(batch);
  InFlight step{.batch = batch};
  const std::vector<SampleRange>& slices = group_->slices();
  for (size_t d = 0; d < slices.size(); ++d) {
    if (slices[d].size() > 0) step.shares.emplace_back(d, slices[d].size());
  }
  if (!totals_.empty()) {
    step.measurement = std::make_shared<Measurement>();
    // It has a say in whether the step is committed: it refuses outputs that are not finite, and labels.
    group_->PushMetric(totals_[0].metric, step.measurement, updater_->gate());
  }
  updater_->Apply(group_->batch_size());
  step.step = updater_->step();
  in_flight_.push_back(std::move(step));
}

void TrainedModel::Apply(int64_t samples) {
  while (in_flight_.size() >= static_cast<size_t>(Updater::kInFlight)) SettleOldest();
  updater_->Apply(samples);
  in_flight_.push_back({.step = updater_->step()});
}

void TrainedModel::SettleOldest() {
  InFlight oldest = std::move(in_flight_.front());
  const double scale = updater_->loss_scale().scale;
  bool committed = false;
  try {
    committed = updater_->Finish(oldest.step);
  } catch (const HangError&) {  // it may still end well
    in_flight_.front() = std::move(oldest);
    throw;
  } catch (...) {
    updater_->GoBack(oldest.step);
    in_flight_.clear();
    throw;
  }
  if (committed) {
    in_flight_.erase(in_flight_.begin());
    if (!oldest.measurement) return;
    const std::vector<std::vector<double>>& partials = oldest.measurement->partials;
    totals_[0].metric.Merge(partials);
    for (size_t i = 0; i < oldest.shares.size(); ++i) {
      const auto [device, samples] = oldest.shares[i];
      totals_[0].samples += static_cast<double>(samples);
      if (device + 1 >= totals_.size()) continue;
      totals_[device + 1].metric.Merge(std::span<const double>(partials[i]));
      totals_[device + 1].samples += static_cast<double>(samples);
    }
    return;
  }
  in_flight_.clear();  // what was behind it did nothing
  const bool again = oldest.batch && updater_->loss_scaling()->on_overflow == OnOverflow::kRetry;
  LogLine(LogLevel::kInfo,
          fmt::format("gradients of step {} overflow at a loss scale of {}: {} at {}", oldest.step, scale,
                      again ? "once more" : "its batch is left out; going on", updater_->loss_scale().scale));
  if (again) Step(oldest.batch);
}

void TrainedModel::Settle() {
  while (!in_flight_.empty()) SettleOldest();
}

void TrainedModel::Observe(const std::string& name, Observation* observation) {
  for (size_t i = 0; i < totals_.size(); ++i) {
    Totals& total = totals_[i];
    if (total.samples == 0) continue;
    observation->Report(i == 0 ? name : fmt::format("{}/{}", name, i - 1), total.metric.Get(), total.samples);
    total.metric.Reset();
    total.samples = 0;
  }
}

NamedValues TrainedModel::Score(DataIter& data, const std::string& metrics) {
  if (data.repeats()) Throw("the iterator repeats its data for ever: to score, choose another last batch");
  Settle();
  TrainingMetric metric(MakeMetric(metrics.empty() ? options_.metrics : metrics), group_->symbol());
  const Feed feed(group_->options(), data);
  bool any = false;
  data.Reset();
  while (const BatchPtr batch = feed.Arrange(data.Next())) {
    group_->Forward(batch, Mode::kPredict);
    group_->UpdateMetric(&metric, batch->label);
    any = true;
  }
  data.Reset();
  if (!any) Throw<DataError>("the data have no batch");
  return metric.Get();
}

Model TrainedModel::ToModel() const {
  Model model{.symbol = symbol_, .metadata = metadata_};
  group_->GetParams(&model.params, &model.aux);
  return model;
}

void TrainedModel::Serialize(const std::string& name, Archive* archive) {
  Settle();
  Archive model = archive->In("model:" + name), optimizer = archive->In("optimizer:" + name);
  HostTensorMap params, aux, state;
  std::string graph = FingerprintOf(symbol_), rule = updater_->optimizer().Text();
  Updater::Numbers numbers = updater_->ToNumbers();
  int64_t step = updater_->step(), seed = static_cast<int64_t>(group_->options().seed);
  if (!archive->reading()) {
    group_->GetParams(&params, &aux);
    state = updater_->State();
  }
  const std::string mine = graph;
  model.Text("graph", &graph);
  if (graph != mine) Throw<CheckpointError>("the checkpoint's model \"{}\" is of another graph", name);
  model.Count("seed", &seed);
  model.Tensors(Archive::Tensor::kParameter, &params);
  model.Tensors(Archive::Tensor::kAuxiliary, &aux);
  optimizer.Text("rule", &rule);
  optimizer.Count("step", &step, 0, INT64_MAX / 2);
  optimizer.Tensors(Archive::Tensor::kOptimizer, &state);
  Archive place = optimizer.In("numbers");
  place.Numbers(&numbers);
  if (!archive->reading()) return;
  try {
    updater_->CheckNumbers(numbers);
    updater_->CheckState(state);
    for (DataParallelExecutorGroup* stage : group_->stages()) stage->store().Mend(/*set=*/true);
    group_->SetParams(params, aux);
  } catch (const DeviceError&) {
    throw;
  } catch (const Error& e) {
    Throw<CheckpointError>("model \"{}\", trained by {}, cannot go on by {}: {}", name, rule,
                           updater_->optimizer().Text(), e.message());
  }
  group_->SetSeed(static_cast<uint64_t>(seed));
  updater_->SetNumbers(numbers);
  updater_->SetState(state);
  updater_->SetStep(step);
  for (Totals& total : totals_) {
    total.metric.Reset();
    total.samples = 0;
  }
}

}  // namespace bindery
