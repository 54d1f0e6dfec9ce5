#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "base/checked.h"
#include "engine/team.h"
#include "executor/kernels/cpu/convolution/batch_inside.h"
#include "executor/kernels/cpu/convolution/direct_convolution.h"
#include "executor/kernels/cpu/convolution/direct_windows.h"
#include "executor/kernels/cpu/dnnl_util.h"
#include "executor/kernels/cpu/layout.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/convolution.h"
#include "symbol/ops/operations.h"

namespace bindery::cpu {
namespace {

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
    rows_ = CeilDiv(c.rows(), CeilDiv(c.rows(), rows_));
    samples_ = 1;
    if (c.windows[0].output == 1 && rows_ == c.rows()) samples_ = RowsAtOnce(row * c.rows(), c.batch);
    constexpr int64_t kMostParts = 16, kMostElements = 4 << 20;
    parts_ = std::clamp<int64_t>(kMostElements / part_elements(), 1, std::min(kMostParts, units()));
  }
  int64_t scratch_bytes() const {
    return CheckedMul(parts_ * part_elements(), static_cast<int64_t>(sizeof(float)), "scratch bytes");
  }

  void operator()(const Arguments& args) const { Run(args, args.in(0), args.in(1), static_cast<float*>(args.scratch)); }
  // dy and x as the windows say they lie; `sums` as much as scratch_bytes().
  void Run(const Arguments& args, const float* dy, const float* x, float* sums) const {
    const Memory memory{dy, x, sums};
    // Groups are shared out, too, where there are few parts: each sum is made by itself, in the order of the units.
    const auto groups = static_cast<int64_t>(direct_.groups.size());
    const int64_t shares = std::min(groups, CeilDiv(4 * threads_, parts_)), items = parts_ * shares;
    ParallelFor(items, 1, threads_ == 1 ? items : 0, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t share = i % shares;
        SumPart(memory, i / shares, share * groups / shares, (share + 1) * groups / shares);
      }
    });
    const int64_t all = taps() + (has_bias_ ? 1 : 0);
    ParallelFor(all, 1, threads_ == 1 || parts_ * part_elements() < kSerialElements ? all : 0,
                [&](int64_t begin, int64_t end, int) { JoinParts(args, memory, begin, end); });
  }

 private:
  struct Memory {
    const float *dy, *x;
    float* sums;
  };

  int64_t taps() const { return static_cast<int64_t>(direct_.w_taps.size()); }
  int64_t blocks() const { return CeilDiv(direct_.rows(), rows_); }
  int64_t units() const { return CeilDiv(direct_.batch, samples_) * direct_.windows[0].output * blocks(); }
  int64_t part_elements() const { return (taps() + 1) * static_cast<int64_t>(direct_.columns.size()) * lanes_; }
  float* SumsOf(const Memory& memory, int64_t part, const VectorGroup& group) const {
    return memory.sums + part * part_elements() + group.first * (taps() + 1) * lanes_;
  }

  // Of groups [first, last): as many at once as have sums that stay in the second cache, so that what a unit reads
  // serves all of them while it is near.
  void SumPart(const Memory& memory, int64_t part, int64_t first, int64_t last) const {
    constexpr int64_t kNear = 64 * 1024;  // elements
    const int64_t begin = part * units() / parts_, end = (part + 1) * units() / parts_;
    const int64_t at_once = std::max<int64_t>(kNear / ((taps() + 1) * 2 * lanes_), 1);
    for (int64_t now = first; now < last; now += at_once) {
      const auto groups = std::span(direct_.groups).subspan(now, std::min(at_once, last - now));
      for (const VectorGroup& group : groups) {
        std::fill_n(SumsOf(memory, part, group), (taps() + 1) * group.count * lanes_, 0.0f);
      }
      for (int64_t unit = begin; unit < end; ++unit) {
        for (const VectorGroup& group : groups) AddUnit(memory, unit, part, group);
      }
    }
  }
  void AddUnit(const Memory& memory, int64_t unit, int64_t part, const VectorGroup& group) const {
    const DirectWindows& c = direct_;
    const int64_t plane = unit / blocks(), d = plane % c.windows[0].output;
    const int64_t sample = plane / c.windows[0].output * samples_;
    const int64_t first = unit % blocks() * rows_, last = std::min(first + rows_, c.rows());
    Loops::WindowGradients block{};
    block.vectors = group.count;
    block.y_vectors = c.y_vectors.data() + group.first;
    block.sums = SumsOf(memory, part, group);
    block.sums_step = group.count * lanes_;
    if (has_bias_) block.bias_sums = block.sums + taps() * block.sums_step;
    block.x_sample = c.x_sample;
    block.y_sample = c.y_sample;
    block.samples = std::min(samples_, c.batch - sample);
    c.ForRegions(d, first, last, NarrowRegions::kAtOnce, [&](const Region& region, int64_t begin, int64_t end) {
      c.SetBlock(region, end - begin, &block);
      block.dy = memory.dy + sample * c.y_sample + c.YOffset(d, begin, region.runs[2].begin);
      block.x = memory.x + sample * c.x_sample + c.XOffset(d, begin, region);
      block.taps = region.end - region.begin;
      block.x_taps = c.x_taps.data() + region.begin;
      block.numbers = c.numbers.data() + region.begin;
      BestLoops().convolve_grad(block);
    });
  }
  // Of taps [begin, end), the last of which is the bias.
  void JoinParts(const Arguments& args, const Memory& memory, int64_t begin, int64_t end) const {
    const DirectWindows& c = direct_;
    for (int64_t tap = begin; tap < end; ++tap) {
      for (const VectorGroup& group : c.groups) {
        for (int64_t v = 0; v < group.count; ++v) {
          float* const sum = SumsOf(memory, 0, group) + (tap * group.count + v) * lanes_;
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

// Of small planes: what is read is copied first.
class GradWeightOfCopies {
 public:
  GradWeightOfCopies(DirectWindows direct, const BatchInside& dy, const BatchInside& x, bool has_bias, int threads)
      : grad_(std::move(direct), has_bias, threads), dy_(dy), x_(x), threads_(threads) {}
  int64_t scratch_bytes() const {
    const int64_t copies = CheckedAdd(dy_.elements(), x_.elements(), "scratch bytes");
    return CheckedAdd(CheckedMul(copies, static_cast<int64_t>(sizeof(float)), "scratch bytes"), grad_.scratch_bytes(),
                      "scratch bytes");
  }
  void operator()(const Arguments& args) const {
    float *const dy = static_cast<float*>(args.scratch), *const x = dy + dy_.elements();
    dy_.CopyInside(args.in(0), dy, threads_);
    x_.CopyInside(args.in(1), x, threads_);
    grad_.Run(args, dy, x, x + x_.elements());
  }

 private:
  GradWeight grad_;
  BatchInside dy_, x_;
  int threads_;
};

// Where this is faster than oneDNN's, and how: as measured with AVX2; with AVX-512 oneDNN is slow only for images whose
// output's channels fill no blocks, for which ours is taken everywhere.
std::optional<DirectWay> FasterWay(const ConvolutionAttrs& attrs, const Shape& data, const Shape& output) {
  constexpr int64_t kLanes = 8, kManyChannels = 128, kManyPlaces = 256, kFewPlaces = 64, kManySamples = 16;
  if (FillsNoBlocks(data, output)) return DirectWay::kAsItLies;
  if (BestLoops().lanes != kLanes) return std::nullopt;
  if (data[1] <= kFewChannels) return DirectWay::kAsItLies;
  const int64_t places = output.CountFrom(2);
  if (std::ranges::all_of(attrs.kernel, [](int64_t extent) { return extent == 1; })) return std::nullopt;
  if (places <= kFewPlaces && data[0] >= kManySamples && output[1] % kLanes == 0) return DirectWay::kBatchInside;
  const bool fast = output[1] % kLanes == 0 ? places >= kManyPlaces && data[1] <= kManyChannels : places >= kFewPlaces;
  return fast ? std::optional(DirectWay::kAsItLies) : std::nullopt;
}

}  // namespace

MaybeKernel DirectConvolutionGradWeight(const KernelSpec& spec, DirectWay way) {
  const auto& attrs = spec.attributes<ConvolutionAttrs>();
  const Shape &output = spec.inputs[0].shape, &data = spec.inputs[1].shape, &weight = spec.outputs[0].shape;
  if (!AllFloat(spec)) return std::nullopt;
  const std::optional<DirectWay> chosen = way == DirectWay::kByRules ? FasterWay(attrs, data, output) : way;
  if (!chosen) return std::nullopt;
  const bool has_bias = spec.outputs.size() > 1 && spec.output_used[1];
  const bool batch_inside = chosen == DirectWay::kBatchInside;
  Kernel kernel = PlainKernel(spec, batch_inside ? "direct inside" : "direct");
  const ActivationFormats preferred = PreferredActivationFormats(DType::kFloat32, data, output, attrs.groups);
  const Format x = AsGivenOr(preferred.input, spec.input_formats[1], data), own = TapsByFilters(weight.rank());
  kernel.input_formats = {Canonical(preferred.output, output), Canonical(x, data)};
  kernel.threads = ThreadsForWork(spec, OperationsOfSums(output, weight));
  const auto finished = [&](auto loop) {
    kernel.scratch_bytes = loop.scratch_bytes();
    return WithLoop(std::move(kernel), std::move(loop));
  };
  for (const Format& wished : {spec.output_wishes[0].value_or(own), own}) {
    kernel.output_formats[0] = Canonical(wished, weight);
    DirectWindows direct;
    if (!direct.Init(attrs, data, x, output, preferred.output, weight, wished, batch_inside)) continue;
    if (!batch_inside) return finished(GradWeight(std::move(direct), has_bias, kernel.threads));
    const BatchInside dy_copy(output, direct.y), x_copy(data, direct.x);
    return finished(GradWeightOfCopies(std::move(direct), dy_copy, x_copy, has_bias, kernel.threads));
  }
  return std::nullopt;
}

}  // namespace bindery::cpu
