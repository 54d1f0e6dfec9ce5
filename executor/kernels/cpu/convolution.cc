// Convolution by oneDNN: direct algorithms, weights in the format that the primitive likes best, activations in
// PreferredActivationFormats. Where oneDNN has only its slow loops for these, other formats are tried in a fixed order.
#include "symbol/ops/convolution.h"

#include <algorithm>
#include <string>
#include <vector>

#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/activation_pass.h"
#include "executor/kernels/cpu/bias_gradient.h"
#include "executor/kernels/cpu/dnnl_util.h"
#include "executor/kernels/cpu/layout.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

using dnnl::memory;

struct Problem {
  Shape data, output, weight;
  int64_t groups;
  bool has_bias;
  memory::dims weight_dims, strides, dilates, pad_begin, pad_end;
  double flops;

  Problem(const ConvolutionAttrs& attrs, const Shape& data_shape, const Shape& output_shape, const Shape& weight_shape)
      : data(data_shape), output(output_shape), weight(weight_shape), groups(attrs.groups), has_bias(!attrs.no_bias),
        weight_dims(Dims(weight_shape)) {
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
    flops = 2.0 * static_cast<double>(output.Elements()) * static_cast<double>(weight.CountFrom(1));
  }

  memory::desc AnyWeight() const { return {weight_dims, memory::data_type::f32, memory::format_tag::any}; }
  memory::desc PlainWeight() const {
    memory::dims plain(weight_dims.size());
    int64_t stride = 1;
    for (size_t i = plain.size(); i-- > 0; stride *= weight_dims[i]) plain[i] = stride;
    return {weight_dims, memory::data_type::f32, plain};
  }
  // The wish, if it is the plain format or one that needs no groups.
  std::optional<memory::desc> WeightIn(const Format& format) const {
    if (format.is_plain()) return PlainWeight();
    return groups > 1 ? std::nullopt : ToDesc(format, DType::kFloat32, weight);
  }
  std::optional<Format> FormatOfWeight(const memory::desc& desc) const {
    return groups > 1 ? FromGroupedDesc(desc, weight) : FromDesc(desc, weight);
  }
  memory::desc Bias() const { return {{output[1]}, memory::data_type::f32, memory::format_tag::x}; }

  dnnl::convolution_forward::desc Forward(const memory::desc& x, const memory::desc& w, const memory::desc& y) const {
    const auto kind = dnnl::prop_kind::forward_training;
    const auto algorithm = dnnl::algorithm::convolution_direct;
    if (has_bias) return {kind, algorithm, x, w, Bias(), y, strides, dilates, pad_begin, pad_end};
    return {kind, algorithm, x, w, y, strides, dilates, pad_begin, pad_end};
  }
};

struct Candidate {
  Format input, output;  // as the primitive sees them
  memory::desc x, y;
};

// The preferred formats first, then the others.
std::vector<Candidate> Candidates(const Problem& p) {
  const int rank = p.data.rank();
  const ActivationFormats best = PreferredActivationFormats(rank, p.data[1], p.output[1], p.groups);
  std::vector<Candidate> candidates;
  const auto add = [&](const Format& in, const Format& out) {
    for (const Candidate& c : candidates) {
      if (c.input == in && c.output == out) return;
    }
    candidates.push_back({in, out, *ToDesc(in, DType::kFloat32, p.data), *ToDesc(out, DType::kFloat32, p.output)});
  };
  add(best.input, best.output);
  add(Format::ChannelsLast(rank), Format::ChannelsLast(rank));
  const Format blocked = ChannelBlocked(rank, SimdBlock());
  if (p.data[1] % SimdBlock() == 0 && p.output[1] % SimdBlock() == 0) add(blocked, blocked);
  add(Format::Plain(), Format::Plain());
  return candidates;
}

// A primitive descriptor with the candidate and the format of weights it was made for.
template <class PrimitiveDesc>
struct Choice {
  PrimitiveDesc desc;
  Candidate formats;
  Format weight;
};

