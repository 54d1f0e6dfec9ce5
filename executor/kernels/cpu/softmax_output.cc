#include <algorithm>

#include "base/error.h"
#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/softmax.h"
#include "symbol/ops/loss.h"

namespace bindery::cpu {
namespace {

struct Gradient {
  SoftmaxOutputAttrs attrs;
  AxisView view;
  std::string node_name;

  float Factor(const StepBlock& step, const float* valid) const {
    double divisor = 1;
    if (attrs.normalization == Normalization::kBatch) divisor = static_cast<double>(step.batch_size);
    if (attrs.normalization == Normalization::kValid) divisor = std::max(1.0, static_cast<double>(*valid));
    if (attrs.normalization != Normalization::kValid && attrs.multi_output) divisor *= static_cast<double>(view.inner);
    return static_cast<float>(attrs.grad_scale / divisor);
  }

  int64_t ClassOf(double label, int64_t sample) const {
    if (!(label >= 0 && label < static_cast<double>(view.axis))) {
      Throw<DataError>("node \"{}\": label {} of sample {} is not in 0..{}", node_name, label, sample, view.axis - 1);
    }
    return static_cast<int64_t>(label);
  }

  bool IsIgnored(double label) const { return attrs.use_ignore && label == attrs.ignore_label; }
  float AtLabel() const { return static_cast<float>(1 - attrs.smooth_alpha); }
  float OffLabel() const {
    return view.axis > 1 ? static_cast<float>(attrs.smooth_alpha / static_cast<double>(view.axis - 1)) : 0;
  }

  // dx = (p - target) * factor for samples [begin, end) of one label each. p and dx may be the same memory: the
  // elements at the labels are computed before the others are overwritten.
  void RunRows(int64_t begin, int64_t end, const float* p, const Labels& label, float factor, float* dx) const {
    const Loops& loops = BestLoops();
    constexpr int64_t kTile = 64;
    float own[kTile];
    const float at_label = AtLabel(), off = OffLabel();
    const int64_t n = view.axis;
    for (int64_t first = begin; first < end; first += kTile) {
      const int64_t samples = std::min(kTile, end - first);
      for (int64_t i = 0; i < samples; ++i) {
        const int64_t sample = first + i;
        own[i] = IsIgnored(label[sample]) ? 0 : (p[sample * n + ClassOf(label[sample], sample)] - at_label) * factor;
      }
      const float* from = p + first * n;
      float* to = dx + first * n;
      if (off == 0) {
        loops.scale(from, to, samples * n, factor);
      } else {
        for (int64_t i = 0; i < samples * n; ++i) to[i] = (from[i] - off) * factor;
      }
      for (int64_t i = 0; i < samples; ++i) {
        if (IsIgnored(label[first + i])) {
          std::fill_n(to + i * n, n, 0.0f);
        } else {
          to[i * n + static_cast<int64_t>(label[first + i])] = own[i];
        }
      }
    }
  }

  // The same for positions [begin, end) of all samples, with one label each.
  void RunPositions(int64_t begin, int64_t end, const float* p, const Labels& label, float factor, float* dx) const {
    const float at_label = AtLabel(), off = OffLabel();
    for (int64_t position = begin; position < end; ++position) {
      const int64_t sample = position / view.inner, i = position % view.inner;
      const double own = label[position];
      const bool ignored = IsIgnored(own);
      const int64_t label_class = ignored ? -1 : ClassOf(own, sample);
      for (int64_t k = 0; k < view.axis; ++k) {
        const int64_t at = (sample * view.axis + k) * view.inner + i;
        dx[at] = ignored ? 0 : (p[at] - (k == label_class ? at_label : off)) * factor;
      }
    }
  }
};

// (data, label: not read) -> probabilities
MaybeKernel MakeSoftmaxOutput(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::kFloat32) return std::nullopt;
  Kernel kernel = FlatKernel(spec, "loop", Format::Plain());
  const AxisView view = ClassesOf(spec.attributes<SoftmaxOutputAttrs>(), spec.inputs[0].shape);
  kernel.bind = [view](const KernelArgs& args) -> Call {
    return [view, x = In(args, 0), y = Out(args, 0)] { SoftmaxAlong(view, 1, x, y); };
  };
  return kernel;
}

// (p, label [, valid count] [, head gradient]) -> (p - target) grad_scale / divisor
MaybeKernel MakeSoftmaxOutputGrad(const KernelSpec& spec) {
  const auto attrs = spec.attributes<SoftmaxOutputAttrs>();
  const Shape& shape = spec.inputs[0].shape;
  const Gradient gradient{attrs, ClassesOf(attrs, shape), spec.node_name};
  const bool label_is_distribution = spec.inputs[1].shape == shape;
  if (!AllFloatButLabel(spec, label_is_distribution ? -1 : 1)) return std::nullopt;
  Kernel kernel = FlatKernel(spec, "loop", Format::Plain());
  const bool has_valid = attrs.normalization == Normalization::kValid;
  const int64_t n = shape.Elements();
  kernel.bind = [=, dtype = spec.inputs[1].dtype](const KernelArgs& args) -> Call {
    const float* valid = has_valid ? In(args, 2) : nullptr;
    const float* head = attrs.out_grad ? In(args, has_valid ? 3 : 2) : nullptr;
    const auto* wanted = static_cast<const float*>(args.inputs[1]);  // of a distribution
    return [=, p = In(args, 0), label = Labels{args.inputs[1], dtype}, dx = Out(args, 0), step = args.step] {
      const float factor = gradient.Factor(*step, valid);
      const AxisView& view = gradient.view;
      if (label_is_distribution) {
        ParallelFor(n, kGrain, kSerialElements, [&](int64_t begin, int64_t end, int) {
          for (int64_t i = begin; i < end; ++i) dx[i] = (p[i] - wanted[i]) * factor;
        });
      } else if (view.inner == 1) {
        ParallelFor(view.outer, 1, kSerialElements / view.axis,
                    [&](int64_t begin, int64_t end, int) { gradient.RunRows(begin, end, p, label, factor, dx); });
      } else {
        ParallelFor(view.outer * view.inner, kGrain, kSerialElements / view.axis,
                    [&](int64_t begin, int64_t end, int) { gradient.RunPositions(begin, end, p, label, factor, dx); });
      }
      if (!head) return;
      ParallelFor(n, kGrain, kSerialElements, [&](int64_t begin, int64_t end, int) {
        BestLoops().BinaryOf<native::fn::Mul>()(dx + begin, head + begin, dx + begin, end - begin);
      });
    };
  };
  return kernel;
}

constexpr KernelEntry kEntries[] = {
    {"SoftmaxOutput", MakeSoftmaxOutput},
    {"SoftmaxOutputGrad", MakeSoftmaxOutputGrad},
};

}  // namespace

KernelRows SoftmaxOutputKernels() { return kEntries; }

}  // namespace bindery::cpu
