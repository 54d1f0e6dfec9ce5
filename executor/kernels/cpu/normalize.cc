// Normalisation of groups of contiguous elements: statistics first, of a group that is still in cache then, in double.
// LRN sums in its own type.
#include "symbol/ops/normalize.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/checked.h"
#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/slices.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

// f(group) by the team.
template <class F>
void ForGroups(const GroupView& view, const F& f) {
  ParallelFor(view.groups, 1, kSerialElements / view.elements(), [&](int64_t begin, int64_t end, int) {
    for (int64_t g = begin; g < end; ++g) f(g);
  });
}

// A parameter, or a number in the place of each element of one that is absent, in scratch memory.
template <class T>
class Parameter {
 public:
  Parameter(int input, int64_t n, T otherwise) : input_(input), n_(n), otherwise_(otherwise) {}
  int64_t scratch_bytes() const { return input_ < 0 ? CheckedMul(n_, sizeof(T)) : 0; }
  // `offset` is where its scratch memory begins, in bytes.
  const T* In(const Arguments& args, int64_t offset) const {
    if (input_ >= 0) return args.in<T>(input_);
    T* numbers = reinterpret_cast<T*>(static_cast<std::byte*>(args.scratch) + offset);
    std::fill_n(numbers, n_, otherwise_);
    return numbers;
  }

 private:
  int input_;
  int64_t n_;
  T otherwise_;
};

template <class T>
MaybeKernel MakeNormalize(const KernelSpec& spec) {
  const auto attrs = spec.attributes<NormalizeAttrs>();
  const GroupView view = GroupsOf(attrs, spec.inputs[0].shape);
  const Parameter<T> gamma(attrs.scale ? 1 : -1, view.parameters(), 1);
  const Parameter<T> beta(attrs.shift ? (attrs.scale ? 2 : 1) : -1, view.parameters(), 0);
  Kernel kernel = FlatKernel(spec, "loop", Format::Plain());
  kernel.scratch_bytes = CheckedAdd(gamma.scratch_bytes(), beta.scratch_bytes());
  return WithLoop(std::move(kernel), [=](const Arguments& args) {
    const LoopsOf<T>& loops = BestLoops<T>();
    const T *scale = gamma.In(args, 0), *shift = beta.In(args, gamma.scratch_bytes());
    const int64_t n = view.elements();
    ForGroups(view, [&](int64_t g) {
      const T* x = args.in<T>(0) + g * n;
      T* y = args.out<T>(0) + g * n;
      const double count = static_cast<double>(n), rounded = attrs.center ? loops.sum(x, n) / count : 0;
      const T mean = static_cast<T>(rounded);
      double sums[2] = {};  // of x - mean and of its square
      loops.channels.moments(x, n, mean, sums);
      const double rest = attrs.center ? sums[0] * sums[0] / count : 0;
      const double inverse = 1 / std::sqrt((sums[1] - rest) / (attrs.sum ? 1 : count) + attrs.eps);
      const T factor = static_cast<T>(inverse);
      if (view.by_position) {
        loops.affine(x, scale, shift, y, n, mean, factor);
      } else {
        for (int64_t c = 0; c < view.channels; ++c) {
          const int64_t p = view.Parameter(g, c * view.inner);
          loops.channels.normalize(x + c * view.inner, y + c * view.inner, view.inner,
                                   {mean, factor * scale[p], shift[p], 0, 0}, false);
        }
      }
      if (T* means = args.out<T>(1)) means[g] = mean;
      if (T* inverses = args.out<T>(2)) inverses[g] = factor;
    });
  });
}

// The gradient of data is scale g + b (x - mean) + c, of a group.
template <class T>
typename LoopsOf<T>::Channel Coefficients(const NormalizeAttrs& attrs, int64_t n, T mean, double inverse,
                                          const double* sums) {
  const double count = static_cast<double>(n);
  const double b = -inverse * inverse * inverse * sums[1] / (attrs.sum ? 1 : count);
  const double c = attrs.center ? -inverse * sums[0] / count : 0;
  return {mean, static_cast<T>(inverse), 0, static_cast<T>(b), static_cast<T>(c)};
}

