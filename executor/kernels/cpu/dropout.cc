// Dropout masks by Philox, four elements to a block, many blocks at once; the rule is in the reference kernel, and the
// masks are the same bit for bit.
#include "symbol/ops/dropout.h"

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/copy.h"
#include "executor/kernels/cpu/elementwise.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"
#include "executor/kernels/cpu/walk.h"

namespace bindery::cpu {
namespace {

struct MaskRule {
  std::string node_name;
  uint32_t threshold;  // an element stays if the upper 24 bits of its word reach this
  AxisView view;       // of the mask along its batch axis
  bool per_sample;     // else all samples share one sequence

  // The mask of elements [at, at + n) in memory order.
  void Fill(const Loops& loops, const StepBlock& step, PhiloxKey key, int64_t at, int64_t n, uint8_t* mask) const {
    while (n > 0) {
      const int64_t run = at / view.inner, within = at % view.inner;
      const int64_t length = std::min(view.inner - within, n);
      const uint64_t sample = per_sample ? static_cast<uint64_t>(step.sample_offset + run % view.axis) : 0;
      const Loops::DropoutKey vector_key = {key.k0, key.k1, static_cast<uint32_t>(sample),
                                            static_cast<uint32_t>(sample >> 32) ^ (step.micro_batch << 16),
                                            static_cast<uint32_t>(step.step)};
      FillRun(loops, vector_key, run / view.axis * view.inner + within, length, mask);
      at += length;
      mask += length;
      n -= length;
    }
  }

  // Elements [first, first + n) of one sample; blocks begin at multiples of 4.
  void FillRun(const Loops& loops, const Loops::DropoutKey& key, int64_t first, int64_t n, uint8_t* mask) const {
    const int64_t head = std::min((4 - first % 4) % 4, n);
    if (head > 0) {
      uint8_t block[4];
      loops.dropout_mask(key, first - first % 4, 4, threshold, block);
      std::copy_n(block + first % 4, head, mask);
    }
    if (n > head) loops.dropout_mask(key, first + head, n - head, threshold, mask + head);
  }
};

MaskRule RuleOf(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<DropoutAttrs>();
  const ValueType &x = spec.inputs[0], &mask = spec.outputs[1];
  const bool per_sample = x.batch_axis >= 0 && !std::ranges::any_of(attrs.axes, [&](int64_t axis) {
                            return x.shape.Axis(static_cast<int>(axis)) == x.batch_axis;
                          });
  return {spec.node_name, static_cast<uint32_t>(std::ceil(attrs.p * 0x1p24)),
          per_sample ? SamplesOf({mask.dtype, mask.shape, x.batch_axis, x.batch_fold})
                     : AxisView{1, 1, mask.shape.Elements()},
          per_sample};
}

// y = x mask factor; the mask's next element is `step` further on.
template <class T>
void MaskedScale(const T* x, const uint8_t* mask, int64_t step, T* y, int64_t n, double factor) {
  if constexpr (std::is_floating_point_v<T>) {
    if (step == 1) return BestLoops<T>().masked_scale(x, mask, y, n, static_cast<T>(factor));
  }
  using Real = std::conditional_t<sizeof(T) == 2 && !std::is_integral_v<T>, float, double>;
  for (int64_t i = 0; i < n; ++i) {
    y[i] = Convert<T>(static_cast<Real>(x[i]) * (mask[i * step] ? static_cast<Real>(factor) : 0));
  }
}

// (x, mask) -> y, the mask's shape stretched to x's.
template <class T>
auto MaskedScaleOf(const Shape& shape, const Shape& mask_shape, double factor) {
  return [walk = StretchedWalk<2>(shape, {shape, mask_shape}, {1, 1}), factor](const T* x, const uint8_t* mask, T* y) {
    walk.ForRuns([&](const auto& at, const auto& steps, int64_t n) {
      MaskedScale(x + at[0], mask + at[1], steps[1], y + at[0], n, factor);
    });
  };
}

constexpr int64_t kTile = 4096;

// x -> y, mask; memory for the mask, of a tile or all of it, where nobody reads it.
template <class T>
Kernel DropoutOf(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<DropoutAttrs>();
  const Shape &shape = spec.inputs[0].shape, &mask_shape = spec.outputs[1].shape;
  const int64_t n = mask_shape.Elements();
  Kernel kernel = PlainKernel(spec, "loop");
  kernel.inplace = {{0, 0}};
  if (DropsNothing(spec)) {
    return WithLoop(kernel, [n, bytes = shape.Elements() * static_cast<int64_t>(sizeof(T))](const Arguments& args) {
      ParallelCopy(args.outputs[0], args.inputs[0], bytes);
      if (auto* mask = args.out<uint8_t>(1)) std::fill_n(mask, n, uint8_t{1});
    });
  }
  const MaskRule rule = RuleOf(spec);
  const bool is_shared = mask_shape != shape;
  if (!spec.output_used[1]) kernel.scratch_bytes = is_shared ? n : kTile * spec.threads;
  const double factor = 1 / (1 - attrs.p);
  return WithLoop(kernel, [=, stretched = MaskedScaleOf<T>(shape, mask_shape, factor)](const Arguments& args) {
    const Loops& loops = BestLoops();
    PhiloxKey key = StreamKey(args.step->seed, rule.node_name);
    key.k1 ^= static_cast<uint32_t>(args.step->step >> 32);
    const T* x = args.in<T>(0);
    T* y = args.out<T>(0);
    uint8_t *mask = args.out<uint8_t>(1), *scratch = static_cast<uint8_t*>(args.scratch);
    if (!mask && is_shared) mask = scratch;
    ParallelFor(n, kGrain, kSerialElements / 8, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t at = begin; at < end; at += kTile) {
        const int64_t m = std::min(kTile, end - at);
        uint8_t* tile = mask ? mask + at : scratch + thread * kTile;
        rule.Fill(loops, *args.step, key, at, m, tile);
        if (y && !is_shared) MaskedScale(x + at, tile, 1, y + at, m, factor);
      }
    });
    if (y && is_shared) stretched(x, mask, y);
  });
}

