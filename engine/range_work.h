// Work over equal tensors that lie on several devices, shared out by ranges of elements among the devices' workers: a
// sum, a copy, an update. What collectives in memory (engine/collective.h) and reductions (kvstore) are made of.
//
// A tensor has one variable, so two workers cannot write parts of it as two operations that both name it. Several
// workers therefore share it under the cover of a pair of operations. With D workers the parts are
//
//   prologue     reads the sources and the gates, holds the replicas for itself, creates `token`; does nothing
//   look 0..D-1  read `token` and the sources, each creates a variable of its own, `seen`; for each look, after all
//                `seen` of the look before
//   part 0..D-1  read `token`, every `seen` and the sources, each updates a variable of its own, `done`; the work, one
//                range each
//   epilogue     reads every `done`, holds the replicas for itself; says how it went
//
// Whatever was pushed on the replicas before is over when the prologue runs; whatever is pushed after waits for the
// epilogue. So between the two the parts have the replicas for themselves. Nobody else may push on these tensors while
// a run is being pushed.
//
// Errors. If a source or replica failed, the prologue is skipped, `token` carries the error and the parts are skipped;
// their `done` is updated, not created, so it stays whole and the epilogue does not inherit a source's error. What then
// happens to the replicas is a choice (`replaces`):
//   - false (parameters): they stay as they are, readable. But a function that throws leaves them half updated, so
//     then they must fail. A part therefore never throws: it keeps the exception, and the epilogue throws it. For the
//     error to reach the replicas the epilogue lists them as read and created: it fails them when it throws, and
//     leaves them failed when they are, but does not fail them with a source.
//   - true (values): they are created, by the prologue, so they carry a source's error.
//
// All of that is for memory that the host can address. If some tensor lies elsewhere, the work is a host call, by
// copies (engine/host_call.h): what is on the devices changes only when all of it has been done.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/step.h"
#include "engine/tensor.h"

namespace bindery {

// Flat tensors on several devices.
struct Bucket {
  std::vector<Tensor> sources = {};  // per device, in the order of summation; may be fewer than replicas (idle devices)
  std::vector<Tensor> replicas = {};  // per device; all hold equal values
};
// How large replicas are: as their sources, which are equal; as all sources together, of any size; or all replicas
// together as one of the sources, which are equal.
enum class ReplicaSizes : uint8_t { kEqual, kAllSources, kRanges };
// Throws Error for an empty list, overlapping memory or a tensor of another engine, ShapeError for element counts or
// dtypes that do not fit.
void CheckBuckets(const std::vector<Bucket>& buckets, const Engine* engine, ReplicaSizes sizes);
bool SourcesAreEqual(const std::vector<Bucket>& buckets);  // in each bucket, in elements

// Works on elements begin..end-1 of bucket `bucket`, called once for each range, concurrently for disjoint ranges:
// sources[d], replicas[d] are the addresses of element `begin`. Replicas that are one by several devices' names
// (EachOnce) are given once.
using RangeFunction = std::function<void(int bucket, int64_t begin, int64_t end, std::span<const void* const> sources,
                                         std::span<void* const> replicas)>;
// Functions that look at all ranges, one after the other, before the first range is worked on: each begins when the one
// before has seen everything. They change nothing; what they throw keeps the whole work from touching anything.
using RangeLooks = std::vector<RangeFunction>;

struct RangeWork {
  std::string name = "reduce";       // in messages
  std::vector<Bucket> buckets = {};  // sources of one size in each
  std::vector<Device> workers = {};  // each takes an equal range of all elements; not empty
  int threads = 1;                   // of each worker's team, which share its range
  bool replaces = false;
  ReplicaSizes sizes = ReplicaSizes::kEqual;  // not kRanges
  RangeFunction function = {};                // none: the sum goes into every replica
  RangeLooks looks = {};
  std::vector<VarPtr> gates = {};  // variables that must be whole
};

// Returns variables that tell how the last run went: one of them carries its error, if it has one. Throws as
// CheckBuckets does.
std::vector<VarPtr> AppendRangeWork(const std::shared_ptr<Engine>& engine, RangeWork work, StepParts* parts);

// The devices of the tensors, each once, replicas first.
std::vector<Device> DevicesOf(const std::vector<Bucket>& buckets);

// Elements begin..end-1 of one bucket.
struct BucketRange {
  int bucket = 0;
  int64_t begin = 0, end = 0;
  bool operator==(const BucketRange&) const = default;
};
// Cuts buckets of these sizes, seen one after the other, into `parts` of equal size (but for rounding); inside a bucket
// a border is a multiple of 16 elements, so that no two workers write one cache line of an aligned tensor of 4-byte
// elements.
std::vector<std::vector<BucketRange>> CutBuckets(const std::vector<int64_t>& elements, int parts);

// Sums sources[0..] into every replica, block by block, so that memory is read and written once. A replica may be one
// of the sources, but may not overlap them otherwise.
void SumInto(DType dtype, std::span<const void* const> sources, std::span<void* const> replicas, int64_t elements);

}  // namespace bindery
