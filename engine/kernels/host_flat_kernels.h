// FlatKernels made of the host's loops (engine/kernels/flat.h, update.h), for backends whose streams run on the host:
//
//   Host::Run(stream, f, arguments...)
//
// calls f, in stream order, with the addresses among the arguments (also those in lists and in a DeviceUpdate) as the
// host sees them. A CPU's does so at once.
#pragma once

#include <numeric>

#include "engine/kernels/flat.h"
#include "engine/kernels/flat_kernels.h"

namespace bindery {

template <class Host>
class HostFlatKernels final : public FlatKernels {
 public:
  void Fill(Stream& stream, DType dtype, void* out, int64_t n, double value) const override {
    Host::Run(
        stream, [=](void* to) { flat::Fill(dtype, to, n, value); }, out);
  }
  void Copy(Stream& stream, const void* in, void* out, int64_t bytes) const override {
    Host::Run(
        stream, [=](const void* from, void* to) { flat::Copy(from, to, bytes); }, in, out);
  }
  void CopyFinite(Stream& stream, DType dtype, const void* in, void* out, int64_t n,
                  StepStatuses statuses) const override {
    const auto copy = [=](StepStatuses all, const void* from, void* to) {
      if (flat::AllGood(all) && flat::AllFinite(dtype, from, n)) flat::Copy(from, to, n * SizeOf(dtype));
    };
    Host::Run(stream, copy, statuses, in, out);
  }
  void CopyRows(Stream& stream, const void* in, int64_t in_stride, void* out, int64_t out_stride, int64_t rows,
                int64_t bytes) const override {
    const auto copy = [=](const void* from, void* to) {
      for (int64_t i = 0; i < rows; ++i) {
        flat::Copy(static_cast<const char*>(from) + i * in_stride, static_cast<char*>(to) + i * out_stride, bytes);
      }
    };
    Host::Run(stream, copy, in, out);
  }
  void Cast(Stream& stream, DType from, const void* in, DType to, void* out, int64_t n) const override {
    Host::Run(
        stream, [=](const void* source, void* target) { flat::Cast(from, source, to, target, n); }, in, out);
  }
  void Sum(Stream& stream, DType dtype, std::span<const void* const> in, void* out, int64_t n) const override {
    const auto sum = [=](std::span<const void* const> from, void* to) { flat::Sum(dtype, from, to, n); };
    Host::Run(stream, sum, in, out);
  }
  void Add(Stream& stream, DType dtype, const void* in, void* out, int64_t n) const override {
    Host::Run(
        stream, [=](const void* from, void* to) { flat::Add(dtype, from, to, n); }, in, out);
  }
  void Scale(Stream& stream, DType dtype, void* out, int64_t n, double factor) const override {
    Host::Run(
        stream, [=](void* to) { flat::Scale(dtype, to, n, factor); }, out);
  }
  bool HasUpdate(UpdateKernel, MeasureKernel) const override { return true; }
  void SumOfSquares(Stream& stream, DType dtype, std::span<const PlacedElements> all, double* sums) const override {
    for (const PlacedElements& one : all) {
      const auto sum = [dtype, n = one.elements](const void* from, double* to) {
        *to = flat::SumOfSquares(dtype, from, n);
      };
      Host::Run(stream, sum, one.in, sums + one.place);
    }
  }
  void ClipFactor(Stream& stream, std::span<const double* const> sums, int64_t n, const StepRates* rates, double limit,
                  double* factor) const override {
    const auto run = [=](std::span<const double* const> all, const StepRates* now, double* to) {
      double squares = 0;
      for (const double* const device : all) squares = std::accumulate(device, device + n, squares);
      *to = flat::ClipFactor(squares, now->rescale, limit);
    };
    Host::Run(stream, run, sums, rates, factor);
  }
  void Measure(Stream& stream, std::span<const DeviceUpdate> updates, const StepRates* rates,
               const int64_t* committed) const override {
    const auto run = [](const DeviceUpdate& here, const StepRates* now, const int64_t* count) {
      *here.measured = flat::Measure(here, *now, *count);
    };
    for (const DeviceUpdate& update : updates) {
      if (update.measure) Host::Run(stream, run, update, rates, committed);
    }
  }
  void CheckFinite(Stream& stream, DType dtype, std::span<const PlacedElements> all,
                   StepStatus* status) const override {
    for (const PlacedElements& one : all) {
      const auto check = [=](const void* from, StepStatus* to) {
        flat::CheckFinite(dtype, from, one.elements, one.place, one.first, to);
      };
      Host::Run(stream, check, one.in, status);
    }
  }
  void Update(Stream& stream, std::span<const DeviceUpdate> updates, const StepRates* rates, const int64_t* committed,
              StepStatuses statuses) const override {
    const auto run = [](const DeviceUpdate& here, const StepRates* now, const int64_t* count, StepStatuses all) {
      if (flat::AllGood(all)) flat::Update(here, *now, *count);
    };
    for (const DeviceUpdate& update : updates) Host::Run(stream, run, update, rates, committed, statuses);
  }
  void Commit(Stream& stream, StepStatuses statuses, const void* in, void* out, int64_t bytes,
              int64_t* committed) const override {
    const auto commit = [=](StepStatuses all, const void* from, void* to, int64_t* count) {
      if (!flat::AllGood(all)) return;
      flat::Copy(from, to, bytes);
      if (count) ++*count;
    };
    Host::Run(stream, commit, statuses, in, out, committed);
  }
  void Refuse(Stream& stream, const Refusal* refusals, int64_t n, StepStatus* status) const override {
    Host::Run(
        stream, [=](const Refusal* all, StepStatus* to) { flat::Refuse(all, n, to); }, refusals, status);
  }
};

}  // namespace bindery
