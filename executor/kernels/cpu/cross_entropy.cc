// LogSoftmax, Hardmax and the cross entropy, which stores no probabilities: of each label it keeps the largest element
// and log sum e^(x - largest).
//
// Where classes lie side by side a row is worked on in tiles that stay in the nearest cache; else columns are, up to
// kSliceColumns side by side, and so are short rows. Both are passes of the loops of simd/loops.h.
#include "symbol/ops/cross_entropy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/slices.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/softmax.h"

namespace bindery::cpu {
namespace {

constexpr int64_t kTile = kSliceColumns;

// Some columns: element k of column i is x[k * stride + i]. A row is one column of stride 1, whose classes are what
// loops run over.
template <class T>
class Columns {
 public:
  Columns(int64_t classes, int64_t stride, int64_t columns) : n_(classes), stride_(stride), columns_(columns) {}
  bool is_row() const { return stride_ == 1; }
  int64_t count() const { return columns_; }
  int64_t At(int64_t k, int64_t column) const { return k * stride_ + column; }

  // f(offset of a run, its elements, its first class) over everything
  template <class F>
  void ForRuns(const F& f) const {
    if (is_row()) {
      for (int64_t k = 0; k < n_; k += kTile) f(k, std::min(kTile, n_ - k), k);
    } else {
      for (int64_t k = 0; k < n_; ++k) f(k * stride_, columns_, k);
    }
  }

  // to = x - its column's number in `from`, of a run
  void Subtract(const T* x, const T* from, T* to, int64_t m) const {
    constexpr size_t kSub = native::BinaryFunctions::Find("Sub");
    (is_row() ? loops_.binary_scalar_b : loops_.binary)[kSub](x, from, to, m);
  }
  void Multiply(const T* x, const T* by, T* to, int64_t m) const {
    constexpr size_t kMul = native::BinaryFunctions::Find("Mul");
    (is_row() ? loops_.binary_scalar_b : loops_.binary)[kMul](x, by, to, m);
  }
  void Exp(T* x, int64_t m) const { loops_.template UnaryOf<native::fn::Exp>()(x, x, m); }
  // sums += x, each column's
  void Add(const T* x, double* sums, int64_t m) const {
    if (is_row()) {
      *sums += loops_.sum(x, m);
    } else {
      loops_.add_to(x, sums, m);
    }
  }

  // The largest element of each column and log sum e^(x - it). That sum is at least 1: what is beyond is exact.
  void MaxAndLogSum(const T* x, T* max, T* log_sum) const {
    if (is_row()) {
      *max = loops_.max(x, n_);
      *log_sum = static_cast<T>(std::log(loops_.exp_sum(x, n_, *max)));
      return;
    }
    std::copy_n(x, columns_, max);
    for (int64_t k = 1; k < n_; ++k) loops_.max_to(x + k * stride_, max, columns_);
    double sums[kTile];
    std::fill_n(sums, columns_, -1.0);
    T tile[kTile];
    ForRuns([&](int64_t at, int64_t m, int64_t) {
      Subtract(x + at, max, tile, m);
      Exp(tile, m);
      Add(tile, sums, m);
    });
    std::copy_n(sums, columns_, log_sum);
    loops_.template UnaryOf<native::fn::Log1p>()(log_sum, log_sum, columns_);
  }
  // y = x - max - log_sum, of a run; neither of the two alone is as good.
  void SubtractBoth(const T* x, const T* max, const T* log_sum, T* y, int64_t m) const {
    if (is_row()) {
      loops_.channels.normalize(x, y, m, {.mean = *max, .scale = 1, .beta = -*log_sum, .b = 0, .c = 0}, false);
    } else {
      Subtract(x, max, y, m);
      Subtract(y, log_sum, y, m);
    }
  }

