// Sequences of unequal length: all elements of one step and sample come from one place, or are a value.
#include "symbol/ops/sequence.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

enum class Kind { kMask, kReverse, kLast, kLastGrad };

// How many steps a sequence has at least: one, where the last is asked for.
constexpr int64_t LeastOf(Kind kind) { return kind == Kind::kLast || kind == Kind::kLastGrad ? 1 : 0; }

// The step from which step t of a sequence of n steps is taken; -1: none.
template <Kind kKind>
int64_t SourceOf(int64_t t, int64_t n) {
  switch (kKind) {
    case Kind::kMask: return t < n ? t : -1;
    case Kind::kReverse: return t < n ? n - 1 - t : t;
    case Kind::kLast: return n - 1;
    case Kind::kLastGrad: return t == n - 1 ? 0 : -1;
  }
}

template <class T>
void Move(const T* from, int64_t n, T empty, T* to) {
  if (from) {
    std::copy_n(from, n, to);
  } else {
    std::fill_n(to, n, empty);
  }
}
// Step t of all samples, each `inner` elements; the source's steps are `stride` apart.
template <Kind kKind, class T>
void OneStep(const T* from, int64_t stride, int64_t t, const int64_t* lengths, int64_t samples, int64_t inner, T empty,
             T* to) {
  for (int64_t s = 0; s < samples; ++s) {
    const int64_t source = SourceOf<kKind>(t, lengths[s]);
    if (inner == 1) {
      to[s] = source < 0 ? empty : from[source * stride + s];
    } else {
      Move(source < 0 ? nullptr : from + source * stride + s * inner, inner, empty, to + s * inner);
    }
  }
}
// All steps of a sample of length n.
template <Kind kKind, class T>
void OneSample(const T* from, int64_t n, int64_t steps, int64_t inner, T empty, T* to) {
  for (int64_t t = 0; t < steps; ++t) {
    const int64_t source = SourceOf<kKind>(t, n);
    if (inner == 1) {
      to[t] = source < 0 ? empty : from[source];
    } else {
      Move(source < 0 ? nullptr : from + source * inner, inner, empty, to + t * inner);
    }
  }
}

// Output and input as (outer, first, middle, second, inner), steps and samples being the first and the second or the
// other way round; without their axis there is one step.
template <Kind kKind>
MaybeKernel Sequences(const KernelSpec& spec, const SequenceAttrs& attrs, double value = 0) {
  const Shape& shape = kKind == Kind::kLastGrad ? spec.outputs[0].shape : spec.inputs[0].shape;
  const auto [steps_axis, samples_axis] = AxesOf(attrs, shape);
  const int first = std::min(steps_axis, samples_axis), second = std::max(steps_axis, samples_axis);
  const int step = steps_axis < samples_axis ? 1 : 3;  // its place among the four, and samples at the other
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
      for (int64_t i = 0; i < samples; ++i) {
        constexpr int64_t kLeast = LeastOf(kKind);
        const double n = given[i];
        if (!(n >= kLeast && n <= static_cast<double>(steps) && n == std::floor(n))) {
          Throw<DataError>("sample {} has {} steps, not {}..{}", i, n, kLeast, steps);
        }
        lengths[i] = static_cast<int64_t>(n);
      }
      const int64_t length = std::max<int64_t>(extents[3], 1);
      ParallelFor(
          runs / length, 1, kSerialElements / 4 / std::max<int64_t>(length * inner, 1),
          [&](int64_t begin, int64_t end, int) {
            for (int64_t row = begin; row < end; ++row) {  // all of `second`, at one place of the axes before it
              const int64_t at = row % middle, own = row / middle % extents[1], outer = row / middle / extents[1];
              T* to = args.out<T>(0) + row * length * inner;
              const auto source = [&](int64_t of_first) {
                return args.in<T>(0) +
                       ((outer * source_extents[1] + of_first) * middle + at) * source_extents[3] * inner;
              };
              if (step == 1) {
                OneStep<kKind>(source(0), middle * samples * inner, own, lengths, samples, inner, empty, to);
              } else {
                OneSample<kKind>(source(own), lengths[own], length, inner, empty, to);
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
