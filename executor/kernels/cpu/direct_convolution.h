// Gradients of a convolution's weights, of float32, by loops of our own, without unfolding the data: where they are
// faster than oneDNN's.
//
// They do not depend on the number of threads: they are summed up in parts that follow from the shapes alone, added up
// in order.
#pragma once

#include <cstdint>

#include "executor/kernel.h"

namespace bindery::cpu {

// Activations as they lie, or copied first so that the samples lie inside of the places, for small planes; or what is
// faster than oneDNN by rules for AVX2, if anything is.
enum class DirectWay : uint8_t { kByRules, kAsItLies, kBatchInside };

// (dy, data) -> dw [, db]; nullopt where rules say so, and for what the loops cannot do: groups, fewer output channels
// than a vector has lanes, and samples inside of three axes.
MaybeKernel DirectConvolutionGradWeight(const KernelSpec& spec, DirectWay way = DirectWay::kByRules);

}  // namespace bindery::cpu