 private:
  int64_t n_, stride_, columns_;
  const LoopsOf<T>& loops_ = BestLoops<T>();
};

// f(columns, position of the first, inputs, output) over everything, by the team; what has the view's shape begins with
// those columns. Short rows are transposed on the way, both ways.
template <class T, size_t kInputs, class F>
void ForColumns(const AxisView& view, const std::array<const T*, kInputs>& inputs, T* output, const F& f) {
  if (view.inner > 1 || view.axis > kShortRow) {
    ForSlices(view, kSerialExponentials, [&](const Slice& s) {
      std::array<const T*, kInputs> at;
      for (size_t i = 0; i < kInputs; ++i) at[i] = inputs[i] + s.start;
      f(Columns<T>(view.axis, view.inner, s.columns), s.position, at, output ? output + s.start : nullptr);
    });
    return;
  }
  ForTiles(view.outer, view.axis, kSerialExponentials, [&](int64_t first, int64_t rows) {
    std::array<const T*, kInputs> at;
    TileOfRows<T> from[kInputs], to;
    for (size_t i = 0; i < kInputs; ++i) {
      ToColumns(inputs[i] + first * view.axis, rows, view.axis, from[i]);
      at[i] = from[i];
    }
    f(Columns<T>(view.axis, kTileRows, rows), first, at, output ? to : nullptr);
    if (output) ToRows(to, rows, view.axis, output + first * view.axis);
  });
}

// data -> y
template <class T>
MaybeKernel MakeLogSoftmax(const KernelSpec& spec) {
  const AxisView view = ViewAlong(spec.inputs[0].shape, static_cast<int>(spec.attributes<LogSoftmaxAttrs>().axis));
  return WithLoop(FlatKernel(spec, "loop", Format::Plain()), [view](const Arguments& args) {
    ForColumns<T, 1>(view, {args.in<T>(0)}, args.out<T>(0), [&](const Columns<T>& all, int64_t, const auto& in, T* y) {
      T max[kTile], log_sum[kTile];
      all.MaxAndLogSum(in[0], max, log_sum);
      all.ForRuns([&](int64_t at, int64_t m, int64_t) { all.SubtractBoth(in[0] + at, max, log_sum, y + at, m); });
    });
  });
}

// (dy, y) -> dx = dy - e^y sum dy
template <class T>
MaybeKernel MakeLogSoftmaxGrad(const KernelSpec& spec) {
  const AxisView view = ViewAlong(spec.inputs[1].shape, static_cast<int>(spec.attributes<LogSoftmaxAttrs>().axis));
  return WithLoop(FlatKernel(spec, "loop", Format::Plain()), [view](const Arguments& args) {
    ForColumns<T, 2>(view, {args.in<T>(0), args.in<T>(1)}, args.out<T>(0),
                     [&](const Columns<T>& all, int64_t, const auto& in, T* dx) {
                       const T *dy = in[0], *y = in[1];
                       T tile[kTile], sums[kTile];
                       double exact[kTile];
                       std::fill_n(exact, all.count(), 0.0);
                       all.ForRuns([&](int64_t at, int64_t m, int64_t) { all.Add(dy + at, exact, m); });
                       std::copy_n(exact, all.count(), sums);
                       all.ForRuns([&](int64_t at, int64_t m, int64_t) {
                         std::copy_n(y + at, m, tile);
                         all.Exp(tile, m);
                         all.Multiply(tile, sums, tile, m);
                         BestLoops<T>().template BinaryOf<native::fn::Sub>()(dy + at, tile, dx + at, m);
                       });
                     });
  });
}

// data -> 1 at the first of the largest along the axis, else 0; a NaN is larger than any number
template <class T>
MaybeKernel MakeHardmax(const KernelSpec& spec) {
  const AxisView view = ViewAlong(spec.inputs[0].shape, static_cast<int>(spec.attributes<LogSoftmaxAttrs>().axis));
  return WithLoop(PlainKernel(spec, "loop"), [view](const Arguments& args) {
    ForSlices(view, kSerialElements, [&](const Slice& s) {
      const T* x = args.in<T>(0) + s.start;
      T* y = args.out<T>(0) + s.start;
      for (int64_t i = 0; i < s.columns; ++i) {
        int64_t best = i;
        for (int64_t k = 0; k < view.axis; ++k) {
          const int64_t at = k * view.inner + i;
          if (x[at] > x[best] || (x[at] != x[at] && x[best] == x[best])) best = at;
          y[at] = 0;
        }
        y[best] = 1;
      }
    });
  });
}

// The class numbers and the weights of a cross entropy.
struct Targets {
  CrossEntropyAttrs attrs;
  int64_t classes;

