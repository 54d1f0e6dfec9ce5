// What the makers of the fast kernels share.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "executor/kernel.h"
#include "executor/kernels/cpu/layout.h"
#include "executor/kernels/rules.h"

namespace bindery::cpu {

inline const float* In(const KernelArgs& args, int i) { return static_cast<const float*>(args.inputs[i]); }
inline float* Out(const KernelArgs& args, int i) { return static_cast<float*>(args.outputs[i]); }

// Are all inputs and outputs of this type?
bool AllOf(const KernelSpec& spec, DType dtype);
bool AllFloat(const KernelSpec& spec);  // float32

// The same without one input, a label, which has a type that Labels reads.
bool AllFloatButLabel(const KernelSpec& spec, int label);

// A label's elements as numbers, whichever of its usual types it has.
struct Labels {
  const void* data;
  DType dtype;

  static bool Takes(DType dtype) {
    return dtype == DType::kFloat32 || dtype == DType::kInt32 || dtype == DType::kInt64;
  }
  double operator[](int64_t i) const {
    switch (dtype) {
      case DType::kInt32: return static_cast<const int32_t*>(data)[i];
      case DType::kInt64: return static_cast<double>(static_cast<const int64_t*>(data)[i]);
      default: return static_cast<double>(static_cast<const float*>(data)[i]);
    }
  }
};

// f.operator()<T>() for a number type of as many bytes, for what moves elements whatever they are.
template <class F>
auto OfSize(int64_t bytes, F&& f) {
  switch (bytes) {
    case 1: return f.template operator()<uint8_t>();
    case 2: return f.template operator()<uint16_t>();
    case 4: return f.template operator()<uint32_t>();
    default: return f.template operator()<uint64_t>();
  }
}

// A kernel of the whole team with everything plain, and no bind yet.
Kernel PlainKernel(const KernelSpec& spec, const char* implementation);

// For operators that work element by element in memory order: one format for the listed inputs and all outputs, which
// all have the shape of output 0. The first input that is not plain decides; a padded format only if zero stays +0.
Format CommonFormat(const KernelSpec& spec, std::initializer_list<int> inputs, bool zero_to_zero);
// A kernel with that format everywhere; the definition's in-place pairs apply, for loops that read before they write.
Kernel FlatKernel(const KernelSpec& spec, const char* implementation, const Format& format);

// Loops over elements are cut at multiples of a cache line of floats.
inline constexpr int64_t kGrain = 16;
// Longer rows are cut into runs of this many elements, which several threads take.
inline constexpr int64_t kRun = 8192;

}  // namespace bindery::cpu
