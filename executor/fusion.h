// Fusion: neighbouring operators become one where a kernel does both in one pass over memory. Works on the joint graph
// of forward and backward, so that both sides of a pair are rewritten together. What is computed does not change.
#pragma once

#include "symbol/graph.h"
#include "symbol/infer.h"

namespace bindery {

//   BatchNorm, relu                      -> BatchNorm{relu}, and in backward
//   ActivationGrad(relu), BatchNormGrad  -> BatchNormGrad{relu} with the state of the forward
//   Convolution or FullyConnected, f     -> the same with activation = f (f's gradient needs the output only)
//   Add of equal shapes, relu            -> AddRelu
//   AddN of two, ActivationGrad(relu)    -> AddReluGrad
// Only where the value between the two has no other reader.
Symbol Fuse(const Graph& graph, const NodeTypes& types);

}  // namespace bindery
