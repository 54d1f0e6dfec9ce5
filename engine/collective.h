// Collectives: what the devices of a step combine, bucket by bucket:
//
//   kAllReduceSum  the sum of the sources, in their order, is written to every replica
//   kAllGather     the sources, one behind the other in their order, are written to every replica
//   kBroadcast     the only source is written to every replica
//
// They are parts of a step, and whoever takes part has them in the same order, the plan's. Where the devices share a
// process they work in its memory (MemoryCollectives). Replicas are created: they fail if a source did or the
// collective does.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/range_work.h"

namespace bindery {

enum class Collective : uint8_t { kAllReduceSum, kAllGather, kBroadcast };
const char* ToString(Collective what);

class Collectives {
 public:
  virtual ~Collectives() = default;
  // Throws Error or ShapeError for buckets that do not fit (see AppendRangeWork).
  virtual void Append(Collective what, const std::string& name, std::vector<Bucket> buckets,
                      StepParts* parts) const = 0;
};

// By the workers of the buckets' devices, each an equal range of the elements; or all by the first one's.
std::unique_ptr<Collectives> MemoryCollectives(std::shared_ptr<Engine> engine, bool shared_out);

}  // namespace bindery