  bool IsIgnored(double label) const { return attrs.use_ignore && label == attrs.ignore_label; }
  int64_t ClassOf(double label, int64_t position) const {
    if (!(label >= 0 && label < static_cast<double>(classes) && label == std::floor(label))) {
      Throw<DataError>("label {} at position {} is not in 0..{}", label, position, classes - 1);
    }
    return static_cast<int64_t>(label);
  }
  double own() const { return 1 - attrs.label_smoothing; }
  double shared() const { return attrs.label_smoothing / static_cast<double>(classes); }
  template <class T>
  double WeightOf(const T* weights, int64_t k) const {
    return weights ? weights[k] : 1;
  }
  // Of a position whose class k has the probability e^-minus_log(k): its loss, and its label's weight.
  template <class T, class F>
  std::pair<double, double> Loss(double label, int64_t position, const T* weights, const F& minus_log) const {
    if (IsIgnored(label)) return {0, 0};
    const int64_t k = ClassOf(label, position);
    const double weight = WeightOf(weights, k), loss = own() * weight * minus_log(k);
    if (attrs.label_smoothing == 0) return {loss, weight};
    double sum = 0;
    for (int64_t j = 0; j < classes; ++j) sum += WeightOf(weights, j) * minus_log(j);
    return {loss + shared() * sum, weight};
  }
};

// (data, label [, class_weight]) -> loss, weight [, maximum, log_sum]
template <class T>
MaybeKernel MakeCrossEntropy(const KernelSpec& spec) {
  const auto attrs = spec.attributes<CrossEntropyAttrs>();
  const AxisView view = ViewAlong(spec.inputs[0].shape, static_cast<int>(attrs.axis));
  const Targets targets{attrs, view.axis};
  return WithLoop(PlainKernel(spec, "loop"), [=, dtype = spec.inputs[1].dtype](const Arguments& args) {
    const Numbers label(dtype, args.inputs[1]);
    const T* weights = attrs.use_weight ? args.in<T>(2) : nullptr;
    ForColumns<T, 1>(view, {args.in<T>(0)}, nullptr, [&](const Columns<T>& all, int64_t position, const auto& in, T*) {
      T max[kTile], log_sum[kTile];
      if (attrs.log_input) {
        std::fill_n(max, all.count(), T{0});
        std::fill_n(log_sum, all.count(), T{0});
      } else {
        all.MaxAndLogSum(in[0], max, log_sum);
      }
      for (int64_t i = 0; i < all.count(); ++i) {
        const auto minus_log = [&](int64_t k) {
          return static_cast<double>(max[i]) - in[0][all.At(k, i)] + log_sum[i];
        };
        const auto [loss, weight] = targets.Loss(label[position + i], position + i, weights, minus_log);
        if (T* out = args.out<T>(0)) out[position + i] = static_cast<T>(loss);  // a gradient alone reads the others
        if (T* out = args.out<T>(1)) out[position + i] = static_cast<T>(weight);
        if (attrs.log_input) continue;
        if (T* out = args.out<T>(2)) out[position + i] = max[i];
        if (T* out = args.out<T>(3)) out[position + i] = log_sum[i];
      }
    });
  });
}

// (dy, data, label [, class_weight] [, maximum, log_sum]) -> dx
template <class T>
MaybeKernel MakeCrossEntropyGrad(const KernelSpec& spec) {
  const auto attrs = spec.attributes<CrossEntropyAttrs>();
  const AxisView view = ViewAlong(spec.inputs[1].shape, static_cast<int>(attrs.axis));
  const Targets targets{attrs, view.axis};
  return WithLoop(FlatKernel(spec, "loop", Format::Plain()), [=, dtype = spec.inputs[2].dtype](const Arguments& args) {
    const Numbers label(dtype, args.inputs[2]);
    const T* weights = attrs.use_weight ? args.in<T>(3) : nullptr;
    const int statistics = attrs.use_weight ? 4 : 3;
    double total = 0;  // of the weights that all classes share
    for (int64_t k = 0; k < view.axis && attrs.label_smoothing != 0; ++k) {
      total += targets.shared() * targets.WeightOf(weights, k);
    }
    ForColumns<T, 1>(view, {args.in<T>(1)}, args.out<T>(0),
                     [&](const Columns<T>& all, int64_t position, const auto& in, T* dx) {
                       const T *x = in[0], *dy = args.in<T>(0) + position;
                       T factor[kTile], shared[kTile], own[kTile];
                       int64_t place[kTile];
                       for (int64_t i = 0; i < all.count(); ++i) {
                         const bool ignored = targets.IsIgnored(label[position + i]);
                         place[i] = ignored ? -1 : targets.ClassOf(label[position + i], position + i);
                         const double at_label = ignored ? 0 : targets.own() * targets.WeightOf(weights, place[i]);
                         factor[i] = static_cast<T>(dy[i] * (at_label + total));
                         shared[i] = static_cast<T>(dy[i] * targets.shared());
                         own[i] = static_cast<T>(dy[i] * at_label);
                       }
                       all.ForRuns([&](int64_t at, int64_t m, int64_t k) {
                         if (attrs.log_input) {
                           std::fill_n(dx + at, m, T{0});
                         } else {
                           all.SubtractBoth(x + at, args.in<T>(statistics) + position,
                                            args.in<T>(statistics + 1) + position, dx + at, m);
                           all.Exp(dx + at, m);
                           all.Multiply(dx + at, factor, dx + at, m);
                         }
                         if (attrs.label_smoothing == 0) return;
                         for (int64_t i = 0; i < m; ++i) {
                           const int64_t column = all.is_row() ? 0 : i, own_class = all.is_row() ? k + i : k;
                           dx[at + i] -= shared[column] * (weights ? weights[own_class] : T{1});
                         }
                       });
                       for (int64_t i = 0; i < all.count(); ++i) {
                         if (place[i] >= 0) {
                           dx[all.At(place[i], i)] -= own[i];
                         } else {  // even of NaN
                           for (int64_t k = 0; k < view.axis; ++k) dx[all.At(k, i)] = 0;
                         }
                       }
                     });
  });
}

constexpr KernelEntry kEntries[] = {
    {"LogSoftmax", OfReals<MakeLogSoftmax<float>, MakeLogSoftmax<double>>},
    {"LogSoftmaxGrad", OfReals<MakeLogSoftmaxGrad<float>, MakeLogSoftmaxGrad<double>>},
    {"Hardmax", OfReals<MakeHardmax<float>, MakeHardmax<double>>},
    {"CrossEntropy", OfReals<MakeCrossEntropy<float>, MakeCrossEntropy<double>>},
    {"CrossEntropyGrad", OfReals<MakeCrossEntropyGrad<float>, MakeCrossEntropyGrad<double>, 1>},  // data
};

}  // namespace

KernelRows CrossEntropyKernels() { return kEntries; }

}  // namespace bindery::cpu
