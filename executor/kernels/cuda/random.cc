// Random numbers and dropout.
#include "symbol/ops/random.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "base/checked.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cuda/launch.h"
#include "executor/kernels/cuda/random_args.h"
#include "executor/kernels/rules.h"

namespace bindery::cuda {
namespace {

// nullopt: the node's name is too long for a launch.
std::optional<Words> WordsOfNode(const KernelSpec& spec, const AxisView& view, bool per_sample) {
  if (spec.node_name.size() > Words::kMaxName) return std::nullopt;
  Words words{.samples = Divisor(view.axis),
              .inner = Divisor(view.inner),
              .per_sample = per_sample,
              .name_length = static_cast<int32_t>(spec.node_name.size())};
  std::ranges::copy(spec.node_name, words.name);
  return words;
}

// Of the first output, by the first input if there is one. `before` adds what comes first.
MaybeKernel Drawn(
    const KernelSpec& spec, DrawArgs args,
    std::function<void(Launches&, DrawArgs*)> before = [](Launches&, DrawArgs*) {}) {
  const ValueType& out = spec.outputs[0];
  const bool batched = out.batch_axis >= 0;
  const auto words = WordsOfNode(spec, batched ? SamplesOf(out) : AxisView{1, 1, out.shape.Elements()}, batched);
  if (!words) return std::nullopt;
  args.words = *words;
  args.n = out.shape.Elements();
  return OwnKernel(spec,
                   [args, before = std::move(before), has_input = !spec.inputs.empty()](Launches& launches) mutable {
                     args.words.step = launches.step();
                     if (has_input) args.in = launches.in(0);
                     args.out = launches.out(0);
                     before(launches, &args);
                     launches.Add(args, args.n);
                   });
}

MaybeKernel MakeUniform(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<RandomUniformAttrs>();
  return Drawn(spec, {.what = Draw::kUniform, .a = attrs.low, .b = attrs.high - attrs.low});
}
MaybeKernel MakeNormal(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<RandomNormalAttrs>();
  return Drawn(spec, {.what = Draw::kNormal, .a = attrs.mean, .b = attrs.scale});
}
MaybeKernel MakeInt(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<RandomIntAttrs>();
  return Drawn(spec, {.what = Draw::kInt, .low = attrs.low, .range = static_cast<uint64_t>(attrs.high - attrs.low)});
}
MaybeKernel MakeBernoulli(const KernelSpec& spec) { return Drawn(spec, {.what = Draw::kBernoulli}); }
MaybeKernel MakeMultinomial(const KernelSpec& spec) {
  const Shape& weights = spec.inputs[0].shape;
  SumWeightsArgs sums{.logits = spec.attributes<MultinomialAttrs>().logits,
                      .rows = RowsOf(weights[0], weights[1]),
                      .categories = weights[1]};
  MaybeKernel kernel = Drawn(
      spec, {.what = Draw::kMultinomial, .range = static_cast<uint64_t>(weights[1]), .draws = spec.outputs[0].shape[1]},
      [sums](Launches& launches, DrawArgs* draw) mutable {
        sums.in = draw->in;
        draw->sums = sums.sums = reinterpret_cast<double*>(launches.scratch());
        launches.AddRows(sums);
      });
  if (kernel) kernel->scratch_bytes = CheckedMul(weights.Elements(), static_cast<int64_t>(sizeof(double)));
  return kernel;
}

// x -> y, mask
MaybeKernel MakeDropout(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<DropoutAttrs>();
  const ValueType &x = spec.inputs[0], &mask = spec.outputs[1];
  const int64_t masks = mask.shape.Elements(), bytes = x.shape.Elements() * SizeOf(x.dtype);
  if (DropsNothing(spec)) {
    Kernel kernel = OwnKernel(spec, [masks, bytes](Launches& launches) {
      launches.Copy(launches.in(0).data, launches.out(0).data, bytes);
      if (launches.out(1).data) launches.Fill(DType::kUInt8, launches.out(1).data, masks, 1);
    });
    kernel.inplace = {{0, 0}};
    return kernel;
  }
  const bool shared = std::ranges::any_of(attrs.axes, [&](int64_t axis) {
    return x.batch_axis >= 0 && mask.shape.Axis(static_cast<int>(axis)) == x.batch_axis;
  });
  const bool per_sample = x.batch_axis >= 0 && !shared;
  const auto words = WordsOfNode(
      spec, per_sample ? SamplesOf({mask.dtype, mask.shape, x.batch_axis, x.batch_fold}) : AxisView{1, 1, masks},
      per_sample);
  if (!words) return std::nullopt;
  const double least = std::ceil(attrs.p * 0x1p24), factor = 1 / (1 - attrs.p);
  Kernel kernel;
  if (mask.shape == x.shape) {
    DropoutArgs args{.words = *words, .n = masks, .least = least, .a = factor};
    kernel = OwnKernel(spec, [args](Launches& launches) mutable {
      args.words.step = launches.step();
      args.x = launches.in(0);
      args.mask = static_cast<uint8_t*>(launches.out(1).data);
      args.y = launches.out(0);
      launches.Add(args, CeilDiv(args.n, int64_t{DropoutArgs::kPack}));
    });
  } else {
    DrawArgs draw{.what = Draw::kMask, .words = *words, .n = masks, .a = least};
    DropArgs drop{.grid = GridOf(x.shape), .mask_strides = StretchedStrides(mask.shape, x.shape), .a = factor};
    JoinAxes(&drop.grid, {&drop.mask_strides});
    kernel = OwnKernel(spec, [draw, drop](Launches& launches) mutable {
      void* const to = launches.out(1).data ? launches.out(1).data : launches.scratch();
      draw.words.step = launches.step();
      draw.out = {to, DType::kUInt8};
      launches.Add(draw, draw.n);
      drop.x = launches.in(0);
      drop.mask = static_cast<const uint8_t*>(to);
      drop.y = launches.out(0);
      if (drop.y.data) launches.Add(drop, drop.grid.n);
    });
    if (!spec.output_used[1]) kernel.scratch_bytes = masks;
  }
  kernel.inplace = {{0, 0}};
  return kernel;
}

constexpr KernelEntry kEntries[] = {
    {"RandomUniform", MakeUniform}, {"RandomNormal", MakeNormal},     {"RandomInt", MakeInt},
    {"Bernoulli", MakeBernoulli},   {"Multinomial", MakeMultinomial}, {"Dropout", OfFloats<MakeDropout>},
};

}  // namespace

KernelRows RandomKernels() { return kEntries; }

}  // namespace bindery::cuda
