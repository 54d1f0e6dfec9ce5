// What the makers of the fast kernels share.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "executor/kernel.h"
#include "executor/kernels/cpu/layout.h"
#include "executor/kernels/rules.h"

namespace bindery::cpu {

// What a kernel was bound to, as its loop finds it.
struct Arguments {
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  void* scratch;
  const StepBlock* step;

  explicit Arguments(const KernelArgs& args)
      : inputs(args.inputs.begin(), args.inputs.end()), outputs(args.outputs.begin(), args.outputs.end()),
        scratch(args.scratch), step(args.step) {}
  template <class T = float>
  const T* in(int i) const {
    return static_cast<const T*>(inputs[i]);
  }
  template <class T = float>
  T* out(int i) const {
    return static_cast<T*>(outputs[i]);
  }
};

// A kernel whose Call is loop(arguments).
template <class F>
Kernel WithLoop(Kernel kernel, F loop) {
  kernel.bind = [loop = std::make_shared<const F>(std::move(loop))](const KernelArgs& args) -> Call {
    return [loop, own = Arguments(args)] { (*loop)(own); };
  };
  return kernel;
}

// The maker for the type of an input, where there is one.
template <KernelMaker kFloat, KernelMaker kDouble, size_t kInput = 0>
MaybeKernel OfReals(const KernelSpec& spec) {
  switch (spec.inputs[kInput].dtype) {
    case DType::kFloat32: return kFloat(spec);
    case DType::kFloat64: return kDouble(spec);
    default: return std::nullopt;
  }
}

// Are all inputs and outputs of this type?
bool AllOf(const KernelSpec& spec, DType dtype);
bool AllFloat(const KernelSpec& spec);  // float32

// A value's elements as numbers, whatever its type is.
class Numbers {
 public:
  Numbers(DType dtype, const void* data);
  double operator[](int64_t i) const { return at_(data_, i); }

 private:
  double (*at_)(const void* data, int64_t i);
  const void* data_;
};

// What a loss head's gradient is divided by; `valid` is the number of valid labels, where that matters.
double DivisorOf(Normalization normalization, const StepBlock& step, DType valid_dtype, const void* valid);

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

}  // namespace bindery::cpu
