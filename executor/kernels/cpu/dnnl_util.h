// oneDNN behind our contracts: formats to and from its memory descriptors, and a primitive as a Call.
//
// Primitives are made at bind under a TeamScope of the threads that will run them (they keep that number), with the
// scratchpad provided by us. Memory objects and the argument array are made once per instance; a Call is one
// dnnl_primitive_execute. No other folder includes oneDNN.
#pragma once

#include <dnnl.hpp>
#include <optional>
#include <string>
#include <vector>

#include "executor/kernel.h"

namespace bindery::cpu {

const dnnl::engine& Engine();  // throws DeviceError where so little address space is left that oneDNN would crash
// May oneDNN use these instructions? The machine has them, and neither BINDERY_MAX_ISA nor ONEDNN_MAX_CPU_ISA forbids
// it.
bool Allows(dnnl::cpu_isa isa);

// nullopt for dtypes that oneDNN does not know.
std::optional<dnnl::memory::data_type> ToDnnl(DType dtype);

// The descriptor of a value; a scalar counts as one axis of 1. nullopt: a dtype unknown to oneDNN, an opaque format, or
// padding that is not to whole blocks.
std::optional<dnnl::memory::desc> ToDesc(const Format& format, DType dtype, const Shape& shape);
// The canonical format of a descriptor of this shape. nullopt if Format cannot express it.
std::optional<Format> FromDesc(const dnnl::memory::desc& desc, const Shape& shape);
// The same for the weights of a grouped convolution: the descriptor has (groups, out / groups, in / groups,
// spatial...),
// the shape (out, in / groups, spatial...).
std::optional<Format> FromGroupedDesc(const dnnl::memory::desc& desc, const Shape& shape);

// A descriptor in which the primitive chooses the format.
dnnl::memory::desc AnyDesc(const Shape& shape);
dnnl::memory::dims Dims(const Shape& shape);

// oneDNN's own slow loops?
bool IsSlow(const char* implementation);

// One argument of a primitive.
struct DnnlArgument {
  int argument;  // DNNL_ARG_SRC ...
  dnnl::memory::desc desc;
  enum Role { kInput, kOutput, kScratch } role;
  int64_t index = 0;   // of the kernel's inputs or outputs; for scratch: its offset in bytes
  Format format = {};  // of that input or output
};

// A primitive with where its arguments are found among a kernel's inputs, outputs and scratch memory.
class DnnlStep {
 public:
  DnnlStep() = default;
  // `who` names operator and node in errors.
  template <class PrimitiveDesc>
  DnnlStep(const dnnl::primitive& primitive, const PrimitiveDesc& desc, std::string who,
           std::vector<DnnlArgument> arguments, int64_t scratch_offset = 0)
      : primitive_(primitive), who_(std::move(who)), arguments_(std::move(arguments)) {
    scratch_bytes_ = static_cast<int64_t>(desc.scratchpad_desc().get_size());
    if (scratch_bytes_ > 0) {
      arguments_.push_back({DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc(), DnnlArgument::kScratch, scratch_offset});
    }
  }
  int64_t scratch_bytes() const { return scratch_bytes_; }
  // The prepared execution; throws DeviceError when it runs and oneDNN fails.
  Call Bind(const KernelArgs& args) const;

 private:
  dnnl::primitive primitive_;
  std::string who_;
  std::vector<DnnlArgument> arguments_;
  int64_t scratch_bytes_ = 0;
};

// 'Convolution "conv1"'
std::string WhoOf(const KernelSpec& spec);

// Makes it the kernel that runs a primitive, `desc` its descriptor: named, with formats and scratch memory, and bound.
template <class PrimitiveDesc>
Kernel WithDnnl(Kernel kernel, std::string who, const dnnl::primitive& primitive, const PrimitiveDesc& desc,
                std::vector<DnnlArgument> arguments) {
  for (const DnnlArgument& argument : arguments) {
    auto& formats = argument.role == DnnlArgument::kInput ? kernel.input_formats : kernel.output_formats;
    formats[argument.index] = argument.format;
  }
  const DnnlStep step(primitive, desc, std::move(who), std::move(arguments));
  kernel.implementation = std::string("dnnl ") + desc.impl_info_str();
  kernel.scratch_bytes = step.scratch_bytes();
  kernel.bind = [step](const KernelArgs& args) { return step.Bind(args); };
  return kernel;
}

// Attributes of every primitive: the scratchpad is ours.
dnnl::primitive_attr UserScratchpad();
// Threads for this many floating point operations: one below what pays for waking the team, else all.
int ThreadsForWork(const KernelSpec& spec, double flops);

}  // namespace bindery::cpu
