// Convolution and its gradients, by one of four ways:
//   oneDNN's direct algorithms, here: float32, and bfloat16 where CPUs have units for it; weights in the format that the
//     primitive likes best, activations in PreferredActivationFormats. Where oneDNN has only its slow loops for these,
//     other formats are tried in a fixed order
//   loops of our own, where they are faster (direct_convolution.h)
//   Winograd's minimal filtering, where runs allow it (winograd.h)
//   products of matrices: float64, integers, and what is left (convolution_gemm.h)
// Which of those that a shape allows is taken is measured where that is asked for (executor/kernels/cpu/tuning.h).
#include "symbol/ops/convolution.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/activation_pass.h"
#include "executor/kernels/cpu/bias_gradient.h"
#include "executor/kernels/cpu/convolution/convolution_gemm.h"
#include "executor/kernels/cpu/convolution/direct_convolution.h"
#include "executor/kernels/cpu/convolution/direct_windows.h"
#include "executor/kernels/cpu/convolution/winograd.h"
#include "executor/kernels/cpu/dnnl_faults.h"
#include "executor/kernels/cpu/dnnl_util.h"
#include "executor/kernels/cpu/layout.h"
#include "executor/kernels/cpu/tuning.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/operations.h"

namespace bindery::cpu {
namespace {

using dnnl::memory;

struct Problem {
  Shape data, output, weight;
  int64_t groups;
  bool has_bias;
  memory::dims weight_dims, strides, dilates, pad_begin, pad_end;
  double flops;
  DType dtype;

  Problem(const ConvolutionAttrs& attrs, const Shape& data_shape, const Shape& output_shape, const Shape& weight_shape,
          DType of)
      : data(data_shape), output(output_shape), weight(weight_shape), groups(attrs.groups), has_bias(!attrs.no_bias),
        weight_dims(Dims(weight_shape)), dtype(of) {
    if (groups > 1) {
      weight_dims.insert(weight_dims.begin(), groups);
      weight_dims[1] /= groups;
    }
    for (const Window& window : ConvolutionWindows(attrs, data)) {
      strides.push_back(window.stride);
      dilates.push_back(window.dilate - 1);
      pad_begin.push_back(window.pad_begin);
      pad_end.push_back(window.pad_end);
    }
    flops = OperationsOfSums(output, weight);
  }

  memory::data_type type() const { return *ToDnnl(dtype); }
  memory::desc AnyWeight() const { return {weight_dims, type(), memory::format_tag::any}; }
  memory::desc PlainWeight() const {
    memory::dims plain(weight_dims.size());
    int64_t stride = 1;
    for (size_t i = plain.size(); i-- > 0; stride *= weight_dims[i]) plain[i] = stride;
    return {weight_dims, type(), plain};
  }
  // The wish, if it is the plain format or one that needs no groups.
  std::optional<memory::desc> WeightIn(const Format& format) const {
    if (format.is_plain()) return PlainWeight();
    return groups > 1 ? std::nullopt : ToDesc(format, dtype, weight);
  }
  std::optional<Format> FormatOfWeight(const memory::desc& desc) const {
    return groups > 1 ? FromGroupedDesc(desc, weight) : FromDesc(desc, weight);
  }
  memory::desc Bias() const { return {{output[1]}, type(), memory::format_tag::x}; }

