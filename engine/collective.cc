#include "engine/collective.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/backend.h"
#include "engine/fetch.h"
#include "engine/kernels/flat.h"

namespace bindery {
namespace {

// The sources, each to its place in every replica.
RangeFunction Gather(const std::vector<Bucket>& buckets) {
  std::vector<std::pair<int64_t, int64_t>> sizes;  // bytes of an element and of a source
  for (const Bucket& bucket : buckets) {
    sizes.emplace_back(SizeOf(bucket.sources[0].dtype()), bucket.sources[0].bytes());
  }
  return [sizes = std::move(sizes)](int bucket, int64_t begin, int64_t end, std::span<const void* const> sources,
                                    std::span<void* const> replicas) {
    const auto [width, bytes] = sizes[static_cast<size_t>(bucket)];
    for (void* const replica : replicas) {
      char* to = static_cast<char*>(replica);
      for (size_t d = 0; d < sources.size(); ++d, to += bytes) flat::Copy(sources[d], to, (end - begin) * width);
    }
  };
}

// A replica, and what the device that makes it reads: all sources, or of each of them the range of this replica.
struct ReplicaOfDevice {
  Tensor to;
  std::vector<Tensor> from;
  std::vector<const void*> addresses = {};  // of `from`
  Tensor sum = {};                          // where the kernel adds up; `to`, unless that is one of the later sources

  void Sum(const OpContext& context) const {
    const FlatKernels& flat = Backend::Of(to.device().kind).flat();
    flat.Sum(context.stream, to.dtype(), addresses, sum.address(), to.elements());
    if (sum.address() != to.address()) flat.Copy(context.stream, sum.address(), to.address(), to.bytes());
  }
  void Gather(const OpContext& context) const {
    const FlatKernels& flat = Backend::Of(to.device().kind).flat();
    char* at = static_cast<char*>(to.address());
    for (const Tensor& source : from) {
      if (at != source.address()) flat.Copy(context.stream, source.address(), at, source.bytes());
      at += source.bytes();
    }
  }
};

// Each device makes its own replicas. All of them fetch before the first replica is made, since it may be a source.
void AppendByCopies(const std::shared_ptr<Engine>& engine, Collective what, const std::string& name,
                    const std::vector<Bucket>& buckets, StepParts* parts) {
  std::map<Device, std::vector<ReplicaOfDevice>> devices;
  for (const Bucket& bucket : buckets) {
    int64_t begin = 0;
    for (const Tensor& to : bucket.replicas) {
      ReplicaOfDevice& replica = devices[to.device()].emplace_back(ReplicaOfDevice{to, bucket.sources});
      if (what != Collective::kReduceScatterSum) continue;
      const int64_t end = begin + to.elements();
      for (Tensor& source : replica.from) source = source.Slice(begin, end);
      begin = end;
    }
  }
  std::map<Device, std::vector<Tensor>> read;  // by the first device of those that share a memory
  const auto reader = [&](Device device) {
    return std::ranges::find_if(devices, [&](const auto& other) { return ShareMemory(other.first, device); })->first;
  };
  for (const auto& [device, replicas] : devices) {
    std::vector<Tensor>& wanted = read[reader(device)];
    for (const ReplicaOfDevice& replica : replicas) {
      wanted.insert(wanted.end(), replica.from.begin(), replica.from.end());
    }
  }
  std::map<Device, std::vector<Tensor>::const_iterator> next;
  for (auto& [device, wanted] : read) {
    wanted = AppendFetch(engine, fmt::format("{} for {}", name, device), wanted, device, parts);
    next[device] = wanted.begin();
  }
  const bool sums = what == Collective::kAllReduceSum || what == Collective::kReduceScatterSum;
  for (auto& [device, replicas] : devices) {
    Operation combine{.name = name, .device = device, .lane = Lane::kCollective};
    for (ReplicaOfDevice& replica : replicas) {
      combine.writes.push_back(replica.to.var());
      replica.sum = replica.to;
      for (Tensor& from : replica.from) {
        from = *next[reader(device)]++;
        combine.reads.push_back(from.var());
        replica.addresses.push_back(from.address());
      }
      if (std::find(replica.addresses.begin() + 1, replica.addresses.end(), replica.to.address()) !=
          replica.addresses.end()) {
        replica.sum = Tensor(engine, device, replica.to.dtype(), replica.to.shape());
      }
    }
    combine.run = [sums, replicas = std::move(replicas)](const OpContext& context) {
      for (const ReplicaOfDevice& replica : replicas) sums ? replica.Sum(context) : replica.Gather(context);
    };
    parts->push_back(std::move(combine));
  }
}

class InMemory final : public Collectives {
 public:
  InMemory(std::shared_ptr<Engine> engine, bool shared_out) : engine_(std::move(engine)), shared_out_(shared_out) {}

  void Append(Collective what, const std::string& name, std::vector<Bucket> buckets, StepParts* parts) const override {
    const ReplicaSizes sizes = what == Collective::kAllGather          ? ReplicaSizes::kAllSources
                               : what == Collective::kReduceScatterSum ? ReplicaSizes::kRanges
                                                                       : ReplicaSizes::kEqual;
    CheckBuckets(buckets, engine_.get(), sizes);
    for (const Bucket& bucket : buckets) {
      Check(what != Collective::kBroadcast || bucket.sources.size() == 1, "a broadcast has one source");
    }
    const std::vector<Device> devices = DevicesOf(buckets);
    const bool in_place = std::ranges::all_of(devices, HostAddressable) && SourcesAreEqual(buckets);
    if (!in_place || what == Collective::kReduceScatterSum) {
      return AppendByCopies(engine_, what, name, buckets, parts);
    }
    RangeWork work{.name = name, .workers = devices, .replaces = true, .sizes = sizes};
    if (what == Collective::kAllGather) work.function = Gather(buckets);
    if (!shared_out_) work.workers = {buckets[0].sources[0].device()};
    work.buckets = std::move(buckets);
    AppendRangeWork(engine_, std::move(work), parts);
  }

 private:
  const std::shared_ptr<Engine> engine_;
  const bool shared_out_;
};

}  // namespace

const char* ToString(Collective what) {
  switch (what) {
    case Collective::kAllReduceSum: return "AllReduceSum";
    case Collective::kReduceScatterSum: return "ReduceScatterSum";
    case Collective::kAllGather: return "AllGather";
    case Collective::kBroadcast: return "Broadcast";
  }
  return "?";
}

std::unique_ptr<Collectives> MemoryCollectives(std::shared_ptr<Engine> engine, bool shared_out) {
  return std::make_unique<InMemory>(std::move(engine), shared_out);
}

}  // namespace bindery
