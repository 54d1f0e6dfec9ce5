// WrappedIter: an iterator that does what another one does, to be derived from by iterators of one's own, which
// override what they do otherwise:
//
//   class HalvedIter final : public WrappedIter {
//    public:
//     using WrappedIter::WrappedIter;
//     BatchPtr Next() override {
//       const BatchPtr batch = WrappedIter::Next();
//       if (!batch) return nullptr;
//       auto halved = std::make_shared<Batch>(*batch);
//       for (float& x : halved->data[0].data<float>()) x /= 2;
//       return halved;
//     }
//   };
//
// Thread safety: none; one thread at a time.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "train/data/data_iter.h"

namespace bindery {

class WrappedIter : public DataIter {
 public:
  explicit WrappedIter(std::unique_ptr<DataIter> source) : source_(std::move(source)) {  // throws Error for none
    if (!source_) Throw("a wrapped iterator needs one that it wraps");
  }

  std::vector<DataDesc> ProvideData() const override { return source_->ProvideData(); }
  std::vector<DataDesc> ProvideLabel() const override { return source_->ProvideLabel(); }
  int64_t batch_size() const override { return source_->batch_size(); }
  int64_t samples() const override { return source_->samples(); }
  BatchPtr Next() override { return source_->Next(); }
  void Reset() override { source_->Reset(); }
  int64_t epoch() const override { return source_->epoch(); }
  double epoch_detail() const override { return source_->epoch_detail(); }
  double previous_epoch_detail() const override { return source_->previous_epoch_detail(); }
  bool is_new_epoch() const override { return source_->is_new_epoch(); }
  bool repeats() const override { return source_->repeats(); }
  int64_t parts() const override { return source_->parts(); }
  IterState SaveState() const override { return source_->SaveState(); }
  void LoadState(const IterState& state) override { source_->LoadState(state); }
  std::map<std::string, std::string> Metadata() const override { return source_->Metadata(); }

  // Not NextPart: it is a part of what Next gives here.

  DataIter& wrapped() const { return *source_; }

 private:
  std::unique_ptr<DataIter> source_;
};

}  // namespace bindery
