// Convolution in three forms of one sum. With y (N, O, Y...), x (N, C, X...), w (O, C / groups, K...):
//   y[n, o, p] = sum over c of o's group and k of  w[o, c, k] x[n, c, p stride + k dilate - pad]
// and the gradients sum the same products: dx = sum w dy, dw = sum x dy, db = sum dy.
#include "symbol/ops/convolution.h"

#include <algorithm>

#include "base/checked.h"
#include "executor/kernel_table.h"
#include "executor/kernels/reference/util.h"

namespace bindery::reference {
namespace {

struct Axis : Window {
  int64_t in = 1;
  // The outputs [first, last) at which kernel element k meets an input, and the input that output p meets.
  int64_t First(int64_t k) const {
    return std::clamp<int64_t>(CeilDiv(std::max<int64_t>(pad_begin - k * dilate, 0), stride), 0, output);
  }
  int64_t Last(int64_t k) const {
    const int64_t room = in - 1 + pad_begin - k * dilate;
    return room < 0 ? 0 : std::min(output, room / stride + 1);
  }
  int64_t Input(int64_t p, int64_t k) const { return p * stride + k * dilate - pad_begin; }
};

struct Geometry {
  int64_t batch, in_channels, out_channels, groups;
  Axis d, h, w;  // missing axes have extent 1

  Geometry(const ConvolutionAttrs& attrs, const Shape& x, const Shape& y)
      : batch(x[0]), in_channels(x[1]), out_channels(y[1]), groups(attrs.groups) {
    const std::vector<Window> windows = ConvolutionWindows(attrs, x);
    Axis* const axes[] = {&d, &h, &w};
    for (size_t i = 0; i < windows.size(); ++i) {
      *axes[3 - windows.size() + i] = {windows[i], x[2 + static_cast<int>(i)]};
    }
  }
  int64_t out_plane() const { return d.output * h.output * w.output; }
};

// Calls f(y, x, w, count) for every row of products: y + i meets x + i * g.w.stride through weight w, 0 <= i < count.
template <class F>
void ForEachRow(const Geometry& g, const F& f) {
  const int64_t group_in = g.in_channels / g.groups, group_out = g.out_channels / g.groups;
  for (int64_t n = 0; n < g.batch; ++n) {
    for (int64_t o = 0; o < g.out_channels; ++o) {
      for (int64_t c = 0; c < group_in; ++c) {
        const int64_t y_plane = n * g.out_channels + o;
        const int64_t x_plane = n * g.in_channels + o / group_out * group_in + c;
        for (int64_t kd = 0; kd < g.d.kernel; ++kd) {
          for (int64_t kh = 0; kh < g.h.kernel; ++kh) {
            for (int64_t kw = 0; kw < g.w.kernel; ++kw) {
              const int64_t weight = (((o * group_in + c) * g.d.kernel + kd) * g.h.kernel + kh) * g.w.kernel + kw;
              const int64_t first = g.w.First(kw), count = g.w.Last(kw) - first;
              if (count <= 0) continue;
              for (int64_t d = g.d.First(kd); d < g.d.Last(kd); ++d) {
                for (int64_t h = g.h.First(kh); h < g.h.Last(kh); ++h) {
                  const int64_t y = ((y_plane * g.d.output + d) * g.h.output + h) * g.w.output + first;
                  const int64_t x = ((x_plane * g.d.in + g.d.Input(d, kd)) * g.h.in + g.h.Input(h, kh)) * g.w.in +
                                    g.w.Input(first, kw);
                  f(y, x, weight, count);
                }
              }
            }
          }
        }
      }
    }
  }
}

// (x, w [, b] [, addend]) -> y
template <bool kAdds>
MaybeKernel MakeConvolution(const KernelSpec& spec) {
  const auto attrs = spec.attributes<ConvolutionAttrs>();
  const Geometry g(attrs, spec.inputs[0].shape, spec.outputs[0].shape);
  return InDouble(spec, [=, addend = spec.inputs.size() - 1](const Tensors& t) {
    const double *x = t.in[0], *w = t.in[1];
    double* y = t.out[0];
    const int64_t plane = g.out_plane(), n = g.batch * g.out_channels * plane;
    if (!attrs.no_bias) {
      for (int64_t i = 0; i < n; ++i) y[i] = t.in[2][i / plane % g.out_channels];
    }
    ForEachRow(g, [&](int64_t iy, int64_t ix, int64_t iw, int64_t count) {
      for (int64_t i = 0; i < count; ++i) y[iy + i] += w[iw] * x[ix + i * g.w.stride];
    });
    for (int64_t i = 0; i < n && kAdds; ++i) y[i] += t.in[addend][i];
    for (int64_t i = 0; i < n; ++i) y[i] = Activate(attrs.activation, y[i]);
  });
}

// (dy, w) -> dx
MaybeKernel MakeConvolutionGradData(const KernelSpec& spec) {
  const Geometry g(spec.attributes<ConvolutionGradDataAttrs>(), spec.outputs[0].shape, spec.inputs[0].shape);
  return InDouble(spec, [=](const Tensors& t) {
    const double *dy = t.in[0], *w = t.in[1];
    double* dx = t.out[0];
    ForEachRow(g, [&](int64_t iy, int64_t ix, int64_t iw, int64_t count) {
      for (int64_t i = 0; i < count; ++i) dx[ix + i * g.w.stride] += w[iw] * dy[iy + i];
    });
  });
}

// (dy, x) -> dw [, db]
MaybeKernel MakeConvolutionGradWeight(const KernelSpec& spec) {
  const auto attrs = spec.attributes<ConvolutionAttrs>();
  const Geometry g(attrs, spec.inputs[1].shape, spec.inputs[0].shape);
  return InDouble(spec, [=](const Tensors& t) {
    const double *dy = t.in[0], *x = t.in[1];
    if (t.raw_out[0]) {
      ForEachRow(g, [&](int64_t iy, int64_t ix, int64_t iw, int64_t count) {
        double sum = 0;
        for (int64_t i = 0; i < count; ++i) sum += dy[iy + i] * x[ix + i * g.w.stride];
        t.out[0][iw] += sum;
      });
    }
    if (attrs.no_bias) return;
    const int64_t plane = g.out_plane(), n = g.batch * g.out_channels * plane;
    for (int64_t i = 0; i < n; ++i) t.out[1][i / plane % g.out_channels] += dy[i];
  });
}

constexpr KernelEntry kEntries[] = {
    {"Convolution", MakeConvolution<false>},
    {"ConvolutionAdd", MakeConvolution<true>},
    {"ConvolutionGradData", MakeConvolutionGradData},
    {"ConvolutionGradWeight", MakeConvolutionGradWeight},
};

}  // namespace

KernelRows ConvolutionKernels() { return kEntries; }

}  // namespace bindery::reference
