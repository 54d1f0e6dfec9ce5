// Elements of all types are compared with themselves, and with 0.
#pragma nv_diag_suppress 186
#include "engine/cuda/gpu_block.cuh"
#include "executor/kernels/cuda/reduce_body.h"

using namespace bindery::cuda;

extern "C" {

__global__ void bindery_reduce(const __grid_constant__ ReduceArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_measure(const __grid_constant__ MeasureArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_sum_exactly(const __grid_constant__ SumExactlyArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_first_outside(const __grid_constant__ FirstOutsideArgs args) { Run(GpuBlock(), args); }

}  // extern "C"
