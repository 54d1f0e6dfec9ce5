// Elementwise operators, each in its own element type: float and double in vectors (simd/loops.h), 16-bit floats by
// those of float, tile by tile, others by loops over numbers. Operators' functions are in executor/kernels/functions.h.
#include "executor/kernels/cpu/elementwise.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "engine/kernels/flat.h"
#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/copy.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"
#include "executor/kernels/native_functions.h"
#include "symbol/ops/activation.h"
#include "symbol/ops/curve.h"

namespace bindery::cpu {
namespace {

template <class T>
const T* As(const void* x) {
  return static_cast<const T*>(x);
}
template <class X, class Y>
Run RunOf(void (*loop)(const X* x, Y* y, int64_t n)) {
  return [loop](const Operands& x, void* y, int64_t n) { loop(As<X>(x[0]), static_cast<Y*>(y), n); };
}
template <class X, class Y>
Run RunOf(void (*loop)(const X* a, const X* b, Y* y, int64_t n)) {
  return [loop](const Operands& x, void* y, int64_t n) { loop(As<X>(x[0]), As<X>(x[1]), static_cast<Y*>(y), n); };
}

template <class T>
constexpr bool kIsHalf = std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;

// The run for halves of one for floats: a tile of each operand is converted in the nearest cache, results rounded once.
constexpr int64_t kTile = 512;            // few, so that memory is read while others are computed
static_assert(kTile <= kSerialElements);  // flat::Cast stays in the calling thread
template <class T>
void ToFloats(const T* x, float* y, int64_t n) {
  if constexpr (std::is_same_v<T, bfloat16>) return BestLoops().conversions.widen(x, y, n);
  flat::Cast(kDTypeOf<T>, x, DType::kFloat32, y, n);
}
template <class T>
void FromFloats(const float* x, T* y, int64_t n) {
  if constexpr (std::is_same_v<T, bfloat16>) return BestLoops().conversions.narrow(x, y, n);
  flat::Cast(DType::kFloat32, x, kDTypeOf<T>, y, n);
}
template <class T>
Run InFloat(Run run, size_t operands, unsigned still) {
  return [=, run = std::move(run)](const Operands& x, void* y, int64_t n) {
    alignas(64) float tiles[kMaxStretched][kTile], results[kTile];
    Operands in{};
    for (size_t k = 0; k < operands; ++k) {
      in[k] = tiles[k];
      if (still >> k & 1) tiles[k][0] = static_cast<float>(*As<T>(x[k]));
    }
    for (int64_t at = 0; at < n; at += kTile) {
      const int64_t count = std::min(kTile, n - at);
      for (size_t k = 0; k < operands; ++k) {
        if (!(still >> k & 1)) ToFloats(As<T>(x[k]) + at, tiles[k], count);
      }
      run(in, results, count);
      FromFloats(results, static_cast<T*>(y) + at, count);
    }
  };
}

template <class F, class T>
void NativeUnary(const T* x, native::Result<F, T>* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = native::Call<F, T>(x[i]);
}
template <class F, class T, int kStepA, int kStepB>
void NativeBinary(const T* a, const T* b, native::Result<F, T>* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = native::Call<F, T>(a[i * kStepA], b[i * kStepB]);
}

// The loops of a function; those of float and double are the vectors', where there are some.
template <class F, class T>
Run UnaryRun(unsigned) {
  constexpr size_t kActivation = native::ActivationFunctions::Find(F::kName);
  if constexpr (kIsHalf<T> && (F::kFlags & kTruth) == 0) {
    return InFloat<T>(UnaryRun<F, float>(0), 1, 0);
  } else if constexpr (!std::is_floating_point_v<T> || (F::kFlags & kTruth) != 0) {
    return RunOf(NativeUnary<F, T>);
  } else if constexpr (kActivation < native::ActivationFunctions::kSize) {
    return RunOf(BestLoops<T>().activation[kActivation]);
  } else {
    return RunOf(BestLoops<T>().template UnaryOf<F>());
  }
}
template <class F, class T>
Run BinaryRun(unsigned still) {
  constexpr bool kVectors = std::is_floating_point_v<T> && (F::kFlags & kTruth) == 0;
  constexpr size_t kGradient = native::ActivationGradFunctions::Find(F::kName);
  if constexpr (kVectors && kGradient < native::ActivationGradFunctions::kSize) {
    return RunOf(BestLoops<T>().activation_grad[kGradient]);
  } else if constexpr (kVectors) {
    constexpr size_t kIndex = native::BinaryFunctions::Find(F::kName);
    const LoopsOf<T>& best = BestLoops<T>();
    const auto& loops = still == 2 ? best.binary_scalar_b : still == 1 ? best.binary_scalar_a : best.binary;
    return RunOf(loops[kIndex]);
  } else if constexpr (kIsHalf<T> && (F::kFlags & kTruth) == 0) {
    return InFloat<T>(BinaryRun<F, float>(still), 2, still);
  } else {
    return RunOf(still == 2   ? NativeBinary<F, T, 1, 0>
                 : still == 1 ? NativeBinary<F, T, 0, 1>
                              : NativeBinary<F, T, 1, 1>);
  }
}

// Every operand has one type: f of it, or nothing where F is not made for it.
template <class F, size_t kOperands>
MaybeLoop FunctionLoop(const KernelSpec& spec) {
  for (const ValueType& input : spec.inputs) {
    if (input.dtype != spec.inputs[0].dtype) return std::nullopt;
  }
  // Is padding still zero afterwards? -0 is not.
  const bool keeps_zero =
      (F::kFlags & kZeroKept) || (spec.op->zero_to_zero && std::string_view(F::kName) != "Negative");
  using Maker = Run (*)(unsigned still);
  const Maker run_of = Dispatch(spec.inputs[0].dtype, []<class T>() -> Maker {
    if constexpr (!native::kTakes<F, T>) {
      return nullptr;
    } else if constexpr (kOperands == 1) {
      return UnaryRun<F, T>;
    } else {
      return BinaryRun<F, T>;
    }
  });
  if (!run_of) return std::nullopt;
  return ElementLoop{run_of, keeps_zero};
}

template <LoopMaker kLoop>
MaybeKernel Make(const KernelSpec& spec) {
  const MaybeLoop loop = kLoop(spec);
  return loop ? MaybeKernel(ElementwiseKernel(spec, *loop)) : std::nullopt;
}

// What an Activation, or its gradient, is: one of the list, or nothing that changes a number.
template <size_t kOperands, class... F>
MaybeLoop ActivationLoopOf(const KernelSpec& spec, FunctionList<F...>) {
  static constexpr LoopMaker kMakers[] = {FunctionLoop<F, kOperands>...};
  const auto type = static_cast<size_t>(spec.attributes<ActivationAttrs>().type);
  return type == 0 ? std::nullopt : kMakers[type - 1](spec);
}
// data -> output
MaybeLoop ActivationLoop(const KernelSpec& spec) { return ActivationLoopOf<1>(spec, native::ActivationFunctions()); }
// (dy, y) -> dx. dy = 0 gives 0 whatever y is.
MaybeLoop ActivationGradLoop(const KernelSpec& spec) {
  return ActivationLoopOf<2>(spec, native::ActivationGradFunctions());
}
template <LoopMaker kLoop>
MaybeKernel MakeActivation(const KernelSpec& spec) {
  const bool is_none = spec.attributes<ActivationAttrs>().type == ActivationType::kNone;
  return is_none ? ViewKernel(spec) : Make<kLoop>(spec);
}

// data -> output, and (dy, data) -> dx
template <class T, size_t kOperands, class... F>
MaybeLoop CurveLoopOf(const KernelSpec& spec, FunctionList<F...>) {
  using Real = std::conditional_t<kIsHalf<T>, float, T>;
  const auto& attrs = spec.attributes<CurveAttrs>();
  const auto type = static_cast<size_t>(attrs.type);
  const Real alpha = static_cast<Real>(attrs.alpha), beta = static_cast<Real>(attrs.beta);
  Run run;
  if constexpr (kOperands == 1) {
    run = [=, loop = BestLoops<Real>().curve[type]](const Operands& x, void* y, int64_t n) {
      loop(As<Real>(x[0]), static_cast<Real*>(y), n, alpha, beta);
    };
  } else {
    run = [=, loop = BestLoops<Real>().curve_grad[type]](const Operands& x, void* y, int64_t n) {
      loop(As<Real>(x[0]), As<Real>(x[1]), static_cast<Real*>(y), n, alpha, beta);
    };
  }
  if constexpr (kIsHalf<T>) run = InFloat<T>(std::move(run), kOperands, 0);
  static constexpr bool kKeepsZero[] = {(F::kFlags & kZeroKept) != 0 ...};
  return ElementLoop{[run = std::move(run)](unsigned) { return run; }, kOperands == 2 || kKeepsZero[type]};
}
template <size_t kOperands>
MaybeLoop CurveLoop(const KernelSpec& spec) {
  return Dispatch(spec.inputs[0].dtype, [&]<class T>() -> MaybeLoop {
    if constexpr (kIsHalf<T> || std::is_floating_point_v<T>) {
      return CurveLoopOf<T, kOperands>(spec, native::CurveFunctions());
    } else {
      return std::nullopt;
    }
  });
}

// (condition, a, b) -> y: elements are moved, whatever they are.
template <class T, unsigned kStill>
void Choose(const Operands& x, void* y, int64_t n) {
  constexpr int kC = kStill & 1 ? 0 : 1, kA = kStill & 2 ? 0 : 1, kB = kStill & 4 ? 0 : 1;
  const bool* c = As<bool>(x[0]);
  const T *a = As<T>(x[1]), *b = As<T>(x[2]);
  T* out = static_cast<T*>(y);
  for (int64_t i = 0; i < n; ++i) out[i] = c[i * kC] ? a[i * kA] : b[i * kB];
}
template <class T>
Run ChooseRun(unsigned still) {
  static constexpr auto kRuns = []<size_t... k>(std::index_sequence<k...>) { return std::array{Choose<T, k>...}; }
  (std::make_index_sequence<8>());
  return kRuns[still];
}
MaybeLoop WhereLoop(const KernelSpec& spec) {
  return OfSize(SizeOf(spec.outputs[0].dtype), []<class T>() { return ElementLoop{ChooseRun<T>, true}; });
}

// data -> output, its shape stretched
template <class T>
Run CopyRun(unsigned still) {
  if (still == 0) return RunOf<T, T>([](const T* x, T* y, int64_t n) { std::copy_n(x, n, y); });
  return RunOf<T, T>([](const T* x, T* y, int64_t n) { std::fill_n(y, n, *x); });
}
// Data seen as (rows, 1, run), its output as (rows, repeats, run): each run several times, one behind the other.
struct Repeated {
  int64_t rows, repeats, run;
};
// No value: several axes are stretched with others between them.
std::optional<Repeated> RepeatedRuns(const Shape& data, const Shape& output) {
  const int missing = output.rank() - data.rank();
  int first = output.rank(), end = 0;  // of the axes that are stretched
  for (int i = 0; i < output.rank(); ++i) {
    if ((i < missing ? 1 : data[i - missing]) != output[i]) first = std::min(first, i), end = i + 1;
  }
  first = std::min(first, end);
  for (int i = first; i < end; ++i) {
    if (i >= missing && data[i - missing] != 1) return std::nullopt;
  }
  const int64_t repeats = Shape(output.dims().subspan(first, end - first)).Elements();
  return Repeated{output.CountTo(first), repeats, output.CountFrom(end)};
}
// Rows [begin, end) of short runs.
template <class T>
void RepeatElements(const T* x, T* y, const Repeated& r, int64_t begin, int64_t end) {
  y += begin * r.repeats * r.run;
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t i = 0; i < r.repeats; ++i, y += r.run) {
      for (int64_t j = 0; j < r.run; ++j) y[j] = x[row * r.run + j];
    }
  }
}
MaybeKernel MakeBroadcastTo(const KernelSpec& spec) {
  if (spec.inputs[0].shape == spec.outputs[0].shape) return ViewKernel(spec);
  const std::optional<Repeated> r = RepeatedRuns(spec.inputs[0].shape, spec.outputs[0].shape);
  return OfSize(SizeOf(spec.outputs[0].dtype), [&]<class T>() {
    // What is short enough for a call to cost more than it moves, and has rows for all threads.
    if (r && r->repeats * r->run < 64 && r->rows >= 4 * spec.threads) {
      return WithLoop(FlatKernel(spec, "repeat loop", Format::Plain()), [r = *r](const Arguments& args) {
        ParallelFor(r.rows, 1, kSerialElements / std::max<int64_t>(r.repeats * r.run, 1),
                    [&](int64_t b, int64_t e, int) { RepeatElements(args.in<T>(0), args.out<T>(0), r, b, e); });
      });
    }
    return ElementwiseKernel(spec, {CopyRun<T>, true});
  });
}

