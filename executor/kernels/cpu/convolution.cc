// Convolution of float32, and of bfloat16 where CPUs have units for it: by loops of our own (direct_convolution.h), or
// by oneDNN's direct algorithms, weights in the format that these like best, activations in PreferredActivationFormats
// or, where oneDNN has only its slow loops for these, in others, in a fixed order. float64 and integers are products of
// matrices, one of which is made of windows as its tiles are needed.
#include "symbol/ops/convolution.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/checked.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/activation_pass.h"
#include "executor/kernels/cpu/bias_gradient.h"
#include "executor/kernels/cpu/direct_convolution.h"
#include "executor/kernels/cpu/dnnl_util.h"
#include "executor/kernels/cpu/gemm.h"
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
    flops = 2.0 * static_cast<double>(output.Elements()) * static_cast<double>(weight.CountFrom(1));
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

// The preferred formats first, then the others; for each the format of weights wished for, the primitive's own choice
// and plain.
std::vector<Candidate> Candidates(const Problem& p, const std::optional<Format>& wish) {
  const int rank = p.data.rank();
  const Format last = Format::ChannelsLast(rank), blocked = ChannelBlocked(rank, SimdBlock());
  std::vector<ActivationFormats> formats = {PreferredActivationFormats(rank, p.data[1], p.output[1], p.groups)};
  const auto add = [&](const Format& format) {
    if (formats[0].input != format || formats[0].output != format) formats.push_back({format, format});
  };
  add(last);
  if (p.data[1] % SimdBlock() == 0 && p.output[1] % SimdBlock() == 0) add(blocked);
  add(Format::Plain());
  std::vector<memory::desc> weights = {p.AnyWeight(), p.PlainWeight()};
  if (const auto wished = wish ? p.WeightIn(*wish) : std::nullopt) weights.insert(weights.begin(), *wished);
  std::vector<Candidate> candidates;
  for (const auto& [in, out] : formats) {
    const auto x = ToDesc(in, p.dtype, p.data), y = ToDesc(out, p.dtype, p.output);
    for (const memory::desc& weight : weights) candidates.push_back({in, out, *x, *y, weight});
  }
  return candidates;
}

// Nothing but the data's and the output's batch is told apart: (N, C, X...) and (N, O, Y...).
struct Geometry {
  struct Axis : Window {
    int64_t in = 1;
  };
  int64_t in_channels, out_channels, groups;  // of one group
  int64_t batch, taps = 1, in_plane = 1, out_plane = 1;
  std::array<Axis, 3> axes;  // missing ones have extent 1

  Geometry(const ConvolutionAttrs& attrs, const Shape& data, const Shape& output)
      : in_channels(data[1] / attrs.groups), out_channels(output[1] / attrs.groups), groups(attrs.groups),
        batch(data[0]) {
    const std::vector<Window> windows = ConvolutionWindows(attrs, data);
    for (size_t i = 0; i < windows.size(); ++i) {
      axes[3 - windows.size() + i] = {windows[i], data[2 + static_cast<int>(i)]};
      taps *= windows[i].kernel;
      in_plane *= data[2 + static_cast<int>(i)];
      out_plane *= windows[i].output;
    }
  }
};

// What meets in a product of windows: a tap with its plane, and a place in a plane.
struct Spot {
  int64_t plane;  // offset
  std::array<int64_t, 3> at;
};
Spot SpotOf(int64_t index, const std::array<int64_t, 3>& extents, int64_t plane) {
  Spot spot;
  for (int i = 2; i >= 0; index /= extents[i--]) spot.at[i] = index % extents[i];
  spot.plane = index * plane;
  return spot;
}

// The matrix of windows over input 0 or 1: taps (and their planes) by places, or the other way round. Forward, a place
// is an output, which meets the data under its window; backward, it is an element of the data, which meets the outputs
// whose windows have a tap there.
struct Windows {
  Geometry g;
  int input;
  bool backward, places_are_rows;

