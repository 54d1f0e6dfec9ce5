// Our own kernels, for GPUs: what is in the image, by the names of step_args.h. No bounds on threads: they are few
// and light.
#include "engine/cuda/gpu_block.cuh"
#include "engine/cuda/step_body.h"

using namespace bindery::cuda;

extern "C" {

__global__ void bindery_fill(const __grid_constant__ FillArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_copy(const __grid_constant__ CopyArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_cast(const __grid_constant__ CastArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_sum(const __grid_constant__ SumArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_scale(const __grid_constant__ ScaleArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_find_not_finite(const __grid_constant__ FindNotFiniteArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_set_status(const __grid_constant__ SetStatusArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_sum_squares(const __grid_constant__ SumSquaresArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_add_parts(const __grid_constant__ AddPartsArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_clip_factor(const __grid_constant__ ClipFactorArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_update(const __grid_constant__ UpdateKernelArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_measure_update(const __grid_constant__ MeasureUpdateArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_number_piece(const __grid_constant__ NumberPieceArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_mark_piece(const __grid_constant__ MarkPieceArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_refuse(const __grid_constant__ RefuseArgs args) { Run(GpuBlock(), args); }
__global__ void bindery_commit(const __grid_constant__ CommitArgs args) { Run(GpuBlock(), args); }

}  // extern "C"
