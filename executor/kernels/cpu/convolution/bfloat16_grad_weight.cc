// Gradients of 3 x 3 weights in bfloat16, on processors with AVX-512 BF16, not AMX. oneDNN's take 1.3 to 1.4 of the time
// there (16 to 64 channels, planes of 8 x 8 to 32 x 32).
#include <algorithm>
#include <vector>

#include "base/checked.h"
#include "engine/team.h"
#include "executor/kernels/cpu/convolution/direct_convolution.h"
#include "executor/kernels/cpu/convolution/direct_windows.h"
#include "executor/kernels/cpu/dnnl_util.h"
#include "executor/kernels/cpu/layout.h"
#include "executor/kernels/cpu/simd/bfloat16_gradients.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/convolution.h"
#include "symbol/ops/operations.h"

namespace bindery::cpu {
namespace {

constexpr int64_t kBlock = BFloat16Gradients::kBlock, kTaps = 9, kTapsOfRow = 3;

// Sums of parts of the batch, one after another in scratch memory, each (blocks of dy's channels, taps, channels of x,
// kBlock); behind them what each thread packs: a sample of x and one of dy. Parts follow from the shapes alone.
class BFloat16GradWeight {
 public:
  BFloat16GradWeight(const Shape& data, const Shape& output, int64_t stride, int threads, int team)
      : loops_{stride, data[3], output[3]}, batch_(data[0]), channels_(data[1]), filters_(output[1]), x_rows_(data[2]),
        y_rows_(output[2]), threads_(threads), team_(team) {
    constexpr int64_t kMostParts = 16, kMostElements = 4 << 20;
    parts_ = std::clamp<int64_t>(kMostElements / part_elements(), 1, std::min(kMostParts, batch_));
  }
  int64_t parts() const { return parts_; }
  int64_t scratch_bytes() const {
    const int64_t words = CheckedAdd(CheckedMul(parts_, part_elements()), CheckedMul(team_, x_words() + y_words()));
    return CheckedMul(words, static_cast<int64_t>(sizeof(uint32_t)), "scratch bytes");
  }

  void operator()(const Arguments& args) const {
    float* const sums = static_cast<float*>(args.scratch);
    ParallelFor(parts_, 1, threads_ == 1 ? parts_ : 0, [&](int64_t begin, int64_t end, int thread) {
      uint32_t* const x =
          static_cast<uint32_t*>(args.scratch) + parts_ * part_elements() + thread * (x_words() + y_words());
      for (int64_t part = begin; part < end; ++part)
        SumPart(args, part, x, x + x_words(), sums + part * part_elements());
    });
    const int64_t vectors = part_elements() / kBlock;
    ParallelFor(vectors, 1, threads_ == 1 || parts_ * part_elements() < kSerialElements ? vectors : 0,
                [&](int64_t begin, int64_t end, int) { JoinParts(sums, begin, end, args.out<bfloat16>(0)); });
  }

 private:
  int64_t part_elements() const { return kTaps * channels_ * filters_; }
  int64_t x_words() const { return channels_ * x_rows_ * loops_.x_row(); }
  int64_t y_words() const { return filters_ * y_rows_ * loops_.y_row(); }