  template <class T>
  void Load(const Arguments& args, const TilePart& part, Accumulator<T>* tile) const {
    std::array<int64_t, 3> taps, places, extents;
    for (int i = 0; i < 3; ++i) {
      taps[i] = g.axes[i].kernel;
      places[i] = backward ? g.axes[i].in : g.axes[i].output;
      extents[i] = backward ? g.axes[i].output : g.axes[i].in;
    }
    const int64_t plane = backward ? g.out_plane : g.in_plane;
    const int64_t group = plane * (backward ? g.out_channels : g.in_channels);
    const int64_t sample = group * g.groups;  // places of several samples are one after another
    const T* x =
        args.in<T>(input) + part.product % g.groups * group + (places_are_rows ? 0 : part.product / g.groups * sample);
    std::array<Spot, kGemmTile> columns;
    for (int64_t j = 0; j < part.columns; ++j) {
      columns[j] = places_are_rows ? SpotOf(part.column + j, taps, plane) : SpotOf(part.column + j, places, sample);
    }
    for (int64_t i = 0; i < part.rows; ++i) {
      const Spot row = places_are_rows ? SpotOf(part.row + i, places, sample) : SpotOf(part.row + i, taps, plane);
      for (int64_t j = 0; j < part.columns; ++j) {
        const Spot &tap = places_are_rows ? columns[j] : row, &place = places_are_rows ? row : columns[j];
        int64_t offset = 0;
        bool meets = true;
        for (int a = 0; a < 3 && meets; ++a) {
          const Geometry::Axis& axis = g.axes[a];
          int64_t other = place.at[a] * axis.stride + tap.at[a] * axis.dilate - axis.pad_begin;
          if (backward) {
            other = place.at[a] + axis.pad_begin - tap.at[a] * axis.dilate;
            meets = other % axis.stride == 0;
            other /= axis.stride;
          }
          meets = meets && other >= 0 && other < extents[a];
          offset = offset * extents[a] + other;
        }
        tile[i * kGemmTile + j] = meets ? Widened(x[tap.plane + place.plane + offset]) : Accumulator<T>{};
      }
    }
  }
};

MaybeKernel WindowGemm(const KernelSpec& spec, const GemmSpec& gemm, const Windows& windows) {
  return OfGemmTypes(spec.outputs[0].dtype, [&]<class T>() {
    return OwnGemm<T>(spec, gemm, [windows](const Arguments& args, const TilePart& part, Accumulator<T>* tile) {
      windows.Load<T>(args, part, tile);
    });
  });
}

// y[n, g] (O, Y) = w[g] (O, C K) windows of x[n, g] (C K, Y)
MaybeKernel OwnForward(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<ConvolutionAttrs>();
  const Geometry g(attrs, spec.inputs[0].shape, spec.outputs[0].shape);
  const int64_t k = g.in_channels * g.taps;
  const GemmOperand weight = {.input = 1, .row = k, .column = 1};
  return WindowGemm(spec,
                    {.m = g.out_channels,
                     .n = g.out_plane,
                     .k = k,
                     .a = weight,
                     .bias = attrs.no_bias ? -1 : 2,
                     .activation = attrs.activation,
                     .batch = {{g.batch, 0, 0}, {g.groups, g.out_channels * k, 0}},
                     .bias_of_rows = true},
                    {g, 0, false, false});
}

// dx[n, g] (C, X) = w[g]^T (C, O K) windows of dy[n, g] (O K, X)
MaybeKernel OwnGradData(const KernelSpec& spec) {
  const Geometry g(spec.attributes<ConvolutionGradDataAttrs>(), spec.outputs[0].shape, spec.inputs[0].shape);
  const int64_t filter = g.in_channels * g.taps;
  const GemmOperand weight = {.input = 1, .row = g.taps, .column = 1, .split = g.taps, .next_part = filter};
  return WindowGemm(spec,
                    {.m = g.in_channels,
                     .n = g.in_plane,
                     .k = g.out_channels * g.taps,
                     .a = weight,
                     .batch = {{g.batch, 0, 0}, {g.groups, g.out_channels * filter, 0}}},
                    {g, 0, true, false});
}

