// Gradients of a convolution's weights, of float32, by loops of our own, without unfolding the data: where they are
// faster than oneDNN's.
//
// They do not depend on the number of threads: they are summed up in parts that follow from the shapes alone, added up
// in order.
#pragma once

#include "executor/kernel.h"

namespace bindery::cpu {

// (dy, data) -> dw [, db]; nullopt where oneDNN is faster, and for what the loops cannot do: groups, and fewer output
// channels than a vector has lanes. `measured`: whoever is faster, for that is found out elsewhere.
MaybeKernel DirectConvolutionGradWeight(const KernelSpec& spec, bool measured = false);

}  // namespace bindery::cpu
