// The flat device math of GPUs: own kernels, and the driver's copies. Private to engine/cuda.
#pragma once

#include "engine/kernels/flat_kernels.h"

namespace bindery::cuda {

class CudaFlatKernels final : public FlatKernels {
 public:
  void Fill(Stream& stream, DType dtype, void* out, int64_t n, double value) const override;
  void Copy(Stream& stream, const void* in, void* out, int64_t bytes) const override;
  void CopyFinite(Stream& stream, DType dtype, const void* in, void* out, int64_t n) const override;
  void CopyRows(Stream& stream, const void* in, int64_t in_stride, void* out, int64_t out_stride, int64_t rows,
                int64_t bytes) const override;
  void Cast(Stream& stream, DType from, const void* in, DType to, void* out, int64_t n) const override;
  void Sum(Stream& stream, DType dtype, std::span<const void* const> in, void* out, int64_t n) const override;
  void Add(Stream& stream, DType dtype, const void* in, void* out, int64_t n) const override;
  void Scale(Stream& stream, DType dtype, void* out, int64_t n, double factor) const override;
  bool HasUpdate(UpdateKernel rule) const override;  // the built-in ones: another's code is the host's
  void CheckFinite(Stream& stream, DType dtype, const void* in, int64_t n, int64_t place, int64_t first,
                   StepStatus* status) const override;
  void Update(Stream& stream, const DeviceUpdate& update, const StepRates* rates, const int64_t* committed,
              StepStatuses statuses) const override;
  void Commit(Stream& stream, StepStatuses statuses, const void* in, void* out, int64_t bytes,
              int64_t* committed) const override;
};

}  // namespace bindery::cuda
