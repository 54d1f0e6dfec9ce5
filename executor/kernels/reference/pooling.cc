// Pooling over windows of up to 3 spatial axes. The maximum's state holds, per output, where in its plane of data the
// first of the largest elements is (int32).
#include "symbol/ops/pooling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/checked.h"
#include "executor/kernel_table.h"
#include "executor/kernels/reference/util.h"

namespace bindery::reference {
namespace {

// The inputs of one window along one axis: [begin, end) in steps; `padded` counts padding too.
struct Extent {
  int64_t begin, end, step, padded;
  int64_t count() const { return CeilDiv(end - begin, step); }
};

struct Axis {
  int64_t in = 1;
  int64_t padded_end = 1;  // where the padding on the right ends: windows that reach beyond it are cut there
  Window window;
  Extent At(int64_t p) const {
    const int64_t begin = p * window.stride - window.pad_begin, step = window.dilate;
    const int64_t end = begin + window.extent();
    const int64_t first = begin < 0 ? begin + RoundUp(-begin, step) : begin;
    return {first, std::min(end, in), step, CeilDiv(std::min(end, padded_end) - begin, step)};
  }
};

struct Geometry {
  int64_t planes;  // N * C
  Axis d, h, w;    // missing axes have extent 1
  bool count_padding;

  Geometry(const PoolingAttrs& attrs, const Shape& data)
      : planes(data[0] * data[1]), count_padding(attrs.count_include_pad) {
    const std::vector<Window> windows = PoolWindows(attrs, data);
    Axis* const axes[] = {&d, &h, &w};
    for (size_t i = 0; i < windows.size(); ++i) {
      const int64_t in = data[2 + static_cast<int>(i)];
      *axes[3 - windows.size() + i] = {in, in + windows[i].pad_end, windows[i]};
    }
  }
  int64_t in_plane() const { return d.in * h.in * w.in; }
  int64_t out_plane() const { return d.window.output * h.window.output * w.window.output; }
};

// f(output index, its window's extents) for every output of all planes, in order.
template <class F>
void ForEachWindow(const Geometry& g, const F& f) {
  int64_t output = 0;
  for (int64_t plane = 0; plane < g.planes; ++plane) {
    for (int64_t d = 0; d < g.d.window.output; ++d) {
      for (int64_t h = 0; h < g.h.window.output; ++h) {
        for (int64_t w = 0; w < g.w.window.output; ++w) f(output++, plane, g.d.At(d), g.h.At(h), g.w.At(w));
      }
    }
  }
}

// f(index in the plane) for every input of a window, in order.
template <class F>
void ForEachInput(const Geometry& g, const Extent& d, const Extent& h, const Extent& w, const F& f) {
  for (int64_t i = d.begin; i < d.end; i += d.step) {
    for (int64_t j = h.begin; j < h.end; j += h.step) {
      for (int64_t k = w.begin; k < w.end; k += w.step) f((i * g.h.in + j) * g.w.in + k);
    }
  }
}

double Divisor(const Geometry& g, const Extent& d, const Extent& h, const Extent& w) {
  const auto count = [&](const Extent& e) { return static_cast<double>(g.count_padding ? e.padded : e.count()); };
  return count(d) * count(h) * count(w);
}

Kernel MaxPooling(const KernelSpec& spec, const Geometry& g) {
  const int64_t state_bytes = spec.outputs[0].shape.Elements() * static_cast<int64_t>(sizeof(int32_t));
  return InDouble(spec,
                  [=](const Tensors& t) {
                    auto* state = reinterpret_cast<int32_t*>(t.raw_out[1]);
                    ForEachWindow(g, [&](int64_t output, int64_t plane, Extent d, Extent h, Extent w) {
                      const double* x = t.in[0] + plane * g.in_plane();
                      int64_t winner = -1;
                      ForEachInput(g, d, h, w, [&](int64_t i) {
                        if (winner < 0 || x[i] > x[winner] || (std::isnan(x[i]) && !std::isnan(x[winner]))) winner = i;
                      });
                      t.out[0][output] = x[winner];
                      if (state) state[output] = static_cast<int32_t>(winner);
                    });
                  },
                  {Format::Plain(), StateFormat(state_bytes)});
}

Kernel AveragePooling(const KernelSpec& spec, const Geometry& g) {
  return InDouble(spec, [=](const Tensors& t) {
    ForEachWindow(g, [&](int64_t output, int64_t plane, Extent d, Extent h, Extent w) {
      const double* x = t.in[0] + plane * g.in_plane();
      double sum = 0;
      ForEachInput(g, d, h, w, [&](int64_t i) { sum += x[i]; });
      t.out[0][output] = sum / Divisor(g, d, h, w);
    });
  });
}

// x -> y [, state if max]
MaybeKernel MakePooling(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<PoolingAttrs>();
  const Geometry g(attrs, spec.inputs[0].shape);
  if (attrs.type == PoolType::kAvg) return AveragePooling(spec, g);
  if (g.in_plane() > std::numeric_limits<int32_t>::max()) return std::nullopt;
  return MaxPooling(spec, g);
}

// (dy [, state if max]) -> dx
MaybeKernel MakePoolingGrad(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<PoolingGradAttrs>();
  const Geometry g(attrs, spec.outputs[0].shape);
  if (attrs.type == PoolType::kMax) {
    if (!IsReferenceState(spec.input_formats[1])) return std::nullopt;
    return InDouble(spec, [=](const Tensors& t) {
      const auto* state = reinterpret_cast<const int32_t*>(t.raw_in[1]);
      ForEachWindow(g, [&](int64_t output, int64_t plane, Extent, Extent, Extent) {
        t.out[0][plane * g.in_plane() + state[output]] += t.in[0][output];
      });
    });
  }
  return InDouble(spec, [=](const Tensors& t) {
    ForEachWindow(g, [&](int64_t output, int64_t plane, Extent d, Extent h, Extent w) {
      double* dx = t.out[0] + plane * g.in_plane();
      const double share = t.in[0][output] / Divisor(g, d, h, w);
      ForEachInput(g, d, h, w, [&](int64_t i) { dx[i] += share; });
    });
  });
}

constexpr KernelEntry kEntries[] = {
    {"Pooling", MakePooling},
    {"PoolingGrad", MakePoolingGrad},
};

}  // namespace

KernelRows PoolingKernels() { return kEntries; }

}  // namespace bindery::reference
