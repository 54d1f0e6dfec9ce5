// What cuDNN is asked for when it is asked for a convolution: its graph of operations, of plain tensors.
#pragma once

#include <cstdint>

#include "executor/kernels/cuda/cudnn_descriptor.h"
#include "executor/kernels/cuda/library_convolution.h"

namespace bindery::cuda {

// By which addresses are given to a plan.
struct ConvolutionTensors {
  static constexpr int64_t kX = 1, kW = 2, kY = 3, kAddend = 4, kBias = 5;
};

// The convolution, and what it adds: the addend first, for which cuDNN names more engines than for the other order
// (9.26: eleven, and one). What is between them is never in memory, and of the type that is computed with. Throws
// DeviceError, naming the call, if the library refuses something.
CudnnDescriptor GraphOf(const CudnnApi& api, cudnnHandle_t handle, const PlainConvolution& convolution);

}  // namespace bindery::cuda
