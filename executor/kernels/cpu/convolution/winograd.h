// Convolution of float32 by Winograd's minimal filtering, F(2x2, 3x3) and F(4x4, 3x3): 2.25 and 4 times fewer products
// than there are taps, for windows of 3 x 3 with stride 1 and no dilation, in one group.
//
// Results are sums of other terms than the reference's: their errors are larger (tests/executor/kernels/winograd_test.cc has
// bounds), and what is not finite spreads over its tile. So it is only for runs that allow it (Tuning::kWinograd). Weights
// that predictions keep are transformed once: that is a format of theirs. Others are in each run, into scratch memory.
// Not a bit depends on that, or on the number of threads.
#pragma once

#include "executor/kernel.h"

namespace bindery::cpu {

enum class WinogradTiles : int { k2x2 = 2, k4x4 = 4 };

// (data, weight [, bias] [, addend]) -> y with its activation; `addend`: the input that is added, or -1. nullopt for
// windows of other kinds, channels that are not multiples of a vector, and formats that have no vectors of channels.
MaybeKernel WinogradConvolution(const KernelSpec& spec, int addend, WinogradTiles tiles);
// (dy, weight) -> dx: the same with turned weights.
MaybeKernel WinogradConvolutionGradData(const KernelSpec& spec, WinogradTiles tiles);

// What turns weights into the format that predictions ask for. nullopt for other formats, and for weights in formats
// with padding.
MaybeKernel WinogradWeights(DType dtype, const Shape& weight, const Format& from, const Format& to, int threads);

}  // namespace bindery::cpu
