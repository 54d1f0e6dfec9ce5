// Convolution of float32 planes (N, C, H, W), and its data's gradient, without unfolding or reordering: vectors lie along
// rows. For numbers of channels that do not fill oneDNN's blocks.
//
// The results do not depend on the number of threads.
#pragma once

#include "executor/kernel.h"

namespace bindery::cpu {

// nullopt where oneDNN is faster, and for what these cannot do: groups, strides, other ranks, and rows of which vectors
// would cover too little.
// (data, weight [, bias] [, addend]) -> y; `addend`: the input that is added before the activation, or -1.
MaybeKernel PlaneConvolution(const KernelSpec& spec, int addend);
MaybeKernel PlaneConvolutionGradData(const KernelSpec& spec);  // (dy, weight) -> dx

}  // namespace bindery::cpu
