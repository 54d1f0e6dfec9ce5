// Convolution of float32 and its gradients, of weights also in bfloat16, by loops of our own, without unfolding the
// data: where they are faster than oneDNN's.
//
// They do not depend on the number of threads: gradients are summed up in parts that follow from the shapes alone, added
// up in order.
#pragma once

#include <cstdint>

#include "executor/kernel.h"

namespace bindery::cpu {

// (data, weight [, bias] [, addend]) -> y; `addend`: which input, or -1. nullopt for what the loops cannot do: groups,
// fewer output channels than a vector has lanes, and an addend where they are not whole vectors.
MaybeKernel DirectConvolution(const KernelSpec& spec, int addend = -1);

// Activations as they lie, or copied first so that the samples lie inside of the places, for small planes; or what is
// faster than oneDNN by rules, if anything is.
enum class DirectWay : uint8_t { kByRules, kAsItLies, kBatchInside };

// (dy, data) -> dw [, db]; nullopt where rules say so, and for what the loops cannot do: groups, fewer output channels
// than a vector has lanes, and samples inside of three axes.
MaybeKernel DirectConvolutionGradWeight(const KernelSpec& spec, DirectWay way = DirectWay::kByRules);

// (dy, weight) -> dx, as a convolution of dy; nullopt where rules say so, and for what the loops cannot do: groups,
// strides, paddings as wide as the windows, fewer channels than a vector has lanes, and samples inside of three axes.
MaybeKernel DirectConvolutionGradData(const KernelSpec& spec, DirectWay way = DirectWay::kByRules);

// (dy, data) -> dw in bfloat16, for 3 x 3 weights, whole blocks of channels and rows of an even number of places;
// nullopt for others, where a bias is wanted, too, and on processors without units for bfloat16, or with AMX.
MaybeKernel BFloat16ConvolutionGradWeight(const KernelSpec& spec);

}  // namespace bindery::cpu
