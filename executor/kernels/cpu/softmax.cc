// Softmax and the loss head that ends in one.
#include "symbol/ops/softmax.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/slices.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/loss.h"

namespace bindery::cpu {
namespace {

template <class T>
void SoftmaxAlong(const AxisView& view, T inverse_temperature, const T* x, T* y) {
  const LoopsOf<T>& loops = BestLoops<T>();
  if (view.inner == 1) {
    const int64_t n = view.axis;
    ParallelFor(view.outer, 1, view.outer * n <= kSerialExponentials ? view.outer : 0,
                [&](int64_t begin, int64_t end, int) {
                  loops.softmax(x + begin * n, y + begin * n, end - begin, n, inverse_temperature);
                });
    return;
  }
  ForSlices(view, kSerialExponentials, [&](const Slice& s) {
    loops.softmax_columns(x + s.start, y + s.start, view.axis, view.inner, s.columns, inverse_temperature);
  });
}

// data -> y
template <class T>
MaybeKernel MakeSoftmax(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<SoftmaxAttrs>();
  const AxisView view = ViewAlong(spec.inputs[0].shape, static_cast<int>(attrs.axis));
  return WithLoop(FlatKernel(spec, "loop", Format::Plain()),
                  [view, inverse = static_cast<T>(1 / attrs.temperature)](const Arguments& args) {
                    SoftmaxAlong(view, inverse, args.in<T>(0), args.out<T>(0));
                  });
}

// (dy, y) -> dx
template <class T>
MaybeKernel MakeSoftmaxGrad(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<SoftmaxAttrs>();
  const AxisView view = ViewAlong(spec.inputs[1].shape, static_cast<int>(attrs.axis));
  return WithLoop(FlatKernel(spec, "loop", Format::Plain()),
                  [view, inverse = static_cast<T>(1 / attrs.temperature)](const Arguments& args) {
                    const LoopsOf<T>& loops = BestLoops<T>();
                    ForSlices(view, kSerialExponentials, [&](const Slice& s) {
                      const T *dy = args.in<T>(0) + s.start, *y = args.in<T>(1) + s.start;
                      T* dx = args.out<T>(0) + s.start;
                      if (view.inner == 1) {
                        loops.softmax_grad(dy, y, dx, view.axis, inverse);
                      } else {
                        loops.softmax_grad_columns(dy, y, dx, view.axis, view.inner, s.columns, inverse);
                      }
                    });
                  });
}

// (data, label: not read) -> probabilities
template <class T>
MaybeKernel MakeSoftmaxOutput(const KernelSpec& spec) {
  const AxisView view = ClassesOf(spec.attributes<SoftmaxOutputAttrs>(), spec.inputs[0].shape);
  return WithLoop(FlatKernel(spec, "loop", Format::Plain()),
                  [view](const Arguments& args) { SoftmaxAlong(view, T{1}, args.in<T>(0), args.out<T>(0)); });
}

// dx = (p - target) factor, where the target is made of labels.
template <class T>
struct Gradient {
  SoftmaxOutputAttrs attrs;
  AxisView view;

  int64_t ClassOf(double label, int64_t sample) const {
    if (!(label >= 0 && label < static_cast<double>(view.axis) && label == std::floor(label))) {
      Throw<DataError>("label {} of sample {} is not in 0..{}", label, sample, view.axis - 1);
    }
    return static_cast<int64_t>(label);
  }

  bool IsIgnored(double label) const { return attrs.use_ignore && label == attrs.ignore_label; }
  T AtLabel() const { return static_cast<T>(1 - attrs.smooth_alpha); }
  T OffLabel() const {
    return view.axis > 1 ? static_cast<T>(attrs.smooth_alpha / static_cast<double>(view.axis - 1)) : 0;
  }

  // For samples [begin, end) of one label each. p and dx may be the same memory: the elements at the labels are
  // computed before the others are overwritten.
  void RunRows(int64_t begin, int64_t end, const T* p, const Numbers& label, T factor, T* dx) const {
    constexpr int64_t kTile = 64;
    T own[kTile];
    const T at_label = AtLabel(), off = OffLabel();
    const int64_t n = view.axis;
    for (int64_t first = begin; first < end; first += kTile) {
      const int64_t samples = std::min(kTile, end - first);
      for (int64_t i = 0; i < samples; ++i) {
        const int64_t sample = first + i;
        own[i] = IsIgnored(label[sample]) ? 0 : (p[sample * n + ClassOf(label[sample], sample)] - at_label) * factor;
      }
      const T* from = p + first * n;
      T* to = dx + first * n;
      if (off == 0) {
        BestLoops<T>().scale(from, to, samples * n, factor);
      } else {
        for (int64_t i = 0; i < samples * n; ++i) to[i] = (from[i] - off) * factor;
      }
      for (int64_t i = 0; i < samples; ++i) {
        if (IsIgnored(label[first + i])) {
          std::fill_n(to + i * n, n, T{0});
        } else {
          to[i * n + static_cast<int64_t>(label[first + i])] = own[i];
        }
      }
    }
  }

