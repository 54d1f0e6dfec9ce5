// Convolution by oneDNN: direct algorithms, weights in the format that the primitive likes best, activations in
// PreferredActivationFormats. Where oneDNN has only its slow loops for these, other formats are tried in a fixed order.
#include "symbol/ops/convolution.h"

#include <string>
#include <vector>

#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/bias_gradient.h"
#include "executor/kernels/cpu/dnnl_util.h"
#include "executor/kernels/cpu/layout.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

using dnnl::memory;

struct Problem {
  Shape data, output, weight;
  int64_t groups;
  bool has_bias;
  memory::dims weight_dims, strides, dilates, pad;
  double flops;

  Problem(const ConvolutionAttrs& attrs, const Shape& data_shape, const Shape& output_shape, const Shape& weight_shape)
      : data(data_shape), output(output_shape), weight(weight_shape), groups(attrs.groups), has_bias(!attrs.no_bias),
        weight_dims(Dims(weight_shape)) {
    if (groups > 1) {
      weight_dims.insert(weight_dims.begin(), groups);
      weight_dims[1] /= groups;
    }
    for (int i = 0; i < data.rank() - 2; ++i) {
      const auto at = [i](const std::vector<int64_t>& list, int64_t otherwise) {
        return list.empty() ? otherwise : list[i];
      };
      strides.push_back(at(attrs.stride, 1));
      dilates.push_back(at(attrs.dilate, 1) - 1);
      pad.push_back(at(attrs.pad, 0));
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
    if (has_bias) return {kind, algorithm, x, w, Bias(), y, strides, dilates, pad, pad};
    return {kind, algorithm, x, w, y, strides, dilates, pad, pad};
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

std::optional<dnnl::algorithm> PostOpOf(ActivationType type) {
  switch (type) {
    case ActivationType::kRelu: return dnnl::algorithm::eltwise_relu;
    case ActivationType::kSigmoid: return dnnl::algorithm::eltwise_logistic;
    case ActivationType::kTanh: return dnnl::algorithm::eltwise_tanh;
    default: return std::nullopt;
  }
}

std::optional<Unary> PassOf(ActivationType type) {
  switch (type) {
    case ActivationType::kSoftRelu: return Unary::kSoftRelu;
    case ActivationType::kSoftSign: return Unary::kSoftSign;
    default: return std::nullopt;
  }
}

std::string Implementation(const char* info) { return std::string("dnnl ") + info; }

// (data, weight [, bias]) -> y
MaybeKernel MakeConvolution(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<ConvolutionAttrs>();
  if (!AllFloat(spec)) return std::nullopt;
  const Problem p(attrs, spec.inputs[0].shape, spec.outputs[0].shape, spec.inputs[1].shape);
  Kernel kernel = PlainKernel(spec, "");
  kernel.threads = ThreadsForWork(spec, p.flops);
  const TeamScope team(kernel.threads);

  dnnl::primitive_attr primitive_attrs = UserScratchpad();
  if (const auto algorithm = PostOpOf(attrs.activation)) {
    dnnl::post_ops post;
    post.append_eltwise(1.0f, *algorithm, 0.0f, 0.0f);
    primitive_attrs.set_post_ops(post);
  }
  using Desc = dnnl::convolution_forward::primitive_desc;
  // A format that the weight is stored in already is kept if it is fast, unless it is plain, which nobody chose.
  const std::optional<Format> stored =
      spec.input_is_open[1] || spec.input_formats[1].is_plain() ? std::nullopt : std::optional(spec.input_formats[1]);
  const auto choice = Choose<Desc>(
      p, stored,
      [&](const Candidate& c, const memory::desc& w) {
        return Desc(p.Forward(c.x, w, c.y), primitive_attrs, Engine(), true);
      },
      [](const Desc& d) { return d.weights_desc(); });
  if (!choice) return std::nullopt;

  std::vector<DnnlArgument> arguments = {{DNNL_ARG_SRC, choice->formats.x, DnnlArgument::kInput, 0},
                                         {DNNL_ARG_WEIGHTS, choice->desc.weights_desc(), DnnlArgument::kInput, 1},
                                         {DNNL_ARG_DST, choice->formats.y, DnnlArgument::kOutput, 0}};
  if (p.has_bias) arguments.push_back({DNNL_ARG_BIAS, p.Bias(), DnnlArgument::kInput, 2});
  const DnnlStep step(dnnl::convolution_forward(choice->desc), choice->desc, WhoOf(spec), std::move(arguments));
  kernel.implementation = Implementation(choice->desc.impl_info_str());
  kernel.input_formats[0] = Canonical(choice->formats.input, p.data);
  kernel.input_formats[1] = choice->weight;
  kernel.output_formats[0] = Canonical(choice->formats.output, p.output);
  kernel.scratch_bytes = step.scratch_bytes();
  if (const auto pass = PassOf(attrs.activation)) {
    const auto loop = BestLoops().unary[static_cast<size_t>(*pass)];
    const int64_t n = StorageElements(choice->formats.output, p.output);
    if (IsPadded(choice->formats.output, p.output)) return std::nullopt;  // softrelu(0) is not 0
    kernel.bind = [step, loop, n](const KernelArgs& args) -> Call {
      return [run = step.Bind(args), loop, n, y = Out(args, 0)] {
        run();
        ParallelFor(n, kGrain, kSerialElements,
                    [&](int64_t begin, int64_t end, int) { loop(y + begin, y + begin, end - begin, 0); });
      };
    };
  } else {
    kernel.bind = [step](const KernelArgs& args) { return step.Bind(args); };
  }
  return kernel;
}

// (dy, weight, data: shape only) -> dx
MaybeKernel MakeConvolutionGradData(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<ConvolutionAttrs>();
  if (!AllFloat(spec)) return std::nullopt;
  const Problem p(attrs, spec.inputs[2].shape, spec.inputs[0].shape, spec.inputs[1].shape);
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
        return Desc({dnnl::algorithm::convolution_direct, c.x, w, c.y, p.strides, p.dilates, p.pad, p.pad},
                    UserScratchpad(), Engine(), hint, true);
      },
      [](const Desc& d) { return d.weights_desc(); });
  if (!choice) return std::nullopt;

  const DnnlStep step(dnnl::convolution_backward_data(choice->desc), choice->desc, WhoOf(spec),
                      {{DNNL_ARG_DIFF_DST, choice->formats.y, DnnlArgument::kInput, 0},
                       {DNNL_ARG_WEIGHTS, choice->desc.weights_desc(), DnnlArgument::kInput, 1},
                       {DNNL_ARG_DIFF_SRC, choice->formats.x, DnnlArgument::kOutput, 0}});
  kernel.implementation = Implementation(choice->desc.impl_info_str());
  kernel.input_formats[0] = Canonical(choice->formats.output, p.output);
  kernel.input_formats[1] = choice->weight;
  kernel.output_formats[0] = Canonical(choice->formats.input, p.data);
  kernel.scratch_bytes = step.scratch_bytes();
  kernel.bind = [step](const KernelArgs& args) { return step.Bind(args); };
  return kernel;
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
          return Desc({algorithm, c.x, w, c.y, p.strides, p.dilates, p.pad, p.pad}, UserScratchpad(), Engine(), hint,
                      true);
        return Desc({algorithm, c.x, w, p.Bias(), c.y, p.strides, p.dilates, p.pad, p.pad}, UserScratchpad(), Engine(),
                    hint, true);
      },
      [](const Desc& d) { return d.diff_weights_desc(); });
  if (!choice) return std::nullopt;

  std::vector<DnnlArgument> arguments = {
      {DNNL_ARG_DIFF_DST, choice->formats.y, DnnlArgument::kInput, 0},
      {DNNL_ARG_SRC, choice->formats.x, DnnlArgument::kInput, 1},
      {DNNL_ARG_DIFF_WEIGHTS, choice->desc.diff_weights_desc(), DnnlArgument::kOutput, 0}};
  if (p.has_bias) arguments.push_back({DNNL_ARG_DIFF_BIAS, p.Bias(), DnnlArgument::kOutput, 1});
  const DnnlStep step(dnnl::convolution_backward_weights(choice->desc), choice->desc, WhoOf(spec),
                      std::move(arguments));
  kernel.implementation = Implementation(choice->desc.impl_info_str());
  kernel.input_formats[0] = Canonical(choice->formats.output, p.output);
  kernel.input_formats[1] = Canonical(choice->formats.input, p.data);
  kernel.output_formats[0] = choice->weight;
  kernel.scratch_bytes = step.scratch_bytes();
  kernel.bind = [step](const KernelArgs& args) { return step.Bind(args); };
  return kernel;
}

constexpr KernelEntry kEntries[] = {
    {"Convolution", MakeConvolution},
    {"ConvolutionGradData", MakeConvolutionGradData},
    {"ConvolutionGradWeight", MakeConvolutionGradWeight},
};

}  // namespace

KernelRows ConvolutionKernels() { return kEntries; }

}  // namespace bindery::cpu
