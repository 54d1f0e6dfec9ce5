// Dropout: y = x mask / (1 - p). Whether an element stays is a pure function of (seed, node, step, micro-batch, sample,
// index in the sample), so any split of a batch over devices gives the same masks.
#include "symbol/ops/dropout.h"

#include <algorithm>

#include "base/philox.h"
#include "executor/kernel_table.h"
#include "executor/kernels/reference/util.h"

namespace bindery::reference {
namespace {

struct MaskRule {
  std::string node_name;
  double p;
  AxisView view;    // of the mask along its batch axis
  bool per_sample;  // else all samples share one mask

  // Element i of sample s, all other axes flattened: word i % 4 of one Philox block.
  bool Keeps(PhiloxKey key, const StepBlock& step, uint64_t s, int64_t i) const {
    const PhiloxBlock block =
        Philox4x32({static_cast<uint32_t>(i / 4), static_cast<uint32_t>(s),
                    static_cast<uint32_t>(s >> 32) ^ (step.micro_batch << 16), static_cast<uint32_t>(step.step)},
                   key);
    return UniformFloat(block[i % 4]) >= p;
  }

  void Fill(const StepBlock& step, double* mask) const {
    PhiloxKey key = StreamKey(step.seed, node_name);
    key.k1 ^= static_cast<uint32_t>(step.step >> 32);
    for (int64_t o = 0; o < view.outer; ++o) {
      for (int64_t a = 0; a < view.axis; ++a) {
        for (int64_t k = 0; k < view.inner; ++k) {
          const uint64_t sample = per_sample ? static_cast<uint64_t>(step.sample_offset + a) : 0;
          mask[(o * view.axis + a) * view.inner + k] = Keeps(key, step, sample, o * view.inner + k);
        }
      }
    }
  }
};

MaskRule RuleOf(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<DropoutAttrs>();
  const Shape& mask = spec.outputs[1].shape;
  const int batch = spec.inputs[0].batch_axis;
  const bool shared = std::ranges::any_of(
      attrs.axes, [&](int64_t axis) { return batch >= 0 && mask.Axis(static_cast<int>(axis)) == batch; });
  MaskRule rule{spec.node_name, attrs.p, {mask.Elements(), 1, 1}, batch >= 0 && !shared};
  if (rule.per_sample) rule.view = SamplesOf({DType::kUInt8, mask, batch, spec.inputs[0].batch_fold});
  return rule;
}

// x -> y, mask
MaybeKernel MakeDropout(const KernelSpec& spec) {
  const Shape shape = spec.inputs[0].shape, mask_shape = spec.outputs[1].shape;
  const bool identity = DropsNothing(spec);
  const MaskRule rule = RuleOf(spec);
  return InDouble(spec, [=](const Tensors& t) {
    double* mask = t.out[1];
    if (identity) {
      std::fill_n(mask, mask_shape.Elements(), 1.0);
    } else {
      rule.Fill(*t.step, mask);
    }
    const double scale = identity ? 1 : 1 / (1 - rule.p);
    Walk<2>(shape, {PlainStrides(shape), BroadcastStrides(mask_shape, shape)},
            [&](const std::array<int64_t, 2>& at) { t.out[0][at[0]] = t.in[0][at[0]] * mask[at[1]] * scale; });
  });
}

// (dy, mask) -> dx
MaybeKernel MakeDropoutGrad(const KernelSpec& spec) {
  const Shape shape = spec.inputs[0].shape, mask_shape = spec.inputs[1].shape;
  const double scale = DropsNothing(spec) ? 1 : 1 / (1 - spec.attributes<DropoutAttrs>().p);
  return InDouble(spec, [=](const Tensors& t) {
    Walk<2>(shape, {PlainStrides(shape), BroadcastStrides(mask_shape, shape)},
            [&](const std::array<int64_t, 2>& at) { t.out[0][at[0]] = t.in[0][at[0]] * t.in[1][at[1]] * scale; });
  });
}

constexpr KernelEntry kEntries[] = {
    {"Dropout", MakeDropout},
    {"DropoutGrad", MakeDropoutGrad},
};

}  // namespace

KernelRows DropoutKernels() { return kEntries; }

}  // namespace bindery::reference
