#include "train/loop/trained_model.h"

#include <fmt/format.h>

#include <utility>

#include "base/files.h"
#include "executor/data_parallel_executor_group.h"
#include "symbol/ops/loss.h"
#include "train/checkpoint/run_info.h"
#include "train/data/feed.h"
#include "train/initializer.h"
#include "train/loop/steps_in_flight.h"
#include "train/memory.h"
#include "train/metrics/metrics.h"
#include "train/precision.h"
#include "train/predictions.h"

namespace bindery {
namespace {

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

TrainedModel::Replicas TrainedModel::Bind(const Model& model, const GroupOptions& group,
                                          const TrainedModelOptions& options) {
  Symbol symbol = options.loss ? options.loss(model.symbol) : model.symbol;
  std::vector<DataDesc> others = group.labels;
  others.insert(others.end(), group.states.begin(), group.states.end());
  symbol = InPrecision(symbol, options.precision, group.data, others);
  if (!LossScaleFor(options.precision, options.loss_scale).empty()) symbol = ScaleLosses(symbol);
  LogWithoutUnits(options.precision, group.devices);
  const std::shared_ptr<const Optimizer> optimizer = MakeOptimizer(options.optimizer);
  const auto [cut, mirror] = PlanBatch(options.micro_batches, options.memory_limit, symbol, group, optimizer.get(),
                                       ParseAveraging(options.average).has_value());
  GroupOptions of_pieces = cut.pieces == 1 ? group : ForMicroBatches(group, cut.largest());
  of_pieces.mirror = mirror;
  Replicas bound{.group = MakeGroup(symbol, of_pieces), .cut = cut};
  SetInitialParams(bound.group.get(), model, Initializer(options.initializer), group.seed);
  return bound;
}

TrainedModel::Totals::Totals(const TrainedModelOptions& options, const Symbol& symbol)
    : metric(MakeMetric(options.metrics), symbol) {}

TrainedModel::TrainedModel(const Model& model, const GroupOptions& group, const TrainedModelOptions& options)
    : TrainedModel(Bind(model, group, options), OfReplicas(options)) {
  symbol_ = model.symbol;
  metadata_ = model.metadata;
  options_.loss = options.loss;
  precision_ = options.precision;
}

TrainedModel::TrainedModel(std::unique_ptr<ExecutorGroup> replicas, const TrainedModelOptions& options)
    : TrainedModel(Replicas{.group = std::move(replicas), .cut = {.pieces = options.micro_batches, .batch_size = 0}},
                   options) {}

TrainedModel::TrainedModel(Replicas replicas, const TrainedModelOptions& options)
    : symbol_(replicas.group->symbol()), options_(options), group_(std::move(replicas.group)), cut_(replicas.cut) {
  if (cut_.batch_size == 0) {  // the user's
    cut_.batch_size = BatchSizeOf(group_->options().data);
    if (cut_.pieces < 1 || cut_.pieces > cut_.batch_size || options.memory_limit != 0) {
      Throw("micro_batches of replicas that are bound: expected 1 to {}, and no memory_limit, got {}", cut_.batch_size,
            cut_.pieces);
    }
  }
  if (options.loss) Throw("a loss cannot be added to replicas that are bound");
  if (ParsePrecision(options.precision)) Throw("replicas that are bound have their precision");
  const std::shared_ptr<const Optimizer> optimizer = MakeOptimizer(options.optimizer);
  updater_ = std::make_unique<Updater>(
      group_.get(), UpdaterOptions{.optimizer = optimizer,
                                   .schedule = ParseSchedule(options.schedule, optimizer->options().learning_rate),
                                   .kvstore = options.kvstore,
                                   .store = options.store,
                                   .loss_scale = ParseLossScaling(options.loss_scale),
                                   .average = ParseAveraging(options.average)});
  if (options.metrics.empty()) return;
  const size_t parts = options.report_replicas ? 1 + group_->devices().size() : 1;
  for (size_t i = 0; i < parts; ++i) totals_.emplace_back(options, group_->symbol());
}

TrainedModel::~TrainedModel() { WaitForAll(updater_.get(), in_flight_); }

std::vector<BatchPtr> TrainedModel::Cut(const BatchPtr& batch) const {
  if (cut_.pieces == 1 || !batch) return {batch};  // none is refused where it would be computed
  const int64_t samples = group_->CheckBatch(*batch, Mode::kTrain);
  return CutBatch(batch, group_->options(), samples, cut_.PiecesOf(samples));
}

void TrainedModel::Step(const BatchPtr& batch) { Step(Cut(batch)); }

void TrainedModel::Step(std::span<const BatchPtr> micro_batches) {
  const std::optional<LossScaling>& scaling = updater_->loss_scaling();
  if (scaling && scaling->dynamic) Settle();  // so that a batch is not lost behind one that overflows
  while (in_flight_.size() >= static_cast<size_t>(Updater::kInFlight)) SettleOldest();
  InFlight step{.batches = {micro_batches.begin(), micro_batches.end()}};
  const auto measure = [&](size_t) {
    // It has a say in whether the step is committed: it refuses outputs that are not finite, and labels.
    if (!totals_.empty()) updater_->Measure(totals_[0].metric, &step.measurement);
  };
  const Joining together = updater_->Together();
  updater_->Apply(updater_->Compute(micro_batches, measure));
  step.step = updater_->step();
  in_flight_.push_back(std::move(step));
}

void TrainedModel::Apply(int64_t samples) {
  while (in_flight_.size() >= static_cast<size_t>(Updater::kInFlight)) SettleOldest();
  updater_->Apply(samples);
  in_flight_.push_back({.step = updater_->step()});
}

void TrainedModel::SettleOldest() {
  const double scale = updater_->loss_scale().scale;
  const auto [oldest, committed] = FinishOldest(updater_.get(), &in_flight_);
  if (!committed) {
    if (IsOnceMore(*updater_, oldest.step, scale, !oldest.batches.empty())) Step(oldest.batches);
    return;
  }
  for (size_t i = 0; i < totals_.size(); ++i) {
    const std::optional<size_t> replica = i == 0 ? std::nullopt : std::optional(i - 1);
    oldest.measurement.MergeInto(&totals_[i].metric, replica);
    totals_[i].samples += static_cast<double>(oldest.measurement.Samples(replica));
  }
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
    ScoreBatch(group_.get(), cut_, batch, &metric);
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

std::map<std::string, std::string> TrainedModel::Info() const {
  RunInfo info = RunInfoOf(group_->options());
  if (precision_) info["precision"] = *precision_;
  info["loss scale"] = options_.loss_scale;
  info["average"] = options_.average;
  info["micro-batches"] = fmt::format("{}", cut_.pieces);
  info["schedule"] = updater_->schedule().Text();
  return info;
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
  RunInfo ours = Info(), theirs = ours;
  Archive run = model.In("run");
  run.Texts(&theirs);
  if (!archive->reading()) return;
  ours["optimizer"] = updater_->optimizer().Text();
  theirs["optimizer"] = rule;
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
  WarnOfDifferences(theirs, ours, fmt::format("model \"{}\" of the checkpoint", name));
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
