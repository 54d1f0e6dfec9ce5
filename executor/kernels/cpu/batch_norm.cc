// Batch normalisation with loops of our own: one pass for the statistics, one to normalise; two backward. Data are of
// type E, all else is of T, which differs for data of 16 bits. relu costs no mask in memory: its state is a copy of
// beta, from which the gradient finds again, bit for bit, what was cut off.
//
// Where the devices of a group share statistics these are (3, C): count, mean, M2 = sum (x - mean)^2.
#include "symbol/ops/batch_norm.h"

#include <cmath>
#include <cstring>

#include "executor/kernel_table.h"
#include "executor/kernels/cpu/channel_passes.h"
#include "executor/kernels/cpu/copy.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

int AxisOf(const KernelSpec& spec) { return static_cast<int>(spec.attributes<BatchNormAttrs>().axis); }

template <class T>
Format StateOf(int64_t channels) {
  return Format::Opaque(channels * static_cast<int64_t>(sizeof(T)), "cpu:beta");
}

double InverseDeviation(double var, double eps) { return 1 / std::sqrt(var + eps); }

// One channel of statistics. In double, as every kind of device reckons with them: running values come out the same.
template <class T>
struct Moments {
  double n, mean, var;
  Moments(const T* statistics, int64_t channels, int64_t c)
      : n(statistics[c]), mean(statistics[channels + c]), var(n > 0 ? statistics[2 * channels + c] / n : 0) {}
};

// (data, gamma, beta [, statistics if shared], running_mean, running_var) -> y, mean, var [, state if relu]
template <class T, class E, bool kShared>
MaybeKernel MakeNormalize(const KernelSpec& spec) {
  const auto attrs = spec.attributes<BatchNormAttrs>();
  const bool relu = !kShared && attrs.relu;
  auto [kernel, passes] = MakeOverChannels<T, E>(spec, AxisOf(spec), {0}, true);
  const int64_t channels = passes.channels();
  if (relu) kernel.output_formats[3] = StateOf<T>(channels);
  // What is known was rounded when it was found out, before it was used.
  const bool running = UsesRunningValues(spec) || (attrs.known && !kShared);
  return WithLoop(std::move(kernel), [=, passes = passes](const Arguments& args) {
    const auto arrays = passes.In(args.scratch);
    const E* x = args.in<E>(0);
    const T *gamma = attrs.fix_gamma ? nullptr : args.in<T>(1), *beta = args.in<T>(2);
    const T *running_mean = args.in<T>(3 + kShared), *running_var = args.in<T>(4 + kShared);
    E* y = args.out<E>(0);
    T *mean_out = args.out<T>(1), *var_out = args.out<T>(2);
    if (!running && !kShared) passes.Moments(x, arrays);
    for (int64_t i = 0; i < channels; ++i) {
      T mean = running_mean[i], var = running_var[i];
      if (!running && kShared) {
        const Moments<T> shared(args.in<T>(3), channels, i);
        mean = static_cast<T>(shared.mean);
        var = static_cast<T>(shared.var);
      } else if (!running) {
        mean = static_cast<T>(arrays.first[i]);
        var = static_cast<T>(arrays.second[i] / passes.count());
      }
      if (mean_out) mean_out[i] = mean;
      if (var_out) var_out[i] = var;
      arrays.mean[i] = mean;
      arrays.scale[i] = static_cast<T>((gamma ? gamma[i] : 1) * InverseDeviation(var, attrs.eps));
      arrays.beta[i] = beta[i];
    }
    if (T* state = relu ? args.out<T>(3) : nullptr) std::memcpy(state, beta, static_cast<size_t>(channels) * sizeof(T));
    if (y) passes.Normalize(x, y, arrays, relu);  // else somebody asked for the statistics only
  });
}

