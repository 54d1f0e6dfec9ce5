// Layers of integers: y = f(scale[o] sum (x - zero) w + bias[o]), and perhaps the integer that stands for it.
#include "symbol/ops/quantized.h"

#include <array>
#include <cmath>

#include "executor/kernel_table.h"
#include "executor/kernels/reference/util.h"

namespace bindery::reference {
namespace {

// Of output o's sum; by float32's quotient, as QuantizeLinear.
template <class Attrs>
double Finish(const Tensors& t, const Attrs& attrs, const QuantizedInputs& at, bool one_scale, int64_t o, double sum) {
  double y = sum * t.in[QuantizedInputs::kScale][one_scale ? 0 : o];
  if (at.bias >= 0) y += t.in[static_cast<size_t>(at.bias)][o];
  y = Activate(attrs.activation, y);
  if (at.output_scale < 0) return y;
  const auto quotient = static_cast<float>(y / t.in[static_cast<size_t>(at.output_scale)][0]);
  const double q = static_cast<double>(std::nearbyint(quotient)) + t.in[static_cast<size_t>(at.output_zero)][0];
  return std::isnan(q) ? 0 : q;
}

MaybeKernel MakeConvolution(const KernelSpec& spec) {
  const auto attrs = spec.attributes<QuantizedConvolutionAttrs>();
  const Shape data = spec.inputs[0].shape, weight = spec.inputs[1].shape, output = spec.outputs[0].shape;
  const std::vector<Window> windows = ConvolutionWindows(attrs, data);
  const bool one_scale = spec.inputs[QuantizedInputs::kScale].shape.Elements() == 1;
  return InDouble(spec, [=, at = QuantizedInputs(attrs)](const Tensors& t) {
    const int64_t out_plane = output.CountFrom(2), in_plane = data.CountFrom(2), taps = weight.CountFrom(2);
    const int64_t per_group = output[1] / attrs.groups;
    for (int64_t i = 0; i < output.Elements(); ++i) {
      const int64_t place = i % out_plane, o = i / out_plane % output[1], n = i / out_plane / output[1];
      double sum = 0;
      for (int64_t c = 0; c < weight[1]; ++c) {
        const double* x = t.in[0] + (n * data[1] + o / per_group * weight[1] + c) * in_plane;
        for (int64_t tap = 0; tap < taps; ++tap) {
          int64_t p = place, k = tap, offset = 0, step = 1;
          bool inside = true;
          for (size_t a = windows.size(); a-- > 0;) {
            const Window& w = windows[a];
            const int64_t extent = data[static_cast<int>(a) + 2];
            const int64_t where = p % w.output * w.stride + k % w.kernel * w.dilate - w.pad_begin;
            inside = inside && where >= 0 && where < extent;
            offset += where * step;
            step *= extent;
            p /= w.output;
            k /= w.kernel;
          }
          if (inside) sum += (x[offset] - t.in[QuantizedInputs::kZero][0]) * t.in[1][(o * weight[1] + c) * taps + tap];
        }
      }
      t.out[0][i] = Finish(t, attrs, at, one_scale, o, sum);
    }
  });
}

MaybeKernel MakeFullyConnected(const KernelSpec& spec) {
  const auto attrs = spec.attributes<QuantizedFullyConnectedAttrs>();
  const int64_t outputs = attrs.num_hidden, products = spec.inputs[1].shape[1];
  const int64_t rows = spec.outputs[0].shape.Elements() / outputs;
  const bool one_scale = spec.inputs[QuantizedInputs::kScale].shape.Elements() == 1;
  return InDouble(spec, [=, at = QuantizedInputs(attrs)](const Tensors& t) {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t o = 0; o < outputs; ++o) {
        double sum = 0;
        for (int64_t k = 0; k < products; ++k) {
          sum += (t.in[0][row * products + k] - t.in[QuantizedInputs::kZero][0]) * t.in[1][o * products + k];
        }
        t.out[0][row * outputs + o] = Finish(t, attrs, at, one_scale, o, sum);
      }
    }
  });
}

constexpr KernelEntry kEntries[] = {
    {"QuantizedConvolution", MakeConvolution},
    {"QuantizedFullyConnected", MakeFullyConnected},
};

}  // namespace

KernelRows QuantizedKernels() { return kEntries; }

}  // namespace bindery::reference
