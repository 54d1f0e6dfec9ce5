#include "engine/collective.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/backend.h"
#include "engine/cuda/exchange.h"
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

// Equal replicas in one memory, and what the device that makes them reads: all sources, or of each of them their range.
struct Share {
  std::vector<Tensor> replicas;
  std::vector<Tensor> from;
  std::vector<const void*> addresses = {};  // of `from`
  Tensor made = {};  // the replica that is made first, or memory beside them where each is a later source of a sum

  void Sum(const OpContext& context) const {
    flat().Sum(context.stream, made.dtype(), addresses, made.address(), made.elements());
    Spread(context);
  }
  void Gather(const OpContext& context) const {
    char* at = static_cast<char*>(made.address());
    for (const Tensor& source : from) {
      if (at != source.address()) flat().Copy(context.stream, source.address(), at, source.bytes());
      at += source.bytes();
    }
    Spread(context);
  }
  void Spread(const OpContext& context) const {
    for (const Tensor& replica : replicas) {
      if (replica.address() == made.address()) continue;
      flat().Copy(context.stream, made.address(), replica.address(), made.bytes());
    }
  }
  const FlatKernels& flat() const { return Backend::Of(made.device().kind).flat(); }
};

// A device makes the replicas of all that it shares memory with, or its own ranges. All of them fetch before the first
// replica is made, since it may be a source.
void AppendByCopies(const std::shared_ptr<Engine>& engine, Collective what, const std::string& name,
                    const std::vector<Bucket>& buckets, StepParts* parts) {
  const bool ranges = what == Collective::kReduceScatterSum, sums = ranges || what == Collective::kAllReduceSum;
  const std::vector<Device> all = DevicesOf(buckets);
  const auto reader = [&](Device device) {  // whose copies it reads: of those that share a memory, the first
    return *std::ranges::find_if(all, [&](Device other) { return ShareMemory(other, device); });
  };
  std::map<Device, std::vector<Share>> makers;
  for (const Bucket& bucket : buckets) {
    std::map<Device, Share> shares;
    int64_t begin = 0;
    for (const Tensor& replica : bucket.replicas) {
      if (!ranges) {
        Share& share = shares[reader(replica.device())];
        share.replicas.push_back(replica);
        share.from = bucket.sources;
        continue;
      }
      Share& share = makers[replica.device()].emplace_back(Share{{replica}, bucket.sources});
      for (Tensor& source : share.from) source = source.Slice(begin, begin + replica.elements());
      begin += replica.elements();
    }
    for (auto& [device, share] : shares) makers[device].push_back(std::move(share));
  }
  std::map<Device, std::vector<Tensor>> read;  // by reader
  for (const auto& [device, shares] : makers) {
    std::vector<Tensor>& wanted = read[reader(device)];
    for (const Share& share : shares) wanted.insert(wanted.end(), share.from.begin(), share.from.end());
  }
  AppendExchange(engine, name, &read, parts);
  std::map<Device, std::vector<Tensor>::const_iterator> next;
  for (auto& [device, wanted] : read) {
    wanted = AppendFetch(engine, fmt::format("{} for {}", name, device), wanted, device, parts);
    next[device] = wanted.begin();
  }
  for (auto& [device, shares] : makers) {
    Operation combine{.name = name, .device = device, .lane = Lane::kCollective};
    for (Share& share : shares) {
      for (Tensor& from : share.from) {
        from = *next[reader(device)]++;
        combine.reads.push_back(from.var());
        share.addresses.push_back(from.address());
      }
      for (const Tensor& replica : share.replicas) combine.writes.push_back(replica.var());
      const auto target = std::ranges::find_if(share.replicas, [&](const Tensor& replica) {
        return !sums || std::find(share.addresses.begin() + 1, share.addresses.end(), replica.address()) ==
                            share.addresses.end();
      });
      share.made = target != share.replicas.end()
                       ? *target
                       : Tensor(engine, device, share.replicas[0].dtype(), share.replicas[0].shape());
      if (target == share.replicas.end()) combine.writes.push_back(share.made.var());  // behind its first zeros
    }
    combine.run = [sums, shares = std::move(shares)](const OpContext& context) {
      for (const Share& share : shares) sums ? share.Sum(context) : share.Gather(context);
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
