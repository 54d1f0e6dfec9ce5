#include "executor/kernels/cpu/direct_convolution.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "engine/team.h"
#include "executor/kernels/cpu/direct_windows.h"
#include "executor/kernels/cpu/dnnl_util.h"
#include "executor/kernels/cpu/layout.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/convolution.h"

namespace bindery::cpu {
namespace {

// What of an output's rows is computed at once, so that the data that it needs stay in the nearest cache.
int64_t RowsAtOnce(int64_t row_elements, int64_t rows) {
  constexpr int64_t kCached = 4096;  // elements
  return std::clamp<int64_t>(kCached / std::max<int64_t>(row_elements, 1), 1, rows);
}

// Sums of parts of the batch, one after another in scratch memory, each (groups of vectors, taps and the bias, vectors
// of a group, lanes).
class GradWeight {
 public:
  GradWeight(DirectWindows direct, bool has_bias, int threads)
      : direct_(std::move(direct)), has_bias_(has_bias), threads_(threads), lanes_(BestLoops().lanes) {
    const DirectWindows& c = direct_;
    const int64_t row =
        c.windows[2].output * 2 * lanes_ + c.windows[1].stride * c.in[2] * std::min<int64_t>(c.x.position, 2 * lanes_);
    rows_ = RowsAtOnce(row, c.rows());
    samples_ = 1;
    if (c.windows[0].output == 1 && rows_ == c.rows()) samples_ = RowsAtOnce(row * c.rows(), c.batch);
    constexpr int64_t kMostParts = 16, kMostElements = 4 << 20;
    parts_ = std::clamp<int64_t>(kMostElements / part_elements(), 1, std::min(kMostParts, units()));
  }
  int64_t scratch_bytes() const {
    return CheckedMul(parts_ * part_elements(), static_cast<int64_t>(sizeof(float)), "scratch bytes");
  }

  void operator()(const Arguments& args) const {
    const auto groups = static_cast<int64_t>(direct_.groups.size());
    const int64_t items = parts_ * groups;
    ParallelFor(items, 1, threads_ == 1 ? items : 0, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) SumPart(args, i / groups, direct_.groups[i % groups]);
    });
    const int64_t all = taps() + (has_bias_ ? 1 : 0);
    ParallelFor(all, 1, threads_ == 1 || parts_ * part_elements() < kSerialElements ? all : 0,
                [&](int64_t begin, int64_t end, int) { JoinParts(args, begin, end); });
  }

 private:
  int64_t taps() const { return static_cast<int64_t>(direct_.w_taps.size()); }
  int64_t blocks() const { return CeilDiv(direct_.rows(), rows_); }
  int64_t units() const { return CeilDiv(direct_.batch, samples_) * direct_.windows[0].output * blocks(); }
  int64_t part_elements() const { return (taps() + 1) * static_cast<int64_t>(direct_.columns.size()) * lanes_; }
  float* SumsOf(const Arguments& args, int64_t part, const VectorGroup& group) const {
    return static_cast<float*>(args.scratch) + part * part_elements() + group.first * (taps() + 1) * lanes_;
  }

