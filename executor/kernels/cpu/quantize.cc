// Integers that stand for real numbers: quotients as float32 has them, whose halves are ONNX', the rest in double. Runs
// of one scale between floats and integers of 8 and 16 bits are reckoned in floats, which hold the same numbers.
#include "symbol/ops/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/accumulator.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

// run(x, y, n, scale, zero point) for the elements of every scale; those of one scale as they lie.
template <class From, class To, class Scale, class Zero, class F>
Kernel PerChannel(const KernelSpec& spec, int64_t axis, F run) {
  const QuantizedView view = ChannelsOf(axis, spec.inputs[0].shape, spec.inputs[1].shape);
  Kernel kernel = PlainKernel(spec, "loop");
  if (view.channels == 1 && view.outer == 1) {
    kernel.input_formats[0] = kernel.output_formats[0] = CommonFormat(spec, {0}, /*zero_to_zero=*/false);
  }
  return WithLoop(std::move(kernel), [=](const Arguments& args) {
    ParallelFor(view.outer * view.channels * view.inner, kGrain, kSerialElements, [&](int64_t begin, int64_t end, int) {
      while (begin < end) {
        const int64_t row = begin / view.inner, channel = row % view.channels;
        const int64_t last = std::min((row + 1) * view.inner, end);
        const double scale = LoadDouble(args.in<Scale>(1)[channel]);
        const double zero = args.inputs.size() > 2 ? LoadDouble(args.in<Zero>(2)[channel]) : 0;
        run(args.in<From>(0) + begin, args.out<To>(0) + begin, last - begin, scale, zero);
        begin = last;
      }
    });
  });
}

// To whole numbers within the type's bounds.
template <class Real, class Whole>
void Quantize(const Real* x, Whole* y, int64_t n, double scale, double zero) {
  using Limits = std::numeric_limits<Whole>;
  if constexpr (std::is_same_v<Real, float> && sizeof(Whole) == 1) {
    BestIntegers().quantize(x, {static_cast<float>(scale), static_cast<float>(zero), Limits::min(), Limits::max()}, n,
                            reinterpret_cast<uint8_t*>(y));
  } else if constexpr (std::is_same_v<Real, float> && sizeof(Whole) == 2) {
    using native::BinaryFunctions;
    constexpr int64_t kTile = 512;
    const Loops& loops = BestLoops<float>();
    const float by = static_cast<float>(scale), shift = static_cast<float>(zero), low = Limits::min(),
                high = Limits::max();
    float tile[kTile];
    for (int64_t at = 0; at < n; at += kTile) {
      const int64_t m = std::min(kTile, n - at);
      loops.binary_scalar_b[BinaryFunctions::Find("Div")](x + at, &by, tile, m);
      loops.UnaryOf<native::fn::Round>()(tile, tile, m);
      loops.binary_scalar_b[BinaryFunctions::Find("Add")](tile, &shift, tile, m);
      loops.binary_scalar_b[BinaryFunctions::Find("Maximum")](tile, &low, tile, m);
      loops.binary_scalar_b[BinaryFunctions::Find("Minimum")](tile, &high, tile, m);
      for (int64_t i = 0; i < m; ++i) y[at + i] = tile[i] != tile[i] ? Whole{} : static_cast<Whole>(tile[i]);
    }
  } else {
    for (int64_t i = 0; i < n; ++i) {
      const double quotient = LoadDouble(x[i]) / scale;
      const double q = std::nearbyint(std::is_same_v<Real, double> ? quotient : static_cast<float>(quotient)) + zero;
      y[i] = q != q ? Whole{} : static_cast<Whole>(std::clamp<double>(q, Limits::min(), Limits::max()));
    }
  }
}

template <class Whole, class Real>
void Dequantize(const Whole* x, Real* y, int64_t n, double scale, double zero) {
  if constexpr (std::is_same_v<Real, float> && sizeof(Whole) <= 2) {
    constexpr int64_t kLanes = 16;  // side by side, for vectors
    const float by = static_cast<float>(scale);
    const int32_t shift = static_cast<int32_t>(zero);
    const auto real = [=](Whole element) { return static_cast<float>(element - shift) * by; };
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      for (int64_t k = 0; k < kLanes; ++k) y[i + k] = real(x[i + k]);
    }
    for (; i < n; ++i) y[i] = real(x[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = Stored<Real>((LoadDouble(x[i]) - zero) * scale);
  }
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
    return PerChannel<Real, Whole, Real, Whole>(spec, spec.attributes<QuantizeAttrs>().axis, Quantize<Real, Whole>);
  });
}

MaybeKernel MakeDequantize(const KernelSpec& spec) {
  return OfTypes(spec.outputs[0].dtype, spec.inputs[0].dtype, [&]<class Real, class Whole>() {
    return PerChannel<Whole, Real, Real, Whole>(spec, spec.attributes<DequantizeAttrs>().axis, Dequantize<Whole, Real>);
  });
}

constexpr KernelEntry kEntries[] = {
    {"QuantizeLinear", MakeQuantize},
    {"DequantizeLinear", MakeDequantize},
};

}  // namespace

KernelRows QuantizeKernels() { return kEntries; }

}  // namespace bindery::cpu
