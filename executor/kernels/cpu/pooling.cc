// Pooling with loops of our own (oneDNN's maximum is slow where it must remember the winners), over the layout in which
// the data come. A maximum's state holds each winner's number in its window, laid out like the output; its name carries
// the layout ("cpu:aBcd8b"), so that the gradient works in the same one.
#include "symbol/ops/pooling.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string>

#include "base/checked.h"
#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/accumulator.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

constexpr const char* kFamily = "cpu:";

// One spatial axis; absent ones have extent 1.
struct Axis {
  int64_t in = 1, padded_end = 1;  // where the padding at the end ends: windows that reach beyond it are cut there
  Window window;

  int64_t Begin(int64_t p) const { return p * window.stride - window.pad_begin; }
  // Taps [first, last) of output p that lie inside the input.
  int64_t First(int64_t p) const { return TapsIn(std::max<int64_t>(-Begin(p), 0)); }
  int64_t Last(int64_t p) const { return std::min(window.kernel, TapsIn(in - Begin(p))); }
  int64_t Counted(int64_t p, bool padding) const {
    return padding ? std::min(window.kernel, TapsIn(padded_end - Begin(p))) : Last(p) - First(p);
  }
  // Does no element lie in two windows? Does each lie in one at least?
  bool AreDisjoint() const { return window.output == 1 || window.extent() <= window.stride; }
  bool Cover() const {
    return window.extent() == window.kernel && window.stride <= window.kernel && Begin(0) <= 0 &&
           Begin(window.output - 1) + window.kernel >= in;
  }
  bool IsWhole(int64_t p) const { return Begin(p) >= 0 && Begin(p) + window.extent() <= in; }
  // Of a window, within `distance` from its begin.
  int64_t TapsIn(int64_t distance) const {
    return window.dilate == 1 ? distance : CeilDiv(distance, window.dilate);  // divisions are slow
  }
};

// A thread's list of the taps of a window, numbered in order, and which part of the window it lists: in most places all
// of it, so that the list is rarely made anew.
struct TapList {
  Loops::PoolRow row;
  int64_t* offsets;
  int32_t* numbers;
  std::array<int64_t, 6> part = {-1};  // first and last tap along d, h, w
};

// Planes of (d, h, w, lanes): plain data are planes of one lane.
struct Geometry {
  int64_t planes, lanes;
  std::array<Axis, 3> axes;  // d, h, w
  bool is_max, count_padding;

  Geometry(const PoolingAttrs& attrs, const Shape& data, const Format& format)
      : is_max(attrs.type == PoolType::kMax), count_padding(attrs.count_include_pad) {
    ChannelView view;
    ViewChannels(format, data, 1, &view);
    lanes = format.is_plain() ? 1 : view.lanes;
    planes = data[0] * data[1] / lanes;
    const std::vector<Window> windows = PoolWindows(attrs, data);
    for (size_t i = 0; i < windows.size(); ++i) {
      const int64_t in = data[2 + static_cast<int>(i)];
      axes[3 - windows.size() + i] = {in, in + windows[i].pad_end, windows[i]};
      taps_ = CheckedMul(taps_, std::min(windows[i].kernel, in), "the window");
    }
  }
  int64_t taps() const { return taps_; }  // the most that one window has inside the input
  int64_t in_plane() const { return axes[0].in * axes[1].in * axes[2].in * lanes; }
  int64_t out_row() const { return axes[2].window.output * lanes; }
  int64_t out_rows() const { return axes[0].window.output * axes[1].window.output; }
  bool disjoint() const { return std::ranges::all_of(axes, &Axis::AreDisjoint); }
  bool cover() const { return std::ranges::all_of(axes, &Axis::Cover); }
  bool narrow_index() const { return taps() <= 256; }
  int64_t state_bytes() const {
    return is_max ? planes * out_rows() * out_row() *
                        static_cast<int64_t>(narrow_index() ? sizeof(uint8_t) : sizeof(int32_t))
                  : 0;
  }

  // Is the work too little to be shared out?
  bool is_small() const {
    return static_cast<double>(planes * out_rows() * out_row()) * static_cast<double>(taps()) <= kSerialElements;
  }

  int64_t scratch_bytes(int threads) const {
    return CheckedMul(taps(), threads * static_cast<int64_t>(sizeof(int64_t) + sizeof(int32_t)), "scratch bytes");
  }
  TapList TapsFor(void* scratch, int threads, int thread) const {
    auto* all_offsets = static_cast<int64_t*>(scratch);
    int64_t* offsets = all_offsets + thread * taps();
    int32_t* numbers = reinterpret_cast<int32_t*>(all_offsets + threads * taps()) + thread * taps();
    return {{0, lanes, axes[2].window.stride * lanes, 0, offsets, numbers, disjoint()}, offsets, numbers};
  }

