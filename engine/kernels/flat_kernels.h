// FlatKernels: the flat device math of one backend: loops over contiguous elements of device memory, by a stream. The
// CPU's are engine/kernels/flat.h.
//
// All pointers are device addresses unless said otherwise. Nothing allocates.
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "engine/kernels/update.h"
#include "engine/stream.h"

namespace bindery {

class FlatKernels {
 public:
  virtual ~FlatKernels() = default;

  virtual void Fill(Stream& stream, DType dtype, void* out, int64_t n, double value) const = 0;
  void Zero(Stream& stream, void* out, int64_t bytes) const { Fill(stream, DType::kUInt8, out, bytes, 0); }
  virtual void Copy(Stream& stream, const void* in, void* out, int64_t bytes) const = 0;
  // Copies all n elements if all are finite and all statuses good, else none.
  virtual void CopyFinite(Stream& stream, DType dtype, const void* in, void* out, int64_t n,
                          StepStatuses statuses = {}) const = 0;
  // `rows` runs of `bytes` bytes, `in_stride` and `out_stride` bytes apart.
  virtual void CopyRows(Stream& stream, const void* in, int64_t in_stride, void* out, int64_t out_stride, int64_t rows,
                        int64_t bytes) const = 0;
  virtual void Cast(Stream& stream, DType from, const void* in, DType to, void* out, int64_t n) const = 0;
  // out[i] = in[0][i] + in[1][i] + ... in list order, as flat::Sum; `out` may be in[0].
  virtual void Sum(Stream& stream, DType dtype, std::span<const void* const> in, void* out, int64_t n) const = 0;
  virtual void Add(Stream& stream, DType dtype, const void* in, void* out, int64_t n) const = 0;   // out += in
  virtual void Scale(Stream& stream, DType dtype, void* out, int64_t n, double factor) const = 0;  // out *= factor

  // What a step's update and commit are made of (engine/kernels/update.h), of many arrays at once: few commands, where
  // commands cost something. A backend may have no kernel for a rule, or none that measures for it: Update and Measure
  // throw DeviceError then, so it runs on the host.
  virtual bool HasUpdate(UpdateKernel rule, MeasureKernel measure = nullptr) const = 0;
  virtual void CheckFinite(Stream& stream, DType dtype, std::span<const PlacedElements> all,
                           StepStatus* status) const = 0;
  // Nothing, unless all statuses are good. `committed`: how many updates were. One works on what others write only if
  // it is by another rule, and behind them.
  virtual void Update(Stream& stream, std::span<const DeviceUpdate> updates, const StepRates* rates,
                      const int64_t* committed, StepStatuses statuses) const = 0;
  // Nothing, unless all statuses are good: copies, then counts, unless `committed` is null.
  virtual void Commit(Stream& stream, StepStatuses statuses, const void* in, void* out, int64_t bytes,
                      int64_t* committed) const = 0;

  // For norms over devices. Each sum of squares is taken in an order that depends on the number of elements only, and
  // goes to its place among `sums`.
  virtual void SumOfSquares(Stream& stream, DType dtype, std::span<const PlacedElements> all, double* sums) const = 0;
  // Of the gradients of these sums of squares, `n` of each device, added up in order (flat::ClipFactor).
  virtual void ClipFactor(Stream& stream, std::span<const double* const> sums, int64_t n, const StepRates* rates,
                          double limit, double* factor) const = 0;
  // Those that have `measure`.
  virtual void Measure(Stream& stream, std::span<const DeviceUpdate> updates, const StepRates* rates,
                       const int64_t* committed) const = 0;

  virtual void Refuse(Stream& stream, const Refusal* refusals, int64_t n, StepStatus* status) const = 0;
};

}  // namespace bindery
