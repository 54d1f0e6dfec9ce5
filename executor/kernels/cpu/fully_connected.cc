// FullyConnected: oneDNN's inner product, with weights in the format that it likes best; own loops where the work is so
// small that calling oneDNN (about 0.2 us) would be a large part of it, and for single rows, which only stream the
// weights.
#include "symbol/ops/fully_connected.h"

#include <algorithm>
#include <string>
#include <vector>

#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/activation_pass.h"
#include "executor/kernels/cpu/bias_gradient.h"
#include "executor/kernels/cpu/dnnl_util.h"
#include "executor/kernels/cpu/gemm.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

using dnnl::memory;

// y (m, n) = x (m, k) w^T (k, n)
struct Product {
  int64_t m, n, k;
  bool has_bias;

  Product(const FullyConnectedAttrs& attrs, const Shape& data, const Shape& weight)
      : m(attrs.flatten ? data[0] : data.CountTo(data.rank() - 1)), n(weight[0]), k(weight[1]),
        has_bias(!attrs.no_bias) {}

  double flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
  bool IsTiny() const { return flops() <= 16e3; }
  memory::desc X() const { return {{m, k}, memory::data_type::f32, memory::format_tag::ab}; }
  memory::desc Y() const { return {{m, n}, memory::data_type::f32, memory::format_tag::ab}; }
  memory::desc Bias() const { return {{n}, memory::data_type::f32, memory::format_tag::a}; }
  memory::desc AnyWeight() const { return AnyDesc({n, k}); }
  memory::desc PlainWeight() const { return {{n, k}, memory::data_type::f32, memory::format_tag::ab}; }

  dnnl::inner_product_forward::desc Forward(const memory::desc& w) const {
    const auto kind = dnnl::prop_kind::forward_training;
    if (has_bias) return {kind, X(), w, Bias(), Y()};
    return {kind, X(), w, Y()};
  }
  // The backward primitives want to know the forward one; it decides nothing here.
  dnnl::inner_product_forward::primitive_desc Hint() const {
    return {Forward(AnyWeight()), UserScratchpad(), Engine(), true};
  }
};

// A product costs a thread 8 floats of weights per cycle at best, and then some: this many elements are worth a team.
constexpr int64_t kSerialWeights = 128 * 1024;

Kernel OwnForward(const KernelSpec& spec, const Product& p, const ActivationPass& pass) {
  Kernel kernel = PlainKernel(spec, "loop");
  kernel.bind = [p, pass](const KernelArgs& args) -> Call {
    const float* bias = p.has_bias ? In(args, 2) : nullptr;
    return [=, x = In(args, 0), w = In(args, 1), y = Out(args, 0), product = BestLoops().matrix_vector] {
      const int64_t serial = p.m * p.k > 0 ? kSerialWeights / (p.m * p.k) : p.n;
      ParallelFor(p.n, kGrain, serial, [&](int64_t begin, int64_t end, int) {
        for (int64_t row = 0; row < p.m; ++row) {
          product(w + begin * p.k, x + row * p.k, bias ? bias + begin : nullptr, y + row * p.n + begin, end - begin,
                  p.k);
        }
      });
      pass(y, p.m * p.n);
    };
  };
  return kernel;
}

// The first of the weight formats wished for, the primitive's own choice and plain that is fast and expressible.
template <class PrimitiveDesc, class Make, class WeightOf>
std::optional<std::pair<PrimitiveDesc, Format>> Choose(const Product& p, const std::optional<Format>& wish,
                                                       const Make& make, const WeightOf& weight_of) {
  std::optional<std::pair<PrimitiveDesc, Format>> slow;
  const Shape shape = {p.n, p.k};
  std::vector<memory::desc> weights;
  if (wish) {
    if (const auto wished = ToDesc(*wish, DType::kFloat32, shape)) weights.push_back(*wished);
  }
  weights.push_back(p.AnyWeight());
  weights.push_back(p.PlainWeight());
  for (const memory::desc& weight : weights) {
    PrimitiveDesc desc = make(weight);
    if (!desc) continue;
    const auto format = FromDesc(weight_of(desc), shape);
    if (!format) continue;
    if (!IsSlow(desc.impl_info_str())) return std::pair(desc, *format);
    if (!slow) slow.emplace(desc, *format);
  }
  return slow;
}

// Own loops read plain weights; one that is stored otherwise is not worth a reorder in every run.
bool HasPlainWeight(const KernelSpec& spec) { return spec.input_is_open[1] || spec.input_formats[1].is_plain(); }

// f(y + bias) for rows of n.
template <class F>
void FinishRows(double* y, const double* bias, int64_t rows, int64_t n) {
  for (int64_t i = 0; i < rows * n; ++i) y[i] = F()(bias ? y[i] + bias[i % n] : y[i]);
}
struct Same {
  double operator()(double x) const { return x; }
};
template <class... F>
auto FinishOf(ActivationType type, FunctionList<F...>) {
  static constexpr void (*kLoops[])(double*, const double*, int64_t, int64_t) = {FinishRows<Same>, FinishRows<F>...};
  return kLoops[static_cast<size_t>(type)];
}