  void SumPart(const Arguments& args, int64_t part, const VectorGroup& group) const {
    const DirectWindows& c = direct_;
    Loops::WindowGradients block{};
    block.vectors = group.count;
    block.y_vectors = c.y_vectors.data() + group.first;
    block.sums = SumsOf(args, part, group);
    block.sums_step = group.count * lanes_;
    std::fill_n(block.sums, (taps() + 1) * block.sums_step, 0.0f);
    if (has_bias_) block.bias_sums = block.sums + taps() * block.sums_step;
    block.x_sample = c.x_sample;
    block.y_sample = c.y_sample;
    for (int64_t unit = part * units() / parts_; unit < (part + 1) * units() / parts_; ++unit) {
      const int64_t plane = unit / blocks(), d = plane % c.windows[0].output;
      const int64_t sample = plane / c.windows[0].output * samples_;
      const int64_t first = unit % blocks() * rows_, last = std::min(first + rows_, c.rows());
      block.samples = std::min(samples_, c.batch - sample);
      c.ForRegions(d, first, last, [&](const Region& region, int64_t begin, int64_t end) {
        c.SetBlock(region, end - begin, &block);
        block.dy = args.in(0) + sample * c.y_sample + c.YOffset(d, begin, region.runs[2].begin);
        block.x = args.in(1) + sample * c.x_sample + c.XOffset(d, begin, region);
        block.taps = region.end - region.begin;
        block.x_taps = c.x_taps.data() + region.begin;
        block.numbers = c.numbers.data() + region.begin;
        BestLoops().convolve_grad(block);
      });
    }
  }
  // Of taps [begin, end), the last of which is the bias.
  void JoinParts(const Arguments& args, int64_t begin, int64_t end) const {
    const DirectWindows& c = direct_;
    for (int64_t tap = begin; tap < end; ++tap) {
      for (const VectorGroup& group : c.groups) {
        for (int64_t v = 0; v < group.count; ++v) {
          float* const sum = SumsOf(args, 0, group) + (tap * group.count + v) * lanes_;
          for (int64_t part = 1; part < parts_; ++part) {
            const float* const more = sum + part * part_elements();
            for (int64_t i = 0; i < lanes_; ++i) sum[i] += more[i];
          }
          const int64_t vector = group.first + v;
          std::copy_n(
              sum, lanes_,
              tap < taps() ? args.out(0) + c.w_taps[tap] + c.w_vectors[vector] : args.out(1) + c.columns[vector]);
        }
      }
    }
  }

  DirectWindows direct_;
  bool has_bias_;
  int threads_;
  int64_t lanes_, rows_, samples_, parts_;
};

constexpr int64_t kFewChannels = 3;

double Flops(const Shape& output, const Shape& weight) {
  return 2.0 * static_cast<double>(output.Elements()) * static_cast<double>(weight.CountFrom(1));
}

// Than oneDNN's, as measured with AVX2: it has nothing good for images, and takes small planes of many channels better.
bool IsFaster(const Shape& data, const Shape& output) {
  constexpr int64_t kFewPlaces = 256, kManyChannels = 128;
  if (BestLoops().lanes != 8) return false;
  return data[1] <= kFewChannels || (data[1] <= kManyChannels && output.CountFrom(2) >= kFewPlaces);
}

}  // namespace

MaybeKernel DirectConvolutionGradWeight(const KernelSpec& spec, bool measured) {
  const auto& attrs = spec.attributes<ConvolutionAttrs>();
  const Shape &output = spec.inputs[0].shape, &data = spec.inputs[1].shape, &weight = spec.outputs[0].shape;
  if (!AllFloat(spec) || !(measured || IsFaster(data, output))) return std::nullopt;
  const bool has_bias = spec.outputs.size() > 1 && spec.output_used[1];
  Kernel kernel = PlainKernel(spec, "direct");
  const ActivationFormats preferred = PreferredActivationFormats(data.rank(), data[1], output[1], attrs.groups);
  const Format& given = spec.input_formats[1];
  // An image is taken as it lies.
  const bool as_given = data[1] <= kFewChannels && ChannelsOf(given, data);
  const Format x = as_given ? given : preferred.input, own = TapsByFilters(weight.rank());
  kernel.input_formats = {Canonical(preferred.output, output), Canonical(x, data)};
  for (const Format& wished : {spec.output_wishes[0].value_or(own), own}) {
    kernel.output_formats[0] = Canonical(wished, weight);
    DirectWindows direct;
    if (!direct.Init(attrs, data, x, output, preferred.output, weight, wished)) continue;
    kernel.threads = ThreadsForWork(spec, Flops(output, weight));
    GradWeight loop(std::move(direct), has_bias, kernel.threads);
    kernel.scratch_bytes = loop.scratch_bytes();
    return WithLoop(std::move(kernel), std::move(loop));
  }
  return std::nullopt;
}

}  // namespace bindery::cpu