// dw[g] (O, C K) = dy[., g] (O, N Y) windows of x[., g] (N Y, C K)
MaybeKernel OwnGradWeight(const KernelSpec& spec) {
  const Geometry g(spec.attributes<ConvolutionAttrs>(), spec.inputs[1].shape, spec.inputs[0].shape);
  const int64_t group = g.out_channels * g.out_plane;
  const GemmOperand dy = {
      .input = 0, .row = g.out_plane, .column = 1, .split = g.out_plane, .next_part = group * g.groups};
  return WithBiasGradient(WindowGemm(spec,
                                     {.m = g.out_channels,
                                      .n = g.in_channels * g.taps,
                                      .k = g.batch * g.out_plane,
                                      .a = dy,
                                      .batch = {{g.groups, group, 0}}},
                                     {g, 1, false, true}),
                          spec, 1);
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
template <class T>
Kernel InParts(Kernel kernel, ActivationType activation, int64_t times, int64_t in, int64_t out) {
  kernel.bind = [=, pass = ActivationPass<T>(activation), convolve = kernel.bind](const KernelArgs& args) -> Call {
    std::vector<void*> inputs(args.inputs.begin(), args.inputs.end());
    T* const first = static_cast<T*>(args.outputs[0]);
    std::vector<Call> parts;
    for (int64_t i = 0; i < times; ++i) {
      void* const y = first + i * out;
      parts.push_back(convolve({.inputs = inputs, .outputs = {&y, 1}, .scratch = args.scratch, .step = args.step}));
      inputs[0] = static_cast<T*>(inputs[0]) + in;
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

// (data, weight [, bias]) -> y
MaybeKernel MakeConvolution(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<ConvolutionAttrs>();
  if (MaybeKernel direct = DirectConvolution(spec)) return direct;
  if (!IsOfDnnl(spec)) return OwnForward(spec);
  const Shape &data = spec.inputs[0].shape, &output = spec.outputs[0].shape;
  const int64_t samples = SamplesAtOnce(output, attrs.activation);
  const Problem p(attrs, data.With(0, samples), output.With(0, samples), spec.inputs[1].shape, spec.inputs[0].dtype);
  using Desc = dnnl::convolution_forward::primitive_desc;
  // A format that the weight is stored in already is kept if it is fast, unless it is plain, which nobody chose.
  const std::optional<Format> stored =
      spec.input_is_open[1] || spec.input_formats[1].is_plain() ? std::nullopt : std::optional(spec.input_formats[1]);
  Candidate chosen;
  MaybeKernel kernel = ChooseDnnl<dnnl::convolution_forward>(
      spec, p.flops, Candidates(p, stored),
      [&](const Candidate& c) { return Desc(p.Forward(c.x, c.weight, c.y), UserScratchpad(), Engine(), true); },
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
  if (!kernel || attrs.activation == ActivationType::kNone) return kernel ? kernel : OwnForward(spec);
  if (IsPadded(chosen.output, p.output)) return OwnForward(spec);  // sigmoid(0) is not 0
  const int64_t step_in = StorageElements(chosen.input, p.data), n = StorageElements(chosen.output, p.output);
  const auto in_parts = p.dtype == DType::kBFloat16 ? InParts<bfloat16> : InParts<float>;
  return in_parts(*std::move(kernel), attrs.activation, output[0] / samples, step_in, n);
}

// (dy, weight) -> dx
MaybeKernel MakeConvolutionGradData(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<ConvolutionGradDataAttrs>();
  if (!IsOfDnnl(spec)) return OwnGradData(spec);
  const Problem p(attrs, spec.outputs[0].shape, spec.inputs[0].shape, spec.inputs[1].shape, spec.inputs[0].dtype);
  using Desc = dnnl::convolution_backward_data::primitive_desc;
  MaybeKernel kernel = ChooseDnnl<dnnl::convolution_backward_data>(
      spec, p.flops, Candidates(p, std::nullopt),
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
  return kernel ? kernel : OwnGradData(spec);
}

// oneDNN gathers what single elements with a stride see into scratch memory, channels last; for fewer channels than it
// takes at once it writes beyond that memory (oneDNN issue 6035, open in 3.12).
bool OverrunsScratch(const std::vector<Window>& windows, int64_t channels) {
  return std::ranges::all_of(windows, [](const Window& w) { return w.kernel == 1; }) &&
         std::ranges::any_of(windows, [](const Window& w) { return w.stride > 1; }) && channels % 16 != 0;
}
// In bfloat16 oneDNN 2.6.3 takes what scratch memory holds for what elements of the kernel see that see, along the last
// axis, nothing but padding, whatever the window.
bool ReadsUnwrittenScratch(const Window& last, int64_t extent) {
  for (int64_t element = 0; element < last.kernel; ++element) {
    const int64_t before = std::max<int64_t>(last.pad_begin - element * last.dilate, 0);
    const int64_t window = CeilDiv(before, last.stride);  // the first one that has it behind the padding
    if (window >= last.output || window * last.stride + element * last.dilate - last.pad_begin >= extent) return true;
  }
  return false;
}

// (dy, data) -> dw [, db]
MaybeKernel MakeConvolutionGradWeight(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<ConvolutionAttrs>();
  if (!spec.output_used[0]) return MakeBiasGradient(spec, 1);
  if (MaybeKernel direct = DirectConvolutionGradWeight(spec)) return direct;
  if (!IsOfDnnl(spec)) return OwnGradWeight(spec);
  Problem p(attrs, spec.inputs[1].shape, spec.inputs[0].shape, spec.outputs[0].shape, spec.inputs[0].dtype);
  p.has_bias = spec.outputs.size() > 1 && spec.output_used[1];
  const std::vector<Window> windows = ConvolutionWindows(attrs, p.data);
  if (p.dtype == DType::kBFloat16 && ReadsUnwrittenScratch(windows.back(), p.data[-1])) return OwnGradWeight(spec);
  const Format last = Format::ChannelsLast(p.data.rank());
  using Desc = dnnl::convolution_backward_weights::primitive_desc;
  MaybeKernel kernel = ChooseDnnl<dnnl::convolution_backward_weights>(
      spec, p.flops, Candidates(p, spec.output_wishes[0]),
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
  return kernel ? kernel : OwnGradWeight(spec);
}

constexpr KernelEntry kEntries[] = {
    {"Convolution", MakeConvolution},
    {"ConvolutionGradData", MakeConvolutionGradData},
    {"ConvolutionGradWeight", MakeConvolutionGradWeight},
};

}  // namespace

KernelRows ConvolutionKernels() { return kEntries; }

}  // namespace bindery::cpu
