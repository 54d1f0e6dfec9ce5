// Chains of elementwise operators of floats as one kernel, whose source NVRTC compiles for the GPUs of this machine.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "engine/cuda/gpu.h"
#include "executor/kernels/chain.h"
#include "executor/kernels/cuda/fused_args.h"
#include "executor/kernels/cuda/fused_image.h"
#include "executor/kernels/cuda/fused_source.h"
#include "executor/kernels/cuda/launch.h"
#include "executor/kernels/native_functions.h"
#include "symbol/ops/activation.h"
#include "symbol/ops/curve.h"

namespace bindery {
namespace cuda {
namespace {

static_assert(FusedArgs::kMaxAxes == Shape::kMaxRank && FusedArgs::kMaxInputs == kMaxChainInputs);

using Step = FusedProgram::Step;

// What an operator is made of, of its operands; empty: it is no link. Sums of several are added in their order, and
// rounded once, as its own kernel does.
std::vector<Step> StepsOf(const KernelSpec& spec, const std::vector<int>& operands, int next) {
  const std::string_view op = spec.op->name;
  const DType dtype = spec.outputs[0].dtype;
  const DType exact = ValueOf(dtype);
  if (op == "Cast") return {{nullptr, 0, dtype, operands}};
  if (const size_t place = native::UnaryFunctions::Find(op); place < native::UnaryFunctions::kSize) {
    return {{"UnaryFunctions", place, dtype, operands}};
  }
  if (const size_t place = native::BinaryFunctions::Find(op); place < native::BinaryFunctions::kSize) {
    return {{"BinaryFunctions", place, dtype, operands}};
  }
  if (op == "Activation" || op == "ActivationGrad") {
    const auto type = static_cast<size_t>(spec.attributes<ActivationAttrs>().type);
    if (type == 0) return {};
    return {{operands.size() == 2 ? "ActivationGradFunctions" : "ActivationFunctions", type - 1, dtype, operands}};
  }
  if (op == "Curve" || op == "CurveGrad") {
    const auto& attrs = spec.attributes<CurveAttrs>();
    if (!std::isfinite(attrs.alpha) || !std::isfinite(attrs.beta)) return {};
    return {{"CurveFunctions", static_cast<size_t>(attrs.type), dtype, operands, attrs.alpha, attrs.beta}};
  }
  const size_t add = native::BinaryFunctions::Find("Add");
  if (op == "AddN" && operands.size() > 1) {
    std::vector<Step> sums;
    int sum = operands[0];
    for (size_t k = 1; k < operands.size(); ++k) {
      sums.push_back({"BinaryFunctions", add, k + 1 < operands.size() ? exact : dtype, {sum, operands[k]}});
      sum = next++;
    }
    return sums;
  }
  if (op == "AddReluGrad") {
    const size_t relu = native::ActivationGradFunctions::Find("relu");
    return {{"BinaryFunctions", add, exact, {operands[0], operands[1]}},
            {"ActivationGradFunctions", relu, dtype, {next, operands[2]}}};
  }
  return {};
}

int CapabilityOf(const GpuFacts& gpu) { return gpu.major * 10 + gpu.minor; }

// Of the GPUs of this machine that programs run on; none where there are none.
const std::set<int>& Capabilities() {
  static const std::set<int> all = [] {
    std::set<int> found;
    try {
      for (const GpuFacts& gpu : FindGpus(Runtime())) {
        if (gpu.major >= kLeastMajor) found.insert(CapabilityOf(gpu));
      }
    } catch (const DeviceError&) {  // whoever asks for a device hears of it
    }
    return found;
  }();
  return all;
}

// Do the GPUs in use take the image, which is for those of this capability? Programs are bound when the operators' own
// kernels are gone: so it is found out before.
bool IsLoaded(const NvrtcApi& api, const std::string& source, int capability, const unsigned long long* image) {
  for (Gpu* const gpu : GpusInUse()) {
    if (CapabilityOf(gpu->facts) != capability || gpu->failed()) continue;
    try {
      gpu->KernelIn(image, FusedArgs::kName);
    } catch (const DeviceError& error) {
      RefuseFused(api, source, capability, error.message());
      return false;
    }
  }
  return true;
}

struct Fused {
  FusedProgram program = {};
  FusedArgs args = {};
};

Fused Fuse(const ChainSpec& chain) {
  const ValueType& result = chain.links.back().spec.outputs[0];
  Fused fused{.program = {.in_double = result.dtype == DType::kFloat64}};
  fused.args.n = result.shape.Elements();
  Grid grid = GridOf(result.shape);
  Strides strides[kMaxChainInputs];
  std::initializer_list<Strides*> all = {&strides[0], &strides[1], &strides[2], &strides[3],
                                         &strides[4], &strides[5], &strides[6], &strides[7]};
  for (size_t k = 0; k < chain.inputs.size(); ++k) {
    const ValueType& input = chain.inputs[k];
    const int64_t elements = input.shape.Elements();
    using enum FusedProgram::Reads;
    const auto reads = elements == fused.args.n ? kSame : elements == 1 ? kOne : kStretched;
    fused.program.inputs.push_back({input.dtype, reads});
    if (reads == kStretched) strides[k] = StretchedStrides(input.shape, result.shape);
  }
  JoinAxes(&grid, all);
  fused.args.rank = grid.rank;
  std::copy_n(grid.extents, grid.rank, fused.args.extents);
  for (size_t k = 0; k < chain.inputs.size(); ++k) std::copy_n(strides[k].of, grid.rank, fused.args.strides[k]);

  std::vector<int> values;  // of the program: those of the chain's inputs and links
  for (size_t k = 0; k < chain.inputs.size(); ++k) values.push_back(static_cast<int>(k));
  int next = static_cast<int>(values.size());
  for (const ChainLink& link : chain.links) {
    std::vector<int> operands;
    for (const int operand : link.operands) operands.push_back(values[static_cast<size_t>(operand)]);
    for (Step& step : StepsOf(link.spec, operands, next)) {
      fused.program.steps.push_back(std::move(step));
      ++next;
    }
    values.push_back(next - 1);
  }
  return fused;
}

bool IsFusable(const KernelSpec& spec) {
  if (spec.outputs.size() != 1 || spec.inputs.empty() || spec.inputs.size() > kMaxChainInputs) return false;
  const bool in_double = spec.outputs[0].dtype == DType::kFloat64;
  const auto fits = [&](const ValueType& type) {
    return IsFloat(type.dtype) && (type.dtype == DType::kFloat64) == in_double && type.shape.Elements() > 0;
  };
  if (!fits(spec.outputs[0]) || !std::ranges::all_of(spec.inputs, fits)) return false;
  std::vector<int> operands(spec.inputs.size());
  return !StepsOf(spec, operands, 0).empty();
}

MaybeKernel MakeFused(const ChainSpec& chain) {
  const NvrtcPtr api = Nvrtc();
  if (!api) return std::nullopt;
  const Fused fused = Fuse(chain);
  const FusedProgram& program = fused.program;
  const std::string source = FusedSource(program);
  std::map<int, const unsigned long long*> images;
  for (const int capability : Capabilities()) {
    const unsigned long long* const image = FusedImage(*api, source, capability);
    if (!image || !IsLoaded(*api, source, capability, image)) return std::nullopt;
    images[capability] = image;
  }
  KernelSpec spec = chain.links.back().spec;
  spec.inputs = chain.inputs;
  spec.input_formats.assign(chain.inputs.size(), Format::Plain());
  Kernel kernel = OwnKernel(
      spec,
      [args = fused.args, images, inputs = chain.inputs.size()](Launches& launches) mutable {
        for (size_t k = 0; k < inputs; ++k) args.in[k] = launches.in(k).data;
        args.out = launches.out(0).data;
        launches.AddOf(images.at(CapabilityOf(launches.stream().gpu().facts)), args, args.packs());
      },
      "fused");
  for (size_t k = 0; k < chain.inputs.size(); ++k) {
    if (program.inputs[k].reads == FusedProgram::Reads::kSame) kernel.inplace.push_back({static_cast<int>(k), 0});
  }
  return kernel;
}

// A program is for all GPUs of this machine: one that is left out leaves the others without, too.
bool AreThere() {
  return Nvrtc() && !Capabilities().empty() && std::ranges::none_of(Capabilities(), &IsLeftOutOfFused);
}

}  // namespace

extern const ChainKernels kFusedChains;
const ChainKernels kFusedChains = {AreThere, IsFusable, MakeFused};

}  // namespace cuda
}  // namespace bindery
