#include "kvstore/reduction.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "engine/backend.h"
#include "engine/host_call.h"
#include "engine/kernels/flat.h"
#include "engine/team.h"

namespace bindery {
namespace {

constexpr int64_t kBorder = 16;   // elements
constexpr int64_t kBlock = 4096;  // elements that are summed and spread together; they stay in the first cache
constexpr int64_t kScratchBytes = 8 * kBlock;

void CheckTensor(const Tensor& tensor, const Engine* engine, size_t bucket, const char* role, size_t number) {
  if (!tensor.defined()) Throw("bucket {}, {} {}: the tensor is empty", bucket, role, number);
  if (tensor.engine().get() != engine)
    Throw("bucket {}, {} {}: the tensor belongs to another engine", bucket, role, number);
}

bool OverlapInPart(const Tensor& a, const Tensor& b) {
  const auto begin_a = reinterpret_cast<uintptr_t>(a.address()), begin_b = reinterpret_cast<uintptr_t>(b.address());
  return begin_a != begin_b && begin_a < begin_b + static_cast<uintptr_t>(b.bytes()) &&
         begin_b < begin_a + static_cast<uintptr_t>(a.bytes());
}

void CheckBucket(const Bucket& bucket, const Engine* engine, size_t index) {
  if (bucket.sources.empty()) Throw("bucket {} has no sources", index);
  if (bucket.replicas.empty()) Throw("bucket {} has no replicas", index);
  const auto check = [&](const std::vector<Tensor>& tensors, const char* role) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      CheckTensor(tensors[i], engine, index, role, i);
      const Tensor& first = bucket.sources[0];
      if (tensors[i].elements() != first.elements() || tensors[i].dtype() != first.dtype()) {
        Throw<ShapeError>("bucket {}, {} {}: expected {} elements of {} as in source 0, got {} of {}", index, role, i,
                          first.elements(), first.dtype(), tensors[i].elements(), tensors[i].dtype());
      }
    }
  };
  check(bucket.sources, "source");
  check(bucket.replicas, "replica");
  for (size_t r = 0; r < bucket.replicas.size(); ++r) {
    for (size_t s = 0; s < bucket.sources.size(); ++s) {
      if (OverlapInPart(bucket.replicas[r], bucket.sources[s])) {
        Throw("bucket {}: the memory of replica {} overlaps that of source {}", index, r, s);
      }
    }
    for (size_t other = 0; other < r; ++other) {
      if (OverlapInPart(bucket.replicas[r], bucket.replicas[other])) {  // the very same is fine: shared weights
        Throw("bucket {}: the memory of replica {} overlaps that of replica {}", index, r, other);
      }
    }
  }
}

// One range with the addresses of its first element.
struct Work {
  BucketRange range;
  DType dtype = DType::kFloat32;
  std::vector<const void*> sources;
  std::vector<void*> replicas;
};

// What one worker does: a share for each thread of its team.
struct Part {
  std::vector<std::vector<Work>> shares;
  int64_t elements = 0;
  std::exception_ptr error;  // of the last run, until the epilogue takes it
};

// What the operations share; they keep it alive, so the Reduction may go while they are in flight.
struct State {
  std::vector<Bucket> buckets;  // keeps the tensors' memory alive
  RangeFunction function;
  RangeCheck check;
  int threads = 1;
  std::vector<Part> parts;

  // work(Work) for all of a part, by its worker's team.
  template <class F>
  void ForEach(const Part& part, const F& work) const {
    const TeamScope team(part.elements > kSerialElements ? threads : 1);
    ParallelFor(static_cast<int64_t>(part.shares.size()), 1, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t share = begin; share < end; ++share) {
        for (const Work& w : part.shares[static_cast<size_t>(share)]) work(w);
      }
    });
  }
  void Check(const Part& part) const {
    ForEach(part, [&](const Work& work) { check(work.range.bucket, work.range.begin, work.range.end, work.sources); });
  }
  void Do(const Part& part) const {
    ForEach(part, [&](const Work& work) { Do(work); });
  }
  void Do(const Work& work) const {
    const auto& [bucket, begin, end] = work.range;
    if (function) {
      function(bucket, begin, end, work.sources, work.replicas);
    } else {
      SumInto(work.dtype, work.sources, work.replicas, end - begin);
    }
  }
  void DoAndKeepError(Part& part) const noexcept {
    try {
      Do(part);
    } catch (...) {
      part.error = std::current_exception();
    }
  }
  // Throws the error of the first part that has one.
  void TakeErrors() {
    std::exception_ptr first;
    for (Part& part : parts) {
      if (!first) first = part.error;
      part.error = nullptr;
    }
    if (first) std::rethrow_exception(first);
  }
};

