// Sequences of unequal length: every run of elements of one step and sample comes from one place, or is a value.
#include "symbol/ops/sequence.h"

#include <algorithm>
#include <cstring>

#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

enum class Kind { kMask, kReverse, kLast, kLastGrad };

// The step from which step t of a sequence of so many of `steps` is taken; -1: none.
template <Kind kKind>
int64_t SourceOf(int64_t t, double length, int64_t steps) {
  const int64_t n = length >= static_cast<double>(steps) ? steps : length > 0 ? static_cast<int64_t>(length) : 0;
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
  const bool steps_first = steps_axis < samples_axis;
  const int64_t steps = shape[steps_axis], samples = shape[samples_axis], inner = shape.CountFrom(second + 1);
  const int64_t middle = Shape(shape.dims().subspan(first + 1, second - first - 1)).Elements();
  const int64_t own_steps = kKind == Kind::kLast ? 1 : steps, source_steps = kKind == Kind::kLastGrad ? 1 : steps;
  const int64_t seconds = steps_first ? samples : own_steps, firsts = steps_first ? own_steps : samples;
  const int64_t source_seconds = steps_first ? samples : source_steps,
                source_firsts = steps_first ? source_steps : samples;
  const int64_t runs = shape.CountTo(first) * firsts * middle * seconds;
  const HostTensor filler = HostTensor::Full(spec.outputs[0].dtype, {}, value);
  return OfSize(SizeOf(spec.outputs[0].dtype), [&]<class T>() {
    T empty;
    std::memcpy(&empty, filler.raw(), sizeof(T));
    return WithLoop(PlainKernel(spec, "loop"), [=, dtype = spec.inputs[1].dtype](const Arguments& args) {
      const Numbers lengths(dtype, args.inputs[1]);
      ParallelFor(runs, 1, kSerialElements / 4 / inner, [&](int64_t begin, int64_t end, int) {
        for (int64_t run = begin; run < end; ++run) {
          int64_t at[4] = {run / seconds / middle / firsts, run / seconds / middle % firsts, run / seconds % middle,
                           run % seconds};
          int64_t& step = at[steps_first ? 1 : 3];
          step = SourceOf<kKind>(step, lengths[at[steps_first ? 3 : 1]], steps);
          const int64_t source = ((at[0] * source_firsts + at[1]) * middle + at[2]) * source_seconds + at[3];
          T* to = args.out<T>(0) + run * inner;
          if (step < 0) {
            std::fill_n(to, inner, empty);
          } else {
            std::copy_n(args.in<T>(0) + source * inner, inner, to);
          }
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
