#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "engine/team.h"
#include "executor/kernels/cpu/convolution/batch_inside.h"
#include "executor/kernels/cpu/convolution/direct_convolution.h"
#include "executor/kernels/cpu/convolution/direct_sums.h"
#include "executor/kernels/cpu/convolution/direct_windows.h"
#include "executor/kernels/cpu/dnnl_util.h"
#include "executor/kernels/cpu/layout.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/convolution.h"
#include "symbol/ops/operations.h"

namespace bindery::cpu {
namespace {

// The gradient of data as a convolution of the output's gradient, by windows that are turned round: the last tap is the
// first. nullopt where a stride leaves places of dx between the windows, windows begin behind dx's sides, or these were
// to be padded by more than a convolution may be.
std::optional<ConvolutionAttrs> Turned(const ConvolutionGradDataAttrs& attrs, const Shape& data) {
  ConvolutionAttrs turned{.num_filter = data[1], .kernel = attrs.kernel, .dilate = attrs.dilate, .no_bias = true};
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  std::vector<int64_t> ends;
  for (const Window& window : ConvolutionWindows(attrs, data)) {
    const int64_t begin = window.extent() - 1 - window.pad_begin, end = window.extent() - 1 - window.pad_end;
    if (window.stride != 1 || std::min(begin, end) < 0 || std::max(begin, end) > kMost) return std::nullopt;
    turned.pad.push_back(begin);
    ends.push_back(end);
  }
  turned.pad.insert(turned.pad.end(), ends.begin(), ends.end());
  return turned;
}

// Weights (O, C, taps) of any format but an opaque one as (taps in reverse, O, C).
class TurnedWeight {
 public:
  TurnedWeight(const Format& format, const Shape& weight) {
    const auto offsets = [&](int axis) {
      std::vector<int64_t> result;
      int64_t index[Shape::kMaxRank] = {};
      for (; index[axis] < weight[axis]; ++index[axis]) result.push_back(ElementOffset(format, weight, index));
      return result;
    };
    outputs_ = offsets(0);
    channels_ = offsets(1);
    taps_ = {0};
    for (int axis = 2; axis < weight.rank(); ++axis) {  // an element's place is the sum of its axes' offsets
      std::vector<int64_t> taps;
      for (const int64_t tap : taps_) {
        for (const int64_t offset : offsets(axis)) taps.push_back(tap + offset);
      }
      taps_ = std::move(taps);
    }
    std::ranges::reverse(taps_);
  }
  int64_t elements() const { return static_cast<int64_t>(taps_.size() * outputs_.size() * channels_.size()); }
  void Copy(const float* from, float* to, int threads) const {
    const auto taps = static_cast<int64_t>(taps_.size());
    const auto row = static_cast<int64_t>(outputs_.size() * channels_.size());
    ParallelFor(taps, 1, threads == 1 ? taps : 0, [&](int64_t begin, int64_t end, int) {
      float* next = to + begin * row;
      for (int64_t tap = begin; tap < end; ++tap) {
        for (const int64_t output : outputs_) {
          const float* const first = from + taps_[tap] + output;
          for (const int64_t channel : channels_) *next++ = first[channel];
        }
      }
    });
  }

 private:
  std::vector<int64_t> outputs_, channels_, taps_;
};

class GradData {
 public:
  GradData(DirectWindows windows, TurnedWeight weight, int threads)
      : sums_(std::move(windows), ActivationType::kNone, threads), weight_(std::move(weight)), threads_(threads) {}
  // With copies, where dy and dx have their samples inside.
  void SetCopies(const BatchInside& dy, const BatchInside& dx) {
    dy_ = dy;
    dx_ = dx;
  }
  int64_t scratch_bytes() const {
    int64_t elements = weight_.elements();
    if (dy_) elements = CheckedAdd(elements, CheckedAdd(dy_->elements(), dx_->elements(), "scratch"), "scratch");
    return CheckedMul(elements, static_cast<int64_t>(sizeof(float)), "scratch bytes");
  }

