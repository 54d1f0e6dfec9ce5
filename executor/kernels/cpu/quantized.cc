// Layers of integers of 8 bits: exact sums in 32 bits (simd/integers.h), rescaled once.
//
// Channels last. A few rows of a sample's data at a time, less their zero point, widened to 16 bits, and with the
// padding around them, lie in scratch memory, from where every window reads its taps; so padding is 0, whatever the
// zero point is. Weights are in panels of kPanel outputs, bytes as they were: (outputs / 16, spatial..., channels / 2,
// 16, 2); of images of one channel neighbours along the last axis are the pairs. A full connection is a convolution
// whose samples are single places. Groups and three spatial axes have a plain loop.
#include "symbol/ops/quantized.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/dnnl_util.h"
#include "executor/kernels/cpu/layout.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

constexpr int64_t kCachedElements = 64 * 1024;  // of data that are widened at once: 128 KiB
constexpr int64_t kPerThread = 4;               // pieces of work

// Of one axis.
struct Axis {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, dilate = 1, pad_begin = 0;
  int64_t Reach() const { return (kernel - 1) * dilate + 1; }
  int64_t Needed(int64_t outputs) const { return (outputs - 1) * stride + Reach(); }  // elements, padding included
};

struct Problem {
  int64_t samples, channels, outputs;
  Axis rows, columns;
  QuantizedInputs at;
  bool relu, one_scale;
  DType data, output;

  // Are pairs along the columns? Else of channels.
  bool is_single() const { return channels == 1 && columns.dilate == 1 && columns.kernel > 1; }
  int64_t step() const { return is_single() ? 1 : RoundUp(channels, 2); }  // from column to column, widened
  int64_t panels() const { return CeilDiv(outputs, kPanel); }
  int64_t width() const { return columns.Needed(columns.out) * step(); }  // of a widened row
  // Padding and dilation can say more than memory has; their product, than 64 bits count.
  bool CanBeWidened() const {
    return static_cast<double>(rows.Needed(rows.out)) * static_cast<double>(columns.Needed(columns.out)) *
               static_cast<double>(step()) <
           1e12;
  }
  double flops() const {
    return 2.0 * static_cast<double>(samples * rows.out * columns.out) * static_cast<double>(outputs) *
           static_cast<double>(rows.kernel * columns.kernel * channels);
  }
};

// (O / 16, spatial..., I / 2, 16 o, 2 i), or with the last axis in place of I.
Format Panels(int rank, bool is_single) {
  Format format = Format::ChannelsLast(rank);
  format.kind = Format::Kind::kStrided;
  format.rank = static_cast<int8_t>(rank);
  if (rank == 2) format.order = {0, 1};
  format.num_blocks = 2;
  format.block_axis = {0, static_cast<int8_t>(is_single ? rank - 1 : 1)};
  format.block_size = {kPanel, 2};
  return format;
}

// What integers of the output stand for; of floats nothing.
IntegerScale ScaleOf(const Arguments& args, const QuantizedInputs& at, DType output) {
  if (output == DType::kFloat32) return {};
  const float scale = args.in(at.output_scale)[0];
  if (output == DType::kInt8) return {scale, static_cast<float>(args.in<int8_t>(at.output_zero)[0]), -128, 127};
  return {scale, static_cast<float>(args.in<uint8_t>(at.output_zero)[0]), 0, 255};
}

// Rows of sums as elements of the output from `to` on.
inline void Store(const Arguments& args, const IntegerLoops& loops, const IntegerResults& results, DType output,
                  const int32_t* sums, int64_t rows, int64_t to) {
  output == DType::kFloat32 ? loops.floats(sums, results, rows, args.out(0) + to)
                            : loops.bytes(sums, results, rows, args.out<uint8_t>(0) + to);
}

class Layer {
 public:
  Layer(const Problem& p, int threads) : p_(p), threads_(threads) {
    const bool single = p.rows.out * p.columns.out == 1;  // places of several samples are computed together
    const int64_t sample = p.rows.Needed(p.rows.out) * p.width();
    samples_ = single ? std::clamp<int64_t>(kCachedElements / sample, 1, p.samples) : 1;
    rows_ = p.rows.out;
    while (rows_ > 1 && p.rows.Needed(rows_) * p.width() > kCachedElements) rows_ = CeilDiv(rows_, 2);
    const int64_t wanted = threads == 1 ? 1 : threads * kPerThread;
    while (rows_ > 1 && p.samples * CeilDiv(p.rows.out, rows_) * p.panels() < wanted) rows_ = CeilDiv(rows_, 2);
    if (single) samples_ = std::min(samples_, std::max<int64_t>(CeilDiv(p.samples, wanted), most_rows()));
    const int64_t strips = CeilDiv(p.samples, samples_) * CeilDiv(p.rows.out, rows_);
    panel_parts_ = strips >= wanted ? 1 : std::min(p.panels(), CeilDiv(wanted, strips));
    // Neighbouring taps of a row are one run.
    const bool joined = p.columns.dilate == 1;
    pairs_ = CeilDiv((joined ? p.columns.kernel : 1) * p.step(), 2);
    for (int64_t i = 0; i < p.rows.kernel; ++i) {
      for (int64_t j = 0; j < (joined ? 1 : p.columns.kernel); ++j) {
        offsets_.push_back(static_cast<int32_t>(i * p.rows.dilate * p.width() + j * p.columns.dilate * p.step()));
      }
    }
  }