Work MakeWork(const BucketRange& range, const Bucket& bucket) {
  Work work{.range = range, .dtype = bucket.sources[0].dtype(), .sources = {}, .replicas = {}};
  const int64_t offset = range.begin * SizeOf(work.dtype);
  for (const Tensor& source : bucket.sources) work.sources.push_back(static_cast<const char*>(source.data()) + offset);
  for (const Tensor& replica : bucket.replicas) work.replicas.push_back(static_cast<char*>(replica.data()) + offset);
  return work;
}

std::shared_ptr<State> MakeState(std::vector<Bucket> buckets, const ReductionOptions& options) {
  auto state = std::make_shared<State>();
  state->buckets = std::move(buckets);
  state->function = options.function;
  state->check = options.hooks.check;
  const int threads = state->threads = options.threads, workers = static_cast<int>(options.workers.size());
  std::vector<int64_t> elements;
  for (const Bucket& bucket : state->buckets) elements.push_back(bucket.sources[0].elements());
  const auto shares = CutBuckets(elements, workers * threads);
  for (size_t first = 0; first < shares.size(); first += static_cast<size_t>(threads)) {
    Part part;
    for (size_t share = first; share < first + static_cast<size_t>(threads); ++share) {
      std::vector<Work> work;
      for (const BucketRange& range : shares[share]) {
        work.push_back(MakeWork(range, state->buckets[static_cast<size_t>(range.bucket)]));
        part.elements += range.end - range.begin;
      }
      if (!work.empty()) part.shares.push_back(std::move(work));
    }
    if (!part.shares.empty()) state->parts.push_back(std::move(part));
  }
  if (state->parts.empty()) state->parts.emplace_back();  // no elements at all: still in order, still with errors
  return state;
}

class PreparedReduction final : public Reduction {
 public:
  PreparedReduction(std::shared_ptr<Engine> engine, std::vector<Bucket> buckets, const ReductionOptions& options)
      : engine_(std::move(engine)), name_(options.name) {
    std::vector<VarPtr> sources, replicas;
    for (const Bucket& bucket : buckets) {
      for (const Tensor& tensor : bucket.sources) sources.push_back(tensor.var());
      for (const Tensor& tensor : bucket.replicas) replicas.push_back(tensor.var());
    }
    const bool replace = options.mode == ReductionMode::kReplace;
    const std::vector<Device>& workers = options.workers;
    const auto state = MakeState(std::move(buckets), options);
    const VarPtr token = engine_->NewVar();

    Operation& prologue = New(workers[0]);
    prologue.reads = sources;
    prologue.reads.insert(prologue.reads.end(), options.hooks.gates.begin(), options.hooks.gates.end());
    prologue.writes = {token};
    for (const VarPtr& replica : replicas) (replace ? prologue.writes : prologue.updates).push_back(replica);
    std::vector<VarPtr> to_know = {token};  // what carries the errors of a run
    if (state->parts.size() > 1) {
      prologue.run = [](const OpContext&) {};
      std::vector<VarPtr> before = sources, done;  // what a part comes after
      before.push_back(token);
      if (state->check) {
        for (size_t i = 0; i < state->parts.size(); ++i) {
          to_know.push_back(engine_->NewVar());
          Operation& check = New(workers[i]);
          check.reads = before;
          check.writes = {to_know.back()};
          check.run = [state, i](const OpContext&) { state->Check(state->parts[i]); };
        }
      }
      before.insert(before.end(), to_know.begin() + 1, to_know.end());
      for (size_t i = 0; i < state->parts.size(); ++i) {
        done.push_back(engine_->NewVar());
        Operation& part = New(workers[i]);
        part.reads = before;
        part.updates = {done.back()};
        part.run = [state, i](const OpContext&) { state->DoAndKeepError(state->parts[i]); };
      }
      AddEpilogue(state, workers[0], done, replicas);
    } else if (replace || !state->function) {  // nobody to share with, no half updates
      prologue.run = [state](const OpContext&) {
        if (state->check) state->Check(state->parts[0]);
        state->Do(state->parts[0]);
      };
    } else {  // the prologue is the only part
      const VarPtr done = engine_->NewVar();
      prologue.updates.push_back(done);
      prologue.run = [state](const OpContext&) {
        if (state->check) state->Check(state->parts[0]);
        state->DoAndKeepError(state->parts[0]);
      };
      AddEpilogue(state, workers[0], {done}, replicas);
    }
    outcome_ = std::move(to_know);
    outcome_.insert(outcome_.end(), replicas.begin(), replicas.end());
    for (Operation& operation : pending_) operations_.push_back(engine_->Prepare(std::move(operation)));
    pending_.clear();
  }