// Parameters by position: each block of groups has sums of its own, which are added in order at the end.
template <class T>
MaybeKernel MakeGradByPosition(const KernelSpec& spec, const GroupView& view) {
  const auto attrs = spec.attributes<NormalizeAttrs>();
  const Parameter<T> gamma(attrs.scale ? 4 : -1, view.parameters(), 1);
  const int64_t n = view.elements(), rows = std::clamp<int64_t>(CeilDiv(view.groups, 16), 1, 64);
  const int64_t blocks = CeilDiv(view.groups, rows);
  const int64_t width = (spec.output_used[0] ? 2 : 3) * n;  // gamma's, beta's and, if nobody reads it, a row of dx
  Kernel kernel = FlatKernel(spec, "loop", Format::Plain());
  const int64_t partial_bytes = CheckedMul(CheckedMul(blocks, width), sizeof(T));
  kernel.scratch_bytes = CheckedAdd(partial_bytes, gamma.scratch_bytes());
  return WithLoop(std::move(kernel), [=](const Arguments& args) {
    const LoopsOf<T>& loops = BestLoops<T>();
    const T* scale = gamma.In(args, partial_bytes);
    T* partial = static_cast<T*>(args.scratch);
    ParallelFor(blocks, 1, kSerialElements / (rows * n), [&](int64_t begin, int64_t end, int) {
      for (int64_t block = begin; block < end; ++block) {
        T* of_gamma = partial + block * width;
        std::fill_n(of_gamma, 2 * n, T{0});
        for (int64_t g = block * rows; g < std::min(view.groups, (block + 1) * rows); ++g) {
          const T *dy = args.in<T>(0) + g * n, *x = args.in<T>(1) + g * n, mean = args.in<T>(2)[g];
          double sums[2] = {};
          loops.affine_sums(dy, x, scale, n, mean, sums);
          T* dx = args.out<T>(0) ? args.out<T>(0) + g * n : of_gamma + 2 * n;
          loops.affine_grad(dy, x, scale, dx, n, Coefficients<T>(attrs, n, mean, args.in<T>(3)[g], sums), of_gamma,
                            of_gamma + n);
        }
      }
    });
    for (const int which : {0, 1}) {  // gamma's, beta's
      if (!(which == 0 ? attrs.scale : attrs.shift)) continue;
      T* out = args.out<T>(which == 0 ? 1 : attrs.scale ? 2 : 1);
      if (!out) continue;
      ParallelFor(n, kGrain, kSerialElements / blocks, [&](int64_t begin, int64_t end, int) {
        constexpr int64_t kTile = 512;
        double sums[kTile];
        for (int64_t at = begin; at < end; at += kTile) {
          const int64_t m = std::min(kTile, end - at);
          std::fill_n(sums, m, 0.0);
          for (int64_t b = 0; b < blocks; ++b) loops.add_to(partial + b * width + which * n + at, sums, m);
          for (int64_t i = 0; i < m; ++i) out[at + i] = static_cast<T>(sums[i]);
        }
      });
    }
  });
}

// Parameters by channel, or none: sums of every channel of every group.
template <class T>
MaybeKernel MakeGradByChannel(const KernelSpec& spec, const GroupView& view) {
  const auto attrs = spec.attributes<NormalizeAttrs>();
  const Parameter<T> gamma(attrs.scale ? 4 : -1, view.parameters(), 1);
  const int64_t n = view.elements();
  Kernel kernel = FlatKernel(spec, "loop", Format::Plain());
  const int64_t partial_bytes = CheckedMul(CheckedMul(view.groups, view.channels), 2 * sizeof(double));
  kernel.scratch_bytes = CheckedAdd(partial_bytes, gamma.scratch_bytes());
  return WithLoop(std::move(kernel), [=](const Arguments& args) {
    const LoopsOf<T>& loops = BestLoops<T>();
    const T* scale = gamma.In(args, partial_bytes);
    double* partial = static_cast<double*>(args.scratch);  // of dy and of dy (x - mean) r
    ForGroups(view, [&](int64_t g) {
      const T *dy = args.in<T>(0) + g * n, *x = args.in<T>(1) + g * n, mean = args.in<T>(2)[g];
      const double inverse = args.in<T>(3)[g];
      double sums[2] = {};
      for (int64_t c = 0; c < view.channels; ++c) {
        double own[2] = {};
        loops.channels.grad_sums(dy + c * view.inner, x + c * view.inner, view.inner, {mean, 0, 0, 0, 0}, false, own);
        const double factor = scale[view.Parameter(g, c * view.inner)];
        for (int i : {0, 1}) sums[i] += factor * own[i];
        partial[(g * view.channels + c) * 2] = own[0];
        partial[(g * view.channels + c) * 2 + 1] = own[1] * inverse;
      }
      if (!args.out<T>(0)) return;
      auto channel = Coefficients<T>(attrs, n, mean, inverse, sums);
      for (int64_t c = 0; c < view.channels; ++c) {
        channel.scale = static_cast<T>(inverse) * scale[view.Parameter(g, c * view.inner)];
        loops.channels.grad_input(dy + c * view.inner, x + c * view.inner, args.out<T>(0) + g * n + c * view.inner,
                                  view.inner, channel, false);
      }
    });
    const int64_t parameters = view.parameters(), sets = view.groups * view.channels / parameters;
    const auto add = [&](int which, T* out) {
      for (int64_t p = 0; p < parameters && out; ++p) {
        double sum = 0;
        for (int64_t s = 0; s < sets; ++s) sum += partial[(s * parameters + p) * 2 + which];
        out[p] = static_cast<T>(sum);
      }
    };
    if (attrs.scale) add(1, args.out<T>(1));
    if (attrs.shift) add(0, args.out<T>(attrs.scale ? 2 : 1));
  });
}

