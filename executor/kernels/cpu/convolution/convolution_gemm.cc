#include "executor/kernels/cpu/convolution/convolution_gemm.h"

#include <array>
#include <type_traits>
#include <utility>
#include <vector>

#include "executor/kernels/cpu/accumulator.h"
#include "executor/kernels/cpu/activation_pass.h"
#include "executor/kernels/cpu/bias_gradient.h"
#include "executor/kernels/cpu/gemm.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/convolution.h"

namespace bindery::cpu {
namespace {

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

// A kernel whose output is what `kernel` gives, plus input `addend`, activated if elements are not integers.
template <class T>
Kernel Added(Kernel kernel, int addend, ActivationType activation, int64_t elements) {
  kernel.input_formats.push_back(Format::Plain());
  kernel.bind = [=, convolve = kernel.bind](const KernelArgs& args) -> Call {
    KernelArgs of = args;
    of.inputs = args.inputs.first(static_cast<size_t>(addend));
    const T* const a = static_cast<const T*>(args.inputs[static_cast<size_t>(addend)]);
    return [=, run = convolve(of), y = static_cast<T*>(args.outputs[0])] {
      run();
      ParallelFor(elements, kGrain, kSerialElements, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          if constexpr (std::is_floating_point_v<T>) {
            y[i] += a[i];
          } else {
            y[i] = Narrowed<T>(Sum(Widened(y[i]), Widened(a[i])));
          }
        }
      });
    };
  };
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, bfloat16>) {
    return ActivationPass<T>(activation).After(std::move(kernel), elements);
  }
  return kernel;
}

}  // namespace

// y[n, g] (O, Y) = w[g] (O, C K) windows of x[n, g] (C K, Y)
MaybeKernel ConvolutionByGemm(const KernelSpec& spec) {
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
MaybeKernel ConvolutionGradDataByGemm(const KernelSpec& spec) {
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
MaybeKernel ConvolutionGradWeightByGemm(const KernelSpec& spec) {
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

MaybeKernel ConvolutionAddByGemm(const KernelSpec& spec) {
  const int addend = static_cast<int>(spec.inputs.size()) - 1;
  KernelSpec linear = spec;
  auto attrs = spec.attributes<ConvolutionAttrs>();
  const ActivationType activation = std::exchange(attrs.activation, ActivationType::kNone);
  linear.attrs = attrs;
  linear.inputs.pop_back();
  linear.input_formats.pop_back();
  linear.input_is_open.pop_back();
  MaybeKernel kernel = ConvolutionByGemm(linear);
  if (!kernel || (activation != ActivationType::kNone && !IsFloat(spec.outputs[0].dtype))) return std::nullopt;
  return Dispatch(spec.outputs[0].dtype, [&]<class T>() -> MaybeKernel {
    return Added<T>(*std::move(kernel), addend, activation, spec.outputs[0].shape.Elements());
  });
}

}  // namespace bindery::cpu