MaybeKernel MakeDropout(const KernelSpec& spec) {
  return Dispatch(spec.inputs[0].dtype, [&]<class T>() { return DropoutOf<T>(spec); });
}

double GradientFactor(const KernelSpec& spec) {
  return DropsNothing(spec) ? 1 : 1 / (1 - spec.attributes<DropoutAttrs>().p);
}

// (dy, mask) -> dx
MaybeKernel MakeDropoutGrad(const KernelSpec& spec) {
  const double factor = GradientFactor(spec);
  Kernel kernel = PlainKernel(spec, "loop");
  kernel.inplace = {{0, 0}};
  return Dispatch(spec.inputs[0].dtype, [&]<class T>() {
    return WithLoop(kernel, [run = MaskedScaleOf<T>(spec.inputs[0].shape, spec.inputs[1].shape, factor)](
                                const Arguments& args) { run(args.in<T>(0), args.in<uint8_t>(1), args.out<T>(0)); });
  });
}

constexpr KernelEntry kEntries[] = {
    {"Dropout", MakeDropout},
    {"DropoutGrad", MakeDropoutGrad},
};

}  // namespace

KernelRows DropoutKernels() { return kEntries; }

// Of a mask that is not stretched.
MaybeLoop DropoutGradLoop(const KernelSpec& spec) {
  if (spec.inputs[1].shape != spec.outputs[0].shape) return std::nullopt;
  return Dispatch(spec.inputs[0].dtype, [factor = GradientFactor(spec)]<class T>() {
    const Run run = [factor](const Operands& x, void* y, int64_t n) {
      MaskedScale(static_cast<const T*>(x[0]), static_cast<const uint8_t*>(x[1]), 1, static_cast<T*>(y), n, factor);
    };
    return ElementLoop{[run](unsigned) { return run; }};
  });
}

}  // namespace bindery::cpu
