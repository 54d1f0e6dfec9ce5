#include "engine/cuda/gpu_block.cuh"
#include "executor/kernels/cuda/recurrent_body.h"

using namespace bindery::cuda;

extern "C" {

__global__ void bindery_recurrent(const __grid_constant__ RecurrentArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_recurrent_grad(const __grid_constant__ RecurrentGradArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_recurrent_step(const __grid_constant__ RecurrentStepArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_recurrent_step_grad(const __grid_constant__ RecurrentStepGradArgs args) {
  Run(GpuBlock(), args);
}

}  // extern "C"
