#include "engine/cuda/gpu_block.cuh"
#include "executor/kernels/cuda/softmax_body.h"

using namespace bindery::cuda;

extern "C" {

__global__ void bindery_softmax(const __grid_constant__ SoftmaxArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_cross_entropy(const __grid_constant__ CrossEntropyArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_output_grad(const __grid_constant__ OutputGradArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_step_number(const __grid_constant__ StepNumberArgs args) { Run(GpuBlock(), args); }

}  // extern "C"