  // The same for positions [begin, end) of all samples, with one label each.
  void RunPositions(int64_t begin, int64_t end, const T* p, const Numbers& label, T factor, T* dx) const {
    const T at_label = AtLabel(), off = OffLabel();
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

// (p, label [, valid count] [, head gradient]) -> (p - target) grad_scale / divisor
template <class T>
MaybeKernel MakeSoftmaxOutputGrad(const KernelSpec& spec) {
  const auto attrs = spec.attributes<SoftmaxOutputAttrs>();
  const Shape& shape = spec.inputs[0].shape;
  const Gradient<T> gradient{attrs, ClassesOf(attrs, shape)};
  const bool has_valid = attrs.normalization == Normalization::kValid, is_map = attrs.multi_output && !has_valid;
  const int64_t n = shape.Elements(), positions = is_map ? gradient.view.inner : 1;
  return WithLoop(FlatKernel(spec, "loop", Format::Plain()), [=, is_distribution = spec.inputs[1].shape == shape,
                                                              label_dtype = spec.inputs[1].dtype,
                                                              valid_dtype = spec.inputs[has_valid ? 2 : 0].dtype](
                                                                 const Arguments& args) {
    const Numbers label(label_dtype, args.inputs[1]);
    const double divisor = DivisorOf(attrs.normalization, *args.step, valid_dtype, args.inputs[has_valid ? 2 : 0]);
    const T factor = static_cast<T>(attrs.grad_scale / (divisor * static_cast<double>(positions)));
    const AxisView& view = gradient.view;
    const T* p = args.in<T>(0);
    T* dx = args.out<T>(0);
    if (is_distribution) {
      ParallelFor(n, kGrain, kSerialElements, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) dx[i] = (p[i] - static_cast<T>(label[i])) * factor;
      });
    } else if (view.inner == 1) {
      ParallelFor(view.outer, 1, kSerialElements / view.axis,
                  [&](int64_t begin, int64_t end, int) { gradient.RunRows(begin, end, p, label, factor, dx); });
    } else {
      ParallelFor(view.outer * view.inner, kGrain, kSerialElements / view.axis,
                  [&](int64_t begin, int64_t end, int) { gradient.RunPositions(begin, end, p, label, factor, dx); });
    }
    if (!attrs.out_grad) return;
    const T* head = args.in<T>(has_valid ? 3 : 2);
    ParallelFor(n, kGrain, kSerialElements, [&](int64_t begin, int64_t end, int) {
      BestLoops<T>().template BinaryOf<native::fn::Mul>()(dx + begin, head + begin, dx + begin, end - begin);
    });
    if (!attrs.use_ignore) return;
    // Zero remains zero, whatever the head gradient is.
    ParallelFor(view.outer * view.inner, 1, kSerialElements / view.axis, [&](int64_t begin, int64_t end, int) {
      for (int64_t position = begin; position < end; ++position) {
        if (!gradient.IsIgnored(label[position])) continue;
        T* first = dx + position / view.inner * view.axis * view.inner + position % view.inner;
        for (int64_t k = 0; k < view.axis; ++k) first[k * view.inner] = 0;
      }
    });
  });
}

constexpr KernelEntry kEntries[] = {
    {"Softmax", OfReals<MakeSoftmax<float>, MakeSoftmax<double>>},
    {"SoftmaxGrad", OfReals<MakeSoftmaxGrad<float>, MakeSoftmaxGrad<double>>},
    {"SoftmaxOutput", OfReals<MakeSoftmaxOutput<float>, MakeSoftmaxOutput<double>>},
    {"SoftmaxOutputGrad", OfReals<MakeSoftmaxOutputGrad<float>, MakeSoftmaxOutputGrad<double>>},
};

}  // namespace

KernelRows SoftmaxKernels() { return kEntries; }

}  // namespace bindery::cpu
