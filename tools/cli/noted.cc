#include "tools/cli/noted.h"

#include <string>
#include <utility>
#include <vector>

namespace bindery::cli {
namespace {

// Hands on what another gives, and notes what it was. `samples` knows their names; nullptr: nobody does.
class NotingIter : public DataIter {
 public:
  NotingIter(std::unique_ptr<DataIter> source, bool labelled, SampleSourcePtr samples, int64_t labels,
             std::shared_ptr<SeenSamples> seen)
      : source_(std::move(source)), labelled_(labelled), samples_(std::move(samples)), labels_(labels),
        seen_(std::move(seen)) {}
  std::vector<DataDesc> ProvideData() const override { return source_->ProvideData(); }
  std::vector<DataDesc> ProvideLabel() const override {
    return labelled_ ? source_->ProvideLabel() : std::vector<DataDesc>();
  }
  int64_t batch_size() const override { return source_->batch_size(); }
  int64_t samples() const override { return source_->samples(); }
  BatchPtr Next() override {
    BatchPtr batch = source_->Next();
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
  void Reset() override { source_->Reset(); }
  int64_t epoch() const override { return source_->epoch(); }
  double epoch_detail() const override { return source_->epoch_detail(); }
  double previous_epoch_detail() const override { return source_->previous_epoch_detail(); }
  bool is_new_epoch() const override { return source_->is_new_epoch(); }
  IterState SaveState() const override { return source_->SaveState(); }
  void LoadState(const IterState& state) override { source_->LoadState(state); }

 private:
  const std::unique_ptr<DataIter> source_;
  const bool labelled_;
  const SampleSourcePtr samples_;
  const int64_t labels_;  // of a sample
  const std::shared_ptr<SeenSamples> seen_;
};

}  // namespace

TestData Noted(std::unique_ptr<DataIter> iter, bool labelled, SampleSourcePtr samples, int64_t labels) {
  auto seen = std::make_shared<SeenSamples>();
  return {.iter = std::make_unique<NotingIter>(std::move(iter), labelled, std::move(samples), labels, seen),
          .seen = seen};
}

}  // namespace bindery::cli
