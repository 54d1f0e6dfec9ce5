// A few rows of a sample's data at a time, as elements that products take and with the padding around them, lie in
// scratch memory, from where every window reads its taps. Products take groups of 2 or 4 neighbouring channels, or, of
// images of one channel, neighbours along the last axis. Weights are in panels of kPanel outputs, bytes as they were:
// (outputs / 16, spatial..., channels / taps, 16, taps).
#include "executor/kernels/cpu/integer_layer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "engine/team.h"
#include "executor/kernels/cpu/dnnl_util.h"
#include "executor/kernels/cpu/layout.h"

namespace bindery::cpu {
namespace {

constexpr int64_t kCachedBytes = 128 * 1024;  // of elements that are made at once
constexpr int64_t kPerThread = 4;             // pieces of work

// (O / 16, spatial..., I / taps, 16 o, taps i), or with the last axis in place of I.
Format Panels(int rank, bool is_single, int64_t taps) {
  Format format = Format::ChannelsLast(rank);
  format.kind = Format::Kind::kStrided;
  format.rank = static_cast<int8_t>(rank);
  if (rank == 2) format.order = {0, 1};
  format.num_blocks = 2;
  format.block_axis = {0, static_cast<int8_t>(is_single ? rank - 1 : 1)};
  format.block_size = {kPanel, static_cast<int16_t>(taps)};
  return format;
}

// By products that take elements of this type.
template <class Element>
class Layer {
 public:
  Layer(const IntegerProblem& p, int threads) : p_(p), threads_(threads) {
    const bool single = p.rows.out * p.columns.out == 1;  // places of several samples are computed together
    const int64_t sample = p.rows.Needed(p.rows.out) * p.width();
    samples_ = single ? std::clamp<int64_t>(kCached / sample, 1, p.samples) : 1;
    rows_ = p.rows.out;
    while (rows_ > 1 && p.rows.Needed(rows_) * p.width() > kCached) rows_ = CeilDiv(rows_, 2);
    const int64_t wanted = threads == 1 ? 1 : threads * kPerThread;
    while (rows_ > 1 && p.samples * CeilDiv(p.rows.out, rows_) * p.panels() < wanted) rows_ = CeilDiv(rows_, 2);
    if (single) samples_ = std::min(samples_, std::max<int64_t>(CeilDiv(p.samples, wanted), most_rows()));
    const int64_t strips = CeilDiv(p.samples, samples_) * CeilDiv(p.rows.out, rows_);
    panel_parts_ = strips >= wanted ? 1 : std::min(p.panels(), CeilDiv(wanted, strips));
    // Neighbouring taps of a row are one run.
    const bool joined = p.columns.dilate == 1;
    groups_ = CeilDiv((joined ? p.columns.kernel : 1) * p.step(), kTaps);
    if (!Fits()) return;
    for (int64_t i = 0; i < p.rows.kernel; ++i) {
      for (int64_t j = 0; j < (joined ? 1 : p.columns.kernel); ++j) {
        const int64_t offset = i * p.rows.dilate * p.width() + j * p.columns.dilate * p.step();
        offsets_.push_back(static_cast<int32_t>(offset * kBytes));
      }
    }
  }

  // Elements; the last group of a run may reach beyond it.
  int64_t strip() const { return RoundUp(samples_ * p_.rows.Needed(rows_) * p_.width() + kTaps - 1, 64); }
  int64_t scratch_bytes() const {
    return CheckedMul(CheckedMul(strip(), threads_, "scratch elements"), kBytes, "scratch bytes");
  }
  bool Fits() const { return strip() * kBytes <= std::numeric_limits<int32_t>::max(); }

  void operator()(const Arguments& args) const {
    const int64_t strips_of_sample = CeilDiv(p_.rows.out, rows_);
    const int64_t items = CeilDiv(p_.samples, samples_) * strips_of_sample * panel_parts_;
    ParallelFor(items, 1, threads_ == 1 ? items : 0, [&](int64_t begin, int64_t end, int thread) {
      Element* const strip_of_thread = static_cast<Element*>(args.scratch) + thread * strip();
      int64_t there = -1;
      for (int64_t item = begin; item < end; ++item) {
        const int64_t strip = item / panel_parts_, part = item % panel_parts_;
        const int64_t sample = strip / strips_of_sample * samples_, row = strip % strips_of_sample * rows_;
        if (std::exchange(there, strip) != strip) {
          p_.data == DType::kUInt8 ? Load<uint8_t>(args, sample, row, BestIntegers().load_unsigned, strip_of_thread)
                                   : Load<int8_t>(args, sample, row, BestIntegers().load_signed, strip_of_thread);
        }
        Compute(args, sample, row, strip_of_thread, part * p_.panels() / panel_parts_,
                (part + 1) * p_.panels() / panel_parts_);
      }
    });
  }

 private:
  static constexpr int64_t kBytes = sizeof(Element), kTaps = 4 / kBytes, kCached = kCachedBytes / kBytes;

  static int64_t most_rows() { return BestIntegers().most_rows; }

  template <class T>
  using LoadsOf = void (*)(const T* x, void* y, int64_t n, int zero);

