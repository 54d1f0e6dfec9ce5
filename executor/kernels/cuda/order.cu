// Elements of all types are compared with themselves, and with 0.
#pragma nv_diag_suppress 186
#include "engine/cuda/gpu_block.cuh"
#include "executor/kernels/cuda/order_body.h"

using namespace bindery::cuda;

extern "C" {

__global__ void bindery_scan(const __grid_constant__ ScanArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_top_k(const __grid_constant__ TopKArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_sort(const __grid_constant__ SortArgs args) { Run(GpuBlock(), args); }

}  // extern "C"