// (data, weight [, bias]) -> y, in float64
Kernel Float64Forward(const KernelSpec& spec, const Product& p, ActivationType activation) {
  Kernel kernel = Float64Gemm(spec, p.m, p.n, p.k, {0, p.k, 1}, {1, 1, p.k});
  if (!p.has_bias && activation == ActivationType::kNone) return kernel;
  const auto finish = FinishOf(activation, native::ActivationFunctions());
  kernel.bind = [=, product = kernel.bind](const KernelArgs& args) -> Call {
    const auto* bias = p.has_bias ? static_cast<const double*>(args.inputs[2]) : nullptr;
    return [=, run = product(args), y = static_cast<double*>(args.outputs[0])] {
      run();
      ParallelFor(p.m, 1, kSerialElements / p.n,
                  [&](int64_t begin, int64_t end, int) { finish(y + begin * p.n, bias, end - begin, p.n); });
    };
  };
  return kernel;
}

// (data, weight [, bias]) -> y
MaybeKernel MakeFullyConnected(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<FullyConnectedAttrs>();
  const Product p(attrs, spec.inputs[0].shape, spec.inputs[1].shape);
  if (AllOf(spec, DType::kFloat64)) return Float64Forward(spec, p, attrs.activation);
  if (!AllFloat(spec)) return std::nullopt;
  const ActivationPass pass(attrs.activation);
  if ((p.IsTiny() || p.m == 1) && HasPlainWeight(spec)) return OwnForward(spec, p, pass);

  Kernel kernel = PlainKernel(spec, "");
  kernel.threads = ThreadsForWork(spec, p.flops());
  const TeamScope team(kernel.threads);
  using Desc = dnnl::inner_product_forward::primitive_desc;
  // A weight that was stored already is taken as it lies if that is fast: packing pays only when it is done once.
  const std::optional<Format> stored = spec.input_is_open[1] ? std::nullopt : std::optional(spec.input_formats[1]);
  const auto choice = Choose<Desc>(
      p, stored, [&](const memory::desc& w) { return Desc(p.Forward(w), UserScratchpad(), Engine(), true); },
      [](const Desc& d) { return d.weights_desc(); });
  if (!choice) return std::nullopt;
  const auto& [desc, weight] = *choice;
  std::vector<DnnlArgument> arguments = {{DNNL_ARG_SRC, p.X(), DnnlArgument::kInput, 0},
                                         {DNNL_ARG_WEIGHTS, desc.weights_desc(), DnnlArgument::kInput, 1, weight},
                                         {DNNL_ARG_DST, p.Y(), DnnlArgument::kOutput, 0}};
  if (p.has_bias) arguments.push_back({DNNL_ARG_BIAS, p.Bias(), DnnlArgument::kInput, 2});
  kernel = WithDnnl(std::move(kernel), WhoOf(spec), dnnl::inner_product_forward(desc), desc, std::move(arguments));
  if (pass.loop) {
    kernel.bind = [product = kernel.bind, pass, n = p.m * p.n](const KernelArgs& args) -> Call {
      return [run = product(args), pass, n, y = Out(args, 0)] {
        run();
        pass(y, n);
      };
    };
  }
  return kernel;
}

// (dy, weight) -> dx
MaybeKernel MakeFullyConnectedGradData(const KernelSpec& spec) {
  const Product p(spec.attributes<FullyConnectedAttrs>(), spec.outputs[0].shape, spec.inputs[1].shape);
  if (AllOf(spec, DType::kFloat64)) return Float64Gemm(spec, p.m, p.k, p.n, {0, p.n, 1}, {1, p.k, 1});
  if (!AllFloat(spec)) return std::nullopt;
  if ((p.IsTiny() || (p.m == 1 && p.n * p.k <= kSerialWeights)) && HasPlainWeight(spec)) {
    Kernel kernel = PlainKernel(spec, "loop");
    kernel.bind = [p](const KernelArgs& args) -> Call {
      return [p, dy = In(args, 0), w = In(args, 1), dx = Out(args, 0), product = BestLoops().vector_matrix] {
        for (int64_t row = 0; row < p.m; ++row) product(dy + row * p.n, w, dx + row * p.k, p.n, p.k);
      };
    };
    return kernel;
  }
  Kernel kernel = PlainKernel(spec, "");
  kernel.threads = ThreadsForWork(spec, p.flops());
  const TeamScope team(kernel.threads);
  const auto hint = p.Hint();
  if (!hint) return std::nullopt;
  using Desc = dnnl::inner_product_backward_data::primitive_desc;
  const auto choice = Choose<Desc>(
      p, spec.input_formats[1],
      [&](const memory::desc& w) {
        return Desc({p.X(), w, p.Y()}, UserScratchpad(), Engine(), hint, true);
      },
      [](const Desc& d) { return d.weights_desc(); });
  if (!choice) return std::nullopt;
  const auto& [desc, weight] = *choice;
  return WithDnnl(std::move(kernel), WhoOf(spec), dnnl::inner_product_backward_data(desc), desc,
                  {{DNNL_ARG_DIFF_DST, p.Y(), DnnlArgument::kInput, 0},
                   {DNNL_ARG_WEIGHTS, desc.weights_desc(), DnnlArgument::kInput, 1, weight},
                   {DNNL_ARG_DIFF_SRC, p.X(), DnnlArgument::kOutput, 0}});
}

