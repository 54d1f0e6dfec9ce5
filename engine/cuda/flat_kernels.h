// The flat device math of GPUs: own kernels, and the driver's copies. Private to engine/cuda.
#pragma once

#include "engine/kernels/flat_kernels.h"

namespace bindery::cuda {

const FlatKernels& CudaFlat();

}  // namespace bindery::cuda
