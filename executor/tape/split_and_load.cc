#include "executor/tape/split_and_load.h"

#include "base/error.h"
#include "engine/backend.h"
#include "engine/collective.h"
#include "executor/group/split_batch.h"
#include "executor/tape/compute.h"
#include "executor/tape/tape.h"

namespace bindery {
namespace {

std::vector<SampleRange> Ranges(const Shape& shape, const std::vector<Device>& devices, const SplitOptions& options) {
  if (devices.empty()) throw Error("SplitAndLoad: no devices");
  if (shape.rank() == 0) throw ShapeError("SplitAndLoad: an array without axes has no rows to split");
  const int64_t rows = shape[0], count = static_cast<int64_t>(devices.size());
  if (rows < count) Throw<ShapeError>("SplitAndLoad: {} rows for {} devices", rows, count);
  if (options.even && rows % count != 0) {
    Throw<ShapeError>("SplitAndLoad: {} rows are not divided by {} devices; {{.even = false}} allows it", rows, count);
  }
  return SplitBatch(rows, std::vector<double>(devices.size(), 1));
}

bool Overlap(const Tensor& a, const Tensor& b) {
  const char *const begin_a = static_cast<const char*>(a.address()), *const begin_b =
                                                                         static_cast<const char*>(b.address());
  return ShareMemory(a.device(), b.device()) && begin_a < begin_b + b.bytes() && begin_b < begin_a + a.bytes();
}

}  // namespace

std::vector<NDArray> SplitAndLoad(const HostTensor& batch, const std::vector<Device>& devices,
                                  const SplitOptions& options) {
  const std::vector<SampleRange> ranges = Ranges(batch.shape(), devices, options);
  std::vector<NDArray> parts;
  for (size_t d = 0; d < devices.size(); ++d) {
    parts.emplace_back(batch.Slice(0, ranges[d].begin, ranges[d].end), devices[d]);
  }
  return parts;
}

std::vector<NDArray> SplitAndLoad(const NDArray& batch, const std::vector<Device>& devices,
                                  const SplitOptions& options) {
  const std::vector<SampleRange> ranges = Ranges(batch.shape(), devices, options);
  if (IsRecording() && batch.state()->is_recorded()) {
    throw Error("SplitAndLoad: the tape does not reach other devices; split before RecordScope, or a Detach()ed array");
  }
  std::vector<NDArray> parts;
  for (size_t d = 0; d < devices.size(); ++d) {
    parts.push_back(batch.Slice(ranges[d].begin, ranges[d].end).CopyTo(devices[d]));
  }
  return parts;
}

void AllReduce(const std::vector<NDArray>& arrays) {
  Bucket bucket;
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (!arrays[i].defined()) Throw("AllReduce: array {} is empty", i);
    if (IsRecording() && arrays[i].state()->is_recorded()) {
      throw Error("AllReduce: changes in place are not recorded; do it outside of RecordScope");
    }
    if (arrays[i].shape() != arrays[0].shape() || arrays[i].dtype() != arrays[0].dtype()) {
      Throw<ShapeError>("AllReduce: array 0 is {} {}, array {} is {} {}", arrays[0].dtype(), arrays[0].shape(), i,
                        arrays[i].dtype(), arrays[i].shape());
    }
    for (size_t j = 0; j < i; ++j) {
      if (Overlap(arrays[i].tensor(), arrays[j].tensor())) Throw("AllReduce: arrays {} and {} share memory", j, i);
    }
    bucket.sources.push_back(arrays[i].tensor());
  }
  if (arrays.size() < 2 || arrays[0].elements() == 0) return;
  bucket.replicas = bucket.sources;
  const std::shared_ptr<Engine>& engine = arrays[0].tensor().engine();
  StepParts parts;
  MemoryCollectives(engine, /*shared_out=*/true)->Append(Collective::kAllReduceSum, "AllReduce", {bucket}, &parts);
  for (Operation& part : parts) engine->Push(std::move(part));
}

}  // namespace bindery
