#include "engine/collective.h"

#include <utility>

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

class InMemory final : public Collectives {
 public:
  InMemory(std::shared_ptr<Engine> engine, bool shared_out) : engine_(std::move(engine)), shared_out_(shared_out) {}

  void Append(Collective what, const std::string& name, std::vector<Bucket> buckets, StepParts* parts) const override {
    RangeWork work{.name = name, .replaces = true};
    for (const Bucket& bucket : buckets) {
      Check(!bucket.sources.empty() && (what != Collective::kBroadcast || bucket.sources.size() == 1),
            "a collective has sources, a broadcast has one");
    }
    if (what == Collective::kAllGather) {
      work.gathers = true;
      work.function = Gather(buckets);
    }
    work.workers = DevicesOf(buckets);
    if (!shared_out_ && !work.workers.empty()) work.workers = {buckets[0].sources[0].device()};
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
    case Collective::kAllGather: return "AllGather";
    case Collective::kBroadcast: return "Broadcast";
  }
  return "?";
}

std::unique_ptr<Collectives> MemoryCollectives(std::shared_ptr<Engine> engine, bool shared_out) {
  return std::make_unique<InMemory>(std::move(engine), shared_out);
}

}  // namespace bindery
