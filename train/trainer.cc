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
#include "train/metrics/training_metric.h"
#include "train/precision.h"
#include "train/trainer_step.h"

namespace bindery {
namespace {

// Equal but for the extents.
bool SameArrays(const std::vector<DataDesc>& a, const std::vector<DataDesc>& b) {
  return std::ranges::equal(a, b, [](const DataDesc& x, const DataDesc& y) {
    return x.name == y.name && x.dtype == y.dtype && x.shape.rank() == y.shape.rank() && x.layout == y.layout;
  });
}

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
  options_.loss_scale = LossScaleFor(options_.precision, options_.loss_scale);
  ParseLossScaling(options_.loss_scale);
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
  const Symbol symbol = InPrecision(symbol_, options_.precision, data, labels);
  auto group = MakeGroup(for_training && loss_scale ? ScaleLosses(symbol) : symbol,
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
                                      .bucket_bytes = options_.bucket_bytes,
                                      .placements = options_.placements});
  SetInitialParams(group.get(), ToModel(), Initializer(options_.initializer), options_.seed);
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

Feed Trainer::BindFor(const DataIter& data, bool for_training) {
  Bind(data.ProvideData(), data.ProvideLabel(), for_training);
  return Feed(group_->options(), data);
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
  ExecutorGroup& group_;
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
    for (size_t i = 0; i < outputs.size(); ++i) {
      parts[i].push_back(outputs[i].ToHost());
      types[i] = group_->OutputType(static_cast<int>(i));
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
