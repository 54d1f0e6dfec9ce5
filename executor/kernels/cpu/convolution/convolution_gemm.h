// Convolution and its gradients as products of matrices, one of which is made of windows as its tiles are needed: for
// every type, where oneDNN has nothing.
#pragma once

#include "executor/kernel.h"

namespace bindery::cpu {

MaybeKernel ConvolutionByGemm(const KernelSpec& spec);            // (data, weight [, bias]) -> y
MaybeKernel ConvolutionAddByGemm(const KernelSpec& spec);         // (data, weight [, bias], addend) -> y
MaybeKernel ConvolutionGradDataByGemm(const KernelSpec& spec);    // (dy, weight) -> dx
MaybeKernel ConvolutionGradWeightByGemm(const KernelSpec& spec);  // (dy, data) -> dw [, db]

}  // namespace bindery::cpu