  // Elements; a last run of an odd number of taps reads another one.
  int64_t strip() const { return RoundUp(samples_ * p_.rows.Needed(rows_) * p_.width() + 1, 32); }
  int64_t scratch_bytes() const {
    return CheckedMul(CheckedMul(strip(), threads_, "scratch elements"), 2, "scratch bytes");
  }
  bool Fits() const { return strip() <= std::numeric_limits<int32_t>::max(); }

  void operator()(const Arguments& args) const {
    const int64_t strips_of_sample = CeilDiv(p_.rows.out, rows_);
    const int64_t items = CeilDiv(p_.samples, samples_) * strips_of_sample * panel_parts_;
    ParallelFor(items, 1, threads_ == 1 ? items : 0, [&](int64_t begin, int64_t end, int thread) {
      int16_t* const strip_of_thread = static_cast<int16_t*>(args.scratch) + thread * strip();
      int64_t there = -1;
      for (int64_t item = begin; item < end; ++item) {
        const int64_t strip = item / panel_parts_, part = item % panel_parts_;
        const int64_t sample = strip / strips_of_sample * samples_, row = strip % strips_of_sample * rows_;
        if (std::exchange(there, strip) != strip) Load(args, sample, row, strip_of_thread);
        Compute(args, sample, row, strip_of_thread, part * p_.panels() / panel_parts_,
                (part + 1) * p_.panels() / panel_parts_);
      }
    });
  }

 private:
  static int64_t most_rows() { return BestIntegers().most_rows; }

  // What windows of some samples' output rows, from `row` on, see.
  void Load(const Arguments& args, int64_t sample, int64_t row, int16_t* to) const {
    const int64_t height = p_.rows.Needed(rows_), last = std::min(sample + samples_, p_.samples);
    for (int64_t n = sample; n < last; ++n) {
      for (int64_t i = 0; i < height; ++i, to += p_.width()) {
        const int64_t from = row * p_.rows.stride - p_.rows.pad_begin + i;
        if (from < 0 || from >= p_.rows.in) {
          std::fill_n(to, p_.width(), int16_t{0});
        } else if (p_.data == DType::kUInt8) {
          LoadRow<uint8_t>(args, n * p_.rows.in + from, BestIntegers().widen_unsigned, to);
        } else {
          LoadRow<int8_t>(args, n * p_.rows.in + from, BestIntegers().widen_signed, to);
        }
      }
    }
    *to = 0;
  }
  template <class T>
  void LoadRow(const Arguments& args, int64_t row, void (*widen)(const T*, int16_t*, int64_t, int), int16_t* to) const {
    const T* x = args.in<T>(QuantizedInputs::kData) + row * p_.columns.in * p_.channels;
    const int zero = args.in<T>(QuantizedInputs::kZero)[0];
    const int64_t step = p_.step(), all = p_.width() / step, before = std::min(p_.columns.pad_begin, all);
    const int64_t n = std::min(p_.columns.in, all - before);
    std::fill_n(to, before * step, int16_t{0});
    int16_t* y = to + before * step;
    if (step == p_.channels) {
      widen(x, y, n * step, zero);
    } else {
      for (int64_t i = 0; i < n; ++i, y += step, x += p_.channels) {
        for (int64_t c = 0; c < p_.channels; ++c) y[c] = static_cast<int16_t>(x[c] - zero);
        y[p_.channels] = 0;
      }
    }
    std::fill(to + (before + n) * step, to + p_.width(), int16_t{0});
  }

  // A panel after another, the places of the strip with each.
  void Compute(const Arguments& args, int64_t sample, int64_t row, const int16_t* strip, int64_t first_panel,
               int64_t last_panel) const {
    const IntegerLoops& loops = BestIntegers();
    const int64_t columns = p_.columns.out, rows = std::min(rows_, p_.rows.out - row);
    const int64_t places = std::min(samples_, p_.samples - sample) * rows * columns;
    const int64_t first_place = (sample * p_.rows.out + row) * columns;
    const int64_t panel_bytes = static_cast<int64_t>(offsets_.size()) * pairs_ * 2 * kPanel;
    std::array<int32_t, IntegerLoops::kMostRows * kPanel> sums{};  // of outputs that are not there, 0
    std::array<const int16_t*, IntegerLoops::kMostRows> begins;
    for (int64_t panel = first_panel; panel < last_panel; ++panel) {
      const int64_t n = std::min(kPanel, p_.outputs - panel * kPanel);
      std::array<float, kPanel> scale{}, bias{};
      const IntegerResults results = ResultsOf(args, panel * kPanel, n, scale.data(), bias.data());
      const IntegerLoops::ProductsOf& multiply = n <= kPanel / 2 ? loops.half_products : loops.products;
      const IntegerProducts products{.rows = begins.data(),
                                     .offsets = offsets_.data(),
                                     .runs = static_cast<int64_t>(offsets_.size()),
                                     .pairs = pairs_,
                                     .weights = args.in<int8_t>(QuantizedInputs::kWeight) + panel * panel_bytes,
                                     .sums = sums.data()};
      Place place{strip};
      for (int64_t done = 0; done < places;) {
        const int64_t now = std::min(places - done, loops.most_rows);
        for (int64_t i = 0; i < now; ++i) begins[static_cast<size_t>(i)] = Next(&place, rows);
        multiply[static_cast<size_t>(now - 1)](products);
        Store(args, loops, results, p_.output, sums.data(), now, (first_place + done) * p_.outputs + panel * kPanel);
        done += now;
      }
    }
  }

