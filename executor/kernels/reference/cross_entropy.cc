#include "symbol/ops/cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "executor/kernel_table.h"
#include "executor/kernels/reference/util.h"
#include "symbol/ops/softmax.h"

namespace bindery::reference {
namespace {

// f(place of class k as a function of k, number of the position) for every position of (outer, classes, inner)
template <class F>
void ForPositions(const AxisView& view, const F& f) {
  for (int64_t position = 0; position < view.outer * view.inner; ++position) {
    const int64_t first = position / view.inner * view.axis * view.inner + position % view.inner;
    f([=](int64_t k) { return first + k * view.inner; }, position);
  }
}

// log sum e^x as the largest x and the logarithm of sum e^(x - max): x - max - log keeps digits that x - (max + log)
// loses.
struct LogSum {
  double max = -INFINITY, log = 0;
  template <class At>
  LogSum(const AxisView& view, const double* x, const At& at) {
    for (int64_t k = 0; k < view.axis; ++k) max = std::max(max, x[at(k)]);
    double sum = 0;
    for (int64_t k = 0; k < view.axis; ++k) sum += std::exp(x[at(k)] - max);
    log = std::log(sum);
  }
};

AxisView ViewOf(const KernelSpec& spec) {
  return ViewAlong(spec.outputs[0].shape, static_cast<int>(spec.attributes<LogSoftmaxAttrs>().axis));
}

MaybeKernel MakeLogSoftmax(const KernelSpec& spec) {
  return InDouble(spec, [view = ViewOf(spec)](const Tensors& t) {
    ForPositions(view, [&](const auto& at, int64_t) {
      const LogSum sum(view, t.in[0], at);
      for (int64_t k = 0; k < view.axis; ++k) t.out[0][at(k)] = t.in[0][at(k)] - sum.max - sum.log;
    });
  });
}

// (dy, y) -> dx = dy - e^y sum dy
MaybeKernel MakeLogSoftmaxGrad(const KernelSpec& spec) {
  return InDouble(spec, [view = ViewOf(spec)](const Tensors& t) {
    ForPositions(view, [&](const auto& at, int64_t) {
      double sum = 0;
      for (int64_t k = 0; k < view.axis; ++k) sum += t.in[0][at(k)];
      for (int64_t k = 0; k < view.axis; ++k) t.out[0][at(k)] = t.in[0][at(k)] - std::exp(t.in[1][at(k)]) * sum;
    });
  });
}

MaybeKernel MakeHardmax(const KernelSpec& spec) {
  return InDouble(spec, [view = ViewOf(spec)](const Tensors& t) {
    ForPositions(view, [&](const auto& at, int64_t) {
      int64_t best = 0;
      for (int64_t k = 1; k < view.axis && !std::isnan(t.in[0][at(best)]); ++k) {
        if (!(t.in[0][at(k)] <= t.in[0][at(best)])) best = k;
      }
      if (view.axis > 0) t.out[0][at(best)] = 1;
    });
  });
}

// What class k weighs in the loss of a label. Without smoothing the label alone has a part: nothing is made of what the
// others have, as it may be infinite.
struct Target {
  const CrossEntropyAttrs& attrs;
  const double* weights;
  double classes, label;
  bool HasPart(int64_t k) const { return attrs.label_smoothing > 0 || static_cast<double>(k) == label; }
  double operator()(int64_t k) const {
    const double part =
        attrs.label_smoothing / classes + (static_cast<double>(k) == label ? 1 - attrs.label_smoothing : 0);
    return part * (weights ? weights[k] : 1);
  }
};

double Checked(double label, const AxisView& view) {
  if (!(label >= 0 && label < static_cast<double>(view.axis) && label == std::floor(label))) {
    Throw<DataError>("label {} is not in 0..{}", label, view.axis - 1);
  }
  return label;
}

MaybeKernel MakeCrossEntropy(const KernelSpec& spec) {
  const auto attrs = spec.attributes<CrossEntropyAttrs>();
  const AxisView view = ViewAlong(spec.inputs[0].shape, static_cast<int>(attrs.axis));
  return InDouble(spec, [=](const Tensors& t) {
    ForPositions(view, [&](const auto& at, int64_t i) {
      const double* weights = attrs.use_weight ? t.in[2] : nullptr;
      LogSum sum(view, t.in[0], at);
      if (attrs.log_input) {
        sum.max = sum.log = 0;
      } else {
        t.out[2][i] = sum.max;
        t.out[3][i] = sum.log;
      }
      if (attrs.use_ignore && t.in[1][i] == attrs.ignore_label) return;
      const double label = Checked(t.in[1][i], view);
      const Target target{attrs, weights, static_cast<double>(view.axis), label};
      for (int64_t k = 0; k < view.axis; ++k) {
        if (target.HasPart(k)) t.out[0][i] += target(k) * (sum.max - t.in[0][at(k)] + sum.log);
      }
      t.out[1][i] = weights ? weights[static_cast<int64_t>(label)] : 1;
    });
  });
}

// (dy, data, label [, class_weight] [, maximum, log_sum]) -> dx
MaybeKernel MakeCrossEntropyGrad(const KernelSpec& spec) {
  const auto attrs = spec.attributes<CrossEntropyAttrs>();
  const AxisView view = ViewAlong(spec.inputs[1].shape, static_cast<int>(attrs.axis));
  return InDouble(spec, [=](const Tensors& t) {
    ForPositions(view, [&](const auto& at, int64_t i) {
      if (attrs.use_ignore && t.in[2][i] == attrs.ignore_label) return;
      const Target target{attrs, attrs.use_weight ? t.in[3] : nullptr, static_cast<double>(view.axis),
                          Checked(t.in[2][i], view)};
      const size_t statistics = attrs.use_weight ? 4 : 3;
      double total = 0;
      for (int64_t k = 0; k < view.axis; ++k) total += target(k);
      for (int64_t k = 0; k < view.axis; ++k) {
        double& dx = t.out[0][at(k)];
        if (!attrs.log_input) {
          dx = t.in[0][i] * total * std::exp(t.in[1][at(k)] - t.in[statistics][i] - t.in[statistics + 1][i]);
        }
        if (target.HasPart(k)) dx -= t.in[0][i] * target(k);
      }
    });
  });
}

constexpr KernelEntry kEntries[] = {
    {"LogSoftmax", MakeLogSoftmax},     {"LogSoftmaxGrad", MakeLogSoftmaxGrad},     {"Hardmax", MakeHardmax},
    {"CrossEntropy", MakeCrossEntropy}, {"CrossEntropyGrad", MakeCrossEntropyGrad},
};

}  // namespace

KernelRows CrossEntropyKernels() { return kEntries; }

}  // namespace bindery::reference
