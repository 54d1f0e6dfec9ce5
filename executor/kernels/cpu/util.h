// What the makers of the fast kernels share.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "executor/kernel.h"
#include "executor/kernels/cpu/layout.h"

namespace bindery::cpu {

inline const float* In(const KernelArgs& args, int i) { return static_cast<const float*>(args.inputs[i]); }
inline float* Out(const KernelArgs& args, int i) { return static_cast<float*>(args.outputs[i]); }

// Are these inputs and all outputs (or only those listed) float32?
bool AllFloat(const KernelSpec& spec);

// A kernel of the whole team with everything plain, and no bind yet.
Kernel PlainKernel(const KernelSpec& spec, const char* implementation);

// For operators that work element by element in memory order: one format for the listed inputs and all outputs, which
// all have the shape of output 0. The first input that is not plain decides; a padded format only if zero stays +0.
Format CommonFormat(const KernelSpec& spec, std::initializer_list<int> inputs, bool zero_to_zero);
// A kernel with that format everywhere; the definition's in-place pairs apply, for loops that read before they write.
Kernel FlatKernel(const KernelSpec& spec, const char* implementation, const Format& format);

// Loops over elements are cut at multiples of a cache line of floats.
inline constexpr int64_t kGrain = 16;

// (outer, axis, inner) of a plain tensor.
struct AxisView {
  int64_t outer, axis, inner;
};
AxisView ViewAlong(const Shape& shape, int axis);

}  // namespace bindery::cpu