// (g0, g1, y) -> (g0 + g1) [y > 0]
template <class T>
Run AddReluGradRun(unsigned) {
  if constexpr (kIsHalf<T>) return InFloat<T>(AddReluGradRun<float>(0), 3, 0);
  return [](const Operands& x, void* y, int64_t n) {
    if constexpr (std::is_floating_point_v<T>) {
      BestLoops<T>().add_relu_grad(As<T>(x[0]), As<T>(x[1]), As<T>(x[2]), static_cast<T*>(y), n);
    } else {
      const T zero{};
      for (int64_t i = 0; i < n; ++i) {
        const bool passes = native::Call<native::fn::Greater, T>(As<T>(x[2])[i], zero);
        static_cast<T*>(y)[i] = passes ? native::Call<native::fn::Add, T>(As<T>(x[0])[i], As<T>(x[1])[i]) : zero;
      }
    }
  };
}
MaybeLoop AddReluGradLoop(const KernelSpec& spec) {
  return Dispatch(spec.outputs[0].dtype, []<class T>() { return ElementLoop{AddReluGradRun<T>, true}; });
}

// y[begin..end) = the sum of `count` inputs, in order. A tile of it stays in the nearest cache while they are added.
using SumRange = void (*)(const void* const* inputs, size_t count, void* y, int64_t begin, int64_t end);
template <class T>
void SumTiles(const void* const* inputs, size_t count, void* y, int64_t begin, int64_t end) {
  const Run add = BinaryRun<native::fn::Add, T>(0);
  for (int64_t at = begin; at < end; at += kTile) {
    T* const sum = static_cast<T*>(y) + at;
    const T* so_far = As<T>(inputs[0]) + at;
    for (size_t i = 1; i < count; ++i, so_far = sum) {
      add({so_far, As<T>(inputs[i]) + at}, sum, std::min(kTile, end - at));
    }
  }
}
// Halves are added in float and rounded once.
template <class T>
void SumHalves(const void* const* inputs, size_t count, void* y, int64_t begin, int64_t end) {
  alignas(64) float sum[kTile], term[kTile];
  const auto add = BestLoops<float>().BinaryOf<native::fn::Add>();
  for (int64_t at = begin; at < end; at += kTile) {
    const int64_t n = std::min(kTile, end - at);
    ToFloats(As<T>(inputs[0]) + at, sum, n);
    for (size_t i = 1; i < count; ++i) {
      ToFloats(As<T>(inputs[i]) + at, term, n);
      add(sum, term, sum, n);
    }
    FromFloats(sum, static_cast<T*>(y) + at, n);
  }
}
SumRange SumOf(DType dtype) {
  return Dispatch(dtype, []<class T>() -> SumRange {
    if constexpr (kIsHalf<T>) return SumHalves<T>;
    return SumTiles<T>;
  });
}