  // Calls f(row, offset in the input plane, offset in the output row, divisor) for runs of outputs of row `r` of a
  // plane that have the same taps.
  template <class F>
  void ForRuns(int64_t r, TapList* list, const F& f) const {
    const auto& [d, h, w] = axes;
    const int64_t od = r / h.window.output, oh = r % h.window.output;
    int64_t begin = 0;
    while (begin < w.window.output) {
      int64_t end = begin + 1;
      if (w.IsWhole(begin)) {
        while (end < w.window.output && w.IsWhole(end)) ++end;
      }
      ListTaps({d.First(od), d.Last(od), h.First(oh), h.Last(oh), w.First(begin), w.Last(begin)}, list);
      list->row.outputs = end - begin;
      const int64_t origin = ((d.Begin(od) * h.in + h.Begin(oh)) * w.in + w.Begin(begin)) * lanes;
      const auto counted = [&](const Axis& axis, int64_t p) {
        return static_cast<double>(axis.Counted(p, count_padding));
      };
      const double divisor = counted(d, od) * counted(h, oh) * counted(w, begin);  // may exceed an int64
      f(list->row, origin, begin * lanes, divisor);
      begin = end;
    }
  }

 private:
  void ListTaps(const std::array<int64_t, 6>& part, TapList* list) const {
    if (part == list->part) return;
    list->part = part;
    int64_t count = 0;
    const auto& [d, h, w] = axes;
    for (int64_t i = part[0]; i < part[1]; ++i) {
      for (int64_t j = part[2]; j < part[3]; ++j) {
        for (int64_t k = part[4]; k < part[5]; ++k) {
          list->offsets[count] =
              ((i * d.window.dilate * h.in + j * h.window.dilate) * w.in + k * w.window.dilate) * lanes;
          list->numbers[count] = static_cast<int32_t>(count);
          ++count;
        }
      }
    }
    list->row.count = count;
  }

  int64_t taps_ = 1;
};

bool IsKnown(const Format& format, const Shape& shape) {
  ChannelView view;
  return ViewChannels(format, shape, 1, &view);
}

// The input's own layout; plain data of many channels are worth a reorder.
Format FormatFor(const KernelSpec& spec) {
  const Format& format = spec.input_formats[0];
  const Shape& shape = spec.inputs[0].shape;
  if (!format.is_plain() && IsKnown(format, shape)) return format;
  if (shape[1] % SimdBlock() == 0) return ChannelBlocked(shape.rank(), SimdBlock());
  return shape[1] > SimdBlock() ? Format::ChannelsLast(shape.rank()) : Format::Plain();
}

std::optional<Format> FormatOfState(const Format& state, int rank) {
  if (state.kind != Format::Kind::kOpaque || std::strncmp(state.family.data(), kFamily, std::strlen(kFamily)) != 0)
    return std::nullopt;
  const std::string name = state.family.data() + std::strlen(kFamily);
  for (const Format& format :
       {Format::Plain(), Format::ChannelsLast(rank), ChannelBlocked(rank, 8), ChannelBlocked(rank, 16)}) {
    if (ToString(format) == name) return format;
  }
  return std::nullopt;
}

// The loops of simd/loops.h for integers, too. NaN wins, of equal maxima the first.
template <class F>
void ForOutputs(const Loops::PoolRow& row, const F& f) {
  for (int64_t output = 0; output < row.outputs; ++output) {
    for (int64_t l = 0; l < row.lanes; ++l) f(output * row.step + l, output * row.lanes + l);
  }
}

template <class T, class Index>
void MaxPool(const Loops::PoolRow& row, const T* x, T* y, Index* index) {
  if constexpr (std::is_floating_point_v<T>) {
    if constexpr (sizeof(Index) == 1) return BestLoops<T>().max_pool(row, x, y, index);
    if constexpr (sizeof(Index) == 4) return BestLoops<T>().max_pool_wide(row, x, y, index);
  } else {
    ForOutputs(row, [&](int64_t from, int64_t to) {
      int64_t best = 0;
      for (int64_t t = 1; t < row.count; ++t) {
        if (x[from + row.offsets[t]] > x[from + row.offsets[best]]) best = t;
      }
      y[to] = x[from + row.offsets[best]];
      if (index) index[to] = static_cast<Index>(row.taps[best]);
    });
  }
}

template <class T>
void AveragePool(const Loops::PoolRow& row, const T* x, T* y, double divisor) {
  if constexpr (std::is_floating_point_v<T>) {
    BestLoops<T>().average_pool(row, x, y, 1 / static_cast<T>(divisor));
  } else {
    ForOutputs(row, [&](int64_t from, int64_t to) {
      Accumulator<T> sum = 0;
      for (int64_t t = 0; t < row.count; ++t) sum = Sum(sum, Widened(x[from + row.offsets[t]]));
      y[to] = Narrowed<T>(sum, static_cast<int64_t>(std::min(divisor, 0x1p62)));
    });
  }
}

