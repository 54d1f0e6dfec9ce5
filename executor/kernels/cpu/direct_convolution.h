// Convolution of float32 by loops of our own, without unfolding the data: where they are faster than oneDNN's.
//
// Outputs do not depend on the number of threads, and neither do gradients: they are summed up in parts that follow
// from the shapes alone, added up in order.
#pragma once

#include "executor/kernel.h"

namespace bindery::cpu {

// (data, weight [, bias]) -> y for data of few channels; nullopt for others, and for what the loops cannot do: groups,
// fewer output channels than a vector has lanes.
MaybeKernel DirectConvolution(const KernelSpec& spec);
// (dy, data) -> dw [, db]
MaybeKernel DirectConvolutionGradWeight(const KernelSpec& spec);

}  // namespace bindery::cpu
