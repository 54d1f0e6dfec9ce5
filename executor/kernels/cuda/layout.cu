#include "engine/cuda/gpu_block.cuh"
#include "executor/kernels/cuda/layout_body.h"

using namespace bindery::cuda;

extern "C" {

__global__ void bindery_move(const __grid_constant__ MoveArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_transpose(const __grid_constant__ TransposeArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_range(const __grid_constant__ RangeArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_gather(const __grid_constant__ GatherArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_scatter(const __grid_constant__ ScatterArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_row_numbers(const __grid_constant__ RowNumbersArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_one_hot(const __grid_constant__ OneHotArgs args) { Run(GpuBlock(), args); }

}  // extern "C"
