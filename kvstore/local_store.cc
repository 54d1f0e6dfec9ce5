// The store of one process.
#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/names.h"
#include "engine/backend.h"
#include "engine/collective.h"
#include "kvstore/compressed_push.h"
#include "kvstore/given_tensors.h"
#include "kvstore/kvstore.h"

namespace bindery {
namespace {

const char* KindOf(const Key& key) { return std::holds_alternative<int64_t>(key) ? "integers" : "strings"; }

bool Same(const Tensor& a, const Tensor& b) {
  return a.var() == b.var() && a.address() == b.address() && a.device() == b.device();
}

// Everything is in memory that this process can address.
class LocalStore final : public KVStore {
 public:
  LocalStore(KVStoreType type, std::shared_ptr<Engine> engine)
      : type_(type), engine_(std::move(engine)),
        collectives_(MemoryCollectives(engine_, type == KVStoreType::kDevice)) {}

  KVStoreType type() const override { return type_; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void Barrier() override {}  // one process need not wait for itself

  void Init(const Key& key, const HostTensor& value) override {
    CheckNew(key);
    const Tensor stored(engine_, Cpu(), value.dtype(), value.shape());
    stored.CopyFrom(value);
    entries_.emplace(key, Entry{.stored = stored});
  }

  void Init(const Key& key, const Tensor& value) override {
    CheckNew(key);
    CheckTensor(key, "value", 0, value, engine_);
    const Tensor stored(engine_, value.device(), value.dtype(), value.shape());
    stored.CopyFrom(value);
    entries_.emplace(key, Entry{.stored = stored});
  }

  void Push(const Key& key, std::span<const Tensor> values, int priority) override {
    Entry& entry = Find(key);
    CheckTensors(key, "value", values, entry.stored);
    Prepare(key, entry, values, {}, priority);
    PushPrepared(entry);
  }

  void Pull(const Key& key, std::span<const Tensor> out, int priority) override {
    const Entry& entry = Find(key);
    CheckTensors(key, "output", out, entry.stored);
    for (const Tensor& tensor : out) tensor.CopyFrom(entry.stored, priority);
  }

  void PushPull(const Key& key, std::span<const Tensor> values, std::span<const Tensor> out, int priority) override {
    Entry& entry = Find(key);
    CheckTensors(key, "value", values, entry.stored);
    CheckTensors(key, "output", out, entry.stored);
    if (updater_) {
      Prepare(key, entry, values, {}, priority);
      PushPrepared(entry);
      for (const Tensor& tensor : out) tensor.CopyFrom(entry.stored, priority);
    } else {
      Prepare(key, entry, values, out, priority);
      PushPrepared(entry);
    }
  }

  void Broadcast(const Key& key, const Tensor& value, std::span<const Tensor> out) override {
    if (!entries_.contains(key)) Init(key, value);
    Pull(key, out, 0);
  }

  void SetUpdater(KeyUpdater updater) override {
    updater_ = updater ? std::make_shared<const KeyUpdater>(std::move(updater)) : nullptr;
    for (auto& [key, entry] : entries_) entry.last_push = {};  // they were prepared for the one before
  }

  void PushRows(const Key& key, std::span<const RowTensors> values, int priority) override {
    Entry& entry = Find(key);
    CheckRows(key, "value", values, entry.stored);
    if (updater_ && !row_updater_) Throw("key {}: the updater takes whole values; set one of rows", ToString(key));
    const Tensor& stored = entry.stored;
    if (!entry.sums) entry.sums = std::make_shared<RowSums>(stored.dtype(), stored.shape().CountFrom(1));
    const std::string name = "push rows key " + ToString(key);
    const VarPtr done = engine_->NewVar();
    const auto error = std::make_shared<std::exception_ptr>();
    // As in range_work.h: a source's error leaves the stored value as it is, an error of its own fails it.
    Operation push{.name = name, .device = stored.device(), .updates = {stored.var(), done}, .priority = priority};
    for (const auto& [numbers, rows] : values) push.reads.insert(push.reads.end(), {numbers.var(), rows.var()});
    const auto work = [key, stored, sums = entry.sums, updater = row_updater_,
                       kept = std::vector(values.begin(), values.end())] {
      std::vector<RowsAt> sources;
      for (const RowTensors& rows : kept) {
        CheckNumbers(key, rows.numbers, stored.shape()[0]);
        sources.push_back(
            {static_cast<const int64_t*>(rows.numbers.data()), rows.rows.data(), rows.numbers.elements()});
      }
      sums->Sum(sources);
      if (updater) {
        (*updater)(key, *sums, stored.data(), stored.elements());
      } else {
        sums->PutSums(stored.data());
      }
    };
    push.run = [work, error](const OpContext&) {
      try {
        work();
      } catch (...) {
        *error = std::current_exception();
      }
    };
    engine_->Push(std::move(push));
    engine_->Push({.name = name,
                   .device = stored.device(),
                   .reads = {done, stored.var()},
                   .writes = {stored.var()},
                   .run =
                       [error](const OpContext&) {
                         if (*error) std::rethrow_exception(*error);
                       },
                   .priority = priority});
  }

  void PullRows(const Key& key, std::span<const RowTensors> out, int priority) override {
    const Entry& entry = Find(key);
    CheckRows(key, "output", out, entry.stored);
    for (const RowTensors& rows : out) {
      Operation pull{.name = "pull rows key " + ToString(key), .device = rows.rows.device(), .priority = priority};
      pull.reads = {entry.stored.var(), rows.numbers.var()};
      pull.writes = {rows.rows.var()};
      pull.run = [key, stored = entry.stored, rows](const OpContext&) {
        CheckNumbers(key, rows.numbers, stored.shape()[0]);
        const auto* numbers = static_cast<const int64_t*>(rows.numbers.data());
        const auto bytes = static_cast<size_t>(stored.shape().CountFrom(1) * SizeOf(stored.dtype()));
        if (bytes == 0) return;  // there may be no memory, then
        char* to = static_cast<char*>(rows.rows.data());
        for (int64_t i = 0; i < rows.numbers.elements(); ++i, to += bytes) {
          if (numbers[i] < 0) {
            std::memset(to, 0, bytes);
          } else {
            std::memcpy(to, static_cast<const char*>(stored.data()) + static_cast<size_t>(numbers[i]) * bytes, bytes);
          }
        }
      };
      engine_->Push(std::move(pull));
    }
  }

  void SetRowUpdater(RowUpdater updater) override {
    row_updater_ = updater ? std::make_shared<const RowUpdater>(std::move(updater)) : nullptr;
  }

  void SetCompression(const Compression& compression) override {
    CheckCompression(compression);
    if (compression == compression_) return;
    compression_ = compression;
    for (auto& [key, entry] : entries_) entry.last_push = {}, entry.compressed = nullptr;
  }

  HostTensorMap Residuals() const override {
    HostTensorMap all;
    for (const auto& [key, entry] : entries_) {
      if (!entry.compressed) continue;
      std::vector<HostTensor> residuals = entry.compressed->Residuals();
      for (size_t i = 0; i < residuals.size(); ++i) all[NameOfResidual(key, i)] = std::move(residuals[i]);
    }
    return all;
  }

  void SetResiduals(const HostTensorMap& residuals) override {
    std::map<Key, std::shared_ptr<CompressedPush>> made;
    size_t taken = 0;
    for (const auto& [key, entry] : entries_) {
      std::vector<HostTensor> of_key;
      for (auto r = residuals.find(NameOfResidual(key, 0)); r != residuals.end();
           r = residuals.find(NameOfResidual(key, of_key.size()))) {
        of_key.push_back(r->second);
      }
      taken += of_key.size();
      if (of_key.empty()) continue;
      if (!Compresses(compression_, entry.stored.dtype()))
        Throw("key {}: its values are not compressed", ToString(key));
      made[key] = std::make_shared<CompressedPush>(entry.stored, compression_, ToString(key));
      made[key]->SetResiduals(of_key);
    }
    if (taken != residuals.size()) {
      Throw("{} of {} residuals belong to no key and place that this store has", residuals.size() - taken,
            residuals.size());
    }
    for (auto& [key, entry] : entries_) {
      entry.last_push = {};
      entry.compressed = made.contains(key) ? made.at(key) : nullptr;
    }
  }

  void BeginStep(double scale, const VarPtr& outcome) override {
    if (!scale_ || *scale_ != scale) scale_ = std::make_shared<const double>(scale);
    outcome_ = outcome;
    keeps_.clear();
    ++steps_;
  }

  void EndStep() override {
    for (const PreparedPtr& keep : keeps_) engine_->Push(keep);
    keeps_.clear();
    outcome_ = nullptr;
  }

  Reduction MakeReduction(std::vector<Bucket> buckets, RangeFunction function, int threads,
                          ReductionHooks hooks) override {
    std::vector<Device> workers = DevicesOf(buckets);
    if (type_ == KVStoreType::kLocal && !workers.empty()) workers.resize(1);
    Reduction reduction;
    reduction.outcome = AppendRangeWork(engine_,
                                        {.buckets = std::move(buckets),
                                         .workers = std::move(workers),
                                         .threads = threads,
                                         .function = std::move(function),
                                         .looks = std::move(hooks.looks),
                                         .gates = std::move(hooks.gates)},
                                        &reduction.parts);
    return reduction;
  }

 private:
  // A push of these very tensors, ready to be repeated.
  struct PreparedPush {
    std::vector<Tensor> values, out;
    int priority = 0;
    VarPtr outcome = nullptr;  // of the step
    StepRange range = {};
    PreparedPtr keep = nullptr;  // what is left of the values that are compressed
  };
  struct Entry {
    Tensor stored;
    Tensor merged = {};  // the sum that an updater gets; made when it is needed
    PreparedPush last_push = {};
    std::shared_ptr<RowSums> sums = nullptr;               // of rows that are pushed; made when it is needed
    std::shared_ptr<CompressedPush> compressed = nullptr;  // made when it is needed
    int64_t step = 0;                                      // in which it was pushed last, compressed
  };

  void CheckKind(const Key& key) const {
    if (entries_.empty()) return;
    const Key& other = entries_.begin()->first;
    if (other.index() != key.index()) {
      Throw("key {}: this store's keys are {}, not {}", ToString(key), KindOf(other), KindOf(key));
    }
  }

  void CheckNew(const Key& key) const {
    CheckKind(key);
    if (entries_.contains(key)) Throw("key {} is initialised already", ToString(key));
  }

  Entry& Find(const Key& key) {
    CheckKind(key);
    const auto found = entries_.find(key);
    if (found == entries_.end()) {
      std::vector<std::string> known;
      for (const auto& [name, entry] : entries_) {
        const std::string* text = std::get_if<std::string>(&name);
        known.push_back(text ? *text : ToString(name));
      }
      const std::string* text = std::get_if<std::string>(&key);
      Throw("key {} is not initialised{}", ToString(key), NameHint(text ? *text : ToString(key), known));
    }
    return found->second;
  }

  // Makes entry.last_push the push of `values` into the stored value and, without updater, into `out`.
  void Prepare(const Key& key, Entry& entry, std::span<const Tensor> values, std::span<const Tensor> out,
               int priority) {
    if (row_updater_ && !updater_) Throw("key {}: the updater takes rows; set one of whole values", ToString(key));
    const bool compresses = Compresses(compression_, entry.stored.dtype());
    if (compresses && outcome_ && entry.step == steps_) {
      Throw("key {}: pushed twice in one step, but what is left of the first push is known only after the step",
            ToString(key));
    }
    PreparedPush& push = entry.last_push;
    if (!push.values.empty() && push.priority == priority && push.outcome == outcome_ &&
        std::ranges::equal(push.values, values, Same) && std::ranges::equal(push.out, out, Same)) {
      return;
    }
    StepParts parts;
    std::vector<Tensor> sources(values.begin(), values.end());
    Operation keep;
    if (compresses) {
      if (!entry.compressed) {
        entry.compressed = std::make_shared<CompressedPush>(entry.stored, compression_, ToString(key));
      }
      sources = {entry.compressed->Append(values, &parts, &keep)};
      if (outcome_) keep.reads.push_back(outcome_);
    }
    const auto add_sum = [&](std::vector<Tensor> replicas) {
      collectives_->Append(Collective::kAllReduceSum, "push key " + ToString(key),
                           {{.sources = sources, .replicas = std::move(replicas)}}, &parts);
    };
    if (!updater_) {
      std::vector<Tensor> replicas = {entry.stored};
      replicas.insert(replicas.end(), out.begin(), out.end());
      add_sum(std::move(replicas));
    } else {
      Tensor sum = sources[0];
      if (sources.size() > 1) {
        if (!entry.merged.defined()) {
          entry.merged = Tensor(engine_, entry.stored.device(), entry.stored.dtype(), entry.stored.shape());
        }
        sum = entry.merged;
        add_sum({sum});
      }
      // On one worker, so that the updater gets the whole value in one call.
      const auto update = [key, updater = updater_, dtype = sum.dtype()](int, int64_t begin, int64_t end,
                                                                         std::span<const void* const> sources,
                                                                         std::span<void* const> replicas) {
        (*updater)(key, dtype, sources[0], replicas[0], end - begin);
      };
      AppendRangeWork(engine_,
                      {.name = "update key " + ToString(key),
                       .buckets = {{.sources = {sum}, .replicas = {entry.stored}}},
                       .workers = {entry.stored.device()},
                       .function = update},
                      &parts);
    }
    for (Operation& part : parts) part.priority += priority;
    push = {.values = {values.begin(), values.end()},
            .out = {out.begin(), out.end()},
            .priority = priority,
            .outcome = outcome_,
            .range = StepRange(engine_, std::move(parts)),
            .keep = compresses ? engine_->Prepare(std::move(keep)) : nullptr};
  }

  void PushPrepared(Entry& entry) {
    const PreparedPush& push = entry.last_push;
    push.range.Push(outcome_ ? scale_ : nullptr);
    if (!push.keep) return;
    if (outcome_) {
      entry.step = steps_;
      keeps_.push_back(push.keep);
    } else {
      engine_->Push(push.keep);
    }
  }

  static std::string NameOfResidual(const Key& key, size_t place) {
    const std::string* text = std::get_if<std::string>(&key);
    return fmt::format("{}/{}", text ? *text : ToString(key), place);
  }

  const KVStoreType type_;
  const std::shared_ptr<Engine> engine_;
  const std::unique_ptr<Collectives> collectives_;
  std::shared_ptr<const KeyUpdater> updater_;
  std::shared_ptr<const RowUpdater> row_updater_;
  Compression compression_;
  int64_t steps_ = 0;                    // begun so far; of the last one:
  std::shared_ptr<const double> scale_;  // payload of its pushes
  VarPtr outcome_;                       // null: it has ended
  std::vector<PreparedPtr> keeps_;       // to be pushed at its end
  std::map<Key, Entry> entries_;
};

}  // namespace

std::unique_ptr<KVStore> KVStore::Create(KVStoreType type, std::shared_ptr<Engine> engine) {
  return std::make_unique<LocalStore>(type, engine ? std::move(engine) : DefaultEngine());
}

}  // namespace bindery
