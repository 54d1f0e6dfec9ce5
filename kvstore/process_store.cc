// The store of several processes: values are summed over the devices of each, and then over the processes.
#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "engine/backend.h"
#include "kvstore/kvstore.h"
#include "kvstore/process_exchange.h"
#include "kvstore/wrapped_store.h"

namespace bindery {
namespace {

// Of two stores of one process: one sums over its devices, and the other one, the wrapped one, has the values, and the
// updater, which gets the sum over all. Both are the same on every process.
class ProcessStore final : public WrappedStore {
 public:
  ProcessStore(KVStoreType type, const std::shared_ptr<Engine>& engine, ProcessesPtr processes)
      : WrappedStore(KVStore::Create(type, engine)), engine_(engine), processes_(std::move(processes)),
        exchange_(engine, processes_), sums_(KVStore::Create(type, engine)) {}

  using KVStore::Pull;
  using KVStore::Push;
  int rank() const override { return processes_->rank(); }
  int size() const override { return processes_->size(); }
  void Barrier() override { processes_->Barrier(); }

  // The value is process 0's.
  void Init(const Key& key, const HostTensor& value) override {
    HostTensor first = value;
    processes_->Broadcast(first.raw(), first.bytes());
    WrappedStore::Init(key, first);
    AddSum(key, value.dtype(), value.shape());
  }
  void Init(const Key& key, const Tensor& value) override {
    HostTensor first = value.ToHost();
    processes_->Broadcast(first.raw(), first.bytes());
    const Tensor there(engine_, value.device(), value.dtype(), value.shape());
    there.CopyFrom(first);
    WrappedStore::Init(key, there);
    AddSum(key, value.dtype(), value.shape());
  }
  void Push(const Key& key, std::span<const Tensor> values, int priority) override {
    const Sum& sum = SumOf(key);
    const Tensor total[] = {sum.total};
    sums_->PushPull(key, values, total, priority);
    sum.exchange.Push();
    WrappedStore::Push(key, total, priority);
  }
  void PushPull(const Key& key, std::span<const Tensor> values, std::span<const Tensor> out, int priority) override {
    Push(key, values, priority);
    Pull(key, out, priority);
  }
  void Broadcast(const Key& key, const Tensor& value, std::span<const Tensor> out) override {
    if (!totals_.contains(key)) Init(key, value);
    Pull(key, out, 0);
  }
  void PushRows(const Key&, std::span<const RowTensors>, int) override { RefuseRows(); }
  void SetRowUpdater(RowUpdater) override { RefuseRows(); }
  // Of what devices send to their process; what processes send to each other is whole.
  void SetCompression(const Compression& compression) override { sums_->SetCompression(compression); }
  HostTensorMap Residuals() const override { return sums_->Residuals(); }
  void SetResiduals(const HostTensorMap& residuals) override { sums_->SetResiduals(residuals); }
  void BeginStep(double scale, const VarPtr& outcome) override { sums_->BeginStep(scale, outcome); }
  void EndStep() override { sums_->EndStep(); }
  Reduction MakeReduction(std::vector<Bucket>, RangeFunction, int, ReductionHooks) override {
    Throw("a store of several processes sums key by key: a trainer of several has TrainerOptions::processes");
  }

 private:
  struct Sum {
    Tensor total;
    StepRange exchange = {};
  };

  [[noreturn]] static void RefuseRows() { Throw("a store of several processes sums whole values, no rows"); }

  const Sum& SumOf(const Key& key) const {
    const auto found = totals_.find(key);
    if (found == totals_.end()) Throw("key {} is not initialised", ToString(key));
    return found->second;
  }

  void AddSum(const Key& key, DType dtype, const Shape& shape) {
    sums_->Init(key, HostTensor(dtype, shape));
    Sum sum{.total = Tensor(engine_, Cpu(), dtype, shape)};
    StepParts parts;
    exchange_.Append({.name = "sum over processes, key " + ToString(key), .device = Cpu(), .values = {sum.total}},
                     &parts);
    sum.exchange = StepRange(engine_, std::move(parts));
    totals_.emplace(key, std::move(sum));
  }

  const std::shared_ptr<Engine> engine_;
  const ProcessesPtr processes_;
  const ProcessExchange exchange_;
  const std::unique_ptr<KVStore> sums_;
  std::map<Key, Sum> totals_;
};

}  // namespace

std::unique_ptr<KVStore> KVStore::Create(KVStoreType type, std::shared_ptr<Engine> engine, ProcessesPtr processes) {
  if (!engine) engine = DefaultEngine();
  if (!processes || processes->size() == 1) return Create(type, std::move(engine));
  return std::make_unique<ProcessStore>(type, engine, std::move(processes));
}

}  // namespace bindery
