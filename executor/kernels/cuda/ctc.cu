#include "engine/cuda/gpu_block.cuh"
#include "executor/kernels/cuda/ctc_body.h"

using namespace bindery::cuda;

extern "C" {

__global__ void bindery_ctc(const __grid_constant__ CTCArgs args) { Run(GpuBlock(), args); }

}  // extern "C"
