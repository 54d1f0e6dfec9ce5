#include "executor/kernels/cpu/through_float.h"

#include <algorithm>
#include <vector>

#include "base/checked.h"
#include "engine/kernels/flat.h"

namespace bindery::cpu {
namespace {

// A value of another type and its copy in the type that is computed with, of the same format.
struct Copied {
  size_t index;
  DType dtype;
  int64_t elements, offset;  // in scratch memory, in bytes
};

// Lists those that are to be copied and gives them the type that is computed with.
std::vector<Copied> Retype(std::vector<ValueType>& values, const std::vector<Format>& formats, bool integers,
                           DType arithmetic) {
  std::vector<Copied> copied;
  for (size_t i = 0; i < values.size(); ++i) {
    const DType dtype = values[i].dtype;
    const bool is_half = dtype == DType::kBFloat16 || dtype == DType::kFloat16;
    if (!is_half && (!integers || IsFloat(dtype))) continue;
    if (i < formats.size() && formats[i].kind == Format::Kind::kOpaque) continue;
    copied.push_back({i, dtype, 0, 0});
    values[i].dtype = arithmetic;
  }
  return copied;
}

MaybeKernel Through(const KernelSpec& spec, KernelMaker make, bool integers, DType arithmetic) {
  KernelSpec typed = spec;
  std::vector<Copied> inputs = Retype(typed.inputs, spec.input_formats, integers, arithmetic);
  std::vector<Copied> outputs = Retype(typed.outputs, {}, integers, arithmetic);
  if (!inputs.empty()) typed.input_is_kept.clear();  // what it sees is cast in each run
  if (inputs.empty() && outputs.empty()) return std::nullopt;
  MaybeKernel inner = make(typed);
  if (!inner) return std::nullopt;
  std::erase_if(outputs,
                [&](const Copied& value) { return inner->output_formats[value.index].kind == Format::Kind::kOpaque; });

  Kernel kernel = *inner;
  kernel.implementation += fmt::format(" in {}", arithmetic);
  kernel.inplace.clear();
  const auto reserve = [&](std::vector<Copied>& list, const std::vector<Format>& formats,
                           const std::vector<ValueType>& types) {
    for (Copied& value : list) {
      value.elements = StorageElements(formats[value.index], types[value.index].shape);
      value.offset = RoundUp(kernel.scratch_bytes, 64);
      kernel.scratch_bytes = CheckedAdd(value.offset, CheckedMul(value.elements, SizeOf(arithmetic)));
    }
  };
  reserve(inputs, kernel.input_formats, spec.inputs);
  reserve(outputs, kernel.output_formats, spec.outputs);
  kernel.bind = [inputs, outputs, arithmetic, bind = inner->bind](const KernelArgs& args) -> Call {
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
      before.push_back({value.dtype, arithmetic, args.inputs[value.index], at(value), value.elements});
    }
    for (const Copied& value : outputs) {
      if (void* target = args.outputs[value.index]) {
        after.push_back({arithmetic, value.dtype, at(value), target, value.elements});
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

}  // namespace

MaybeKernel ThroughFloat(const KernelSpec& spec, KernelMaker make) {
  if (MaybeKernel kernel = Through(spec, make, false, DType::kFloat32)) return kernel;
  const auto is_float = [](const ValueType& type) { return type.dtype == DType::kFloat32; };
  const bool with_float = std::ranges::any_of(spec.inputs, is_float) || std::ranges::any_of(spec.outputs, is_float);
  return Through(spec, make, true, with_float ? DType::kFloat32 : DType::kFloat64);
}

}  // namespace bindery::cpu
