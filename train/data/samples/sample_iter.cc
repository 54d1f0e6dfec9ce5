#include "train/data/samples/sample_iter.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "train/data/feed.h"
#include "train/data/part_iter.h"

namespace bindery {
namespace {

ArrayIter NumbersOf(const SampleSource& source, const SampleIterOptions& options) {
  CheckPart(options.part, options.parts, options.batch_size);
  HostTensor numbers(DType::kInt64, {source.samples()});
  for (int64_t i = 0; i < source.samples(); ++i) numbers.data<int64_t>()[static_cast<size_t>(i)] = i;
  return ArrayIter({{"number", std::make_shared<const HostTensor>(std::move(numbers)), ""}}, {},
                   {.batch_size = options.batch_size,
                    .shuffle = options.shuffle,
                    .seed = options.seed,
                    .last_batch = options.last_batch});
}

int64_t FloorDiv(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

}  // namespace

SampleIter::SampleIter(SampleSourcePtr source, const SampleIterOptions& options)
    : source_(std::move(source)), options_(options), fingerprint_(static_cast<int64_t>(source_->Fingerprint())),
      numbers_(NumbersOf(*source_, options)), workers_(options.workers) {}

std::vector<DataDesc> SampleIter::Describe(const std::vector<SampleArray>& arrays) const {
  const int64_t rows = CeilDiv(numbers_.ProvideData()[0].shape[0], options_.parts);
  std::vector<DataDesc> descriptions;
  for (const SampleArray& array : arrays) {
    descriptions.push_back({array.name, array.shape.Insert(0, rows), array.dtype, ""});
  }
  return descriptions;
}

std::shared_ptr<const Batch> SampleIter::Next() {
  const IterState before = numbers_.SaveState();
  const int64_t skipped = skipped_;
  try {
    int64_t lost = 0;        // samples of batches that nothing is left of
    bool lost_last = false;  // the last one of a sweep among them
    std::string why_lost;    // the last sample's error
    while (true) {
      const IterState here = numbers_.SaveState();
      const BatchPtr whole = numbers_.Next();
      if (whole == nullptr && lost > 0 && before.at("position") <= 0) {  // of a whole sweep
        Throw<DataError>("none of the {} samples of a sweep can be read; the last one: {}", lost, why_lost);
      }
      if (whole == nullptr) return nullptr;
      const auto part = PartOf(*whole, std::ssize(whole->index), options_.part, options_.parts);
      if (!part) return nullptr;
      std::vector<int64_t> index, sweeps;
      for (const int64_t row : part->rows) {
        const int64_t sweep = here.at("sweep");
        const bool real = row < whole->samples;
        index.push_back(whole->index[static_cast<size_t>(row)]);
        sweeps.push_back(real ? sweep + FloorDiv(here.at("position") + row, samples()) : sweep);
      }
      // Other parts of this batch are trained whatever becomes of this one; and there is an end where all are lost.
      lost += whole->samples;
      const bool may_be_lost = options_.parts == 1 && lost < samples();
      const std::shared_ptr<Batch> batch =
          Make(std::move(index), sweeps, part->samples, may_be_lost ? &why_lost : nullptr);
      if (batch->samples == 0) {
        lost_last = lost_last || numbers_.is_new_epoch();
        continue;
      }
      if (options_.parts > 1) batch->first = part->rows[0];
      if (lost > whole->samples) {  // they count as this batch's
        IterState now = numbers_.SaveState();
        now["previous_epoch"] = before.at("epoch");
        now["previous_position"] = before.at("position");
        now["is_new_epoch"] |= lost_last;
        numbers_.LoadState(now);
      }
      return batch;
    }
  } catch (...) {
    numbers_.LoadState(before);
    skipped_ = skipped;
    throw;
  }
}

std::shared_ptr<Batch> SampleIter::Make(std::vector<int64_t> index, const std::vector<int64_t>& sweeps, int64_t samples,
                                        std::string* why_lost) {
  const auto rows = static_cast<int64_t>(index.size());
  const std::shared_ptr<Batch> batch = batches_.Take();
  batch->samples = samples;
  batch->pad = rows - samples;
  batch->index = std::move(index);
  const auto make_room = [&](const std::vector<SampleArray>& arrays, std::vector<HostTensor>* to) {
    to->resize(arrays.size());
    for (size_t i = 0; i < arrays.size(); ++i) MakeRoom(arrays[i].dtype, arrays[i].shape.Insert(0, rows), &(*to)[i]);
  };
  make_room(source_->data(), &batch->data);
  make_room(source_->labels(), &batch->label);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(rows));
  workers_.ForEach(rows, [&](int64_t row) {
    const auto i = static_cast<size_t>(row);
    try {
      std::vector<void*> to;
      for (auto* arrays : {&batch->data, &batch->label}) {
        for (HostTensor& array : *arrays) {
          to.push_back(static_cast<char*>(array.raw()) + row * (array.bytes() / rows));
        }
      }
      source_->Make(batch->index[i], sweeps[i], to);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  });
  if (std::ranges::any_of(errors, [](const auto& error) { return error != nullptr; })) {
    Skip(errors, why_lost, batch.get());
  }
  return batch;
}

// The rows that could be made come first, and what is left is filled up with the first of them.
void SampleIter::Skip(const std::vector<std::exception_ptr>& errors, std::string* why_lost, Batch* batch) {
  std::vector<int64_t> kept;
  int64_t skipped = 0;
  for (int64_t row = 0; row < batch->samples + batch->pad; ++row) {
    const std::exception_ptr& error = errors[static_cast<size_t>(row)];
    if (error != nullptr && !options_.skip_damaged) std::rethrow_exception(error);
    if (error == nullptr) {
      if (row < batch->samples) kept.push_back(row);
      continue;
    }
    try {
      std::rethrow_exception(error);
    } catch (const DataError& e) {  // what else there is, a lack of memory say, is no fault of the sample
      if (row >= batch->samples) continue;
      ++skipped;
      LogLine(LogLevel::kWarning, fmt::format("skipping a damaged sample: {}", e.message()));
      if (why_lost) *why_lost = e.message();
      if (skipped == batch->samples && !why_lost) {
        Throw<DataError>("none of the {} samples of a batch can be read; the last one: {}", skipped, e.message());
      }
    }
  }
  batch->samples = static_cast<int64_t>(kept.size());
  batch->pad = static_cast<int64_t>(errors.size()) - batch->samples;
  kept.resize(errors.size(), kept.empty() ? 0 : kept[0]);
  for (auto* arrays : {&batch->data, &batch->label}) {
    for (HostTensor& array : *arrays) array = TakeRows(array, 0, kept);
  }
  std::vector<int64_t> index;
  for (const int64_t row : kept) index.push_back(batch->index[static_cast<size_t>(row)]);
  batch->index = std::move(index);
  skipped_ += skipped;
}

IterState SampleIter::SaveState() const {
  IterState state = numbers_.SaveState();
  state["samples_fingerprint"] = fingerprint_;
  state["skipped"] = skipped_;
  return state;
}

void SampleIter::LoadState(const IterState& state) {
  for (const char* key : {"samples_fingerprint", "skipped"}) {
    if (!state.contains(key))
      Throw<CheckpointError>("this is not the state of a sample iterator: it has no \"{}\"", key);
  }
  if (state.at("samples_fingerprint") != fingerprint_) {
    Throw<CheckpointError>(
        "the iterator's state was saved with other data: other files, other records in them or other settings of how "
        "samples are made");
  }
  const int64_t skipped = state.at("skipped");
  if (skipped < 0) Throw<CheckpointError>("the iterator's state has an impossible \"skipped\": {}", skipped);
  numbers_.LoadState(state);
  skipped_ = skipped;
}

}  // namespace bindery