  dnnl::convolution_forward::desc Forward(const memory::desc& x, const memory::desc& w, const memory::desc& y) const {
    const auto kind = dnnl::prop_kind::forward_training;
    const auto algorithm = dnnl::algorithm::convolution_direct;
    if (has_bias) return {kind, algorithm, x, w, Bias(), y, strides, dilates, pad_begin, pad_end};
    return {kind, algorithm, x, w, y, strides, dilates, pad_begin, pad_end};
  }
  // The backward primitives want to know the forward one.
  template <class Candidate>
  dnnl::convolution_forward::primitive_desc Hint(const Candidate& c) const {
    return {Forward(c.x, AnyWeight(), c.y), UserScratchpad(), Engine(), true};
  }
};

struct Candidate {
  Format input, output;  // as the primitive sees them
  memory::desc x, y, weight;
};

using Only = const ActivationFormats*;  // the formats to try; null: all

// For each of the formats that of weights wished for, the primitive's own choice and plain.
std::vector<Candidate> Candidates(const Problem& p, const std::optional<Format>& wish, Only only) {
  const std::vector<ActivationFormats> formats =
      only ? std::vector{*only} : FormatsToTry(p.dtype, p.data, p.output, p.groups);
  std::vector<memory::desc> weights = {p.AnyWeight(), p.PlainWeight()};
  if (const auto wished = wish ? p.WeightIn(*wish) : std::nullopt) weights.insert(weights.begin(), *wished);
  std::vector<Candidate> candidates;
  for (const auto& [in, out] : formats) {
    const auto x = ToDesc(in, p.dtype, p.data), y = ToDesc(out, p.dtype, p.output);
    for (const memory::desc& weight : weights) candidates.push_back({in, out, *x, *y, weight});
  }
  return candidates;
}

// How many samples are computed before the activation passes over them: all, or so few that it finds them in cache.
int64_t SamplesAtOnce(const Shape& output, ActivationType activation) {
  constexpr int64_t kFewest = 32 * 1024, kMost = 256 * 1024;  // elements
  const int64_t batch = output[0], sample = output.CountFrom(1);
  if (activation == ActivationType::kNone || output.Elements() <= kMost) return batch;
  for (int64_t n = std::max<int64_t>(kMost / sample, 1); n * sample >= kFewest; --n) {
    if (batch % n == 0) return n;
  }
  return batch;
}

// A kernel for a part of the samples, with so many elements in and out, so often, each time with the activation.
// `addend`: the input that has the output's elements, or -1.
template <class T>
Kernel InParts(Kernel kernel, ActivationType activation, int64_t times, int64_t in, int64_t out, int addend) {
  kernel.bind = [=, pass = ActivationPass<T>(activation), convolve = kernel.bind](const KernelArgs& args) -> Call {
    std::vector<void*> inputs(args.inputs.begin(), args.inputs.end());
    T* const first = static_cast<T*>(args.outputs[0]);
    std::vector<Call> parts;
    for (int64_t i = 0; i < times; ++i) {
      void* const y = first + i * out;
      parts.push_back(convolve({.inputs = inputs, .outputs = {&y, 1}, .scratch = args.scratch, .step = args.step}));
      inputs[0] = static_cast<T*>(inputs[0]) + in;
      if (addend >= 0) inputs[addend] = static_cast<T*>(inputs[addend]) + out;
    }
    return [parts = std::move(parts), pass, out, first] {
      for (size_t i = 0; i < parts.size(); ++i) {
        parts[i]();
        pass(first + static_cast<int64_t>(i) * out, out);
      }
    };
  };
  return kernel;
}

// A kernel that adds to what output 0 holds: this is to be input `addend`, whose memory it is if the plan could do it.
Kernel OntoAddend(Kernel kernel, int addend, int64_t elements) {
  kernel.input_formats[addend] = kernel.output_formats[0];
  kernel.inplace = {{addend, 0}};
  kernel.bind = [=, add = kernel.bind](const KernelArgs& args) -> Call {
    const float* const a = static_cast<const float*>(args.inputs[addend]);
    float* const y = static_cast<float*>(args.outputs[0]);
    if (a == y) return add(args);
    return [=, run = add(args)] {
      ParallelFor(elements, kGrain, kSerialElements,
                  [&](int64_t begin, int64_t end, int) { std::copy(a + begin, a + end, y + begin); });
      run();
    };
  };
  return kernel;
}

// (data, weight [, bias] [, addend]) -> y by oneDNN. It adds in its kernel; its activations lose NaN, so ours pass over
// what is in cache.
MaybeKernel MakeByDnnl(const KernelSpec& spec, int addend, Only only = nullptr) {
  const auto& attrs = spec.attributes<ConvolutionAttrs>();
  const Shape &data = spec.inputs[0].shape, &output = spec.outputs[0].shape;
  if (addend >= 0 && LosesAddend(ConvolutionWindows(attrs, data), data)) return std::nullopt;
  const int64_t samples = SamplesAtOnce(output, attrs.activation);
  const Problem p(attrs, data.With(0, samples), output.With(0, samples), spec.inputs[1].shape, spec.inputs[0].dtype);
  using Desc = dnnl::convolution_forward::primitive_desc;
  // A format that the weight is stored in already is kept if it is fast, unless it is plain, which nobody chose.
  const std::optional<Format> stored =
      spec.input_is_open[1] || spec.input_formats[1].is_plain() ? std::nullopt : std::optional(spec.input_formats[1]);
  dnnl::primitive_attr attributes = UserScratchpad();
  if (addend >= 0) {
    dnnl::post_ops sum;
    sum.append_sum(1);
    attributes.set_post_ops(sum);
  }
  Candidate chosen;
  MaybeKernel kernel = ChooseDnnl<dnnl::convolution_forward>(
      spec, p.flops, Candidates(p, stored, only),
      [&](const Candidate& c) { return Desc(p.Forward(c.x, c.weight, c.y), attributes, Engine(), true); },
      [&](const Desc& d) { return p.FormatOfWeight(d.weights_desc()); },
      [&](const Candidate& c, const Desc& d, const Format& weight) {
        chosen = c;
        std::vector<DnnlArgument> arguments = {
            {DNNL_ARG_SRC, c.x, DnnlArgument::kInput, 0, Canonical(c.input, data)},
            {DNNL_ARG_WEIGHTS, d.weights_desc(), DnnlArgument::kInput, 1, weight},
            {DNNL_ARG_DST, c.y, DnnlArgument::kOutput, 0, Canonical(c.output, output)}};
        if (p.has_bias) arguments.push_back({DNNL_ARG_BIAS, p.Bias(), DnnlArgument::kInput, 2});
        return arguments;
      });
  if (!kernel) return kernel;
  const int64_t step_in = StorageElements(chosen.input, p.data), n = StorageElements(chosen.output, p.output);
  if (addend >= 0) kernel = OntoAddend(*std::move(kernel), addend, n);
  if (attrs.activation == ActivationType::kNone) return kernel;
  if (IsPadded(chosen.output, p.output)) return std::nullopt;  // sigmoid(0) is not 0
  if (p.dtype == DType::kBFloat16) {
    return InParts<bfloat16>(*std::move(kernel), attrs.activation, output[0] / samples, step_in, n, addend);
  }
  return InParts<float>(*std::move(kernel), attrs.activation, output[0] / samples, step_in, n, addend);
}

// Adds candidates of oneDNN's, but for its slow loops, in each of the formats: make(only).
template <class F>
void AddInFormats(DType dtype, const Shape& data, const Shape& output, int64_t groups, const F& make,
                  std::vector<TuningCandidate>* to) {
  for (const ActivationFormats& formats : FormatsToTry(dtype, data, output, groups)) {
    to->push_back({fmt::format("dnnl {} {}", formats.input, formats.output), [=]() -> MaybeKernel {
                     MaybeKernel kernel = make(&formats);
                     return kernel && IsSlow(*kernel) ? std::nullopt : kernel;
                   }});
  }
}
// Loops of our own for gradients, both ways: make(way).
template <class F>
void AddDirect(const F& make, std::vector<TuningCandidate>* to) {
  to->push_back({"direct", [=] { return make(DirectWay::kAsItLies); }});
  to->push_back({"direct inside", [=] { return make(DirectWay::kBatchInside); }});
}
// Those of Winograd's, where they are allowed: make(tiles).
template <class F>
void AddWinograd(const KernelSpec& spec, const F& make, std::vector<TuningCandidate>* to) {
  if (spec.tuning != Tuning::kWinograd) return;
  to->push_back({"winograd 2x2", [=] { return make(WinogradTiles::k2x2); }});
  to->push_back({"winograd 4x4", [=] { return make(WinogradTiles::k4x4); }});
}
bool IsMeasured(const KernelSpec& spec) { return spec.tuning != Tuning::kOff && IsOfDnnl(spec); }

// (data, weight [, bias] [, addend]) -> y: of rules' choice, and all others. `spec` outlives them.
MaybeKernel MeasuredConvolution(const KernelSpec& spec, int addend, KernelMaker by_rules, KernelMaker by_gemm) {
  std::vector<TuningCandidate> all = {{"rules", [&spec, by_rules] { return by_rules(spec); }}};
  AddInFormats(
      spec.inputs[0].dtype, spec.inputs[0].shape, spec.outputs[0].shape, spec.attributes<ConvolutionAttrs>().groups,
      [&spec, addend](Only only) { return MakeByDnnl(spec, addend, only); }, &all);
  all.push_back({"direct", [&spec, addend] { return DirectConvolution(spec, addend); }});
  all.push_back({"gemm", [&spec, by_gemm] { return by_gemm(spec); }});
  AddWinograd(
      spec, [&spec, addend](WinogradTiles tiles) { return WinogradConvolution(spec, addend, tiles); }, &all);
  return ChooseMeasured(spec, all);
}

// Are our loops faster than oneDNN's? As measured: of images, where the output's channels fill no blocks; and of few
// channels to few, a vector or two, where a pass over the activation is as dear as a fifth of the convolution. (By AVX2
// the latter take as long as oneDNN's with that pass.)
bool IsDirect(const KernelSpec& spec) {
  constexpr int64_t kFew = 16;
  const auto& attrs = spec.attributes<ConvolutionAttrs>();
  const Shape &data = spec.inputs[0].shape, &output = spec.outputs[0].shape;
  if (FillsNoBlocks(data, output)) return true;
  return attrs.activation != ActivationType::kNone && data[1] <= kFew && output[1] <= kFew &&
         output[1] % SimdBlock() == 0 && std::ranges::any_of(attrs.kernel, [](int64_t extent) { return extent > 1; });
}
MaybeKernel ConvolutionByRules(const KernelSpec& spec) {
  if (IsDirect(spec)) {
    if (MaybeKernel direct = DirectConvolution(spec)) return direct;
  }
  MaybeKernel kernel = IsOfDnnl(spec) ? MakeByDnnl(spec, -1) : std::nullopt;
  return kernel ? kernel : ConvolutionByGemm(spec);
}
// (data, weight [, bias]) -> y
MaybeKernel MakeConvolution(const KernelSpec& spec) {
  if (IsMeasured(spec)) return MeasuredConvolution(spec, -1, ConvolutionByRules, ConvolutionByGemm);
  return ConvolutionByRules(spec);
}

MaybeKernel ConvolutionAddByRules(const KernelSpec& spec) {
  const int addend = static_cast<int>(spec.inputs.size()) - 1;
  if (IsDirect(spec)) {
    if (MaybeKernel direct = DirectConvolution(spec, addend)) return direct;
  }
  if (AllFloat(spec)) {
    if (MaybeKernel kernel = MakeByDnnl(spec, addend)) return kernel;
  }
  return ConvolutionAddByGemm(spec);
}
// (data, weight [, bias], addend) -> y
MaybeKernel MakeConvolutionAdd(const KernelSpec& spec) {
  if (!IsMeasured(spec) || !AllFloat(spec)) return ConvolutionAddByRules(spec);
  return MeasuredConvolution(spec, static_cast<int>(spec.inputs.size()) - 1, ConvolutionAddByRules,
                             ConvolutionAddByGemm);
}

MaybeKernel GradDataByDnnl(const KernelSpec& spec, Only only = nullptr) {
  const auto& attrs = spec.attributes<ConvolutionGradDataAttrs>();
  const Problem p(attrs, spec.outputs[0].shape, spec.inputs[0].shape, spec.inputs[1].shape, spec.inputs[0].dtype);
  if (p.dtype == DType::kBFloat16 && p.groups == 1 && LosesOddFilter(ConvolutionWindows(attrs, p.data), p.output[1])) {
    return std::nullopt;
  }
  using Desc = dnnl::convolution_backward_data::primitive_desc;
  return ChooseDnnl<dnnl::convolution_backward_data>(
      spec, p.flops, Candidates(p, std::nullopt, only),
      [&](const Candidate& c) {
        const auto hint = p.Hint(c);
        if (!hint) return Desc();
        return Desc(
            {dnnl::algorithm::convolution_direct, c.x, c.weight, c.y, p.strides, p.dilates, p.pad_begin, p.pad_end},
            UserScratchpad(), Engine(), hint, true);
      },
      [&](const Desc& d) { return p.FormatOfWeight(d.weights_desc()); },
      [&](const Candidate& c, const Desc& d, const Format& weight) -> std::vector<DnnlArgument> {
        return {{DNNL_ARG_DIFF_DST, c.y, DnnlArgument::kInput, 0, Canonical(c.output, p.output)},
                {DNNL_ARG_WEIGHTS, d.weights_desc(), DnnlArgument::kInput, 1, weight},
                {DNNL_ARG_DIFF_SRC, c.x, DnnlArgument::kOutput, 0, Canonical(c.input, p.data)}};
      });
}
MaybeKernel GradDataByRules(const KernelSpec& spec) {
  if (MaybeKernel direct = DirectConvolutionGradData(spec)) return direct;
  MaybeKernel kernel = IsOfDnnl(spec) ? GradDataByDnnl(spec) : std::nullopt;
  return kernel ? kernel : ConvolutionGradDataByGemm(spec);
}
// (dy, weight) -> dx
MaybeKernel MakeConvolutionGradData(const KernelSpec& spec) {
  if (!IsMeasured(spec)) return GradDataByRules(spec);
  std::vector<TuningCandidate> all = {{"rules", [&spec] { return GradDataByRules(spec); }}};
  AddInFormats(
      spec.inputs[0].dtype, spec.outputs[0].shape, spec.inputs[0].shape,
      spec.attributes<ConvolutionGradDataAttrs>().groups, [&spec](Only only) { return GradDataByDnnl(spec, only); },
      &all);
  AddDirect([&spec](DirectWay way) { return DirectConvolutionGradData(spec, way); }, &all);
  all.push_back({"gemm", [&spec] { return ConvolutionGradDataByGemm(spec); }});
  AddWinograd(
      spec, [&spec](WinogradTiles tiles) { return WinogradConvolutionGradData(spec, tiles); }, &all);
  return ChooseMeasured(spec, all);
}

MaybeKernel GradWeightByDnnl(const KernelSpec& spec, Only only = nullptr) {
  const auto& attrs = spec.attributes<ConvolutionAttrs>();
  Problem p(attrs, spec.inputs[1].shape, spec.inputs[0].shape, spec.outputs[0].shape, spec.inputs[0].dtype);
  p.has_bias = spec.outputs.size() > 1 && spec.output_used[1];
  const std::vector<Window> windows = ConvolutionWindows(attrs, p.data);
  if (OverrunsVolume(windows, p.data, p.dtype)) return std::nullopt;
  if (p.dtype == DType::kBFloat16) {
    if (ReadsUnwrittenScratch(windows.back(), p.data[-1])) return std::nullopt;
    if (p.groups == 1 && ReadsUnwrittenRows(windows, p.data[1])) return std::nullopt;
  }
  const Format last = Format::ChannelsLast(p.data.rank());
  using Desc = dnnl::convolution_backward_weights::primitive_desc;
  return ChooseDnnl<dnnl::convolution_backward_weights>(
      spec, p.flops, Candidates(p, spec.output_wishes[0], only),
      [&](const Candidate& c) {
        if (c.input == last && OverrunsScratch(windows, p.data[1] / p.groups)) return Desc();
        const auto hint = p.Hint(c);
        if (!hint) return Desc();
        const auto algorithm = dnnl::algorithm::convolution_direct;
        if (!p.has_bias)
          return Desc({algorithm, c.x, c.weight, c.y, p.strides, p.dilates, p.pad_begin, p.pad_end}, UserScratchpad(),
                      Engine(), hint, true);
        return Desc({algorithm, c.x, c.weight, p.Bias(), c.y, p.strides, p.dilates, p.pad_begin, p.pad_end},
                    UserScratchpad(), Engine(), hint, true);
      },
      [&](const Desc& d) { return p.FormatOfWeight(d.diff_weights_desc()); },
      [&](const Candidate& c, const Desc& d, const Format& weight) {
        std::vector<DnnlArgument> arguments = {
            {DNNL_ARG_DIFF_DST, c.y, DnnlArgument::kInput, 0, Canonical(c.output, p.output)},
            {DNNL_ARG_SRC, c.x, DnnlArgument::kInput, 1, Canonical(c.input, p.data)},
            {DNNL_ARG_DIFF_WEIGHTS, d.diff_weights_desc(), DnnlArgument::kOutput, 0, weight}};
        if (p.has_bias) arguments.push_back({DNNL_ARG_DIFF_BIAS, p.Bias(), DnnlArgument::kOutput, 1});
        return arguments;
      });
}
MaybeKernel GradWeightByRules(const KernelSpec& spec) {
  if (MaybeKernel direct = DirectConvolutionGradWeight(spec)) return direct;
  if (MaybeKernel direct = BFloat16ConvolutionGradWeight(spec)) return direct;
  MaybeKernel kernel = IsOfDnnl(spec) ? GradWeightByDnnl(spec) : std::nullopt;
  return kernel ? kernel : ConvolutionGradWeightByGemm(spec);
}
// (dy, data) -> dw [, db]
MaybeKernel MakeConvolutionGradWeight(const KernelSpec& spec) {
  if (!spec.output_used[0]) return MakeBiasGradient(spec, 1);
  if (!IsMeasured(spec)) return GradWeightByRules(spec);
  std::vector<TuningCandidate> all = {{"rules", [&spec] { return GradWeightByRules(spec); }}};
  AddInFormats(
      spec.inputs[0].dtype, spec.inputs[1].shape, spec.inputs[0].shape, spec.attributes<ConvolutionAttrs>().groups,
      [&spec](Only only) { return GradWeightByDnnl(spec, only); }, &all);
  AddDirect([&spec](DirectWay way) { return DirectConvolutionGradWeight(spec, way); }, &all);
  all.push_back({"gemm", [&spec] { return ConvolutionGradWeightByGemm(spec); }});
  return ChooseMeasured(spec, all);
}

constexpr KernelEntry kEntries[] = {
    {"Convolution", MakeConvolution},
    {"ConvolutionAdd", MakeConvolutionAdd},
    {"ConvolutionGradData", MakeConvolutionGradData},
    {"ConvolutionGradWeight", MakeConvolutionGradWeight},
};

}  // namespace

KernelRows ConvolutionKernels() { return kEntries; }

}  // namespace bindery::cpu
