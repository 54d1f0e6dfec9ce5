// Integers that stand for real numbers: reckoned in double, but quotients as float32 has them, whose halves are ONNX'.
#include "symbol/ops/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

// value(element, scale, zero point) for every element.
template <class From, class To, class Scale, class Zero, class F>
Kernel PerChannel(const KernelSpec& spec, int64_t axis, const F& value) {
  const QuantizedView view = ChannelsOf(axis, spec.inputs[0].shape, spec.inputs[1].shape);
  return WithLoop(PlainKernel(spec, "loop"), [=](const Arguments& args) {
    ParallelFor(view.outer * view.channels * view.inner, kGrain, kSerialElements, [&](int64_t begin, int64_t end, int) {
      while (begin < end) {  // runs of one channel
        const int64_t row = begin / view.inner, channel = row % view.channels;
        const int64_t last = std::min((row + 1) * view.inner, end);
        const double scale = LoadDouble(args.in<Scale>(1)[channel]);
        const double zero = args.inputs.size() > 2 ? LoadDouble(args.in<Zero>(2)[channel]) : 0;
        const From* x = args.in<From>(0);
        To* y = args.out<To>(0);
        for (; begin < last; ++begin) y[begin] = value.template operator()<To>(LoadDouble(x[begin]), scale, zero);
      }
    });
  });
}

// Calls f with the element types of real numbers, and of whole ones.
template <class F>
MaybeKernel OfTypes(DType real, DType whole, const F& f) {
  return Dispatch(real, [&]<class Real>() -> MaybeKernel {
    if constexpr (std::is_integral_v<Real>) {
      return std::nullopt;
    } else {
      switch (whole) {
        case DType::kInt8: return f.template operator()<Real, int8_t>();
        case DType::kUInt8: return f.template operator()<Real, uint8_t>();
        case DType::kInt16: return f.template operator()<Real, int16_t>();
        case DType::kUInt16: return f.template operator()<Real, uint16_t>();
        case DType::kInt32: return f.template operator()<Real, int32_t>();
        default: return std::nullopt;
      }
    }
  });
}

MaybeKernel MakeQuantize(const KernelSpec& spec) {
  return OfTypes(spec.inputs[0].dtype, spec.outputs[0].dtype, [&]<class Real, class Whole>() {
    return PerChannel<Real, Whole, Real, Whole>(
        spec, spec.attributes<QuantizeAttrs>().axis, []<class To>(double x, double scale, double zero) {
          const double quotient = std::is_same_v<Real, double> ? x / scale : static_cast<float>(x / scale);
          const double q = std::nearbyint(quotient) + zero;
          using Limits = std::numeric_limits<To>;
          return q != q ? To{} : static_cast<To>(std::clamp<double>(q, Limits::min(), Limits::max()));
        });
  });
}

MaybeKernel MakeDequantize(const KernelSpec& spec) {
  return OfTypes(spec.outputs[0].dtype, spec.inputs[0].dtype, [&]<class Real, class Whole>() {
    return PerChannel<Whole, Real, Real, Whole>(
        spec, spec.attributes<DequantizeAttrs>().axis,
        []<class To>(double x, double scale, double zero) { return StoreDouble<To>((x - zero) * scale); });
  });
}

constexpr KernelEntry kEntries[] = {
    {"QuantizeLinear", MakeQuantize},
    {"DequantizeLinear", MakeDequantize},
};

}  // namespace

KernelRows QuantizeKernels() { return kEntries; }

}  // namespace bindery::cpu
