#include "train/data/array_iter.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/philox.h"
#include "train/data/feed.h"
#include "train/data/part_iter.h"

namespace bindery {
namespace {

int BatchAxis(const ArrayData& array) {
  return DataDesc{.shape = array.values->shape(), .layout = array.layout}.BatchAxis();
}

// Checks an array and returns its number of samples; -1 if it is not batched.
int64_t SamplesOf(const ArrayData& array) {
  if (array.values == nullptr) Throw<DataError>("array \"{}\" is not there", array.name);
  const int axis = BatchAxis(array);
  if (axis < 0) return -1;
  if (axis >= array.values->shape().rank()) {
    Throw<DataError>("array \"{}\": the samples should lie along axis {}, but the shape is {}", array.name, axis,
                     array.values->shape());
  }
  return array.values->shape()[axis];
}

std::vector<ArrayData> OneArray(const std::string& name, HostTensor values) {
  return {{name, std::make_shared<const HostTensor>(std::move(values)), ""}};
}

}  // namespace

ArrayIter::ArrayIter(std::vector<ArrayData> data, std::vector<ArrayData> label, const ArrayIterOptions& options)
    : data_(std::move(data)), label_(std::move(label)), options_(options) {
  if (options_.batch_size < 1) Throw<DataError>("batch size: expected at least 1, got {}", options_.batch_size);
  const ArrayData* first = nullptr;
  std::set<std::string> names;
  for (const auto* arrays : {&data_, &label_}) {
    for (const ArrayData& array : *arrays) {
      if (!names.insert(array.name).second) Throw<DataError>("two arrays are called \"{}\"", array.name);
      const int64_t samples = SamplesOf(array);
      if (samples < 0) continue;
      if (first != nullptr && samples != samples_) {
        Throw<DataError>("array \"{}\" has {} samples, but \"{}\" has {}", array.name, samples, first->name, samples_);
      }
      first = &array;
      samples_ = samples;
    }
  }
  if (first == nullptr) Throw<DataError>("an iterator needs an array with a batch axis");
  uint64_t checksum = 0;
  for (const auto* arrays : {&data_, &label_}) {
    for (const ArrayData& array : *arrays) checksum = Checksum(array.values->raw(), array.values->bytes(), checksum);
  }
  checksum_ = static_cast<int64_t>(checksum);
  const bool whole_batches = options_.last_batch == LastBatch::kDiscard || options_.last_batch == LastBatch::kRollOver;
  if (whole_batches && samples_ > 0 && options_.batch_size > samples_) {
    Throw<DataError>("batch size {}: {} samples make no batch; a short or a padded one is possible",
                     options_.batch_size, samples_);
  }
}

ArrayIter::ArrayIter(HostTensor data, HostTensor label, const ArrayIterOptions& options)
    : ArrayIter(OneArray(options.data_name, std::move(data)), OneArray(options.label_name, std::move(label)), options) {
}

std::vector<DataDesc> ArrayIter::Describe(const std::vector<ArrayData>& arrays) const {
  // No short batch is larger than the data.
  const bool fewer = options_.last_batch == LastBatch::kShort && samples_ > 0;
  const int64_t rows = fewer ? std::min(options_.batch_size, samples_) : options_.batch_size;
  std::vector<DataDesc> descriptions;
  for (const ArrayData& array : arrays) {
    DataDesc description{array.name, array.values->shape(), array.values->dtype(), array.layout};
    const int axis = description.BatchAxis();
    if (axis >= 0) description.shape.Set(axis, rows);
    descriptions.push_back(std::move(description));
  }
  return descriptions;
}

double ArrayIter::Detail(const Place& place) const {
  if (samples_ == 0) return static_cast<double>(place.epoch);
  const int64_t done = place.position < 0 ? samples_ + place.position : place.position;
  return static_cast<double>(place.epoch) + static_cast<double>(done) / static_cast<double>(samples_);
}

// Fisher and Yates, by the stream of this sweep.
const std::vector<int64_t>& ArrayIter::Order(int64_t sweep) {
  Permutation& permutation = permutations_[sweep % 2];
  if (permutation.sweep != sweep) {
    permutation.sweep = sweep;
    permutation.order.resize(static_cast<size_t>(samples_));
    std::iota(permutation.order.begin(), permutation.order.end(), int64_t{0});
    PhiloxStream stream(options_.seed, fmt::format("shuffle:{}", sweep));
    for (size_t i = permutation.order.size(); i > 1; --i) {
      std::swap(permutation.order[i - 1], permutation.order[stream.Below(i)]);
    }
  }
  return permutation.order;
}

int64_t ArrayIter::SampleAt(int64_t position) {
  const int64_t sweep = position < 0 ? sweep_ - 1 : sweep_;
  if (position < 0) position += samples_;
  return options_.shuffle ? Order(sweep)[static_cast<size_t>(position)] : position;
}

void ArrayIter::BeginSweep(int64_t position) {
  ++sweep_;
  now_.position = position;
}

std::vector<int64_t> ArrayIter::TakeRows(Batch* batch) {
  std::vector<int64_t> rows;
  rows.reserve(static_cast<size_t>(options_.batch_size));
  const auto full = [&] { return static_cast<int64_t>(rows.size()) == options_.batch_size; };
  while (!full()) {
    rows.push_back(SampleAt(now_.position++));
    const bool kept_are_done = now_.position == 0;  // this one was the last of the sweep before
    if (now_.position < samples_ && !kept_are_done) continue;
    ++now_.epoch;
    is_new_epoch_ = true;
    if (kept_are_done) continue;
    if (options_.last_batch != LastBatch::kRepeat) {
      now_.position = 0;
      at_end_ = true;
      break;
    }
    BeginSweep(0);
  }
  batch->samples = static_cast<int64_t>(rows.size());
  if (options_.last_batch == LastBatch::kPad) {
    for (int64_t i = 0; !full(); ++i) rows.push_back(SampleAt(i % samples_));
  }
  batch->pad = static_cast<int64_t>(rows.size()) - batch->samples;
  return rows;
}

std::shared_ptr<const Batch> ArrayIter::NextPart(int64_t part, int64_t parts) {
  if (at_end_ || samples_ == 0) return nullptr;
  const std::shared_ptr<Batch> batch = batches_.Take();
  previous_ = now_;
  started_ = true;
  is_new_epoch_ = false;
  batch->index = TakeRows(batch.get());
  // What is left now is less than a batch: the epoch is over, or ends early.
  const int64_t left = samples_ - now_.position;
  if (!at_end_ && left < options_.batch_size) {
    if (options_.last_batch == LastBatch::kRollOver) at_end_ = true;
    if (options_.last_batch == LastBatch::kDiscard) {
      now_ = {now_.epoch + 1, 0};
      is_new_epoch_ = true;
      at_end_ = true;
    }
  }
  if (parts > 1) {
    const auto own = PartOf(*batch, std::ssize(batch->index), part, parts);
    if (!own) return nullptr;
    TakePart(*own, *batch, batch.get());
  }
  const auto take = [&](const std::vector<ArrayData>& from, std::vector<HostTensor>* to) {
    to->resize(from.size());
    for (size_t i = 0; i < from.size(); ++i) {
      bindery::TakeRows(*from[i].values, BatchAxis(from[i]), batch->index, &(*to)[i]);
    }
  };
  take(data_, &batch->data);
  take(label_, &batch->label);
  return batch;
}

void ArrayIter::Reset() {
  if (at_end_ && options_.last_batch == LastBatch::kRollOver && now_.position > 0) {
    BeginSweep(now_.position - samples_);
    at_end_ = false;
    return;
  }
  HardReset();
}

void ArrayIter::HardReset() {
  if (!at_end_ && now_.position == 0) return;
  BeginSweep(0);
  at_end_ = false;
}

IterState ArrayIter::SaveState() const {
  return {{"samples", samples_},
          {"checksum", checksum_},
          {"batch_size", options_.batch_size},
          {"last_batch", static_cast<int64_t>(options_.last_batch)},
          {"shuffle", options_.shuffle},
          {"seed", static_cast<int64_t>(options_.seed)},
          {"epoch", now_.epoch},
          {"position", now_.position},
          {"previous_epoch", previous_.epoch},
          {"previous_position", previous_.position},
          {"sweep", sweep_},
          {"started", started_},
          {"is_new_epoch", is_new_epoch_},
          {"at_end", at_end_}};
}

void ArrayIter::LoadState(const IterState& state) {
  const IterState mine = SaveState();
  for (const auto& [key, value] : mine) {
    if (!state.contains(key))
      Throw<CheckpointError>("this is not the state of an array iterator: it has no \"{}\"", key);
  }
  for (const char* key : {"samples", "batch_size", "last_batch", "shuffle", "seed"}) {
    if (state.at(key) != mine.at(key)) {
      Throw<CheckpointError>("the iterator's state was saved with another \"{}\": {}, but here it is {}", key,
                             state.at(key), mine.at(key));
    }
  }
  if (state.at("checksum") != checksum_) {
    Throw<CheckpointError>("the iterator's state was saved with other data: as many samples, but of other values");
  }
  const auto number = [&](const char* key, int64_t low, int64_t high) {
    const int64_t value = state.at(key);
    if (value < low || value > high)
      Throw<CheckpointError>("the iterator's state has an impossible \"{}\": {}", key, value);
    return value;
  };
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max() / 2;
  const int64_t lowest = options_.last_batch == LastBatch::kRollOver ? 1 - options_.batch_size : 0;
  const int64_t highest = std::max<int64_t>(samples_ - 1, 0);
  const Place now{number("epoch", 0, kMax), number("position", lowest, highest)};
  const Place previous{number("previous_epoch", 0, kMax), number("previous_position", lowest, highest)};
  const int64_t sweep = number("sweep", now.position < 0 ? 1 : 0, kMax);
  const bool started = number("started", 0, 1) != 0, is_new = number("is_new_epoch", 0, 1) != 0;
  at_end_ = number("at_end", 0, 1) != 0;
  now_ = now;
  previous_ = previous;
  sweep_ = sweep;
  started_ = started;
  is_new_epoch_ = is_new;
}

}  // namespace bindery
