#include "tools/cli/noted.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "train/data/wrapped_iter.h"

namespace bindery::cli {
namespace {

// Notes what it was. `samples` knows their names; nullptr: nobody does.
class NotingIter : public WrappedIter {
 public:
  NotingIter(std::unique_ptr<DataIter> source, bool labelled, SampleSourcePtr samples, int64_t labels,
             std::shared_ptr<SeenSamples> seen)
      : WrappedIter(std::move(source)), labelled_(labelled), samples_(std::move(samples)), labels_(labels),
        seen_(std::move(seen)) {}
  std::vector<DataDesc> ProvideLabel() const override {
    return labelled_ ? WrappedIter::ProvideLabel() : std::vector<DataDesc>();
  }
  BatchPtr Next() override {
    BatchPtr batch = WrappedIter::Next();
    for (int64_t i = 0; batch != nullptr && i < batch->samples; ++i) {
      ++seen_->count;
      for (int64_t k = 0; k < labels_ && !batch->label.empty(); ++k) {
        seen_->labels.push_back(batch->label[0].At(i * labels_ + k));
      }
      std::string record = samples_ == nullptr ? "" : samples_->Name(batch->index[static_cast<size_t>(i)]);
      if (!record.empty()) seen_->records.push_back(std::move(record));
    }
    if (labelled_ || batch == nullptr) return batch;
    auto bare = std::make_shared<Batch>(*batch);
    bare->label.clear();
    return bare;
  }

 private:
  const bool labelled_;
  const SampleSourcePtr samples_;
  const int64_t labels_;  // of a sample
  const std::shared_ptr<SeenSamples> seen_;
};

// Counts how often each label was handed out: `labels` of a sample.
class CountingIter : public WrappedIter {
 public:
  CountingIter(std::unique_ptr<DataIter> source, int64_t labels, std::shared_ptr<LabelCounts> counts)
      : WrappedIter(std::move(source)), labels_(labels), counts_(std::move(counts)) {}
  BatchPtr Next() override {
    BatchPtr batch = WrappedIter::Next();
    for (int64_t i = 0; batch != nullptr && i < batch->samples * labels_; ++i) ++(*counts_)[batch->label[0].At(i)];
    return batch;
  }

 private:
  const int64_t labels_;
  const std::shared_ptr<LabelCounts> counts_;
};

}  // namespace

TestData Noted(std::unique_ptr<DataIter> iter, bool labelled, SampleSourcePtr samples, int64_t labels) {
  auto seen = std::make_shared<SeenSamples>();
  return {.iter = std::make_unique<NotingIter>(std::move(iter), labelled, std::move(samples), labels, seen),
          .seen = seen};
}

LabelCounts LabelsOf(const SampleSource& samples, bool skip_damaged) {
  const auto& [name, shape, dtype] = samples.labels()[0];
  HostTensor label(dtype, shape);
  LabelCounts counts;
  for (int64_t number = 0; number < samples.samples(); ++number) {
    try {
      samples.MakeLabels(number, std::vector<void*>{label.raw()});
    } catch (const DataError&) {
      if (!skip_damaged) throw;
      continue;
    }
    for (int64_t i = 0; i < label.elements(); ++i) ++counts[label.At(i)];
  }
  return counts;
}

std::unique_ptr<DataIter> Counted(std::unique_ptr<DataIter> iter, std::shared_ptr<LabelCounts> counts) {
  const DataDesc data = iter->ProvideData()[0], label = iter->ProvideLabel()[0];
  if (label.shape.rank() != 1 && label.shape != data.shape) return iter;  // no class of a sample, or of its places
  const int64_t labels = label.shape.Elements() / std::max(int64_t{1}, label.shape[label.BatchAxis()]);
  return std::make_unique<CountingIter>(std::move(iter), labels, std::move(counts));
}

}  // namespace bindery::cli
