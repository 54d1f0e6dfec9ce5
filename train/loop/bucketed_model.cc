#include "train/loop/bucketed_model.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "base/names.h"
#include "symbol/ops/loss.h"
#include "train/initializer.h"
#include "train/loop/steps_in_flight.h"
#include "train/metrics/metrics.h"
#include "train/precision.h"

namespace bindery {
namespace {

// Groups are told apart by their networks alone: options that name parameters are of those that a network has. That of
// the default key has all of them, and is told what fits none.
GroupOptions OptionsFor(GroupOptions options, const BucketNet& net, DataParallelExecutorGroup* shared) {
  options.data = net.data;
  options.labels = net.labels;
  options.shared_group = shared;
  if (!shared) return options;
  options.engine = nullptr;  // the shared group's
  const std::vector<std::string> arguments = net.symbol.ListArguments();
  std::vector<std::string> params = arguments;
  for (const auto* list : {&net.data, &net.labels, &std::as_const(options).states}) {
    for (const DataDesc& input : *list) std::erase(params, input.name);
  }
  const auto fits_none = [&](const std::string& pattern) {
    return std::ranges::none_of(params, [&](const std::string& name) { return FitsPattern(name, pattern); });
  };
  std::erase_if(options.fixed_params, fits_none);
  std::erase_if(options.param_dtypes, [&](const auto& dtype) { return fits_none(dtype.first); });
  if (auto* const requests = std::get_if<std::map<std::string, GradReq>>(&options.grad_req)) {
    std::erase_if(*requests,
                  [&](const auto& request) { return std::ranges::find(arguments, request.first) == arguments.end(); });
  }
  return options;
}

}  // namespace

BucketedModel::BucketedModel(NetFn make, int64_t default_key, const GroupOptions& group,
                             const TrainedModelOptions& options, const Model& values)
    : make_(std::move(make)), default_key_(default_key), group_options_(group), options_(options),
      metadata_(values.metadata) {
  if (!group.data.empty() || !group.labels.empty()) Throw("data and labels of a BucketedModel are its networks'");
  if (group.shared_group || group.weights) Throw("a BucketedModel has parameters of its own");
  if (ParsePrecision(options.precision)) Throw("precision: a BucketedModel trains in that of its networks");
  if (options.micro_batches != 1 || options.memory_limit != 0) {
    Throw("micro_batches: a BucketedModel computes a batch at once; batches may be of any size");
  }
  if (options.report_replicas) Throw("report_replicas: a BucketedModel has one metric, of all devices");
  BucketNet net = make_(default_key);
  Bucket bucket{.symbol = net.symbol};
  net.symbol = Bound(net.symbol);
  bucket.group = std::make_unique<DataParallelExecutorGroup>(net.symbol, OptionsFor(group_options_, net, nullptr));
  SetInitialParams(bucket.group.get(), values, Initializer(options_.initializer), group.seed);
  const std::shared_ptr<const Optimizer> optimizer = MakeOptimizer(options_.optimizer);
  bucket.updater = std::make_unique<Updater>(
      bucket.group.get(),
      UpdaterOptions{.optimizer = optimizer,
                     .schedule = ParseSchedule(options_.schedule, optimizer->options().learning_rate),
                     .kvstore = options_.kvstore,
                     .store = options_.store,
                     .loss_scale = ParseLossScaling(options_.loss_scale),
                     .average = ParseAveraging(options_.average),
                     .for_several_groups = true});
  if (!options_.metrics.empty()) {
    bucket.metric = std::make_unique<TrainingMetric>(MakeMetric(options_.metrics), net.symbol);
    total_ = std::make_unique<TrainingMetric>(MakeMetric(options_.metrics), net.symbol);
  }
  first_ = &buckets_.emplace(default_key, std::move(bucket)).first->second;
  updater_ = first_->updater.get();
}

BucketedModel::~BucketedModel() {
  WaitForAll(updater_, in_flight_);
  // What goes on with the first one's steps ends before it.
  std::erase_if(buckets_, [&](const auto& bucket) { return &bucket.second != first_; });
}

Symbol BucketedModel::Bound(const Symbol& symbol) const {
  const Symbol with_loss = options_.loss ? options_.loss(symbol) : symbol;
  return options_.loss_scale.empty() ? with_loss : ScaleLosses(with_loss);
}

BucketedModel::Bucket& BucketedModel::BucketOf(int64_t key) {
  if (const auto found = buckets_.find(key); found != buckets_.end()) return found->second;
  BucketNet net = make_(key);
  Bucket bucket{.symbol = net.symbol};
  net.symbol = Bound(net.symbol);
  std::set<std::string> given;
  for (const auto* list : {&net.data, &net.labels, &group_options_.states}) {
    for (const DataDesc& input : *list) given.insert(input.name);
  }
  const auto check = [&](const std::vector<std::string>& names, const std::vector<std::string>& known) {
    for (const std::string& name : names) {
      if (given.contains(name) || std::ranges::find(known, name) != known.end()) continue;
      Throw("bucket {}: \"{}\" is not in the network of the default key {}{}", key, name, default_key_,
            NameHint(name, known));
    }
  };
  check(net.symbol.ListArguments(), first_->group->param_names());
  check(net.symbol.ListAuxiliaryStates(), first_->group->aux_names());
  bucket.group =
      std::make_unique<DataParallelExecutorGroup>(net.symbol, OptionsFor(group_options_, net, first_->group.get()));
  bucket.updater = std::make_unique<Updater>(bucket.group.get(), UpdaterOptions{.steps_of = updater_});
  if (total_) bucket.metric = std::make_unique<TrainingMetric>(MakeMetric(options_.metrics), net.symbol);
  return buckets_.emplace(key, std::move(bucket)).first->second;
}

void BucketedModel::Step(int64_t key, const BatchPtr& batch) {
  Bucket& bucket = BucketOf(key);
  const std::optional<LossScaling>& scaling = updater_->loss_scaling();
  if (scaling && scaling->dynamic) Settle();  // so that a batch is not lost behind one that overflows
  while (in_flight_.size() >= static_cast<size_t>(Updater::kInFlight)) SettleOldest();
  bucket.updater->Compute(batch);
  InFlight step{.batch = {key, batch}};
  if (bucket.metric) {
    step.measurement = std::make_shared<Measurement>();
    bucket.group->PushMetric(*bucket.metric, step.measurement, bucket.updater->gate());
  }
  bucket.updater->Apply(bucket.group->batch_size());
  step.step = updater_->step();
  in_flight_.push_back(std::move(step));
}

void BucketedModel::SettleOldest() {
  const double scale = updater_->loss_scale().scale;
  Updater* const updater = buckets_.at(in_flight_.front().batch.key).updater.get();
  const auto [oldest, committed] = FinishOldest(updater, &in_flight_);
  if (!committed) {
    if (IsOnceMore(*updater, oldest.step, scale, /*has_batch=*/true)) Step(oldest.batch);
    return;
  }
  if (!oldest.measurement) return;
  total_->Merge(oldest.measurement->partials);
  any_ = true;
}

void BucketedModel::Settle() {
  while (!in_flight_.empty()) SettleOldest();
}

NamedValues BucketedModel::TakeMetric() {
  if (!any_) return {};
  NamedValues values = total_->Get();
  total_->Reset();
  any_ = false;
  return values;
}

std::vector<HostTensor> BucketedModel::Predict(int64_t key, const BatchPtr& batch) {
  Settle();
  DataParallelExecutorGroup& group = *BucketOf(key).group;
  group.Forward(batch, Mode::kPredict);
  std::vector<HostTensor> outputs;
  for (const Tensor& output : group.Outputs()) outputs.push_back(output.ToHost());
  return outputs;
}

NamedValues BucketedModel::Score(const std::function<std::optional<BucketBatch>()>& next) {
  if (!total_) Throw("Score: the model was made without metrics");
  Settle();
  TrainingMetric metric(MakeMetric(options_.metrics), first_->group->symbol());
  bool any = false;
  while (const std::optional<BucketBatch> given = next()) {
    Bucket& bucket = BucketOf(given->key);
    bucket.group->Forward(given->batch, Mode::kPredict);
    const auto measurement = std::make_shared<Measurement>();
    const VarPtr done = bucket.group->engine()->NewVar();
    bucket.group->PushMetric(*bucket.metric, measurement, done);
    bucket.group->engine()->Wait(done);
    metric.Merge(measurement->partials);
    any = true;
  }
  if (!any) Throw<DataError>("the data have no batch");
  return metric.Get();
}

DataParallelExecutorGroup& BucketedModel::group(int64_t key) { return *BucketOf(key).group; }

std::vector<int64_t> BucketedModel::keys() const {
  std::vector<int64_t> keys;
  for (const auto& [key, bucket] : buckets_) keys.push_back(key);
  return keys;
}

Model BucketedModel::ToModel() {
  Settle();
  Model model{.symbol = first_->symbol, .metadata = metadata_};
  first_->group->GetParams(&model.params, &model.aux);
  return model;
}

Checkpoint BucketedModel::ToCheckpoint() {
  return {.model = ToModel(),
          .optimizer_state = updater_->State(),
          .optimizer = updater_->optimizer().Text(),
          .schedule = options_.schedule,
          .numbers = updater_->ToNumbers(),
          .step = updater_->step(),
          .seed = group_options_.seed,
          .metrics = options_.metrics};
}

void BucketedModel::Restore(const Checkpoint& checkpoint) {
  Settle();
  if (SerializeModel({.symbol = checkpoint.model.symbol}) != SerializeModel({.symbol = first_->symbol})) {
    Throw<CheckpointError>("the checkpoint is of another network than that of the default key {}", default_key_);
  }
  try {
    updater_->CheckNumbers(checkpoint.numbers);
    updater_->CheckState(checkpoint.optimizer_state);
    first_->group->store().Mend(/*set=*/true);
    first_->group->SetParams(checkpoint.model.params, checkpoint.model.aux);
  } catch (const DeviceError&) {
    throw;
  } catch (const Error& error) {
    Throw<CheckpointError>("a run of {} cannot go on by {}: {}", checkpoint.optimizer, updater_->optimizer().Text(),
                           error.message());
  }
  group_options_.seed = checkpoint.seed;
  for (auto& [key, bucket] : buckets_) bucket.group->SetSeed(checkpoint.seed);
  updater_->SetNumbers(checkpoint.numbers);
  updater_->SetState(checkpoint.optimizer_state);
  updater_->SetStep(checkpoint.step);
  if (total_) total_->Reset();
  any_ = false;
}

}  // namespace bindery
