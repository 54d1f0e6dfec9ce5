#include "symbol/ops/sequence.h"

#include <cmath>

#include "base/error.h"
#include "executor/kernel_table.h"
#include "executor/kernels/reference/util.h"

namespace bindery::reference {
namespace {

// f(step, steps that count, element of data, the same without the axis of the steps) for every element of data. Of each
// sequence at least `least` steps count.
template <class F>
void ForSteps(const SequenceAttrs& attrs, const Shape& data, const double* lengths, int64_t least, const F& f) {
  const SequenceAxes axes = AxesOf(attrs, data);
  Strides step{}, sample{};
  step[axes.steps] = sample[axes.samples] = 1;
  const Strides last = ReducedStrides(data, 1u << axes.steps);
  Walk<4>(data, {PlainStrides(data), last, step, sample}, [&](const std::array<int64_t, 4>& at) {
    const double most = static_cast<double>(data[axes.steps]), length = lengths[at[3]];
    if (!(length >= static_cast<double>(least) && length <= most && length == std::floor(length))) {
      Throw<DataError>("a length of {} is not in {}..{}", length, least, most);
    }
    f(at[2], static_cast<int64_t>(length), at[0], at[1]);
  });
}

MaybeKernel MakeSequenceMask(const KernelSpec& spec) {
  return InDouble(spec, [attrs = spec.attributes<SequenceMaskAttrs>(), data = spec.inputs[0].shape](const Tensors& t) {
    ForSteps(attrs, data, t.in[1], 0, [&](int64_t step, int64_t length, int64_t at, int64_t) {
      t.out[0][at] = step < length ? t.in[0][at] : attrs.value;
    });
  });
}

MaybeKernel MakeSequenceReverse(const KernelSpec& spec) {
  return InDouble(spec, [attrs = spec.attributes<SequenceAttrs>(), data = spec.inputs[0].shape](const Tensors& t) {
    const int64_t stride = data.CountFrom(AxesOf(attrs, data).steps + 1);
    ForSteps(attrs, data, t.in[1], 0, [&](int64_t step, int64_t length, int64_t at, int64_t) {
      t.out[0][at] = t.in[0][step < length ? at + (length - 1 - 2 * step) * stride : at];
    });
  });
}

MaybeKernel MakeSequenceLast(const KernelSpec& spec) {
  return InDouble(spec, [attrs = spec.attributes<SequenceAttrs>(), data = spec.inputs[0].shape](const Tensors& t) {
    ForSteps(attrs, data, t.in[1], 1, [&](int64_t step, int64_t length, int64_t at, int64_t last) {
      if (step == length - 1) t.out[0][last] = t.in[0][at];
    });
  });
}

MaybeKernel MakeSequenceLastGrad(const KernelSpec& spec) {
  return InDouble(spec,
                  [attrs = spec.attributes<SequenceLastGradAttrs>(), data = spec.outputs[0].shape](const Tensors& t) {
                    ForSteps(attrs, data, t.in[1], 1, [&](int64_t step, int64_t length, int64_t at, int64_t last) {
                      if (step == length - 1) t.out[0][at] = t.in[0][last];
                    });
                  });
}

constexpr KernelEntry kEntries[] = {
    {"SequenceMask", MakeSequenceMask},
    {"SequenceReverse", MakeSequenceReverse},
    {"SequenceLast", MakeSequenceLast},
    {"SequenceLastGrad", MakeSequenceLastGrad},
};

}  // namespace

KernelRows SequenceKernels() { return kEntries; }

}  // namespace bindery::reference
