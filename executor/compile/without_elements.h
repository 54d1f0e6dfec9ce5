// Extents of zero, for the compiler: kernels of a device are not asked for them.
#pragma once

#include <optional>
#include <vector>

#include "base/host_tensor.h"
#include "executor/kernel.h"
#include "symbol/symbol.h"

namespace bindery {

// What the node gives where no kernel is needed: nothing, for outputs without elements; constants, where it reads no
// elements (the sum of nothing). An empty tensor stands for an output without elements. nullopt: make a kernel as
// usual, which is the reference's, for some inputs have elements and others none, or an output has very many, or a
// state is kept for another kernel. `batch`: its extent, which attributes may follow.
std::optional<std::vector<HostTensor>> ResultsWithoutElements(const Node& node, const std::vector<ValueType>& inputs,
                                                              const std::vector<ValueType>& outputs,
                                                              const std::vector<bool>& is_read, Mode mode,
                                                              std::optional<int64_t> batch);

}  // namespace bindery
