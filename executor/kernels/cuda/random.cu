#include "engine/cuda/gpu_block.cuh"
#include "executor/kernels/cuda/random_body.h"

using namespace bindery::cuda;

extern "C" {

__global__ void bindery_draw(const __grid_constant__ DrawArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_sum_weights(const __grid_constant__ SumWeightsArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_dropout(const __grid_constant__ DropoutArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_drop(const __grid_constant__ DropArgs args) { Run(GpuBlock(), args); }

}  // extern "C"