  void operator()(const Arguments& args) const {
    float* const w = static_cast<float*>(args.scratch);
    weight_.Copy(args.in(1), w, threads_);
    if (!dy_) return sums_({.x = args.in(0), .w = w, .bias = nullptr, .addend = nullptr, .y = args.out(0)});
    float *const dy = w + weight_.elements(), *const dx = dy + dy_->elements();
    dy_->CopyInside(args.in(0), dy, threads_);
    sums_({.x = dy, .w = w, .bias = nullptr, .addend = nullptr, .y = dx});
    dx_->CopyOutside(dx, args.out(0), threads_);
  }

 private:
  DirectSums sums_;
  TurnedWeight weight_;
  std::optional<BatchInside> dy_, dx_;
  int threads_;
};

// Where this is faster than oneDNN's, as measured with AVX2: where channels fill no blocks, and places are so many that
// turning the weight is little.
std::optional<DirectWay> FasterWay(const ConvolutionAttrs& attrs, const Shape& data, const Shape& output) {
  constexpr int64_t kLanes = 8, kManySamples = 8, kManyPlaces = 400, kFewestPlaces = 1024;
  const bool pointwise = std::ranges::all_of(attrs.kernel, [](int64_t extent) { return extent == 1; });
  if (BestLoops().lanes != kLanes || data[1] % kLanes == 0 || pointwise) return std::nullopt;
  const int64_t places = output.CountFrom(2);
  if (places < CeilDiv(kFewestPlaces, data[0])) return std::nullopt;
  const bool inside = data.rank() < 5 && data[0] >= kManySamples && places < kManyPlaces;
  return inside ? DirectWay::kBatchInside : DirectWay::kAsItLies;
}

}  // namespace

MaybeKernel DirectConvolutionGradData(const KernelSpec& spec, DirectWay way) {
  const auto& attrs = spec.attributes<ConvolutionGradDataAttrs>();
  const Shape &data = spec.outputs[0].shape, &output = spec.inputs[0].shape, &weight = spec.inputs[1].shape;
  if (!AllFloat(spec) || attrs.groups != 1) return std::nullopt;
  const std::optional<DirectWay> chosen = way == DirectWay::kByRules ? FasterWay(attrs, data, output) : way;
  const std::optional<ConvolutionAttrs> turned = chosen ? Turned(attrs, data) : std::nullopt;
  if (!turned) return std::nullopt;
  const bool batch_inside = chosen == DirectWay::kBatchInside;
  Kernel kernel = PlainKernel(spec, batch_inside ? "direct inside" : "direct");
  const ActivationFormats preferred = PreferredActivationFormats(DType::kFloat32, data, output, attrs.groups);
  kernel.input_formats[0] = Canonical(preferred.output, output);
  kernel.output_formats[0] = Canonical(preferred.input, data);
  const Format stored = spec.input_formats[1].kind == Format::Kind::kOpaque ? Format::Plain() : spec.input_formats[1];
  kernel.input_formats[1] = Canonical(stored, weight);
  kernel.threads = ThreadsForWork(spec, OperationsOfSums(output, weight));
  const Shape turned_weight = weight.With(0, weight[1]).With(1, weight[0]);
  DirectWindows windows;
  if (!windows.Init(*turned, output, preferred.output, data, preferred.input, turned_weight,
                    TapsByFilters(weight.rank()), batch_inside)) {
    return std::nullopt;
  }
  const BatchInside dy(output, windows.x), dx(data, windows.y);
  GradData loop(std::move(windows), TurnedWeight(stored, weight), kernel.threads);
  if (batch_inside) loop.SetCopies(dy, dx);
  kernel.scratch_bytes = loop.scratch_bytes();
  return WithLoop(std::move(kernel), std::move(loop));
}

}  // namespace bindery::cpu
