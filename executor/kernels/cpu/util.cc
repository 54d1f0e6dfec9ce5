#include "executor/kernels/cpu/util.h"

#include <algorithm>

namespace bindery::cpu {

bool AllOf(const KernelSpec& spec, DType dtype) {
  const auto is_of = [dtype](const ValueType& type) { return type.dtype == dtype; };
  return std::ranges::all_of(spec.inputs, is_of) && std::ranges::all_of(spec.outputs, is_of);
}

bool AllFloat(const KernelSpec& spec) { return AllOf(spec, DType::kFloat32); }

Numbers::Numbers(DType dtype, const void* data)
    : at_(Dispatch(dtype,
                   []<class T>() -> double (*)(const void*, int64_t) {
                     return [](const void* from, int64_t i) { return LoadDouble(static_cast<const T*>(from)[i]); };
                   })),
      data_(data) {}

double DivisorOf(Normalization normalization, const StepBlock& step, DType valid_dtype, const void* valid) {
  if (normalization == Normalization::kBatch) return static_cast<double>(step.batch_size);
  if (normalization == Normalization::kValid) return std::max(1.0, Numbers(valid_dtype, valid)[0]);
  return 1;
}

Kernel PlainKernel(const KernelSpec& spec, const char* implementation) {
  Kernel kernel{.implementation = implementation};
  kernel.input_formats.resize(spec.inputs.size());
  kernel.output_formats.resize(spec.outputs.size());
  kernel.threads = spec.threads;
  return kernel;
}

Format CommonFormat(const KernelSpec& spec, std::initializer_list<int> inputs, bool zero_to_zero) {
  for (int i : inputs) {
    const Format& format = spec.input_formats[i];
    if (format.kind != Format::Kind::kStrided) continue;
    return IsPadded(format, spec.outputs[0].shape) && !zero_to_zero ? Format::Plain() : format;
  }
  return Format::Plain();
}

Kernel FlatKernel(const KernelSpec& spec, const char* implementation, const Format& format) {
  Kernel kernel = PlainKernel(spec, implementation);
  kernel.input_formats.assign(spec.inputs.size(), format);
  kernel.output_formats.assign(spec.outputs.size(), format);
  for (const InplacePair& pair : spec.op->inplace) {
    if (pair.input < static_cast<int>(spec.inputs.size()) && pair.output < static_cast<int>(spec.outputs.size()) &&
        spec.inputs[pair.input].shape == spec.outputs[pair.output].shape) {
      kernel.inplace.push_back(pair);
    }
  }
  return kernel;
}

}  // namespace bindery::cpu
