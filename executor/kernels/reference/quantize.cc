#include "symbol/ops/quantize.h"

#include <cmath>

#include "executor/kernel_table.h"
#include "executor/kernels/reference/util.h"

namespace bindery::reference {
namespace {

// f(x, scale, zero point)
MaybeKernel PerChannel(const KernelSpec& spec, int64_t axis, double (*f)(double x, double scale, double zero)) {
  const QuantizedView view = ChannelsOf(axis, spec.inputs[0].shape, spec.inputs[1].shape);
  return InDouble(spec, [=](const Tensors& t) {
    for (int64_t i = 0; i < view.outer * view.channels * view.inner; ++i) {
      const int64_t channel = i / view.inner % view.channels;
      t.out[0][i] = f(t.in[0][i], t.in[1][channel], t.in.size() > 2 ? t.in[2][channel] : 0);
    }
  });
}

// Storing keeps to the type's bounds. What is no number is 0. Quotients of all types but float64 are those of float32.
template <class Quotient>
double Quantized(double x, double scale, double zero) {
  const double q = std::nearbyint(static_cast<double>(static_cast<Quotient>(x / scale))) + zero;
  return std::isnan(q) ? 0 : q;
}

MaybeKernel MakeQuantize(const KernelSpec& spec) {
  const bool is_double = spec.inputs[0].dtype == DType::kFloat64;
  return PerChannel(spec, spec.attributes<QuantizeAttrs>().axis, is_double ? Quantized<double> : Quantized<float>);
}

MaybeKernel MakeDequantize(const KernelSpec& spec) {
  return PerChannel(spec, spec.attributes<DequantizeAttrs>().axis,
                    [](double x, double scale, double zero) { return (x - zero) * scale; });
}

constexpr KernelEntry kEntries[] = {
    {"QuantizeLinear", MakeQuantize},
    {"DequantizeLinear", MakeDequantize},
};

}  // namespace

KernelRows QuantizeKernels() { return kEntries; }

}  // namespace bindery::reference
