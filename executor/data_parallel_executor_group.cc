#include "executor/data_parallel_executor_group.h"

#include <algorithm>
#include <regex>
#include <utility>

#include "base/names.h"
#include "engine/backend.h"
#include "symbol/graph.h"

namespace bindery {
namespace {

std::shared_ptr<Engine> EngineOf(const GroupOptions& options) {
  if (options.engine) return options.engine;
  return options.shared_group ? options.shared_group->engine() : DefaultEngine();
}

constexpr const char* kNoBatch =
    "there is no batch: where Next gave none, the iterator's epoch is over, and Reset begins another";

constexpr size_t kMetrics = 32;  // whose programs are kept with a binding: those measured last

}  // namespace

DataParallelExecutorGroup::DataParallelExecutorGroup(const Symbol& symbol, const GroupOptions& options)
    : spec_(symbol, options),
      bindings_(spec_, EngineOf(options), options.shared_group ? &options.shared_group->bindings_ : nullptr),
      feeder_(spec_, engine()), merger_(spec_, engine()) {
  Bind(spec_.InputShapes(), spec_.mode());
}

DataParallelExecutorGroup::~DataParallelExecutorGroup() = default;

void DataParallelExecutorGroup::Bind(const std::vector<Shape>& shapes, Mode mode,
                                     const std::vector<SampleRange>* ranges) {
  ran_forward_ = ran_backward_ = false;
  const std::shared_ptr<Binding> next = bindings_.Find(shapes, mode, watch_, ranges);
  if (current_) CarryStates(*next);
  current_ = next;
}

void DataParallelExecutorGroup::Reshape(const std::vector<DataDesc>& data, const std::vector<DataDesc>& labels) {
  // Of any type may be what is cast to its variable's.
  const auto is_declared = [&](const std::string& name) {
    return std::ranges::any_of(Graph::Of(symbol()).nodes, [&](const NodePtr& node) {
      return node->is_variable() && node->declared_dtype && node->name() == name;
    });
  };
  const auto check = [&](const std::vector<DataDesc>& now, const std::vector<DataDesc>& wanted, const char* what) {
    if (now.size() != wanted.size())
      Throw("Reshape: expected {} {} descriptions, got {}", now.size(), what, wanted.size());
    for (size_t i = 0; i < now.size(); ++i) {
      if (now[i].name != wanted[i].name)
        Throw("Reshape: expected {} \"{}\", got \"{}\"", what, now[i].name, wanted[i].name);
      const bool is_other = now[i].dtype != wanted[i].dtype && !is_declared(now[i].name);
      if (is_other || now[i].layout != wanted[i].layout) {
        Throw("Reshape: {} \"{}\" is bound as {} with layout \"{}\", got {} with \"{}\"; only shapes may change", what,
              now[i].name, now[i].dtype, now[i].layout, wanted[i].dtype, wanted[i].layout);
      }
      if (now[i].shape.rank() != wanted[i].shape.rank()) {
        Throw<ShapeError>("Reshape: {} \"{}\": expected {} axes as in {}, got {}", what, now[i].name,
                          now[i].shape.rank(), now[i].shape, wanted[i].shape);
      }
    }
  };
  check(spec_.options.data, data, "data");
  check(spec_.options.labels, labels, "label");
  std::vector<Shape> shapes;
  for (const auto* list : {&data, &labels})
    for (const DataDesc& desc : *list) shapes.push_back(desc.shape);
  Bind(shapes, spec_.mode());
  const auto take = [](const std::vector<DataDesc>& wanted, std::vector<DataDesc>* now) {
    for (size_t i = 0; i < wanted.size(); ++i) (*now)[i].shape = wanted[i].shape;
  };
  take(data, &spec_.options.data);
  take(labels, &spec_.options.labels);
}

void DataParallelExecutorGroup::SetWorkload(const std::vector<double>& workload) {
  if (workload.size() != devices().size())
    Throw("SetWorkload: expected {} numbers, one per device, got {}", devices().size(), workload.size());
  SplitBatch(1, workload);
  if (workload == spec_.options.workload) return;
  const std::vector<double> before = std::exchange(spec_.options.workload, workload);
  const int split = bindings_.split();
  bindings_.SetSplit(++splits_);
  try {
    Bind(current_->shapes, current_->mode);
  } catch (...) {
    spec_.options.workload = before;
    bindings_.SetSplit(split);
    throw;
  }
}

// --- running ---

int64_t DataParallelExecutorGroup::CheckBatch(const Batch& batch, Mode mode, bool values) const {
  return feeder_.CheckBatch(batch, mode, &batch_shapes_, values).value_or(1);
}

void DataParallelExecutorGroup::SetRates(const StepRates& rates) {
  const std::shared_ptr<const StepInput> input = feeder_.NextRates(rates);
  if (!input) return;
  if (block_.num_operations() == 0) {
    StepParts parts;
    for (const auto& executor : executors()) std::ranges::move(executor->BlockParts(), std::back_inserter(parts));
    block_ = StepRange(engine(), std::move(parts));
  }
  block_.Push(input);
}

void DataParallelExecutorGroup::Forward(const BatchPtr& batch, std::optional<Mode> wanted) {
  const Mode mode = wanted.value_or(spec_.mode());
  if (!batch) throw DataError(kNoBatch);
  feeder_.ShapesOf(*batch, mode, &batch_shapes_);
  Bind(batch_shapes_, mode);
  Run({&batch, 1}, mode, false);
}

void DataParallelExecutorGroup::Forward(const std::vector<BatchPtr>& per_device, std::optional<Mode> wanted) {
  if (per_device.size() != devices().size())
    Throw("expected {} batches, one per device, got {}", devices().size(), per_device.size());
  if (per_device.size() == 1 && per_device[0]) return Forward(per_device[0], wanted);
  const Mode mode = wanted.value_or(spec_.mode());
  const Feeder::Joined joined = feeder_.Join(per_device, mode);
  Bind(joined.shapes, mode, &joined.ranges);
  Run(per_device, mode, false);
}

void DataParallelExecutorGroup::ForwardBackward(const BatchPtr& batch) {
  if (!batch) throw DataError(kNoBatch);
  feeder_.ShapesOf(*batch, Mode::kTrain, &batch_shapes_);
  Bind(batch_shapes_, Mode::kTrain);
  const std::vector<int>& wanted = current_->step->plan().head_gradients;
  const bool at_once = spec_.options.for_training && !spec_.inputs_add_up &&
                       std::ranges::all_of(wanted, [](int argument) { return argument < 0; });
  Run({&batch, 1}, Mode::kTrain, at_once);
  if (!at_once) Backward();
}

void DataParallelExecutorGroup::Run(std::span<const BatchPtr> batches, Mode mode, bool with_backward) {
  const std::vector<DeviceFeed> feeds = feeder_.NextFromDevices(batches, *current_);
  const std::shared_ptr<const StepInput> input = feeder_.Next(batches, mode, current_->ranges);
  had_labels_ = input->with_labels;
  const bool commits = !feeder_.tentative();
  current_->step->Load(input, feeds);
  current_->step->Push({.begins = commits || input->block.micro_batch == 0,
                        .forward = true,
                        .commits = commits,
                        .backward = with_backward});
  ran_forward_ = true;
  ran_backward_ = with_backward;
}

const Binding& DataParallelExecutorGroup::Ran(const char* what) const {
  if (!ran_forward_) Throw("{}: nothing has run yet; call Forward first", what);
  return *current_;
}

const Binding& DataParallelExecutorGroup::RanBackward(const char* what) const {
  Ran(what);
  if (!ran_backward_) Throw("{}: call Backward first", what);
  return *current_;
}

void DataParallelExecutorGroup::RunBackward(const DeviceArrays& head_gradients) {
  if (!spec_.options.for_training) {
    Throw("Backward: the group is bound for prediction; bind it with for_training = true");
  }
  Ran("Backward");
  if (current_->mode != Mode::kTrain) Throw("Backward: the last Forward was in prediction mode");
  if (ran_backward_) {
    Throw(
        "Backward: the values of the last Forward are used up; run Forward again (GradReq::kAdd adds up over several "
        "pairs of Forward and Backward)");
  }
  merger_.PushHeadGradients(*current_, head_gradients);
  if (spec_.inputs_add_up && (added_up_.first != current_->shapes || added_up_.second != current_->ranges)) {
    for (const auto& executor : executors()) executor->ZeroInputGradients();
    added_up_ = {current_->shapes, current_->ranges};
  }
  current_->step->Push({.backward = true});
  ran_backward_ = true;
}

// --- results ---

std::vector<Shape> DataParallelExecutorGroup::OutputShapes() const {
  std::vector<Shape> shapes;
  for (size_t i = 0; i < output_names().size(); ++i) shapes.push_back(current_->OutputShape(static_cast<int>(i)));
  return shapes;
}

std::vector<Tensor> DataParallelExecutorGroup::Outputs(int begin, int end) const {
  return merger_.Outputs(Ran("Outputs"), begin, end);
}

std::vector<std::vector<Tensor>> DataParallelExecutorGroup::OutputsPerDevice(int begin, int end) const {
  return merger_.OutputsPerDevice(Ran("Outputs"), begin, end);
}

std::vector<Tensor> DataParallelExecutorGroup::InputGradients() const {
  return merger_.InputGradients(RanBackward("InputGradients"));
}

std::vector<std::vector<Tensor>> DataParallelExecutorGroup::InputGradientsPerDevice() const {
  return merger_.InputGradientsPerDevice(RanBackward("InputGradients"));
}

GroupMetric& DataParallelExecutorGroup::MetricOf(const Metric& metric, const LabelLists* lists) const {
  const auto& participants = Ran("UpdateMetric").participants();
  for (const GroupStep::Participant& p : participants) p.executor->CheckFresh("UpdateMetric");
  std::vector<std::unique_ptr<GroupMetric>>& known = current_->metrics;
  const auto found = std::ranges::find_if(known, [&](const auto& one) { return one->IsFor(metric, lists); });
  if (found != known.end()) {
    std::rotate(found, found + 1, known.end());
    return *known.back();
  }
  CompileOptions options;
  options.threads = spec_.threads;
  options.switches = spec_.options.switches;
  auto made = std::make_unique<GroupMetric>(engine(), metric, participants, spec_, lists, current_->ranges, options);
  if (known.size() == kMetrics) known.erase(known.begin());
  known.push_back(std::move(made));
  return *known.back();
}

void DataParallelExecutorGroup::PushMetric(const Metric& metric, const std::shared_ptr<Measurement>& measurement,
                                           const VarPtr& done, const Tensor& status) const {
  const size_t labels = spec_.options.labels.size();
  if (ran_forward_ && labels > 0 && !had_labels_) {  // on the devices are those of another batch
    throw DataError(
        fmt::format("metric \"{}\": expected a batch with {} labels, got one without", metric.name(), labels));
  }
  MetricOf(metric, nullptr).Push(measurement, done, status);
}

void DataParallelExecutorGroup::UpdateMetric(Metric* metric, const std::vector<HostTensor>& labels) const {
  LabelLists lists;
  for (const GroupStep::Participant& p : Ran("UpdateMetric").participants()) {
    const SampleRange range = current_->ranges[p.executor->index()];
    std::vector<HostTensor>& list = lists.emplace_back();
    if (labels.size() != spec_.options.labels.size()) {  // refused below
      list.resize(labels.size());
      continue;
    }
    for (size_t i = 0; i < labels.size(); ++i) {
      const int axis = spec_.options.labels[i].BatchAxis();
      const Shape& shape = labels[i].shape();
      if (axis >= 0 && (axis >= shape.rank() || shape[axis] < current_->samples())) {
        Throw<ShapeError>("UpdateMetric: label \"{}\" of shape {} has no {} samples along axis {}",
                          spec_.options.labels[i].name, shape, current_->samples(), axis);
      }
      list.push_back(axis < 0 ? labels[i] : labels[i].Slice(axis, range.begin, range.end));
    }
  }
  UpdateMetric(metric, lists);
}

void DataParallelExecutorGroup::UpdateMetric(Metric* metric, const LabelLists& lists) const {
  const auto& participants = Ran("UpdateMetric").participants();
  if (lists.size() != participants.size()) {
    throw DataError(
        fmt::format("UpdateMetric: expected the labels of {} devices, got {}", participants.size(), lists.size()));
  }
  for (size_t k = 0; k < lists.size(); ++k) {
    if (lists[k].size() == spec_.options.labels.size()) continue;
    throw DataError(fmt::format("UpdateMetric: expected {} labels on {}, got {}", spec_.options.labels.size(),
                                participants[k].executor->device(), lists[k].size()));
  }
  if (const auto* on_host = dynamic_cast<const HostMetric*>(metric)) {
    const std::vector<std::vector<Tensor>> outputs = OutputsPerDevice();
    std::vector<std::vector<double>> partials;
    for (size_t k = 0; k < participants.size(); ++k) {
      MetricInputs share{.samples = current_->ranges[participants[k].executor->index()].size()};
      for (size_t i = 0; i < outputs.size(); ++i) share.outputs.emplace_back(output_names()[i], outputs[i][k].ToHost());
      for (size_t i = 0; i < lists[k].size(); ++i) share.labels.emplace_back(spec_.options.labels[i].name, lists[k][i]);
      on_host->Accumulate(share, partials.emplace_back(static_cast<size_t>(metric->partial_size())));
    }
    metric->Merge(partials);
  } else {
    metric->Merge(MetricOf(*metric, &lists).Measure(lists));
  }
}

std::vector<DataParallelExecutorGroup::Watched> DataParallelExecutorGroup::WatchedValues() const {
  const bool trains = spec_.options.for_training && current_->mode == Mode::kTrain;
  const Binding& ran = trains ? RanBackward("WatchedValues") : Ran("WatchedValues");
  std::vector<Watched> watched;
  for (const GroupStep::Participant& p : ran.participants()) {
    p.executor->CheckFresh("WatchedValues");
    const Plan& plan = p.bound->plan();
    for (const PlanOutput& value : plan.observed) {
      watched.push_back({.device = p.executor->device(),
                         .name = value.name,
                         .value = p.executor->Value(*p.bound, value.value).ToHost(),
                         .type = plan.values[value.value].type,
                         .first_sample = ran.RangeOf(p).begin});
    }
  }
  return watched;
}

void DataParallelExecutorGroup::Watch(const std::string& pattern) {
  try {
    const std::regex check(pattern);
  } catch (const std::regex_error& e) {
    Throw("\"{}\" is not a regular expression: {}", pattern, e.what());
  }
  watch_ = pattern;
}

// --- description ---

GradReq DataParallelExecutorGroup::grad_req(const std::string& argument) const {
  const int position = spec_.Find(argument);
  if (position < 0) Throw("\"{}\" is not an argument{}", argument, NameHint(argument, arg_names()));
  return spec_.signature.arguments[position].request;
}

MemoryReport DataParallelExecutorGroup::memory(int device) const {
  const Plan& own = plan(device);
  const auto on = [this](int d) { return current_->participants()[static_cast<size_t>(d)].executor->device(); };
  std::vector<const Plan*> beside;
  for (int d = 0; d < device; ++d) {
    if (ShareMemory(on(d), on(device))) beside.push_back(&plan(d));
  }
  return ReportMemory(own, beside);
}

const Plan& DataParallelExecutorGroup::plan(int device) const {
  const auto& participants = current_->participants();
  if (device < 0 || device >= static_cast<int>(participants.size()))
    Throw("device index {} is not in 0..{}", device, participants.size() - 1);
  return participants[device].bound->plan();
}

}  // namespace bindery
