// WrappedStore: a store that does what another one does, to be derived from by stores of one's own, which override what
// they do otherwise:
//
//   class CountingStore final : public WrappedStore {
//    public:
//     using WrappedStore::WrappedStore;
//     void PushPull(const Key& key, std::span<const Tensor> values, std::span<const Tensor> out,
//                   int priority) override {
//       ++pushes[ToString(key)];
//       WrappedStore::PushPull(key, values, out, priority);
//     }
//     std::map<std::string, int> pushes;
//   };
//   TrainerOptions options{.store = [](const std::shared_ptr<Engine>& engine) {
//     return std::make_unique<CountingStore>(KVStore::Create(KVStoreType::kDevice, engine));
//   }};
//
// What an override does with elements, it does by operations of the tensors' engine (Operation), which name what they
// read and write. Thread safety: that of the other.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kvstore/kvstore.h"

namespace bindery {

class WrappedStore : public KVStore {
 public:
  explicit WrappedStore(std::unique_ptr<KVStore> store) : store_(std::move(store)) {  // throws Error for none
    if (!store_) Throw("a wrapped store needs one that it wraps");
  }

  using KVStore::Pull;
  using KVStore::Push;
  KVStoreType type() const override { return store_->type(); }
  int rank() const override { return store_->rank(); }
  int size() const override { return store_->size(); }
  void Barrier() override { store_->Barrier(); }
  void Init(const Key& key, const HostTensor& value) override { store_->Init(key, value); }
  void Init(const Key& key, const Tensor& value) override { store_->Init(key, value); }
  void Push(const Key& key, std::span<const Tensor> values, int priority = 0) override {
    store_->Push(key, values, priority);
  }
  void Pull(const Key& key, std::span<const Tensor> out, int priority = 0) override {
    store_->Pull(key, out, priority);
  }
  void PushPull(const Key& key, std::span<const Tensor> values, std::span<const Tensor> out,
                int priority = 0) override {
    store_->PushPull(key, values, out, priority);
  }
  void Broadcast(const Key& key, const Tensor& value, std::span<const Tensor> out) override {
    store_->Broadcast(key, value, out);
  }
  void SetUpdater(KeyUpdater updater) override { store_->SetUpdater(std::move(updater)); }
  void PushRows(const Key& key, std::span<const RowTensors> values, int priority = 0) override {
    store_->PushRows(key, values, priority);
  }
  void PullRows(const Key& key, std::span<const RowTensors> out, int priority = 0) override {
    store_->PullRows(key, out, priority);
  }
  void SetRowUpdater(RowUpdater updater) override { store_->SetRowUpdater(std::move(updater)); }
  void SetCompression(const Compression& compression) override { store_->SetCompression(compression); }
  HostTensorMap Residuals() const override { return store_->Residuals(); }
  void SetResiduals(const HostTensorMap& residuals) override { store_->SetResiduals(residuals); }
  void BeginStep(double scale, const VarPtr& outcome) override { store_->BeginStep(scale, outcome); }
  void EndStep() override { store_->EndStep(); }
  Reduction MakeReduction(std::vector<Bucket> buckets, RangeFunction function, int threads,
                          ReductionHooks hooks) override {
    return store_->MakeReduction(std::move(buckets), std::move(function), threads, std::move(hooks));
  }

  KVStore& wrapped() const { return *store_; }

 private:
  std::unique_ptr<KVStore> store_;
};

}  // namespace bindery