  void Run() override {
    for (const PreparedPtr& operation : operations_) engine_->Push(operation);
  }
  const std::vector<VarPtr>& outcome() const override { return outcome_; }

 private:
  Operation& New(Device worker) {
    return pending_.emplace_back(
        Operation{.name = name_, .device = worker, .reads = {}, .writes = {}, .updates = {}, .run = {}});
  }
  void AddEpilogue(const std::shared_ptr<State>& state, Device worker, const std::vector<VarPtr>& done,
                   const std::vector<VarPtr>& replicas) {
    Operation& epilogue = New(worker);
    epilogue.reads = done;
    epilogue.reads.insert(epilogue.reads.end(), replicas.begin(), replicas.end());
    epilogue.writes = replicas;
    epilogue.run = [state](const OpContext&) { state->TakeErrors(); };
  }

  const std::shared_ptr<Engine> engine_;
  const std::string name_;
  std::vector<VarPtr> outcome_;
  std::deque<Operation> pending_;        // while they are made
  std::vector<PreparedPtr> operations_;  // in the order of pushing
};

// Through host memory.
class StagedReduction final : public Reduction {
 public:
  StagedReduction(std::shared_ptr<Engine> engine, const std::vector<Bucket>& buckets, const ReductionOptions& options) {
    struct Job {
      DType dtype;
      int64_t elements;
      size_t sources, replicas;
    };
    const bool replace = options.mode == ReductionMode::kReplace;
    std::vector<Job> jobs;
    std::vector<HostCallRange> ranges;  // per bucket the sources, then the replicas
    for (const Bucket& bucket : buckets) {
      const Tensor& first = bucket.sources[0];
      jobs.push_back({first.dtype(), first.elements(), bucket.sources.size(), bucket.replicas.size()});
      const auto add = [&](const Tensor& tensor, bool read, HostCallRange::After after) {
        ranges.push_back({tensor.device(), tensor.address(), tensor.bytes(), tensor.var(), read, after});
      };
      for (const Tensor& source : bucket.sources) add(source, true, HostCallRange::After::kNothing);
      for (const Tensor& replica : bucket.replicas) {
        add(replica, !replace || options.function,
            replace ? HostCallRange::After::kWrite : HostCallRange::After::kUpdate);
      }
    }
    call_ = std::make_unique<HostCall>(
        std::move(engine), options.name, ranges,
        [jobs, function = options.function, check = options.hooks.check](std::span<void* const> addresses) {
          std::span<void* const> at = addresses;
          for (size_t b = 0; check && b < jobs.size(); ++b) {
            check(static_cast<int>(b), 0, jobs[b].elements,
                  {const_cast<const void* const*>(at.data()), jobs[b].sources});
            at = at.subspan(jobs[b].sources + jobs[b].replicas);
          }
          for (size_t b = 0; b < jobs.size(); ++b) {
            const Job& job = jobs[b];
            const std::span<const void* const> sources(const_cast<const void* const*>(addresses.data()), job.sources);
            const std::span<void* const> replicas = addresses.subspan(job.sources, job.replicas);
            if (function) {
              function(static_cast<int>(b), 0, job.elements, sources, replicas);
            } else {
              SumInto(job.dtype, sources, replicas, job.elements);
            }
            addresses = addresses.subspan(job.sources + job.replicas);
          }
        },
        options.hooks.gates, std::make_shared<std::vector<Bucket>>(buckets));
    outcome_ = {call_->outcome()};
  }
  void Run() override { call_->Push(); }
  const std::vector<VarPtr>& outcome() const override { return outcome_; }

