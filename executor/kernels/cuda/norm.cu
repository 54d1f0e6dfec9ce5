#include "engine/cuda/gpu_block.cuh"
#include "executor/kernels/cuda/norm_body.h"

using namespace bindery::cuda;

extern "C" {

__global__ void bindery_normalize(const __grid_constant__ NormalizeArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_normalize_grad(const __grid_constant__ NormalizeGradArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_parameter_grad(const __grid_constant__ ParameterGradArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_channels(const __grid_constant__ ChannelArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_lrn(const __grid_constant__ LRNArgs args) { Run(GpuBlock(), args); }

}  // extern "C"
