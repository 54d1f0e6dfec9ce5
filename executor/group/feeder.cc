#include "executor/group/feeder.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace bindery {
namespace {

ValueType TypeOf(const DataDesc& desc) { return {.dtype = desc.dtype, .shape = {}, .batch_axis = desc.BatchAxis()}; }

// Of the devices' batches, of which some may be null.
const Batch& FirstOf(std::span<const BatchPtr> per_device) {
  const auto given = std::ranges::find_if(per_device, [](const BatchPtr& batch) { return batch != nullptr; });
  if (given == per_device.end()) throw DataError("no device is given a batch");
  return **given;
}

}  // namespace

Feeder::Feeder(const GroupSpec& spec, std::shared_ptr<Engine> engine)
    : spec_(spec), engine_(std::move(engine)),
      ranges_(spec.symbol, spec.signature, spec.AllInputs(), spec.options.for_training),
      inputs_(StepInput{.shares = std::vector<StepInput::Share>(
                            spec.options.devices.size(),
                            {.batch = {}, .staging = {}, .landed = std::vector<bool>(spec.num_inputs())})}),
      adds_up_(std::ranges::any_of(spec.signature.arguments,
                                   [](const auto& argument) { return argument.request == GradReq::kAdd; })) {}

std::optional<int64_t> Feeder::CheckBatch(const Batch& batch, Mode mode, std::vector<Shape>* shapes, bool values,
                                          bool is_cut) const {
  const GroupOptions& options = spec_.options;
  const auto check_count = [](size_t given, size_t described, const char* what) {
    if (given != described) {
      throw DataError(fmt::format("the batch has {} {} arrays, {} are described", given, what, described));
    }
  };
  check_count(batch.num_data(), options.data.size(), "data");
  const bool with_labels = !options.labels.empty() && batch.num_labels() > 0;
  if (with_labels) check_count(batch.num_labels(), options.labels.size(), "label");
  if (mode == Mode::kTrain && !options.labels.empty() && !with_labels) throw DataError("a training batch needs labels");
  if (mode == Mode::kTrain && options.for_training && spec_.unbound_label >= 0) {
    throw DataError(
        fmt::format("cannot train without the label \"{}\": data have to bring it, and the options of a "
                    "group to describe it",
                    spec_.arg_names[spec_.unbound_label]));
  }
  std::optional<int64_t> rows;
  shapes->clear();
  for (size_t i = 0; i < (with_labels ? spec_.num_inputs() : options.data.size()); ++i) {
    const DataDesc& desc = spec_.input(i);
    const Shape shape = ShapeOf(batch, i);
    if (shape.rank() != desc.shape.rank()) {
      throw DataError(
          fmt::format("\"{}\": expected {} axes as in {}, got {}", desc.name, desc.shape.rank(), desc.shape, shape));
    }
    const int axis = desc.BatchAxis();
    if (axis >= 0 && !rows) {
      rows = shape[axis];
      if (*rows == 0) throw DataError(fmt::format("\"{}\" {}: a batch has at least one sample", desc.name, shape));
      if (batch.pad < 0 || batch.pad >= *rows || (batch.samples > 0 && batch.samples != *rows - batch.pad)) {
        throw DataError(fmt::format("a batch of {} samples and {} rows of padding does not fit its data of {} rows",
                                    batch.samples, batch.pad, *rows));
      }
      if (!batch.index.empty() && std::ssize(batch.index) < *rows - batch.pad) {
        throw DataError(
            fmt::format("the index of a batch has {} of its {} samples", batch.index.size(), *rows - batch.pad));
      }
    }
    shapes->push_back(axis < 0 ? shape : shape.With(axis, std::max<int64_t>(0, shape[axis] - batch.pad)));
  }
  for (size_t i = shapes->size(); i < spec_.num_inputs(); ++i) {
    const DataDesc& desc = spec_.input(i);
    shapes->push_back(desc.BatchAxis() >= 0 && rows ? desc.shape.With(desc.BatchAxis(), *rows - batch.pad)
                                                    : desc.shape);
  }
  const std::optional<int64_t> samples = spec_.SamplesOf(*shapes);
  for (size_t i = 0; i < spec_.num_inputs(); ++i) {
    const std::vector<Tensor>* pieces = PiecesOf(batch, i);
    if (!pieces || pieces->size() == 1) continue;  // how many devices have samples need not be known
    CheckPieces(*pieces, TypeOf(spec_.input(i)), is_cut ? 1 : NumBusy(spec_.Split(samples)), spec_.input(i).name);
  }
  if (values) CheckValues(batch, *shapes, mode);
  return samples;
}

const std::vector<Tensor>* Feeder::PiecesOf(const Batch& batch, size_t i) const {
  const size_t num_data = spec_.options.data.size();
  return i < num_data ? batch.device_data.Find(i) : batch.device_label.Find(i - num_data);
}

Shape Feeder::ShapeOf(const Batch& batch, size_t i) const {
  const DataDesc& desc = spec_.input(i);
  if (const auto* pieces = PiecesOf(batch, i)) return WholeShape(*pieces, TypeOf(desc), *engine_, desc.name);
  const size_t num_data = spec_.options.data.size();
  const std::vector<HostTensor>& on_host = i < num_data ? batch.data : batch.label;
  const size_t place = i < num_data ? i : i - num_data;
  if (place >= on_host.size()) throw DataError(fmt::format("the batch has no array for \"{}\"", desc.name));
  return on_host[place].shape();
}