// make(candidate, weight desc) -> primitive desc, perhaps empty, or dnnl::error for a window that oneDNN cannot
// describe. The first candidate with a fast implementation and an expressible format of weights; else the first with
// any; nullopt if oneDNN has none.
template <class PrimitiveDesc, class Make, class WeightOf>
std::optional<Choice<PrimitiveDesc>> Choose(const Problem& p, const std::optional<Format>& wish, const Make& make,
                                            const WeightOf& weight_of) {
  std::optional<Choice<PrimitiveDesc>> slow;
  for (const Candidate& candidate : Candidates(p)) {
    std::vector<memory::desc> weights;
    if (wish) {
      if (const auto wished = p.WeightIn(*wish)) weights.push_back(*wished);
    }
    weights.push_back(p.AnyWeight());
    weights.push_back(p.PlainWeight());
    for (const memory::desc& weight : weights) {
      PrimitiveDesc desc;
      try {
        desc = make(candidate, weight);
      } catch (const dnnl::error&) {
        continue;
      }
      if (!desc) continue;
      const auto format = p.FormatOfWeight(weight_of(desc));
      if (!format) continue;
      Choice<PrimitiveDesc> choice{desc, candidate, *format};
      if (!IsSlow(desc.impl_info_str())) return choice;
      if (!slow) slow = choice;
    }
  }
  return slow;
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

// (data, weight [, bias]) -> y
MaybeKernel MakeConvolution(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<ConvolutionAttrs>();
  if (!AllFloat(spec)) return std::nullopt;
  const Shape &data = spec.inputs[0].shape, &output = spec.outputs[0].shape;
  const int64_t samples = SamplesAtOnce(output, attrs.activation);
  const Problem p(attrs, data.With(0, samples), output.With(0, samples), spec.inputs[1].shape);
  Kernel kernel = PlainKernel(spec, "");
  kernel.threads = ThreadsForWork(spec, p.flops);
  const TeamScope team(kernel.threads);

  using Desc = dnnl::convolution_forward::primitive_desc;
  // A format that the weight is stored in already is kept if it is fast, unless it is plain, which nobody chose.
  const std::optional<Format> stored =
      spec.input_is_open[1] || spec.input_formats[1].is_plain() ? std::nullopt : std::optional(spec.input_formats[1]);
  const auto choice = Choose<Desc>(
      p, stored,
      [&](const Candidate& c, const memory::desc& w) {
        return Desc(p.Forward(c.x, w, c.y), UserScratchpad(), Engine(), true);
      },
      [](const Desc& d) { return d.weights_desc(); });
  if (!choice) return std::nullopt;

  std::vector<DnnlArgument> arguments = {
      {DNNL_ARG_SRC, choice->formats.x, DnnlArgument::kInput, 0, Canonical(choice->formats.input, data)},
      {DNNL_ARG_WEIGHTS, choice->desc.weights_desc(), DnnlArgument::kInput, 1, choice->weight},
      {DNNL_ARG_DST, choice->formats.y, DnnlArgument::kOutput, 0, Canonical(choice->formats.output, output)}};
  if (p.has_bias) arguments.push_back({DNNL_ARG_BIAS, p.Bias(), DnnlArgument::kInput, 2});
  kernel = WithDnnl(std::move(kernel), WhoOf(spec), dnnl::convolution_forward(choice->desc), choice->desc,
                    std::move(arguments));
  const ActivationPass pass(attrs.activation);
  if (!pass.loop) return kernel;
  if (IsPadded(choice->formats.output, p.output)) return std::nullopt;  // sigmoid(0) is not 0
  const int64_t times = output[0] / samples, n = StorageElements(choice->formats.output, p.output);
  const int64_t step_in = StorageElements(choice->formats.input, p.data);
  kernel.bind = [=, convolve = kernel.bind](const KernelArgs& args) -> Call {
    std::vector<void*> inputs(args.inputs.begin(), args.inputs.end());
    std::vector<Call> parts;
    for (int64_t i = 0; i < times; ++i) {
      void* const y = Out(args, 0) + i * n;
      parts.push_back(convolve({.inputs = inputs, .outputs = {&y, 1}, .scratch = args.scratch, .step = args.step}));
      inputs[0] = static_cast<float*>(inputs[0]) + step_in;
    }
    return [parts = std::move(parts), pass, n, y = Out(args, 0)] {
      for (size_t i = 0; i < parts.size(); ++i) {
        parts[i]();
        pass(y + static_cast<int64_t>(i) * n, n);
      }
    };
  };
  return kernel;
}

// (dy, weight) -> dx
MaybeKernel MakeConvolutionGradData(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<ConvolutionGradDataAttrs>();
  if (!AllFloat(spec)) return std::nullopt;
  const Problem p(attrs, spec.outputs[0].shape, spec.inputs[0].shape, spec.inputs[1].shape);
  Kernel kernel = PlainKernel(spec, "");
  kernel.threads = ThreadsForWork(spec, p.flops);
  const TeamScope team(kernel.threads);

  using Desc = dnnl::convolution_backward_data::primitive_desc;
  const auto choice = Choose<Desc>(
      p, std::nullopt,
      [&](const Candidate& c, const memory::desc& w) {
        const dnnl::convolution_forward::primitive_desc hint(p.Forward(c.x, p.AnyWeight(), c.y), UserScratchpad(),
                                                             Engine(), true);
        if (!hint) return Desc();
        return Desc({dnnl::algorithm::convolution_direct, c.x, w, c.y, p.strides, p.dilates, p.pad_begin, p.pad_end},
                    UserScratchpad(), Engine(), hint, true);
      },
      [](const Desc& d) { return d.weights_desc(); });
  if (!choice) return std::nullopt;

  const auto& [x, y] = std::pair(Canonical(choice->formats.input, p.data), Canonical(choice->formats.output, p.output));
  return WithDnnl(std::move(kernel), WhoOf(spec), dnnl::convolution_backward_data(choice->desc), choice->desc,
                  {{DNNL_ARG_DIFF_DST, choice->formats.y, DnnlArgument::kInput, 0, y},
                   {DNNL_ARG_WEIGHTS, choice->desc.weights_desc(), DnnlArgument::kInput, 1, choice->weight},
                   {DNNL_ARG_DIFF_SRC, choice->formats.x, DnnlArgument::kOutput, 0, x}});
}

// (dy, data) -> dw [, db]
MaybeKernel MakeConvolutionGradWeight(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<ConvolutionAttrs>();
  if (!AllFloat(spec)) return std::nullopt;
  if (!spec.output_used[0]) return MakeBiasGradient(spec, 1);
  Problem p(attrs, spec.inputs[1].shape, spec.inputs[0].shape, spec.outputs[0].shape);
  p.has_bias = spec.outputs.size() > 1 && spec.output_used[1];
  Kernel kernel = PlainKernel(spec, "");
  kernel.threads = ThreadsForWork(spec, p.flops);
  const TeamScope team(kernel.threads);

  using Desc = dnnl::convolution_backward_weights::primitive_desc;
  const auto choice = Choose<Desc>(
      p, spec.output_wishes[0],
      [&](const Candidate& c, const memory::desc& w) {
        const dnnl::convolution_forward::primitive_desc hint(p.Forward(c.x, p.AnyWeight(), c.y), UserScratchpad(),
                                                             Engine(), true);
        if (!hint) return Desc();
        const auto algorithm = dnnl::algorithm::convolution_direct;
        if (!p.has_bias)
          return Desc({algorithm, c.x, w, c.y, p.strides, p.dilates, p.pad_begin, p.pad_end}, UserScratchpad(),
                      Engine(), hint, true);
        return Desc({algorithm, c.x, w, p.Bias(), c.y, p.strides, p.dilates, p.pad_begin, p.pad_end}, UserScratchpad(),
                    Engine(), hint, true);
      },
      [](const Desc& d) { return d.diff_weights_desc(); });
  if (!choice) return std::nullopt;

  std::vector<DnnlArgument> arguments = {
      {DNNL_ARG_DIFF_DST, choice->formats.y, DnnlArgument::kInput, 0, Canonical(choice->formats.output, p.output)},
      {DNNL_ARG_SRC, choice->formats.x, DnnlArgument::kInput, 1, Canonical(choice->formats.input, p.data)},
      {DNNL_ARG_DIFF_WEIGHTS, choice->desc.diff_weights_desc(), DnnlArgument::kOutput, 0, choice->weight}};
  if (p.has_bias) arguments.push_back({DNNL_ARG_DIFF_BIAS, p.Bias(), DnnlArgument::kOutput, 1});
  return WithDnnl(std::move(kernel), WhoOf(spec), dnnl::convolution_backward_weights(choice->desc), choice->desc,
                  std::move(arguments));
}

constexpr KernelEntry kEntries[] = {
    {"Convolution", MakeConvolution},
    {"ConvolutionGradData", MakeConvolutionGradData},
    {"ConvolutionGradWeight", MakeConvolutionGradWeight},
};

}  // namespace

KernelRows ConvolutionKernels() { return kEntries; }

}  // namespace bindery::cpu
