// The functions ask of unsigned integers, too, whether they are negative.
#pragma nv_diag_suppress 186
#include "engine/cuda/gpu_block.cuh"
#include "executor/kernels/cuda/elementwise_body.h"

using namespace bindery::cuda;

extern "C" {

__global__ void bindery_map(const __grid_constant__ MapArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_where(const __grid_constant__ WhereArgs args) { Run(GpuBlock(), args); }

}  // extern "C"
