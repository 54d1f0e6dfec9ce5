// Sequences of unequal length: every run of elements of one step and sample comes from one place, or is a value.
#include "symbol/ops/sequence.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

enum class Kind { kMask, kReverse, kLast, kLastGrad };

// The step from which step t of a sequence of n steps is taken; -1: none.
template <Kind kKind>
int64_t SourceOf(int64_t t, int64_t n) {
  switch (kKind) {
    case Kind::kMask: return t < n ? t : -1;
    case Kind::kReverse: return t < n ? n - 1 - t : t;
    case Kind::kLast: return std::max<int64_t>(n, 1) - 1;
    case Kind::kLastGrad: return t == std::max<int64_t>(n, 1) - 1 ? 0 : -1;
  }
}

// Output and input as (outer, first, middle, second, inner), steps and samples being the first and the second or the
// other way round; without their axis there is one step.
template <Kind kKind>
MaybeKernel Sequences(const KernelSpec& spec, const SequenceAttrs& attrs, double value = 0) {
  const Shape& shape = kKind == Kind::kLastGrad ? spec.outputs[0].shape : spec.inputs[0].shape;
  const auto [steps_axis, samples_axis] = AxesOf(attrs, shape);
  const int first = std::min(steps_axis, samples_axis), second = std::max(steps_axis, samples_axis);
  const int step = steps_axis < samples_axis ? 1 : 3, sample = 4 - step;  // their places among the four
  const int64_t steps = shape[steps_axis], samples = shape[samples_axis], inner = shape.CountFrom(second + 1);
  const int64_t middle = Shape(shape.dims().subspan(first + 1, second - first - 1)).Elements();
  std::array<int64_t, 4> extents = {shape.CountTo(first), samples, middle, samples}, source_extents = extents;
  extents[step] = kKind == Kind::kLast ? 1 : steps;
  source_extents[step] = kKind == Kind::kLastGrad ? 1 : steps;
  const int64_t runs = extents[0] * extents[1] * extents[2] * extents[3];
  const HostTensor filler = HostTensor::Full(spec.outputs[0].dtype, {}, value);
  Kernel kernel = PlainKernel(spec, "loop");
  kernel.scratch_bytes = samples * static_cast<int64_t>(sizeof(int64_t));
  return OfSize(SizeOf(spec.outputs[0].dtype), [&]<class T>() {
    T empty;
    std::memcpy(&empty, filler.raw(), sizeof(T));
    return WithLoop(std::move(kernel), [=, dtype = spec.inputs[1].dtype](const Arguments& args) {
      const Numbers given(dtype, args.inputs[1]);
      auto* lengths = static_cast<int64_t*>(args.scratch);
      for (int64_t i = 0; i < samples; ++i) {  // NaN is 0
        lengths[i] = given[i] > 0 ? static_cast<int64_t>(std::min(given[i], static_cast<double>(steps))) : 0;
      }
      ParallelFor(runs, 1, kSerialElements / 4 / inner, [&](int64_t begin, int64_t end, int) {
        std::array<int64_t, 4> at;
        int64_t rest = begin;
        for (int i = 3; i >= 0; rest /= extents[i--]) at[i] = rest % extents[i];
        T* to = args.out<T>(0) + begin * inner;
        for (int64_t run = begin; run < end; ++run, to += inner) {
          const int64_t t = SourceOf<kKind>(at[step], lengths[at[sample]]);
          if (t < 0) {
            std::fill_n(to, inner, empty);
          } else {
            int64_t source = 0;
            for (int i = 0; i < 4; ++i) source = source * source_extents[i] + (i == step ? t : at[i]);
            std::copy_n(args.in<T>(0) + source * inner, inner, to);
          }
          for (int i = 3; i >= 0 && ++at[i] == extents[i]; --i) at[i] = 0;
        }
      });
    });
  });
}

MaybeKernel MakeSequenceMask(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<SequenceMaskAttrs>();
  return Sequences<Kind::kMask>(spec, attrs, attrs.value);
}
MaybeKernel MakeSequenceReverse(const KernelSpec& spec) {
  return Sequences<Kind::kReverse>(spec, spec.attributes<SequenceAttrs>());
}
MaybeKernel MakeSequenceLast(const KernelSpec& spec) {
  return Sequences<Kind::kLast>(spec, spec.attributes<SequenceAttrs>());
}
MaybeKernel MakeSequenceLastGrad(const KernelSpec& spec) {
  return Sequences<Kind::kLastGrad>(spec, spec.attributes<SequenceLastGradAttrs>());
}

constexpr KernelEntry kEntries[] = {
    {"SequenceMask", MakeSequenceMask},
    {"SequenceReverse", MakeSequenceReverse},
    {"SequenceLast", MakeSequenceLast},
    {"SequenceLastGrad", MakeSequenceLastGrad},
};

}  // namespace

KernelRows SequenceKernels() { return kEntries; }

}  // namespace bindery::cpu
