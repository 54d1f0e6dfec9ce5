// Whole numbers of all types are looked at as if they might be negative, or no number.
#pragma nv_diag_suppress 186
#include "engine/cuda/gpu_block.cuh"
#include "executor/kernels/cuda/arrange_body.h"

using namespace bindery::cuda;

extern "C" {

__global__ void bindery_arrange(const __grid_constant__ ArrangeArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_quantize(const __grid_constant__ QuantizeArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_resample(const __grid_constant__ ResampleArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_grid(const __grid_constant__ GridArgs args) { Run(GpuBlock(), args); }

}  // extern "C"