void Feeder::CheckValues(const Batch& batch, const std::vector<Shape>& shapes, Mode mode) const {
  const InputRanges::Ranges& ranges = ranges_.Of(shapes, spec_.SamplesOf(shapes), mode);
  const size_t num_data = spec_.options.data.size();
  const bool with_labels = !spec_.options.labels.empty() && batch.num_labels() > 0;
  for (size_t i = 0; i < (with_labels ? spec_.num_inputs() : num_data); ++i) {
    const bool is_data = i < num_data;
    const size_t place = is_data ? i : i - num_data;
    const HostTensor* const array = PiecesOf(batch, i)
                                        ? (is_data ? batch.device_data : batch.device_label).OnHost(place)
                                        : &(is_data ? batch.data : batch.label)[place];
    if (array) ranges_.Check(i, *array, ranges, batch.pad, batch.index);
  }
}

Feeder::Joined Feeder::Join(const std::vector<BatchPtr>& per_device, Mode mode) const {
  Joined joined;
  std::vector<Shape> part;
  int64_t samples = 0;
  const Batch& first = FirstOf(per_device);
  for (const BatchPtr& batch : per_device) {
    if (!batch) {
      joined.ranges.push_back({samples, samples});
      continue;
    }
    const std::optional<int64_t> share = ShapesOf(*batch, mode, &part, /*is_cut=*/true);
    if (!spec_.options.labels.empty() && (batch->num_labels() == 0) != (first.num_labels() == 0)) {
      throw DataError("some devices' batches have labels and some have none");
    }
    if (!share) throw DataError("a batch per device needs an input with a batch axis");
    joined.ranges.push_back({samples, samples + *share});
    samples += *share;
    if (joined.shapes.empty()) joined.shapes = part;
    for (size_t i = 0; i < part.size(); ++i) {
      const DataDesc& desc = spec_.input(i);
      Shape whole = part[i];
      if (desc.BatchAxis() >= 0) {
        whole.Set(desc.BatchAxis(), samples);
        joined.shapes[i].Set(desc.BatchAxis(), samples);
      }
      if (joined.shapes[i] != whole) {
        throw DataError(fmt::format("\"{}\": the devices' batches have different shapes, {} and {}", desc.name,
                                    joined.shapes[i], part[i]));
      }
    }
  }
  return joined;
}

std::shared_ptr<const StepInput> Feeder::Next(std::span<const BatchPtr> batches, Mode mode,
                                              const std::vector<SampleRange>& ranges) {
  const bool with_labels = !spec_.options.labels.empty() && FirstOf(batches).num_labels() > 0;
  const std::shared_ptr<StepInput> input = inputs_.Take();
  input->turn = std::exchange(turn_, (turn_ + 1) % Loader::kTurns);
  input->is_cut = batches.size() > 1;
  input->with_labels = with_labels;
  block_ = steps_.Next(mode, ranges.back().end, spec_.options.seed, adds_up_);
  input->block = *block_;
  for (size_t d = 0; d < ranges.size(); ++d) {  // idle ones, too, let go of what a load that was skipped has left
    input->shares[d].batch = ranges[d].size() > 0 ? batches[input->is_cut ? d : 0] : nullptr;
  }
  return input;
}

std::shared_ptr<const StepInput> Feeder::NextRates(const StepRates& rates) {
  steps_.End();
  if (block_ && block_->rates == rates) return nullptr;
  const bool is_there = block_.has_value();
  if (!block_) block_ = StepBlock{};
  block_->rates = rates;
  const std::shared_ptr<StepInput> input = inputs_.Take();
  input->block = *block_;
  input->block.continues = is_there ? 1 : 0;
  for (StepInput::Share& share : input->shares) share.batch = nullptr;
  return input;
}

std::vector<DeviceFeed> Feeder::NextFromDevices(std::span<const BatchPtr> batches, const Binding& binding) const {
  const auto from_devices = [](const BatchPtr& b) { return b && (b->device_data.any() || b->device_label.any()); };
  if (std::ranges::none_of(batches, from_devices)) return {};
  const auto& participants = binding.participants();
  std::vector<DeviceFeed> feeds;
  for (size_t k = 0; k < participants.size(); ++k) {
    const GroupStep::Participant& p = participants[k];
    const bool is_cut = batches.size() > 1;
    const Batch& batch = *batches[is_cut ? static_cast<size_t>(p.executor->index()) : 0];
    SampleRange range = binding.RangeOf(p);
    if (is_cut) range = {0, range.size()};
    DeviceFeed& feed =
        feeds.emplace_back(engine_, p.executor->device(), is_cut ? 0 : k, is_cut ? 1 : participants.size());
    for (size_t i = 0; i < spec_.num_inputs(); ++i) {
      if (const auto* pieces = PiecesOf(batch, i)) {
        feed.Add(*pieces, TypeOf(spec_.input(i)), range, p.executor->Input(*p.bound, spec_.inputs[i]));
      }
    }
  }
  return feeds;
}

}  // namespace bindery
