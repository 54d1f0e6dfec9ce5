#include "engine/cuda/gpu_block.cuh"
#include "executor/kernels/cuda/attention_body.h"

using namespace bindery::cuda;

extern "C" {

__global__ void bindery_attention(const __grid_constant__ AttentionArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_attention_grad(const __grid_constant__ AttentionGradArgs args) { Run(GpuBlock(), args); }

}  // extern "C"
