// One node, evaluated at once: the kernel is made, run and forgotten. No plan, no arena, no threads. For folding
// constants while compiling, and for asking what an operator gives; never for running a model.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/host_tensor.h"
#include "executor/kernel.h"
#include "symbol/symbol.h"

namespace bindery {

// All outputs of `node`, hidden ones included, for these inputs (one per input of the node). An output in a form that
// only kernels understand comes out as zeros of its nominal shape. Thread safe. Throws ShapeError if the inputs do not
// fit, Error if there is no kernel. `batch`: its extent, where attributes follow it.
std::vector<HostTensor> EvaluateNode(const Node& node, const std::vector<HostTensor>& inputs, Mode mode,
                                     KernelPolicy policy, std::optional<int64_t> batch = {});

}  // namespace bindery