// arg0, arg1, ... -> their sum
MaybeKernel MakeAddN(const KernelSpec& spec) {
  if (spec.inputs.size() == 1) return ViewKernel(spec);
  if (spec.inputs.size() == 2) return Make<FunctionLoop<native::fn::Add, 2>>(spec);
  Format format = Format::Plain();
  for (int i = static_cast<int>(spec.inputs.size()) - 1; i >= 0; --i) {
    if (const Format f = CommonFormat(spec, {i}, true); !f.is_plain()) format = f;
  }
  Kernel kernel = FlatKernel(spec, "loop", format);
  const int64_t n = StorageElements(format, spec.outputs[0].shape);
  return WithLoop(std::move(kernel), [n, sum = SumOf(spec.outputs[0].dtype)](const Arguments& args) {
    ParallelFor(n, kGrain, kSerialElements, [&](int64_t begin, int64_t end, int) {
      sum(args.inputs.data(), args.inputs.size(), args.outputs[0], begin, end);
    });
  });
}
// As many as a run takes.
MaybeLoop AddNLoop(const KernelSpec& spec) {
  const size_t count = spec.inputs.size();
  if (count == 2) return FunctionLoop<native::fn::Add, 2>(spec);
  if (count < 2 || count > kMaxOperands) return std::nullopt;
  const Run run = [count, sum = SumOf(spec.outputs[0].dtype)](const Operands& x, void* y, int64_t n) {
    sum(x.data(), count, y, 0, n);
  };
  return ElementLoop{[run](unsigned) { return run; }, true};
}

