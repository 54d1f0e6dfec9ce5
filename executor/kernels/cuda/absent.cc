// In place of the kernels for GPUs, in builds without CUDA. Whoever asks for a device has heard of it before.
#include "base/error.h"
#include "executor/kernel_table.h"

namespace bindery {

const KernelTable& CudaKernels() {
  static const KernelTable table({}, [](DType, const Shape&, const Format&, const Format&, int) -> MaybeKernel {
    Throw<DeviceError>("device cuda is not available: this build has no CUDA");
  });
  return table;
}

}  // namespace bindery