  // Where a window begins in a strip.
  struct Place {
    const int16_t* sample;
    int64_t row = 0, column = 0;
  };
  // Its address; then it is the next one.
  const int16_t* Next(Place* place, int64_t rows) const {
    const int16_t* const begin =
        place->sample + place->row * p_.rows.stride * p_.width() + place->column * p_.columns.stride * p_.step();
    if (++place->column < p_.columns.out) return begin;
    place->column = 0;
    if (++place->row < rows) return begin;
    place->row = 0;
    place->sample += p_.rows.Needed(rows_) * p_.width();
    return begin;
  }

  IntegerResults ResultsOf(const Arguments& args, int64_t first, int64_t n, float* scale, float* bias) const {
    for (int64_t i = 0; i < n; ++i) {
      scale[i] = args.in(QuantizedInputs::kScale)[p_.one_scale ? 0 : first + i];
      if (p_.at.bias >= 0) bias[i] = args.in(p_.at.bias)[first + i];
    }
    return {.scale = scale,
            .bias = bias,
            .relu = p_.relu,
            .outputs = n,
            .step = p_.outputs,
            .to = ScaleOf(args, p_.at, p_.output)};
  }

  Problem p_;
  int threads_;
  int64_t samples_, rows_, panel_parts_, pairs_;
  std::vector<int32_t> offsets_;  // of runs of taps, in a strip
};

MaybeKernel Make(const KernelSpec& spec, const Problem& p, const Format& data, const Format& output) {
  if (!p.CanBeWidened()) return std::nullopt;
  Kernel kernel = PlainKernel(spec, "integers");
  kernel.threads = ThreadsForWork(spec, p.flops());
  Layer layer(p, kernel.threads);
  if (!layer.Fits()) return std::nullopt;
  kernel.input_formats[QuantizedInputs::kData] = Canonical(data, spec.inputs[0].shape);
  kernel.input_formats[QuantizedInputs::kWeight] = Panels(spec.inputs[1].shape.rank(), p.is_single());
  kernel.output_formats[0] = Canonical(output, spec.outputs[0].shape);
  kernel.scratch_bytes = layer.scratch_bytes();
  return WithLoop(std::move(kernel), std::move(layer));
}

// Not for the floats that others' 16 bits go through.
bool IsOfBytes(const KernelSpec& spec) {
  const DType dtype = spec.inputs[0].dtype;
  return (dtype == DType::kUInt8 || dtype == DType::kInt8) && spec.inputs[1].dtype == DType::kInt8;
}

template <class Attrs>
Problem ProblemOf(const KernelSpec& spec, const Attrs& attrs, int64_t samples, int64_t channels, int64_t outputs) {
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
std::vector<Axis> AxesOf(const ConvolutionAttrs& attrs, const Shape& data) {
  std::vector<Axis> axes;
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
  std::array<Axis, 3> axes;                      // missing ones have extent 1
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
    const IntegerScale to = ScaleOf(args, at, output);
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
          Store(args, BestIntegers(),
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
  const std::vector<Axis> axes = AxesOf(attrs, data);
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
  const std::vector<Axis> axes = AxesOf(attrs, data);
  if (attrs.groups != 1 || axes.size() > 2) return MakePlain(spec, attrs);
  Problem p = ProblemOf(spec, attrs, data[0], data[1], output[1]);
  p.columns = axes.back();
  if (axes.size() == 2) p.rows = axes.front();
  return Make(spec, p, Format::ChannelsLast(data.rank()), Format::ChannelsLast(output.rank()));
}

MaybeKernel MakeFullyConnected(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<QuantizedFullyConnectedAttrs>();
  const Shape& weight = spec.inputs[1].shape;
  if (!IsOfBytes(spec) || weight[1] > kMostProducts) return std::nullopt;
  return Make(spec, ProblemOf(spec, attrs, spec.outputs[0].shape.Elements() / weight[0], weight[1], weight[0]),
              Format::Plain(), Format::Plain());
}

constexpr KernelEntry kEntries[] = {
    {"QuantizedConvolution", MakeConvolution},
    {"QuantizedFullyConnected", MakeFullyConnected},
};

}  // namespace

KernelRows QuantizedKernels() { return kEntries; }

}  // namespace bindery::cpu