constexpr KernelEntry kEntries[] = {
    {"Activation", MakeActivation<ActivationLoop>},
    {"ActivationGrad", MakeActivation<ActivationGradLoop>},
    {"Curve", Make<CurveLoop<1>>},
    {"CurveGrad", Make<CurveLoop<2>>},
    {"AddReluGrad", Make<AddReluGradLoop>},
    {"AddN", MakeAddN},
    {"Where", Make<WhereLoop>},
    {"BroadcastTo", MakeBroadcastTo},
};

template <size_t kOperands, class... F>
KernelRows RowsOf(FunctionList<F...>) {
  static constexpr KernelEntry kRows[] = {{F::kName, Make<FunctionLoop<F, kOperands>>}...};
  return kRows;
}

using LoopMakers = std::unordered_map<std::string_view, LoopMaker>;
template <size_t kOperands, class... F>
void AddLoops(FunctionList<F...>, LoopMakers* to) {
  (to->emplace(F::kName, FunctionLoop<F, kOperands>), ...);
}
LoopMakers AllLoops() {
  LoopMakers all = {{"Activation", ActivationLoop},
                    {"ActivationGrad", ActivationGradLoop},
                    {"Curve", CurveLoop<1>},
                    {"CurveGrad", CurveLoop<2>},
                    {"AddReluGrad", AddReluGradLoop},
                    {"AddN", AddNLoop},
                    {"Where", WhereLoop},
                    {"Cast", CastLoop},
                    {"DropoutGrad", DropoutGradLoop}};
  AddLoops<1>(native::UnaryFunctions(), &all);
  AddLoops<2>(native::BinaryFunctions(), &all);
  AddLoops<1>(native::Predicates(), &all);
  AddLoops<2>(native::Relations(), &all);
  return all;
}

}  // namespace

MaybeLoop LoopOf(const KernelSpec& spec) {
  static const LoopMakers makers = AllLoops();
  const auto found = makers.find(spec.op->name);
  return found == makers.end() ? std::nullopt : found->second(spec);
}

KernelRows ElementwiseKernels() { return kEntries; }
KernelRows UnaryKernels() { return RowsOf<1>(native::UnaryFunctions()); }
KernelRows BinaryKernels() { return RowsOf<2>(native::BinaryFunctions()); }
KernelRows PredicateKernels() { return RowsOf<1>(native::Predicates()); }
KernelRows RelationKernels() { return RowsOf<2>(native::Relations()); }

}  // namespace bindery::cpu