// (dy, data, mean, var, gamma [, state if relu]) -> dx, dgamma, dbeta
template <class T, class E>
MaybeKernel MakeBatchNormGrad(const KernelSpec& spec) {
  const auto attrs = spec.attributes<BatchNormAttrs>();
  auto [kernel, passes] = MakeOverChannels<T, E>(spec, AxisOf(spec), {0, 1}, true);
  const int64_t channels = passes.channels();
  if (attrs.relu) {
    kernel.input_formats[5] = StateOf<T>(channels);
    if (spec.input_formats[5] != kernel.input_formats[5]) return std::nullopt;
  }
  return WithLoop(std::move(kernel), [=, passes = passes, running = UsesRunningValues(spec)](const Arguments& args) {
    const auto arrays = passes.In(args.scratch);
    const E *dy = args.in<E>(0), *x = args.in<E>(1);
    const T *mean = args.in<T>(2), *var = args.in<T>(3);
    const T *gamma = attrs.fix_gamma ? nullptr : args.in<T>(4), *beta = attrs.relu ? args.in<T>(5) : nullptr;
    E* dx = args.out<E>(0);
    T *dgamma = args.out<T>(1), *dbeta = args.out<T>(2);
    for (int64_t i = 0; i < channels; ++i) {
      arrays.mean[i] = mean[i];
      arrays.scale[i] = static_cast<T>((gamma ? gamma[i] : 1) * InverseDeviation(var[i], attrs.eps));
      arrays.beta[i] = beta ? beta[i] : 0;
      arrays.b[i] = arrays.c[i] = 0;
    }
    passes.GradSums(dy, x, arrays, attrs.relu);
    for (int64_t i = 0; i < channels; ++i) {
      const double inverse = InverseDeviation(var[i], attrs.eps);
      if (dgamma) dgamma[i] = gamma ? static_cast<T>(arrays.second[i] * inverse) : 0;
      if (dbeta) dbeta[i] = static_cast<T>(arrays.first[i]);
      if (running) continue;
      arrays.b[i] = static_cast<T>(-arrays.scale[i] * inverse * inverse * arrays.second[i] / passes.count());
      arrays.c[i] = static_cast<T>(-arrays.scale[i] * arrays.first[i] / passes.count());
    }
    if (dx) passes.GradInput(dy, x, dx, arrays, attrs.relu);
  });
}

// data -> statistics
template <class T, class E>
MaybeKernel MakeBatchNormStatistics(const KernelSpec& spec) {
  auto [kernel, passes] = MakeOverChannels<T, E>(spec, AxisOf(spec), {0}, false);
  return WithLoop(std::move(kernel), [passes = passes](const Arguments& args) {
    const auto arrays = passes.In(args.scratch);
    passes.Moments(args.in<E>(0), arrays);
    const int64_t channels = passes.channels();
    T* statistics = args.out<T>(0);
    for (int64_t i = 0; i < channels; ++i) {
      statistics[i] = static_cast<T>(passes.count());
      statistics[channels + i] = static_cast<T>(arrays.first[i]);
      statistics[2 * channels + i] = static_cast<T>(arrays.second[i]);
    }
  });
}

// (dy, data, statistics) -> sums (2, C): sum dy, sum dy x^
template <class T, class E>
MaybeKernel MakeBatchNormGradSums(const KernelSpec& spec) {
  auto [kernel, passes] = MakeOverChannels<T, E>(spec, AxisOf(spec), {0, 1}, false);
  return WithLoop(
      std::move(kernel), [passes = passes, eps = spec.attributes<BatchNormAttrs>().eps](const Arguments& args) {
        const auto arrays = passes.In(args.scratch);
        const int64_t channels = passes.channels();
        const T* statistics = args.in<T>(2);
        T* sums = args.out<T>(0);
        for (int64_t i = 0; i < channels; ++i) {
          arrays.mean[i] = static_cast<T>(Moments<T>(statistics, channels, i).mean);
          arrays.scale[i] = arrays.beta[i] = arrays.b[i] = arrays.c[i] = 0;
        }
        passes.GradSums(args.in<E>(0), args.in<E>(1), arrays, false);
        for (int64_t i = 0; i < channels; ++i) {
          sums[i] = static_cast<T>(arrays.first[i]);
          sums[channels + i] =
              static_cast<T>(arrays.second[i] * InverseDeviation(Moments<T>(statistics, channels, i).var, eps));
        }
      });
}

// (dy, data, gamma, statistics, sums) -> dx
template <class T, class E>
MaybeKernel MakeBatchNormGradInput(const KernelSpec& spec) {
  const auto attrs = spec.attributes<BatchNormAttrs>();
  auto [kernel, passes] = MakeOverChannels<T, E>(spec, AxisOf(spec), {0, 1}, true);
  return WithLoop(std::move(kernel), [passes = passes, attrs](const Arguments& args) {
    const auto arrays = passes.In(args.scratch);
    const int64_t channels = passes.channels();
    const T *gamma = args.in<T>(2), *sums = args.in<T>(4);
    for (int64_t i = 0; i < channels; ++i) {
      const Moments<T> m(args.in<T>(3), channels, i);
      const double n = m.n, inverse = InverseDeviation(m.var, attrs.eps);
      const double scale = (attrs.fix_gamma ? 1 : gamma[i]) * inverse;
      arrays.mean[i] = static_cast<T>(m.mean);
      arrays.scale[i] = static_cast<T>(scale);
      arrays.beta[i] = 0;
      arrays.b[i] = static_cast<T>(-scale * inverse * sums[channels + i] / n);
      arrays.c[i] = static_cast<T>(-scale * sums[i] / n);
    }
    passes.GradInput(args.in<E>(0), args.in<E>(1), args.out<E>(0), arrays, false);
  });
}

