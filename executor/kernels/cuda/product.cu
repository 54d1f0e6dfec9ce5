#include "engine/cuda/gpu_block.cuh"
#include "executor/kernels/cuda/product_body.h"

using namespace bindery::cuda;

extern "C" {

__global__ void __launch_bounds__(ProductArgs::kThreads) bindery_product(const __grid_constant__ ProductArgs args) {
  Run(GpuBlock(), args);
}
__global__ void bindery_product_end(const __grid_constant__ ProductEndArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_pool(const __grid_constant__ PoolArgs args) { Run(GpuBlock(), args); }

}  // extern "C"
