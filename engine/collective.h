// Collectives: what the devices of a step combine, bucket by bucket:
//
//   kAllReduceSum      the sum of the sources, in their order, is written to every replica
//   kReduceScatterSum  that sum is cut into as many ranges as there are replicas, and each replica gets its own
//   kAllGather         the sources, one behind the other in their order, are written to every replica
//   kBroadcast         the only source is written to every replica
//
// They are parts of a step, and whoever takes part has them in the same order, the plan's. Replicas are created: they
// fail if a source did or the collective does. A replica may be a source, but not overlap one in part.
//
// Where the devices share a process (MemoryCollectives), workers read the sources and write the replicas in place if the
// host can address all of them; otherwise each device fetches what it needs (engine/fetch.h) and makes its own replicas.
// Both add in the same order, to the same bits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/range_work.h"

namespace bindery {

enum class Collective : uint8_t { kAllReduceSum, kReduceScatterSum, kAllGather, kBroadcast };
const char* ToString(Collective what);

class Collectives {
 public:
  virtual ~Collectives() = default;
  // Throws Error or ShapeError for buckets that do not fit (see AppendRangeWork). Tensors of kReduceScatterSum have one
  // axis; their replicas together have as many elements as a source.
  virtual void Append(Collective what, const std::string& name, std::vector<Bucket> buckets,
                      StepParts* parts) const = 0;
};

// In place the work is done by the workers of the buckets' devices, each an equal range of the elements; or all by the
// first one's. (kReduceScatterSum is cut by its replicas.)
std::unique_ptr<Collectives> MemoryCollectives(std::shared_ptr<Engine> engine, bool shared_out);

}  // namespace bindery