  // What windows of some samples' output rows, from `row` on, see.
  template <class T>
  void Load(const Arguments& args, int64_t sample, int64_t row, LoadsOf<T> load, Element* to) const {
    const int64_t height = p_.rows.Needed(rows_), last = std::min(sample + samples_, p_.samples);
    const T zero = args.in<T>(QuantizedInputs::kZero)[0];
    const Element nothing = ElementOf<Element>(zero, zero);
    for (int64_t n = sample; n < last; ++n) {
      for (int64_t i = 0; i < height; ++i, to += p_.width()) {
        const int64_t from = row * p_.rows.stride - p_.rows.pad_begin + i;
        if (from < 0 || from >= p_.rows.in) {
          std::fill_n(to, p_.width(), nothing);
        } else {
          LoadRow(args, n * p_.rows.in + from, load, zero, to);
        }
      }
    }
    std::fill_n(to, kTaps - 1, nothing);
  }
  template <class T>
  void LoadRow(const Arguments& args, int64_t row, LoadsOf<T> load, T zero, Element* to) const {
    const T* x = args.in<T>(QuantizedInputs::kData) + row * p_.columns.in * p_.channels;
    const Element nothing = ElementOf<Element>(zero, zero);
    const int64_t step = p_.step(), all = p_.width() / step, before = std::min(p_.columns.pad_begin, all);
    const int64_t n = std::min(p_.columns.in, all - before);
    std::fill_n(to, before * step, nothing);
    Element* y = to + before * step;
    if (step == p_.channels) {
      load(x, y, n * step, zero);
    } else {
      for (int64_t i = 0; i < n; ++i, y += step, x += p_.channels) {
        for (int64_t c = 0; c < step; ++c) y[c] = c < p_.channels ? ElementOf<Element>(x[c], zero) : nothing;
      }
    }
    std::fill(to + (before + n) * step, to + p_.width(), nothing);
  }
  // The element that stands for 0.
  int ZeroOf(const Arguments& args) const {
    const auto of = [](auto zero) -> int { return ElementOf<Element>(zero, zero); };
    return p_.data == DType::kUInt8 ? of(args.in<uint8_t>(QuantizedInputs::kZero)[0])
                                    : of(args.in<int8_t>(QuantizedInputs::kZero)[0]);
  }

  // A panel after another, the places of the strip with each.
  void Compute(const Arguments& args, int64_t sample, int64_t row, const Element* strip, int64_t first_panel,
               int64_t last_panel) const {
    const IntegerLoops& loops = BestIntegers();
    const int64_t columns = p_.columns.out, rows = std::min(rows_, p_.rows.out - row);
    const int64_t places = std::min(samples_, p_.samples - sample) * rows * columns;
    const int64_t first_place = (sample * p_.rows.out + row) * columns;
    const int64_t runs = std::ssize(offsets_), panel_bytes = runs * groups_ * kTaps * kPanel;
    const int zero = ZeroOf(args);
    std::array<int32_t, IntegerLoops::kMostRows * kPanel> sums{};  // of outputs that are not there, 0
    std::array<int32_t, kPanel> begin;
    std::array<const void*, IntegerLoops::kMostRows> rows_of_data;
    for (int64_t panel = first_panel; panel < last_panel; ++panel) {
      const int64_t n = std::min(kPanel, p_.outputs - panel * kPanel);
      std::array<float, kPanel> scale{}, bias{};
      const IntegerResults results = ResultsOf(args, panel * kPanel, n, scale.data(), bias.data());
      const IntegerLoops::ProductsOf& multiply = n <= kPanel / 2 ? loops.half_products : loops.products;
      const int8_t* const weights = args.in<int8_t>(QuantizedInputs::kWeight) + panel * panel_bytes;
      loops.begin(weights, runs * groups_, zero, begin.data());
      const IntegerProducts products{.rows = rows_of_data.data(),
                                     .offsets = offsets_.data(),
                                     .runs = runs,
                                     .groups = groups_,
                                     .weights = weights,
                                     .begin = begin.data(),
                                     .sums = sums.data()};
      Place place{strip};
      for (int64_t done = 0; done < places;) {
        const int64_t now = std::min(places - done, loops.most_rows);
        for (int64_t i = 0; i < now; ++i) rows_of_data[static_cast<size_t>(i)] = Next(&place, rows);
        multiply[static_cast<size_t>(now - 1)](products);
        StoreSums(args, loops, results, p_.output, sums.data(), now,
                  (first_place + done) * p_.outputs + panel * kPanel);
        done += now;
      }
    }
  }

  // Where a window begins in a strip.
  struct Place {
    const Element* sample;
    int64_t row = 0, column = 0;
  };
  // Its address; then it is the next one.
  const Element* Next(Place* place, int64_t rows) const {
    const Element* const begin =
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
            .to = IntegerScaleOf(args, p_.at, p_.output)};
  }

  IntegerProblem p_;
  int threads_;
  int64_t samples_, rows_, panel_parts_, groups_;
  std::vector<int32_t> offsets_;  // bytes, of runs of taps in a strip
};

template <class Element>
MaybeKernel MakeOf(const KernelSpec& spec, const IntegerProblem& p, const Format& data, const Format& output) {
  Kernel kernel = PlainKernel(spec, p.taps == 4 ? "VNNI" : "integers");
  kernel.threads = ThreadsForWork(spec, p.flops());
  Layer<Element> layer(p, kernel.threads);
  if (!layer.Fits()) return std::nullopt;
  kernel.input_formats[QuantizedInputs::kData] = Canonical(data, spec.inputs[0].shape);
  kernel.input_formats[QuantizedInputs::kWeight] = Panels(spec.inputs[1].shape.rank(), p.is_single(), p.taps);
  kernel.output_formats[0] = Canonical(output, spec.outputs[0].shape);
  kernel.scratch_bytes = layer.scratch_bytes();
  return WithLoop(std::move(kernel), std::move(layer));
}

}  // namespace

MaybeKernel MakeIntegerLayer(const KernelSpec& spec, const IntegerProblem& p, const Format& data,
                             const Format& output) {
  if (!p.CanBeLoaded()) return std::nullopt;
  return p.taps == 4 ? MakeOf<uint8_t>(spec, p, data, output) : MakeOf<int16_t>(spec, p, data, output);
}

}  // namespace bindery::cpu
