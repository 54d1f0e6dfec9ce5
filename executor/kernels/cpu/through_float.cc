#include "executor/kernels/cpu/through_float.h"

#include <vector>

#include "base/checked.h"
#include "engine/kernels/flat.h"

namespace bindery::cpu {
namespace {

// A value of 16-bit floats and its copy in float32, of the same format.
struct Copied {
  size_t index;
  DType dtype;
  int64_t elements, offset;  // in scratch memory, in bytes
};

// Lists those that are 16-bit floats and makes them float32.
std::vector<Copied> MakeFloat(std::vector<ValueType>& values) {
  std::vector<Copied> copied;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].dtype != DType::kBFloat16 && values[i].dtype != DType::kFloat16) continue;
    copied.push_back({i, values[i].dtype, 0, 0});
    values[i].dtype = DType::kFloat32;
  }
  return copied;
}

}  // namespace

MaybeKernel ThroughFloat(const KernelSpec& spec, KernelMaker make) {
  KernelSpec in_float = spec;
  std::vector<Copied> inputs = MakeFloat(in_float.inputs), outputs = MakeFloat(in_float.outputs);
  if (inputs.empty() && outputs.empty()) return std::nullopt;
  MaybeKernel inner = make(in_float);
  if (!inner) return std::nullopt;

  Kernel kernel = *inner;
  kernel.implementation += " in float32";
  kernel.inplace.clear();
  const auto reserve = [&](std::vector<Copied>& list, const std::vector<Format>& formats,
                           const std::vector<ValueType>& types) {
    for (Copied& value : list) {
      value.elements = StorageElements(formats[value.index], types[value.index].shape);
      value.offset = RoundUp(kernel.scratch_bytes, 64);
      kernel.scratch_bytes = CheckedAdd(value.offset, CheckedMul(value.elements, int64_t{sizeof(float)}));
    }
  };
  reserve(inputs, kernel.input_formats, spec.inputs);
  reserve(outputs, kernel.output_formats, spec.outputs);
  kernel.bind = [inputs, outputs, bind = inner->bind](const KernelArgs& args) -> Call {
    std::vector<void*> own_inputs(args.inputs.begin(), args.inputs.end());
    std::vector<void*> own_outputs(args.outputs.begin(), args.outputs.end());
    const auto at = [&](const Copied& value) { return static_cast<std::byte*>(args.scratch) + value.offset; };
    for (const Copied& value : inputs) own_inputs[value.index] = at(value);
    for (const Copied& value : outputs) {
      if (own_outputs[value.index]) own_outputs[value.index] = at(value);
    }
    KernelArgs own = args;
    own.inputs = own_inputs;
    own.outputs = own_outputs;
    Call call = bind(own);
    struct Conversion {
      DType from, to;
      const void* source;
      void* target;
      int64_t elements;
    };
    std::vector<Conversion> before, after;
    for (const Copied& value : inputs) {
      before.push_back({value.dtype, DType::kFloat32, args.inputs[value.index], at(value), value.elements});
    }
    for (const Copied& value : outputs) {
      if (void* target = args.outputs[value.index]) {
        after.push_back({DType::kFloat32, value.dtype, at(value), target, value.elements});
      }
    }
    return [before = std::move(before), call = std::move(call), after = std::move(after)] {
      for (const Conversion& c : before) flat::Cast(c.from, c.source, c.to, c.target, c.elements);
      call();
      for (const Conversion& c : after) flat::Cast(c.from, c.source, c.to, c.target, c.elements);
    };
  };
  return kernel;
}

}  // namespace bindery::cpu
