#include "engine/kernels/flat_kernels.h"

#include "base/error.h"

namespace bindery {
namespace {

[[noreturn]] void ThrowNoNorms(const Stream& stream) {
  Throw<DeviceError>("{}: norms have no kernels for this kind of device", stream.device());
}

}  // namespace

void FlatKernels::SumOfSquares(Stream& stream, DType, const void*, int64_t, double*) const { ThrowNoNorms(stream); }

void FlatKernels::ClipFactor(Stream& stream, std::span<const double* const>, int64_t, const StepRates*, double,
                             double*) const {
  ThrowNoNorms(stream);
}

void FlatKernels::Measure(Stream& stream, const DeviceUpdate&, const StepRates*, const int64_t*, UpdateSquares*) const {
  ThrowNoNorms(stream);
}

}  // namespace bindery