// (dy, x, mean, inverse [, gamma]) -> dx [, dgamma] [, dbeta]
template <class T>
MaybeKernel MakeNormalizeGrad(const KernelSpec& spec) {
  const GroupView view = GroupsOf(spec.attributes<NormalizeAttrs>(), spec.inputs[1].shape);
  return view.by_position ? MakeGradByPosition<T>(spec, view) : MakeGradByChannel<T>(spec, view);
}

// ---- LRN: columns of positions, a tile of them at all channels in scratch memory

constexpr int64_t kColumns = 256;

// out[c] = the sum of term(k, i) over the channels k from c - before to c + after
template <class T, class F>
void WindowSums(int64_t channels, int64_t columns, int64_t before, int64_t after, T* out, const F& term) {
  for (int64_t c = 0; c < channels; ++c) {
    T* sums = out + c * columns;
    std::fill_n(sums, columns, T{0});
    const int64_t last = after < channels - c ? c + after : channels - 1;
    for (int64_t k = std::max<int64_t>(c - before, 0); k <= last; ++k) {
      for (int64_t i = 0; i < columns; ++i) sums[i] += term(k, i);
    }
  }
}

// s^exponent in place, s = bias + factor sum
template <class T>
void Powers(T* sums, int64_t n, T bias, T factor, T exponent) {
  const LoopsOf<T>& loops = BestLoops<T>();
  for (int64_t i = 0; i < n; ++i) sums[i] = bias + factor * sums[i];
  loops.template UnaryOf<native::fn::Log>()(sums, sums, n);
  loops.scale(sums, sums, n, exponent);
  loops.template UnaryOf<native::fn::Exp>()(sums, sums, n);
}

template <class T, bool kGradient>
MaybeKernel MakeLRN(const KernelSpec& spec) {
  const auto attrs = spec.attributes<LRNAttrs>();
  const AxisView view = ViewAlong(spec.inputs[0].shape, 1);
  const int64_t before = (attrs.size - 1) / 2, after = attrs.size / 2, channels = view.axis;
  const int64_t tile = CheckedMul(channels, std::min(kColumns, view.inner));
  const int64_t per_thread = RoundUp(CheckedMul(tile, 2 * sizeof(T)), 64);
  Kernel kernel = PlainKernel(spec, "loop");
  kernel.scratch_bytes = CheckedMul(per_thread, spec.threads);
  const T factor = static_cast<T>(attrs.alpha / static_cast<double>(attrs.size));
  const T bias = static_cast<T>(attrs.bias), exponent = static_cast<T>(-attrs.beta);
  return WithLoop(std::move(kernel), [=](const Arguments& args) {
    const auto work = [&](const Slice& s) {
      const int64_t columns = s.columns;
      const auto at = [&](int64_t c, int64_t i) { return s.start + c * view.inner + i; };
      const T* x = args.in<T>(kGradient ? 1 : 0);
      T* powers = reinterpret_cast<T*>(static_cast<std::byte*>(args.scratch) + s.thread * per_thread);
      WindowSums(channels, columns, before, after, powers,
                 [&](int64_t c, int64_t i) { return x[at(c, i)] * x[at(c, i)]; });
      if constexpr (!kGradient) {
        Powers(powers, channels * columns, bias, factor, exponent);
        for (int64_t c = 0; c < channels; ++c) {
          for (int64_t i = 0; i < columns; ++i) args.out<T>(0)[at(c, i)] = x[at(c, i)] * powers[c * columns + i];
        }
      } else {
        const T* dy = args.in<T>(0);
        T *dx = args.out<T>(0), *inner = powers + tile;
        std::copy_n(powers, channels * columns, inner);
        Powers(powers, channels * columns, bias, factor, exponent);
        for (int64_t c = 0; c < channels; ++c) {  // dy x s^(-beta - 1)
          for (int64_t i = 0; i < columns; ++i) {
            T& term = inner[c * columns + i];
            const T power = powers[c * columns + i] / (bias + factor * term);
            term = dy[at(c, i)] * x[at(c, i)] * power;
            dx[at(c, i)] = dy[at(c, i)] * powers[c * columns + i];
          }
        }
        WindowSums(channels, columns, after, before, powers,
                   [&](int64_t c, int64_t i) { return inner[c * columns + i]; });
        for (int64_t c = 0; c < channels; ++c) {
          for (int64_t i = 0; i < columns; ++i) {
            dx[at(c, i)] += 2 * exponent * factor * x[at(c, i)] * powers[c * columns + i];
          }
        }
      }
    };
    ForSlices(view, kSerialElements / 4, work, kColumns);
  });
}

constexpr KernelEntry kEntries[] = {
    {"Normalize", OfReals<MakeNormalize<float>, MakeNormalize<double>>},
    {"NormalizeGrad", OfReals<MakeNormalizeGrad<float>, MakeNormalizeGrad<double>>},
    {"LRN", OfReals<MakeLRN<float, false>, MakeLRN<double, false>>},
    {"LRNGrad", OfReals<MakeLRN<float, true>, MakeLRN<double, true>>},
};

}  // namespace

KernelRows NormalizeKernels() { return kEntries; }

}  // namespace bindery::cpu