// (dy, data) -> dw [, db], in float64
Kernel Float64GradWeight(const KernelSpec& spec, const Product& p) {
  Kernel kernel = Float64Gemm(spec, p.n, p.k, p.m, {0, 1, p.n}, {1, p.k, 1});
  if (!p.has_bias) return kernel;
  kernel.bind = [=, product = kernel.bind](const KernelArgs& args) -> Call {
    return [=, run = product(args), dy = static_cast<const double*>(args.inputs[0]),
            db = static_cast<double*>(args.outputs[1])] {
      run();
      std::copy_n(dy, p.n, db);
      for (int64_t s = 1; s < p.m; ++s) {
        for (int64_t i = 0; i < p.n; ++i) db[i] += dy[s * p.n + i];
      }
    };
  };
  return kernel;
}

// (dy, data) -> dw [, db]
MaybeKernel MakeFullyConnectedGradWeight(const KernelSpec& spec) {
  Product p(spec.attributes<FullyConnectedAttrs>(), spec.inputs[1].shape, spec.outputs[0].shape);
  p.has_bias = spec.outputs.size() > 1 && spec.output_used[1];
  if (AllOf(spec, DType::kFloat64) && spec.output_used[0]) return Float64GradWeight(spec, p);
  if (!AllFloat(spec)) return std::nullopt;
  if (!spec.output_used[0]) return MakeBiasGradient(spec, spec.inputs[0].shape.rank() - 1);
  if (p.IsTiny() || (p.m == 1 && p.n * p.k <= kSerialWeights)) {
    Kernel kernel = PlainKernel(spec, "loop");
    kernel.bind = [p](const KernelArgs& args) -> Call {
      float* db = p.has_bias ? Out(args, 1) : nullptr;
      return [p, db, dy = In(args, 0), x = In(args, 1), dw = Out(args, 0), &loops = BestLoops()] {
        for (int64_t i = 0; i < p.n; ++i) {
          float* row = dw + i * p.k;
          loops.scale(x, row, p.k, dy[i]);
          for (int64_t s = 1; s < p.m; ++s) loops.axpy(x + s * p.k, row, p.k, dy[s * p.n + i]);
        }
        if (!db) return;
        loops.scale(dy, db, p.n, 1);
        for (int64_t s = 1; s < p.m; ++s) loops.axpy(dy + s * p.n, db, p.n, 1);
      };
    };
    return kernel;
  }
  Kernel kernel = PlainKernel(spec, "");
  kernel.threads = ThreadsForWork(spec, p.flops());
  const TeamScope team(kernel.threads);
  const auto hint = p.Hint();
  if (!hint) return std::nullopt;
  using Desc = dnnl::inner_product_backward_weights::primitive_desc;
  const auto choice = Choose<Desc>(
      p, spec.output_wishes[0],
      [&](const memory::desc& w) {
        if (!p.has_bias) return Desc({p.X(), w, p.Y()}, UserScratchpad(), Engine(), hint, true);
        return Desc({p.X(), w, p.Bias(), p.Y()}, UserScratchpad(), Engine(), hint, true);
      },
      [](const Desc& d) { return d.diff_weights_desc(); });
  if (!choice) return std::nullopt;
  const auto& [desc, weight] = *choice;
  std::vector<DnnlArgument> arguments = {
      {DNNL_ARG_DIFF_DST, p.Y(), DnnlArgument::kInput, 0},
      {DNNL_ARG_SRC, p.X(), DnnlArgument::kInput, 1},
      {DNNL_ARG_DIFF_WEIGHTS, desc.diff_weights_desc(), DnnlArgument::kOutput, 0, weight}};
  if (p.has_bias) arguments.push_back({DNNL_ARG_DIFF_BIAS, p.Bias(), DnnlArgument::kOutput, 1});
  return WithDnnl(std::move(kernel), WhoOf(spec), dnnl::inner_product_backward_weights(desc), desc,
                  std::move(arguments));
}

constexpr KernelEntry kEntries[] = {
    {"FullyConnected", MakeFullyConnected},
    {"FullyConnectedGradData", MakeFullyConnectedGradData},
    {"FullyConnectedGradWeight", MakeFullyConnectedGradWeight},
};

}  // namespace

KernelRows FullyConnectedKernels() { return kEntries; }

}  // namespace bindery::cpu
