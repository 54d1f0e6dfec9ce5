// One kernel of floats by itself, whatever formats it takes and gives.
#pragma once

#include <cstddef>
#include <vector>

#include "executor/kernel.h"

namespace bindery {

inline ValueType FloatOf(const Shape& shape) { return {.dtype = DType::kFloat32, .shape = shape}; }

// An output, in plain order, of inputs that are the same each time: noise between -1 and 1. Before it runs, scratch
// memory is full of 1e30.
std::vector<float> RunOnNoise(const Kernel& kernel, const KernelSpec& spec, size_t output = 0);

}  // namespace bindery
