// Layers of integers of 8 bits. Groups and three spatial axes have a plain loop.
#include "symbol/ops/quantized.h"

#include <algorithm>
#include <array>
#include <vector>

#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/integer_layer.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

// Not for the floats that others' 16 bits go through.
bool IsOfBytes(const KernelSpec& spec) {
  const DType dtype = spec.inputs[0].dtype;
  return (dtype == DType::kUInt8 || dtype == DType::kInt8) && spec.inputs[1].dtype == DType::kInt8;
}

template <class Attrs>
IntegerProblem ProblemOf(const KernelSpec& spec, const Attrs& attrs, int64_t samples, int64_t channels,
                         int64_t outputs) {
  return {.samples = samples,
          .channels = channels,
          .outputs = outputs,
          .rows = {},
          .columns = {},
          .at = QuantizedInputs(attrs),
          .relu = attrs.activation == ActivationType::kRelu,
          .one_scale = spec.inputs[QuantizedInputs::kScale].shape.Elements() == 1,
          .data = spec.inputs[0].dtype,
          .output = spec.outputs[0].dtype};
}

// From the outermost on.
std::vector<IntegerAxis> AxesOf(const ConvolutionAttrs& attrs, const Shape& data) {
  std::vector<IntegerAxis> axes;
  for (const Window& w : ConvolutionWindows(attrs, data)) {
    axes.push_back({.in = data[static_cast<int>(axes.size()) + 2],
                    .out = w.output,
                    .kernel = w.kernel,
                    .stride = w.stride,
                    .dilate = w.dilate,
                    .pad_begin = w.pad_begin});
  }
  return axes;
}

// What panels are not for, groups and three spatial axes: plain values, an output's places one after another.
struct Volumes {
  int64_t samples, channels, groups, per_group;  // channels and outputs of a group
  std::array<IntegerAxis, 3> axes;               // missing ones have extent 1
  QuantizedInputs at;
  bool relu, one_scale;

  int64_t in_plane() const { return axes[0].in * axes[1].in * axes[2].in; }
  int64_t out_plane() const { return axes[0].out * axes[1].out * axes[2].out; }
  int64_t filter() const { return channels * axes[0].kernel * axes[1].kernel * axes[2].kernel; }

  // Of the window at a place, over the channels from x on.
  template <class T>
  int32_t SumAt(const T* x, const int8_t* w, int zero, int64_t place) const {
    std::array<int64_t, 3> begin;
    for (size_t i = 3; i-- > 0; place /= axes[i].out) {
      begin[i] = place % axes[i].out * axes[i].stride - axes[i].pad_begin;
    }
    int32_t sum = 0;
    for (int64_t c = 0; c < channels; ++c, x += in_plane()) {
      for (int64_t i = 0; i < axes[0].kernel; ++i) {
        for (int64_t j = 0; j < axes[1].kernel; ++j) {
          for (int64_t k = 0; k < axes[2].kernel; ++k, ++w) {
            const int64_t d = begin[0] + i * axes[0].dilate, h = begin[1] + j * axes[1].dilate,
                          v = begin[2] + k * axes[2].dilate;
            const bool inside = d >= 0 && d < axes[0].in && h >= 0 && h < axes[1].in && v >= 0 && v < axes[2].in;
            if (inside) sum += (x[(d * axes[1].in + h) * axes[2].in + v] - zero) * *w;
          }
        }
      }
    }
    return sum;
  }

  template <class T>
  void Run(const Arguments& args, DType output) const {
    const int64_t plane = out_plane(), all = groups * per_group;
    const IntegerScale to = IntegerScaleOf(args, at, output);
    const int zero = args.in<T>(QuantizedInputs::kZero)[0];
    ParallelFor(samples * all, 1, 0, [&](int64_t first, int64_t last, int) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t n = i / all, o = i % all, group = o / per_group;
        const T* x = args.in<T>(QuantizedInputs::kData) + (n * groups + group) * channels * in_plane();
        const int8_t* w = args.in<int8_t>(QuantizedInputs::kWeight) + o * filter();
        std::array<float, kPanel> scale, bias;
        scale.fill(args.in(QuantizedInputs::kScale)[one_scale ? 0 : o]);
        bias.fill(at.bias >= 0 ? args.in(at.bias)[o] : 0);
        for (int64_t place = 0; place < plane; place += kPanel) {
          std::array<int32_t, kPanel> sums{};
          const int64_t count = std::min(kPanel, plane - place);
          for (int64_t k = 0; k < count; ++k) sums[static_cast<size_t>(k)] = SumAt(x, w, zero, place + k);
          StoreSums(args, BestIntegers(),
                    {.scale = scale.data(), .bias = bias.data(), .relu = relu, .outputs = count, .step = 0, .to = to},
                    output, sums.data(), 1, i * plane + place);
        }
      }
    });
  }
};

MaybeKernel MakePlain(const KernelSpec& spec, const QuantizedConvolutionAttrs& attrs) {
  const Shape &data = spec.inputs[0].shape, &output = spec.outputs[0].shape;
  Volumes v{.samples = data[0],
            .channels = data[1] / attrs.groups,
            .groups = attrs.groups,
            .per_group = output[1] / attrs.groups,
            .axes = {},
            .at = QuantizedInputs(attrs),
            .relu = attrs.activation == ActivationType::kRelu,
            .one_scale = spec.inputs[QuantizedInputs::kScale].shape.Elements() == 1};
  const std::vector<IntegerAxis> axes = AxesOf(attrs, data);
  std::ranges::copy(axes, v.axes.end() - std::ssize(axes));
  return WithLoop(PlainKernel(spec, "loop"),
                  [v, of = spec.inputs[0].dtype, to = spec.outputs[0].dtype](const Arguments& args) {
                    of == DType::kUInt8 ? v.Run<uint8_t>(args, to) : v.Run<int8_t>(args, to);
                  });
}

MaybeKernel MakeConvolution(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<QuantizedConvolutionAttrs>();
  const Shape &data = spec.inputs[0].shape, &output = spec.outputs[0].shape;
  if (!IsOfBytes(spec) || spec.inputs[1].shape.CountFrom(1) > kMostProducts) return std::nullopt;
  const std::vector<IntegerAxis> axes = AxesOf(attrs, data);
  if (attrs.groups != 1 || axes.size() > 2) return MakePlain(spec, attrs);
  IntegerProblem p = ProblemOf(spec, attrs, data[0], data[1], output[1]);
  p.columns = axes.back();
  if (axes.size() == 2) p.rows = axes.front();
  return MakeIntegerLayer(spec, p, Format::ChannelsLast(data.rank()), Format::ChannelsLast(output.rank()));
}

MaybeKernel MakeFullyConnected(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<QuantizedFullyConnectedAttrs>();
  const Shape& weight = spec.inputs[1].shape;
  if (!IsOfBytes(spec) || weight[1] > kMostProducts) return std::nullopt;
  return MakeIntegerLayer(spec,
                          ProblemOf(spec, attrs, spec.outputs[0].shape.Elements() / weight[0], weight[1], weight[0]),
                          Format::Plain(), Format::Plain());
}

constexpr KernelEntry kEntries[] = {
    {"QuantizedConvolution", MakeConvolution},
    {"QuantizedFullyConnected", MakeFullyConnected},
};

}  // namespace

KernelRows QuantizedKernels() { return kEntries; }

}  // namespace bindery::cpu