// data -> y [, state if max]
template <class T>
MaybeKernel PoolingOf(const KernelSpec& spec) {
  const Format format = FormatFor(spec);
  const Geometry g(spec.attributes<PoolingAttrs>(), spec.inputs[0].shape, format);
  if (g.taps() > std::numeric_limits<int32_t>::max()) return std::nullopt;
  Kernel kernel = PlainKernel(spec, "loop");
  kernel.input_formats[0] = Canonical(format, spec.inputs[0].shape);
  kernel.output_formats[0] = Canonical(format, spec.outputs[0].shape);
  if (g.is_max) kernel.output_formats[1] = Format::Opaque(g.state_bytes(), (kFamily + ToString(format)).c_str());
  kernel.scratch_bytes = g.scratch_bytes(spec.threads);
  return WithLoop(std::move(kernel), [g, threads = spec.threads](const Arguments& args) {
    const int64_t rows = g.planes * g.out_rows();
    uint8_t* narrow = g.is_max && g.narrow_index() ? args.out<uint8_t>(1) : nullptr;
    int32_t* wide = g.is_max && !g.narrow_index() ? args.out<int32_t>(1) : nullptr;
    ParallelFor(rows, 1, g.is_small() ? rows : 0, [&](int64_t begin, int64_t end, int thread) {
      TapList list = g.TapsFor(args.scratch, threads, thread);
      for (int64_t r = begin; r < end; ++r) {
        const T* plane = args.in<T>(0) + r / g.out_rows() * g.in_plane();
        g.ForRuns(r % g.out_rows(), &list,
                  [&](const Loops::PoolRow& run, int64_t origin, int64_t column, double divisor) {
                    const int64_t at = r * g.out_row() + column;
                    const T* from = plane + origin;
                    T* to = args.out<T>(0) + at;
                    if (!g.is_max) return AveragePool(run, from, to, divisor);
                    if (g.narrow_index()) return MaxPool(run, from, to, narrow ? narrow + at : nullptr);
                    MaxPool(run, from, to, wide ? wide + at : nullptr);
                  });
      }
    });
  });
}

MaybeKernel MakePooling(const KernelSpec& spec) {
  return Dispatch(spec.inputs[0].dtype, [&]<class T>() -> MaybeKernel {
    if constexpr (std::is_arithmetic_v<T>) return PoolingOf<T>(spec);
    return std::nullopt;
  });
}

// (dy [, state if max]) -> dx. A plane is one thread's: windows may overlap.
template <class T>
MaybeKernel MakePoolingGrad(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<PoolingGradAttrs>();
  const Shape& shape = spec.outputs[0].shape;
  Format format = FormatFor(spec);
  if (attrs.type == PoolType::kMax) {
    const auto of_state = FormatOfState(spec.input_formats[1], shape.rank());
    if (!of_state) return std::nullopt;
    format = *of_state;
  }
  const Geometry g(attrs, shape, format);
  if (g.taps() > std::numeric_limits<int32_t>::max()) return std::nullopt;
  Kernel kernel = PlainKernel(spec, "loop");
  kernel.input_formats[0] = Canonical(format, spec.inputs[0].shape);
  kernel.output_formats[0] = Canonical(format, shape);
  if (g.is_max) kernel.input_formats[1] = spec.input_formats[1];
  kernel.scratch_bytes = g.scratch_bytes(spec.threads);
  return WithLoop(std::move(kernel), [g, threads = spec.threads](const Arguments& args) {
    const LoopsOf<T>& loops = BestLoops<T>();
    const bool written = g.disjoint() && g.cover();  // each element once
    ParallelFor(g.planes, 1, g.is_small() ? g.planes : 0, [&](int64_t begin, int64_t end, int thread) {
      TapList list = g.TapsFor(args.scratch, threads, thread);
      for (int64_t p = begin; p < end; ++p) {
        T* plane = args.out<T>(0) + p * g.in_plane();
        if (!written) std::fill_n(plane, g.in_plane(), T{0});
        for (int64_t r = 0; r < g.out_rows(); ++r) {
          g.ForRuns(r, &list, [&](const Loops::PoolRow& run, int64_t origin, int64_t column, double divisor) {
            const int64_t at = (p * g.out_rows() + r) * g.out_row() + column;
            const T* dy = args.in<T>(0) + at;
            if (!g.is_max) {
              loops.average_pool_grad(run, dy, plane + origin, 1 / static_cast<T>(divisor));
            } else if (g.narrow_index()) {
              loops.max_pool_grad(run, dy, args.in<uint8_t>(1) + at, plane + origin);
            } else {
              loops.max_pool_grad_wide(run, dy, args.in<int32_t>(1) + at, plane + origin);
            }
          });
        }
      }
    });
  });
}

constexpr KernelEntry kEntries[] = {
    {"Pooling", MakePooling},
    {"PoolingGrad", OfReals<MakePoolingGrad<float>, MakePoolingGrad<double>>},
};

}  // namespace

KernelRows PoolingKernels() { return kEntries; }

}  // namespace bindery::cpu