// f(channel, arguments), one after another: there are few channels.
template <class F>
MaybeKernel ForChannels(const KernelSpec& spec, int64_t channels, F f) {
  Kernel kernel = PlainKernel(spec, "loop");
  kernel.threads = 1;
  return WithLoop(std::move(kernel), [channels, f](const Arguments& args) {
    for (int64_t c = 0; c < channels; ++c) f(c, args);
  });
}

// statistics of one device or, along a new axis 0, of several -> statistics
template <class T>
MaybeKernel MakeMergeStatistics(const KernelSpec& spec) {
  const Shape& out = spec.outputs[0].shape;
  if (spec.inputs[0].shape == out) return ViewKernel(spec);
  const int64_t channels = out[1], devices = spec.inputs[0].shape[0];
  return ForChannels(spec, channels, [=](int64_t c, const Arguments& args) {
    const auto part = [&](int64_t device, int64_t row) -> double {
      return args.in<T>(0)[(device * 3 + row) * channels + c];
    };
    double n = 0, mean = 0, m2 = 0;
    for (int64_t d = 0; d < devices; ++d) {
      n += part(d, 0);
      mean += part(d, 0) * part(d, 1);
    }
    if (n > 0) mean /= n;
    for (int64_t d = 0; d < devices; ++d) m2 += part(d, 2) + part(d, 0) * (part(d, 1) - mean) * (part(d, 1) - mean);
    T* statistics = args.out<T>(0) + c;
    statistics[0] = static_cast<T>(n);
    statistics[channels] = static_cast<T>(mean);
    statistics[2 * channels] = static_cast<T>(m2);
  });
}

// (mean, var) -> statistics
template <class T>
MaybeKernel MakeBatchStatistics(const KernelSpec& spec) {
  const int64_t channels = spec.inputs[0].shape[0];
  const auto count = static_cast<T>(spec.attributes<BatchStatisticsAttrs>().count);
  return ForChannels(spec, channels, [=](int64_t c, const Arguments& args) {
    T* statistics = args.out<T>(0) + c;
    statistics[0] = count;
    statistics[channels] = args.in<T>(0)[c];
    statistics[2 * channels] = count * args.in<T>(1)[c];
  });
}

// (statistics, running_mean, running_var) -> running_mean, running_var
template <class T>
MaybeKernel MakeMoveStatistics(const KernelSpec& spec) {
  const int64_t channels = spec.inputs[1].shape[0];
  const double momentum = spec.attributes<BatchNormAttrs>().momentum;
  return ForChannels(spec, channels, [=](int64_t c, const Arguments& args) {
    const Moments<T> m(args.in<T>(0), channels, c);
    const double old = m.n > 0 ? momentum : 1;
    if (T* mean = args.out<T>(0)) mean[c] = static_cast<T>(old * args.in<T>(1)[c] + (1 - old) * m.mean);
    if (T* var = args.out<T>(1)) var[c] = static_cast<T>(old * args.in<T>(2)[c] + (1 - old) * m.var);
  });
}

// kMake.operator()<T, E>(spec) for the data's type, which is that of input 0.
template <auto kMake>
MaybeKernel OfFloats(const KernelSpec& spec) {
  switch (spec.inputs[0].dtype) {
    case DType::kFloat32: return kMake.template operator()<float, float>(spec);
    case DType::kFloat64: return kMake.template operator()<double, double>(spec);
    case DType::kBFloat16: return kMake.template operator()<float, bfloat16>(spec);
    case DType::kFloat16: return kMake.template operator()<float, float16>(spec);
    default: return std::nullopt;
  }
}

constexpr KernelEntry kEntries[] = {
    {"BatchNorm", OfFloats<[]<class T, class E>(const KernelSpec& s) { return MakeNormalize<T, E, false>(s); }>},
    {"BatchNormNormalize",
     OfFloats<[]<class T, class E>(const KernelSpec& s) { return MakeNormalize<T, E, true>(s); }>},
    {"BatchNormGrad", OfFloats<[]<class T, class E>(const KernelSpec& s) { return MakeBatchNormGrad<T, E>(s); }>},
    {"BatchNormStatistics",
     OfFloats<[]<class T, class E>(const KernelSpec& s) { return MakeBatchNormStatistics<T, E>(s); }>},
    {"BatchNormGradSums",
     OfFloats<[]<class T, class E>(const KernelSpec& s) { return MakeBatchNormGradSums<T, E>(s); }>},
    {"BatchNormGradInput",
     OfFloats<[]<class T, class E>(const KernelSpec& s) { return MakeBatchNormGradInput<T, E>(s); }>},
    {"MergeStatistics", OfReals<MakeMergeStatistics<float>, MakeMergeStatistics<double>>},
    {"BatchStatistics", OfReals<MakeBatchStatistics<float>, MakeBatchStatistics<double>>},
    {"MoveStatistics", OfReals<MakeMoveStatistics<float>, MakeMoveStatistics<double>>},
};

}  // namespace

KernelRows BatchNormKernels() { return kEntries; }

}  // namespace bindery::cpu
