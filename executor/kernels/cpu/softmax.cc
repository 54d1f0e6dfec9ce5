#include "executor/kernels/cpu/softmax.h"

#include <algorithm>

#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "symbol/ops/softmax.h"

namespace bindery::cpu {
namespace {

// An exponential is worth some ten simple operations.
constexpr int64_t kSerialExponentials = kSerialElements / 8;

// f(outer index, first column, columns) by the team: whole outer indices, or columns where they are many.
template <class F>
void ForSlices(const AxisView& view, const F& f) {
  constexpr int64_t kColumns = 512;
  const int64_t parts = view.inner <= kColumns ? 1 : (view.inner + kColumns - 1) / kColumns;
  const int64_t units = view.outer * parts, elements = view.outer * view.axis * view.inner;
  ParallelFor(units, 1, elements <= kSerialExponentials ? units : 0, [&](int64_t begin, int64_t end, int) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t first = unit % parts * kColumns;
      f(unit / parts, first, std::min(kColumns, view.inner - first));
    }
  });
}

}  // namespace

void SoftmaxAlong(const AxisView& view, float inverse_temperature, const float* x, float* y) {
  const Loops& loops = BestLoops();
  if (view.inner == 1) {
    const int64_t n = view.axis;
    ParallelFor(view.outer, 1, view.outer * n <= kSerialExponentials ? view.outer : 0,
                [&](int64_t begin, int64_t end, int) {
                  loops.softmax(x + begin * n, y + begin * n, end - begin, n, inverse_temperature);
                });
    return;
  }
  ForSlices(view, [&](int64_t outer, int64_t first, int64_t columns) {
    const int64_t at = outer * view.axis * view.inner + first;
    loops.softmax_columns(x + at, y + at, view.axis, view.inner, columns, inverse_temperature);
  });
}

namespace {

// data -> y
MaybeKernel MakeSoftmax(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<SoftmaxAttrs>();
  if (!AllFloat(spec)) return std::nullopt;
  Kernel kernel = FlatKernel(spec, "loop", Format::Plain());
  const AxisView view = ViewAlong(spec.inputs[0].shape, static_cast<int>(attrs.axis));
  const float inverse = static_cast<float>(1 / attrs.temperature);
  kernel.bind = [=](const KernelArgs& args) -> Call {
    return [=, x = In(args, 0), y = Out(args, 0)] { SoftmaxAlong(view, inverse, x, y); };
  };
  return kernel;
}

// (dy, y) -> dx
MaybeKernel MakeSoftmaxGrad(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<SoftmaxAttrs>();
  if (!AllFloat(spec)) return std::nullopt;
  Kernel kernel = FlatKernel(spec, "loop", Format::Plain());
  const AxisView view = ViewAlong(spec.inputs[1].shape, static_cast<int>(attrs.axis));
  const float inverse = static_cast<float>(1 / attrs.temperature);
  kernel.bind = [=](const KernelArgs& args) -> Call {
    return [=, dy = In(args, 0), y = In(args, 1), dx = Out(args, 0)] {
      const Loops& loops = BestLoops();
      ForSlices(view, [&](int64_t outer, int64_t first, int64_t columns) {
        const int64_t at = outer * view.axis * view.inner + first;
        if (view.inner == 1) {
          loops.softmax_grad(dy + at, y + at, dx + at, view.axis, inverse);
        } else {
          loops.softmax_grad_columns(dy + at, y + at, dx + at, view.axis, view.inner, columns, inverse);
        }
      });
    };
  };
  return kernel;
}

constexpr KernelEntry kEntries[] = {
    {"Softmax", MakeSoftmax},
    {"SoftmaxGrad", MakeSoftmaxGrad},
};

}  // namespace

KernelRows SoftmaxKernels() { return kEntries; }

}  // namespace bindery::cpu
