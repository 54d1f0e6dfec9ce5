#include "executor/kernels/cpu/direct_convolution.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "engine/team.h"
#include "executor/kernels/cpu/activation_pass.h"
#include "executor/kernels/cpu/direct_windows.h"
#include "executor/kernels/cpu/dnnl_util.h"
#include "executor/kernels/cpu/layout.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/convolution.h"
#include "symbol/ops/operations.h"

namespace bindery::cpu {
namespace {

// A block of rows of one plane after another; the activation passes over each while it is near.
class Direct {
 public:
  Direct(DirectWindows direct, bool has_bias, int addend, ActivationType activation, int threads)
      : direct_(std::move(direct)), has_bias_(has_bias), addend_(addend), activation_(activation), threads_(threads),
        rows_(RowsAtOnce(direct_.windows[2].output * direct_.filters, direct_.rows())),
        blocks_(CeilDiv(direct_.rows(), rows_)) {}

  void operator()(const Arguments& args) const {
    const int64_t items = direct_.batch * direct_.windows[0].output * blocks_;
    ParallelFor(items, 1, threads_ == 1 ? items : 0, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) ConvolveRows(args, i);
    });
  }

 private:
  void ConvolveRows(const Arguments& args, int64_t item) const {
    const DirectWindows& c = direct_;
    const int64_t plane = item / blocks_, d = plane % c.windows[0].output, sample = plane / c.windows[0].output;
    const int64_t first = item % blocks_ * rows_, last = std::min(first + rows_, c.rows());
    const float* const x = args.in(0) + sample * c.x_sample;
    float* const y = args.out(0) + sample * c.y_sample;
    const float* const addend = addend_ < 0 ? nullptr : args.in(addend_) + sample * c.y_sample;
    for (const VectorGroup& group : c.groups) {
      Loops::WindowSums block{};
      block.w = args.in(1);
      block.bias = has_bias_ ? args.in(2) : nullptr;
      block.w_step = c.w_step;
      block.vectors = group.count;
      block.columns = c.columns.data() + group.first;
      block.w_vectors = c.w_vectors.data() + group.first;
      block.y_vectors = c.y_vectors.data() + group.first;
      c.ForRegions(d, first, last, NarrowRegions::kByRows, [&](const Region& region, int64_t begin, int64_t end) {
        c.SetBlock(region, end - begin, &block);
        block.x = x + c.XOffset(d, begin, region);
        block.y = y + c.YOffset(d, begin, region.runs[2].begin);
        block.addend = addend ? addend + (block.y - y) : nullptr;
        block.runs = c.tap_runs.data() + region.first_run;
        block.run_count = region.last_run - region.first_run;
        BestLoops().convolve(block);
      });
    }
    if (!activation_.loop) return;
    for (int64_t at = 0; at < c.filters; at += c.y.block) {
      activation_.Serial(y + c.y.OffsetOf(at) + c.YOffset(d, first, 0),
                         (last - first) * c.windows[2].output * c.y.position);
    }
  }

  DirectWindows direct_;
  bool has_bias_;
  int addend_;
  ActivationPass<> activation_;
  int threads_;
  int64_t rows_, blocks_;
};

}  // namespace

MaybeKernel DirectConvolution(const KernelSpec& spec, int addend) {
  const auto& attrs = spec.attributes<ConvolutionAttrs>();
  const Shape &data = spec.inputs[0].shape, &output = spec.outputs[0].shape, &weight = spec.inputs[1].shape;
  if (!AllFloat(spec)) return std::nullopt;
  if (addend >= 0 && output[1] % BestLoops().lanes != 0)
    return std::nullopt;  // vectors that overlap would add it twice
  const ActivationFormats preferred = PreferredActivationFormats(data.rank(), data[1], output[1], attrs.groups);
  Kernel kernel = PlainKernel(spec, "direct");
  const Format x = AsGivenOr(preferred.input, spec.input_formats[0], data);
  kernel.input_formats[0] = Canonical(x, data);
  kernel.output_formats[0] = Canonical(preferred.output, output);
  if (addend >= 0) {
    kernel.input_formats[static_cast<size_t>(addend)] = kernel.output_formats[0];
    kernel.inplace = {{addend, 0}};
  }
  kernel.threads = ThreadsForWork(spec, OperationsOfSums(output, weight));
  const Format own = TapsByFilters(weight.rank());
  for (const Format& format : {spec.input_is_open[1] ? own : spec.input_formats[1], own}) {
    kernel.input_formats[1] = Canonical(format, weight);
    DirectWindows direct;
    if (!direct.Init(attrs, data, x, output, preferred.output, weight, format)) continue;
    return WithLoop(std::move(kernel),
                    Direct(std::move(direct), !attrs.no_bias, addend, attrs.activation, kernel.threads));
  }
  return std::nullopt;
}

}  // namespace bindery::cpu