  void SumPart(const Arguments& args, int64_t part, uint32_t* x_words, uint32_t* y_words, float* sums) const {
    std::fill_n(sums, part_elements(), 0.0f);
    for (int64_t sample = part * batch_ / parts_; sample < (part + 1) * batch_ / parts_; ++sample) {
      const int64_t x_rows = channels_ / kBlock * x_rows_, y_rows = filters_ / kBlock * y_rows_;
      const bfloat16* const x = args.in<bfloat16>(1) + sample * x_rows * loops_.x_columns * kBlock;
      const bfloat16* const dy = args.in<bfloat16>(0) + sample * y_rows * loops_.y_columns * kBlock;
      for (int64_t row = 0; row < x_rows; ++row) {
        loops_.PackX(x + row * loops_.x_columns * kBlock, x_words + row * loops_.x_row() * kBlock);
      }
      for (int64_t row = 0; row < y_rows; ++row) {
        loops_.PackY(dy + row * loops_.y_columns * kBlock, y_words + row * loops_.y_row() * kBlock);
      }
      for (int64_t filter = 0; filter < filters_ / kBlock; ++filter) {
        for (int64_t block = 0; block < channels_ / kBlock; ++block) {
          AddBlocks(x_words + block * x_rows_ * loops_.x_row() * kBlock,
                    y_words + filter * y_rows_ * loops_.y_row() * kBlock,
                    sums + (filter * kTaps * channels_ + block * kBlock) * kBlock);
        }
      }
    }
  }
  // Of each row of weights, over the rows of dy whose windows have it inside the data.
  void AddBlocks(const uint32_t* x, const uint32_t* dy, float* sums) const {
    for (int64_t tap = 0; tap < kTapsOfRow; ++tap) {
      // Row `row` of dy reads row * stride + tap - 1 of x.
      const int64_t first = tap == 0 ? 1 : 0, end = std::min(y_rows_, CeilDiv(x_rows_ + 1 - tap, loops_.stride));
      if (first >= end) continue;
      loops_.Add(x + (first * loops_.stride + tap - 1) * loops_.x_row() * kBlock, dy + first * loops_.y_row() * kBlock,
                 end - first, channels_, sums + tap * kTapsOfRow * channels_ * kBlock);
    }
  }
  // Vectors [begin, end) of all parts, in order, to dw (taps, channels, filters).
  void JoinParts(float* sums, int64_t begin, int64_t end, bfloat16* dw) const {
    for (int64_t vector = begin; vector < end; ++vector) {
      float* const sum = sums + vector * kBlock;
      for (int64_t part = 1; part < parts_; ++part) {
        for (int64_t i = 0; i < kBlock; ++i) sum[i] += sum[part * part_elements() + i];
      }
      const int64_t filter = vector / (kTaps * channels_), row = vector % (kTaps * channels_);
      BestLoops().conversions.narrow(sum, dw + row * filters_ + filter * kBlock, kBlock);
    }
  }

  BFloat16Gradients loops_;
  int64_t batch_, channels_, filters_, x_rows_, y_rows_;
  int threads_, team_;
  int64_t parts_;
};

}  // namespace

MaybeKernel BFloat16ConvolutionGradWeight(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<ConvolutionAttrs>();
  const Shape &output = spec.inputs[0].shape, &data = spec.inputs[1].shape, &weight = spec.outputs[0].shape;
  if (!AllOf(spec, DType::kBFloat16) || !Allows(dnnl::cpu_isa::avx512_core_bf16)) return std::nullopt;
  if (Allows(dnnl::cpu_isa::avx512_core_amx)) return std::nullopt;  // oneDNN's take 0.25 to 0.4 of the time then
  if (data.rank() != 4 || attrs.groups != 1 || (spec.outputs.size() > 1 && spec.output_used[1])) return std::nullopt;
  const std::vector<Window> windows = ConvolutionWindows(attrs, data);
  const bool fits = std::ranges::all_of(windows, [&](const Window& w) {
    return w.kernel == kTapsOfRow && w.dilate == 1 && w.stride <= 2 && w.stride == windows[0].stride &&
           w.pad_begin == 1 && w.pad_end <= 1;
  });
  if (!fits || output[3] < 4 || output[3] % 2 != 0) return std::nullopt;
  const ActivationFormats formats = PreferredActivationFormats(DType::kBFloat16, data, output, attrs.groups);
  for (const auto& [format, shape] : {std::pair{formats.input, data}, {formats.output, output}}) {
    const std::optional<Channels> channels = ChannelsOf(format, shape);
    const bool blocks = channels && channels->block == kBlock && channels->position == kBlock;
    if (!blocks || shape[1] % kBlock != 0) return std::nullopt;
  }
  Kernel kernel = PlainKernel(spec, "direct bf16");
  kernel.input_formats = {Canonical(formats.output, output), Canonical(formats.input, data)};
  kernel.output_formats[0] = Canonical(TapsByFilters(weight.rank()), weight);
  kernel.threads = ThreadsForWork(spec, OperationsOfSums(output, weight));
  BFloat16GradWeight loop(data, output, windows[0].stride, kernel.threads, spec.threads);
  if (loop.parts() < std::min<int64_t>(4 * kernel.threads, data[0])) return std::nullopt;  // too large to be shared out
  kernel.scratch_bytes = loop.scratch_bytes();
  return WithLoop(std::move(kernel), std::move(loop));
}

}  // namespace bindery::cpu
