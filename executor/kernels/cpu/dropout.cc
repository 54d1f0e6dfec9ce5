// Dropout masks by Philox, four elements to a block, many blocks at once; the rule is in the reference kernel, and the
// masks are the same bit for bit. Shared axes are left to the reference.
#include "symbol/ops/dropout.h"

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/copy.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

struct MaskRule {
  std::string node_name;
  uint32_t threshold;  // an element stays if the upper 24 bits of its word reach this
  AxisView view;       // of the data along their batch axis
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

// x -> y, mask
MaybeKernel MakeDropout(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<DropoutAttrs>();
  const Shape& shape = spec.inputs[0].shape;
  if (spec.inputs[0].dtype != DType::kFloat32 || !attrs.axes.empty()) return std::nullopt;
  Kernel kernel = PlainKernel(spec, "loop");
  kernel.inplace = {{0, 0}};
  const int64_t n = shape.Elements();
  if (DropsNothing(spec)) {
    kernel.bind = [n](const KernelArgs& args) -> Call {
      return [n, x = In(args, 0), y = Out(args, 0), mask = static_cast<uint8_t*>(args.outputs[1])] {
        ParallelCopy(y, x, n * static_cast<int64_t>(sizeof(float)));
        if (mask) std::fill_n(mask, n, uint8_t{1});
      };
    };
    return kernel;
  }
  const int batch = spec.inputs[0].batch_axis;
  const MaskRule rule{spec.node_name, static_cast<uint32_t>(std::ceil(attrs.p * 0x1p24)),
                      batch >= 0 ? SamplesOf(spec.inputs[0]) : AxisView{1, 1, n}, batch >= 0};
  const float factor = static_cast<float>(1 / (1 - attrs.p));
  constexpr int64_t kTile = 4096;
  if (!spec.output_used[1]) kernel.scratch_bytes = kTile * spec.threads;
  kernel.bind = [=](const KernelArgs& args) -> Call {
    auto* scratch = args.outputs[1] ? nullptr : static_cast<uint8_t*>(args.scratch);
    return [=, x = In(args, 0), y = Out(args, 0), mask = static_cast<uint8_t*>(args.outputs[1]), step = args.step] {
      const Loops& loops = BestLoops();
      PhiloxKey key = StreamKey(step->seed, rule.node_name);
      key.k1 ^= static_cast<uint32_t>(step->step >> 32);
      ParallelFor(n, kGrain, kSerialElements / 8, [&](int64_t begin, int64_t end, int thread) {
        for (int64_t at = begin; at < end; at += kTile) {
          const int64_t m = std::min(kTile, end - at);
          uint8_t* tile = mask ? mask + at : scratch + thread * kTile;
          rule.Fill(loops, *step, key, at, m, tile);
          if (y) loops.masked_scale(x + at, tile, y + at, m, factor);
        }
      });
    };
  };
  return kernel;
}

// (dy, mask) -> dx
MaybeKernel MakeDropoutGrad(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::kFloat32 || spec.inputs[1].shape != spec.inputs[0].shape) return std::nullopt;
  Kernel kernel = PlainKernel(spec, "loop");
  kernel.inplace = {{0, 0}};
  const int64_t n = spec.inputs[0].shape.Elements();
  const float factor = DropsNothing(spec) ? 1 : static_cast<float>(1 / (1 - spec.attributes<DropoutAttrs>().p));
  kernel.bind = [=](const KernelArgs& args) -> Call {
    return [=, dy = In(args, 0), mask = static_cast<const uint8_t*>(args.inputs[1]), dx = Out(args, 0)] {
      const auto loop = BestLoops().masked_scale;
      ParallelFor(n, kGrain, kSerialElements, [&](int64_t begin, int64_t end, int) {
        loop(dy + begin, mask + begin, dx + begin, end - begin, factor);
      });
    };
  };
  return kernel;
}

constexpr KernelEntry kEntries[] = {
    {"Dropout", MakeDropout},
    {"DropoutGrad", MakeDropoutGrad},
};

}  // namespace

KernelRows DropoutKernels() { return kEntries; }

}  // namespace bindery::cpu
