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

#include "engine/team.h"
#include "executor/kernel.h"
#include "executor/kernels/cpu/util.h"

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
// spatial...), the shape (out, in / groups, spatial...).
std::optional<Format> FromGroupedDesc(const dnnl::memory::desc& desc, const Shape& shape);

// A descriptor in which the primitive chooses the format.
dnnl::memory::desc AnyDesc(const Shape& shape, dnnl::memory::data_type type);
dnnl::memory::dims Dims(const Shape& shape);

// Is everything of float32, or all of bfloat16 where there are units for that? Other types are not oneDNN's business.
bool IsOfDnnl(const KernelSpec& spec);
dnnl::memory::data_type DnnlTypeOf(const KernelSpec& spec);  // then: of input 0
// Are all extents such as an int holds? In others oneDNN's counts overflow: it writes code without end.
bool FitsDnnl(const KernelSpec& spec);
// oneDNN's own slow loops?
bool IsSlow(const char* implementation);
bool IsSlow(const Kernel& kernel);  // that WithDnnl has named

// One argument of a primitive.
struct DnnlArgument {
  int argument;  // DNNL_ARG_SRC ...
  dnnl::memory::desc desc;
  enum Role { kInput, kOutput, kScratch } role;
  int64_t index = 0;   // of the kernel's inputs or outputs
  Format format = {};  // of that input or output
};

// Makes it the kernel that runs a primitive: named, with formats and scratch memory, and bound. `who` names operator
// and node in errors; when it runs and oneDNN fails it throws DeviceError.
Kernel WithDnnl(Kernel kernel, std::string who, const dnnl::primitive& primitive, const char* info,
                const dnnl::memory::desc& scratch, std::vector<DnnlArgument> arguments);
template <class PrimitiveDesc>
Kernel WithDnnl(Kernel kernel, std::string who, const dnnl::primitive& primitive, const PrimitiveDesc& desc,
                std::vector<DnnlArgument> arguments) {
  return WithDnnl(std::move(kernel), std::move(who), primitive, desc.impl_info_str(), desc.scratchpad_desc(),
                  std::move(arguments));
}

// Attributes of every primitive: the scratchpad is ours.
dnnl::primitive_attr UserScratchpad();
// Threads for this many floating point operations: one below what pays for waking the team, else all.
int ThreadsForWork(const KernelSpec& spec, double flops);

// The kernel that runs the first of some candidates that is fast, or else, of float32, the first at all, for so much
// work. make(c) is its primitive descriptor, perhaps empty, or throws dnnl::error for what oneDNN cannot describe;
// format_of(its descriptor) that of the weight, if there is one that our formats can express; arguments(c, descriptor,
// format) what it takes.
template <class Primitive, class Candidate, class Make, class FormatOf, class ArgumentsOf>
MaybeKernel ChooseDnnl(const KernelSpec& spec, double flops, const std::vector<Candidate>& candidates, const Make& make,
                       const FormatOf& format_of, const ArgumentsOf& arguments) {
  using Desc = typename Primitive::primitive_desc;
  if (!FitsDnnl(spec)) return std::nullopt;
  Kernel kernel = PlainKernel(spec, "");
  kernel.threads = ThreadsForWork(spec, flops);
  const TeamScope team(kernel.threads);
  struct Choice {
    const Candidate* candidate = nullptr;
    Desc desc = {};
    Format weight = {};
  };
  Choice choice;
  for (const Candidate& candidate : candidates) {
    Desc desc;
    try {
      desc = make(candidate);
    } catch (const dnnl::error&) {
      continue;
    }
    if (!desc) continue;
    const std::optional<Format> format = format_of(desc);
    if (!format) continue;
    const bool fast = !IsSlow(desc.impl_info_str());
    if (fast || !choice.candidate) choice = {&candidate, desc, *format};
    if (fast) break;
  }
  if (!choice.candidate) return std::nullopt;
  // Its slow loops are slower than float32 between conversions.
  if (!AllFloat(spec) && IsSlow(choice.desc.impl_info_str())) return std::nullopt;
  return WithDnnl(std::move(kernel), spec.Who(), Primitive(choice.desc), choice.desc,
                  arguments(*choice.candidate, choice.desc, choice.weight));
}
// Where there is nothing to choose.
template <class Primitive, class Make>
MaybeKernel MakeDnnl(const KernelSpec& spec, double flops, const Make& make, std::vector<DnnlArgument> arguments) {
  return ChooseDnnl<Primitive>(
      spec, flops, std::vector<int>{0}, [&](int) { return make(); }, [](const auto&) { return Format::Plain(); },
      [&](int, const auto&, const Format&) { return arguments; });
}

}  // namespace bindery::cpu
