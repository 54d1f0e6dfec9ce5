#include "engine/range_work.h"

#include <algorithm>
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

void CheckBucket(const Bucket& bucket, const Engine* engine, size_t index, ReplicaSizes sizes) {
  if (bucket.sources.empty()) Throw("bucket {} has no sources", index);
  if (bucket.replicas.empty()) Throw("bucket {} has no replicas", index);
  const Tensor& first = bucket.sources[0];
  const auto check = [&](const Tensor& tensor, const char* role, size_t i, int64_t elements) {
    if (tensor.elements() != elements || tensor.dtype() != first.dtype()) {
      Throw<ShapeError>("bucket {}, {} {}: expected {} elements of {} as in source 0, got {} of {}", index, role, i,
                        elements, first.dtype(), tensor.elements(), tensor.dtype());
    }
  };
  int64_t all = 0, together = 0;  // elements of sources, of replicas
  for (size_t i = 0; i < bucket.sources.size(); ++i) {
    const Tensor& source = bucket.sources[i];
    CheckTensor(source, engine, index, "source", i);
    check(source, "source", i, sizes == ReplicaSizes::kAllSources ? source.elements() : first.elements());
    all += source.elements();
  }
  const int64_t size = sizes == ReplicaSizes::kAllSources ? all : first.elements();
  for (size_t i = 0; i < bucket.replicas.size(); ++i) {
    const Tensor& replica = bucket.replicas[i];
    CheckTensor(replica, engine, index, "replica", i);
    check(replica, "replica", i, sizes == ReplicaSizes::kRanges ? replica.elements() : size);
    together += replica.elements();
  }
  if (sizes == ReplicaSizes::kRanges && together != size) {
    Throw<ShapeError>("bucket {}: the replicas have {} elements together, source 0 has {}", index, together, size);
  }
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
struct Stretch {
  BucketRange range;
  std::vector<const void*> sources = {};
  std::vector<void*> replicas = {};
};

void Do(const RangeWork& work, const BucketRange& range, std::span<const void* const> sources,
        std::span<void* const> replicas) {
  const auto& [bucket, begin, end] = range;
  if (work.function) {
    work.function(bucket, begin, end, sources, replicas);
  } else {
    SumInto(work.buckets[static_cast<size_t>(bucket)].sources[0].dtype(), sources, replicas, end - begin);
  }
}

// What one worker does: a share for each thread of its team.
struct Part {
  std::vector<std::vector<Stretch>> shares;
  int64_t elements = 0;
  std::exception_ptr error;  // of the last run, until the epilogue takes it
};

// What the operations share and keep alive, the tensors' memory with it.
struct State {
  RangeWork work;
  std::vector<Part> parts = {};

  // visit(Stretch) for all of a part, by its worker's team.
  template <class Visit>
  void ForEach(const Part& part, const Visit& visit) const {
    const TeamScope team(part.elements > kSerialElements ? work.threads : 1);
    ParallelFor(static_cast<int64_t>(part.shares.size()), 1, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t share = begin; share < end; ++share) {
        for (const Stretch& stretch : part.shares[static_cast<size_t>(share)]) visit(stretch);
      }
    });
  }
  void LookAtPart(const RangeFunction& look, const Part& part) const {
    ForEach(part, [&](const Stretch& s) { look(s.range.bucket, s.range.begin, s.range.end, s.sources, s.replicas); });
  }
  void DoPart(const Part& part) const {
    ForEach(part, [&](const Stretch& s) { Do(work, s.range, s.sources, s.replicas); });
  }
  void DoAndKeepError(Part& part) const noexcept {
    try {
      DoPart(part);
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

Stretch MakeStretch(const BucketRange& range, const Bucket& bucket) {
  Stretch stretch{.range = range};
  const int64_t offset = range.begin * SizeOf(bucket.sources[0].dtype());
  for (const Tensor& tensor : bucket.sources)
    stretch.sources.push_back(static_cast<const char*>(tensor.data()) + offset);
  for (const Tensor& tensor : bucket.replicas) stretch.replicas.push_back(static_cast<char*>(tensor.data()) + offset);
  return stretch;
}

std::shared_ptr<State> MakeState(const RangeWork& work) {
  auto state = std::make_shared<State>(State{.work = work});
  const int threads = work.threads, workers = static_cast<int>(work.workers.size());
  std::vector<int64_t> elements;
  for (const Bucket& bucket : work.buckets) elements.push_back(bucket.sources[0].elements());
  const auto shares = CutBuckets(elements, workers * threads);
  for (size_t first = 0; first < shares.size(); first += static_cast<size_t>(threads)) {
    Part part;
    for (size_t share = first; share < first + static_cast<size_t>(threads); ++share) {
      std::vector<Stretch> stretches;
      for (const BucketRange& range : shares[share]) {
        stretches.push_back(MakeStretch(range, work.buckets[static_cast<size_t>(range.bucket)]));
        part.elements += range.end - range.begin;
      }
      if (!stretches.empty()) part.shares.push_back(std::move(stretches));
    }
    if (!part.shares.empty()) state->parts.push_back(std::move(part));
  }
  if (state->parts.empty()) state->parts.emplace_back();  // no elements at all: still in order, still with errors
  return state;
}

std::vector<VarPtr> AppendInPlace(Engine* engine, const RangeWork& work, StepParts* parts) {
  std::vector<VarPtr> sources, replicas;
  for (const Bucket& bucket : work.buckets) {
    for (const Tensor& tensor : bucket.sources) sources.push_back(tensor.var());
    for (const Tensor& tensor : bucket.replicas) replicas.push_back(tensor.var());
  }
  const auto state = MakeState(work);
  const VarPtr token = engine->NewVar();
  std::vector<VarPtr> to_know = {token}, done;  // what carries the errors of a run; what the epilogue comes after
  const auto part = [&](Device worker) { return Operation{.name = work.name, .device = worker}; };

  Operation prologue = part(work.workers[0]);
  prologue.reads = sources;
  prologue.reads.insert(prologue.reads.end(), work.gates.begin(), work.gates.end());
  prologue.writes = {token};
  for (const VarPtr& replica : replicas) (work.replaces ? prologue.writes : prologue.updates).push_back(replica);
  if (state->parts.size() > 1) {
    prologue.run = [](const OpContext&) {};
    parts->push_back(std::move(prologue));
    std::vector<VarPtr> before = sources;  // what a part comes after
    before.push_back(token);
    for (size_t l = 0; l < work.looks.size(); ++l) {
      const auto seen = static_cast<std::ptrdiff_t>(to_know.size());
      for (size_t i = 0; i < state->parts.size(); ++i) {
        to_know.push_back(engine->NewVar());
        Operation look = part(work.workers[i]);
        look.reads = before;
        look.writes = {to_know.back()};
        look.run = [state, l, i](const OpContext&) { state->LookAtPart(state->work.looks[l], state->parts[i]); };
        parts->push_back(std::move(look));
      }
      before.insert(before.end(), to_know.begin() + seen, to_know.end());
    }
    for (size_t i = 0; i < state->parts.size(); ++i) {
      done.push_back(engine->NewVar());
      Operation range = part(work.workers[i]);
      range.reads = before;
      range.updates = {done.back()};
      range.run = [state, i](const OpContext&) { state->DoAndKeepError(state->parts[i]); };
      parts->push_back(std::move(range));
    }
  } else {                                                     // the prologue is the only part
    const bool keeps_error = !work.replaces && work.function;  // otherwise there are no half updates
    if (keeps_error) {
      done.push_back(engine->NewVar());
      prologue.updates.push_back(done.back());
    }
    prologue.run = [state, keeps_error](const OpContext&) {
      for (const RangeFunction& look : state->work.looks) state->LookAtPart(look, state->parts[0]);
      keeps_error ? state->DoAndKeepError(state->parts[0]) : state->DoPart(state->parts[0]);
    };
    parts->push_back(std::move(prologue));
  }
  if (!done.empty()) {
    Operation epilogue = part(work.workers[0]);
    epilogue.reads = done;
    epilogue.reads.insert(epilogue.reads.end(), replicas.begin(), replicas.end());
    epilogue.writes = replicas;
    epilogue.run = [state](const OpContext&) { state->TakeErrors(); };
    parts->push_back(std::move(epilogue));
  }
  to_know.insert(to_know.end(), replicas.begin(), replicas.end());
  return to_know;
}

std::vector<VarPtr> AppendStaged(Engine* engine, const RangeWork& work, StepParts* parts) {
  using After = HostCallRange::After;
  std::vector<HostCallRange> ranges;  // per bucket the sources, then the replicas
  for (const Bucket& bucket : work.buckets) {
    const auto add = [&](const Tensor& tensor, bool read, After after) {
      ranges.push_back({tensor.device(), tensor.address(), tensor.bytes(), tensor.var(), read, after});
    };
    for (const Tensor& source : bucket.sources) add(source, true, After::kNothing);
    for (const Tensor& replica : bucket.replicas) {
      add(replica, !work.replaces, work.replaces ? After::kWrite : After::kUpdate);
    }
  }
  const auto kept = std::make_shared<const RangeWork>(work);
  const auto run = [kept](std::span<void* const> addresses) {
    // visit(bucket, its number of elements, sources, replicas)
    const auto for_each = [&](const auto& visit) {
      std::span<void* const> at = addresses;
      for (size_t b = 0; b < kept->buckets.size(); ++b) {
        const size_t sources = kept->buckets[b].sources.size(), replicas = kept->buckets[b].replicas.size();
        visit(static_cast<int>(b), kept->buckets[b].sources[0].elements(),
              std::span(const_cast<const void* const*>(at.data()), sources), at.subspan(sources, replicas));
        at = at.subspan(sources + replicas);
      }
    };
    for (const RangeFunction& look : kept->looks) {
      for_each([&](int b, int64_t elements, auto sources, auto replicas) { look(b, 0, elements, sources, replicas); });
    }
    for_each([&](int b, int64_t elements, auto sources, auto replicas) {
      Do(*kept, {b, 0, elements}, sources, replicas);
    });
  };
  return {AppendHostCall(engine, work.name, ranges, run, work.gates, kept, parts)};
}

}  // namespace

void CheckBuckets(const std::vector<Bucket>& buckets, const Engine* engine, ReplicaSizes sizes) {
  if (buckets.empty()) Throw("a reduction needs at least one bucket");
  for (size_t i = 0; i < buckets.size(); ++i) CheckBucket(buckets[i], engine, i, sizes);
}

bool SourcesAreEqual(const std::vector<Bucket>& buckets) {
  return std::ranges::all_of(buckets, [](const Bucket& bucket) {
    return std::ranges::all_of(bucket.sources,
                               [&](const Tensor& source) { return source.elements() == bucket.sources[0].elements(); });
  });
}

std::vector<VarPtr> AppendRangeWork(const std::shared_ptr<Engine>& engine, RangeWork work, StepParts* parts) {
  CheckBuckets(work.buckets, engine.get(), work.sizes);
  Check(!work.workers.empty(), "work over ranges has workers");
  Check(SourcesAreEqual(work.buckets), "work over ranges has sources of one size in each bucket");
  for (Bucket& bucket : work.buckets) bucket.replicas = EachOnce(bucket.replicas);
  if (work.threads < 1) Throw("a reduction needs at least 1 thread per worker, got {}", work.threads);
  const bool in_place = std::ranges::all_of(DevicesOf(work.buckets), HostAddressable);
  return (in_place ? AppendInPlace : AppendStaged)(engine.get(), work, parts);
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