 private:
  std::unique_ptr<HostCall> call_;
  std::vector<VarPtr> outcome_;
};

}  // namespace

std::unique_ptr<Reduction> MakeReduction(std::shared_ptr<Engine> engine, std::vector<Bucket> buckets,
                                         ReductionOptions options) {
  if (buckets.empty()) Throw("a reduction needs at least one bucket");
  Check(!options.workers.empty(), "a reduction has workers");
  if (options.threads < 1) Throw("a reduction needs at least 1 thread per worker, got {}", options.threads);
  for (size_t i = 0; i < buckets.size(); ++i) CheckBucket(buckets[i], engine.get(), i);
  if (!std::ranges::all_of(DevicesOf(buckets), HostAddressable))
    return std::make_unique<StagedReduction>(std::move(engine), buckets, options);
  return std::make_unique<PreparedReduction>(std::move(engine), std::move(buckets), options);
}

std::vector<Device> DevicesOf(const std::vector<Bucket>& buckets) {
  std::vector<Device> devices;
  const auto add = [&](const std::vector<Tensor>& tensors) {
    for (const Tensor& tensor : tensors) {
      if (std::find(devices.begin(), devices.end(), tensor.device()) == devices.end())
        devices.push_back(tensor.device());
    }
  };
  for (const Bucket& bucket : buckets) add(bucket.replicas);
  for (const Bucket& bucket : buckets) add(bucket.sources);
  return devices;
}

std::vector<std::vector<BucketRange>> CutBuckets(const std::vector<int64_t>& elements, int parts) {
  int64_t total = 0;
  for (int64_t count : elements) total += count;
  std::vector<std::vector<BucketRange>> result(static_cast<size_t>(parts));
  int64_t start = 0;  // of the bucket, in the row of all elements
  for (size_t bucket = 0; bucket < elements.size(); ++bucket) {
    const int64_t count = elements[bucket];
    int64_t begin = 0;
    for (int part = 0; part < parts && begin < count; ++part) {
      // The part's end in the row: total * (part + 1) / parts, without overflow.
      const int64_t row_end = total / parts * (part + 1) + total % parts * (part + 1) / parts;
      const int64_t end =
          part + 1 == parts ? count : std::min(count, RoundUp(std::max<int64_t>(row_end - start, 0), kBorder));
      if (end <= begin) continue;
      result[static_cast<size_t>(part)].push_back({static_cast<int>(bucket), begin, end});
      begin = end;
    }
    start += count;
  }
  return result;
}

void SumInto(DType dtype, std::span<const void* const> sources, std::span<void* const> replicas, int64_t elements) {
  const int64_t width = SizeOf(dtype);
  // flat::Sum may write over its first input, not over a later one: the replica that may take the sum, if there is one.
  const auto is_later_source = [&](const void* replica) {
    return std::find(sources.begin() + 1, sources.end(), replica) != sources.end() && replica != sources[0];
  };
  const auto target = std::find_if_not(replicas.begin(), replicas.end(), is_later_source);
  thread_local std::vector<const void*> in;  // keeps its memory from call to call
  in.resize(sources.size());
  alignas(64) char scratch[kScratchBytes];
  for (int64_t begin = 0; begin < elements; begin += kBlock) {
    const int64_t count = std::min(kBlock, elements - begin), offset = begin * width;
    for (size_t i = 0; i < sources.size(); ++i) in[i] = static_cast<const char*>(sources[i]) + offset;
    void* sum = target == replicas.end() ? scratch : static_cast<char*>(*target) + offset;
    flat::Sum(dtype, in, sum, count);
    for (void* replica : replicas) {
      void* out = static_cast<char*>(replica) + offset;
      if (out != sum) flat::Copy(sum, out, count * width);
    }
  }
}

}  // namespace bindery
