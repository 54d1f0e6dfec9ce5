// FullyConnected: oneDNN's inner product, with weights in the format that it likes best; own loops where the work is so
// small that calling oneDNN (about 0.2 us) would be a large part of it, for single rows, which only stream the weights,
// for predictions where oneDNN would pack the weights in each call, below AVX-512, and for gradients of weights in full
// blocks, of small batches, with it.
#include "symbol/ops/fully_connected.h"

#include <vector>

#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/activation_pass.h"
#include "executor/kernels/cpu/bias_gradient.h"
#include "executor/kernels/cpu/dnnl_util.h"
#include "executor/kernels/cpu/gemm.h"
#include "executor/kernels/cpu/panel_product.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

using dnnl::memory;

// y (m, n) = x (m, k) w^T (k, n)
struct Product {
  int64_t m, n, k;
  bool has_bias;
  DType dtype;

  Product(const KernelSpec& spec, const Shape& data, const Shape& weight)
      : m(spec.attributes<FullyConnectedAttrs>().flatten ? data[0] : data.CountTo(data.rank() - 1)), n(weight[0]),
        k(weight[1]), has_bias(!spec.attributes<FullyConnectedAttrs>().no_bias), dtype(spec.inputs[0].dtype) {}

  double flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
  bool IsTiny() const { return flops() <= 16e3; }
  memory::data_type type() const { return *ToDnnl(dtype); }
  memory::desc X() const { return {{m, k}, type(), memory::format_tag::ab}; }
  memory::desc Y() const { return {{m, n}, type(), memory::format_tag::ab}; }
  memory::desc Bias() const { return {{n}, type(), memory::format_tag::a}; }

  dnnl::inner_product_forward::desc Forward(const memory::desc& w) const {
    const auto kind = dnnl::prop_kind::forward_training;
    if (has_bias) return {kind, X(), w, Bias(), Y()};
    return {kind, X(), w, Y()};
  }
  // The backward primitives want to know the forward one; it decides nothing here.
  dnnl::inner_product_forward::primitive_desc Hint() const {
    return {Forward(AnyDesc({n, k}, type())), UserScratchpad(), Engine(), true};
  }
};

// A product costs a thread 8 floats of weights per cycle at best, and then some: this many elements are worth a team.
constexpr int64_t kSerialWeights = 128 * 1024;

Kernel OwnForward(const KernelSpec& spec, const Product& p) {
  return WithLoop(PlainKernel(spec, "loop"), [p](const Arguments& args) {
    const float *x = args.in(0), *w = args.in(1), *bias = p.has_bias ? args.in(2) : nullptr;
    const int64_t serial = p.m * p.k > 0 ? kSerialWeights / (p.m * p.k) : p.n;
    ParallelFor(p.n, kGrain, serial, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = 0; row < p.m; ++row) {
        BestLoops().matrix_vector(w + begin * p.k, x + row * p.k, bias ? bias + begin : nullptr,
                                  args.out(0) + row * p.n + begin, end - begin, p.k);
      }
    });
  });
}

// Are weights in panels, for loops of our own? In predictions, where panels become the weights' format, or that of a
// copy, which is kept where these are parameters. Not with AVX-512, for which oneDNN has blocks of its own. It goes by
// the shape alone: whoever trained them in whatever format, kept or not, predictions have the same bits.
bool PredictsInPanels(const KernelSpec& spec, const Product& p) {
  return spec.mode == Mode::kPredict && AllFloat(spec) && SuitsPanels(p.n, p.k) && !Allows(dnnl::cpu_isa::avx512_core);
}

// The formats of weights to try: the one wished for, the primitive's own choice, plain.
std::vector<memory::desc> Weights(const Product& p, const std::optional<Format>& wish) {
  std::vector<memory::desc> weights;
  if (const auto wished = wish ? ToDesc(*wish, p.dtype, {p.n, p.k}) : std::nullopt) weights.push_back(*wished);
  weights.push_back(AnyDesc({p.n, p.k}, p.type()));
  weights.push_back({{p.n, p.k}, p.type(), memory::format_tag::ab});
  return weights;
}

// Own loops read plain weights; one that is stored otherwise is not worth a reorder in every run.
bool HasPlainWeight(const KernelSpec& spec) { return spec.input_is_open[1] || spec.input_formats[1].is_plain(); }

// A gradient for which calling oneDNN does not pay?
bool IsForLoop(const KernelSpec& spec, const Product& p) {
  return AllFloat(spec) && (p.IsTiny() || (p.m == 1 && p.n * p.k <= kSerialWeights));
}

// (data, weight [, bias]) -> y
MaybeKernel MakeFullyConnected(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<FullyConnectedAttrs>();
  const Product p(spec, spec.inputs[0].shape, spec.inputs[1].shape);
  const int bias = p.has_bias ? 2 : -1;
  MaybeKernel kernel;
  if (!IsOfDnnl(spec)) {
    return Gemm(spec, {.m = p.m,
                       .n = p.n,
                       .k = p.k,
                       .a = {0, p.k, 1},
                       .b = {1, 1, p.k},
                       .bias = bias,
                       .activation = attrs.activation});
  } else if (AllFloat(spec) && (p.IsTiny() || p.m == 1) && (HasPlainWeight(spec) || PredictsInPanels(spec, p))) {
    kernel = OwnForward(spec, p);
  } else if (PredictsInPanels(spec, p)) {
    return MultiplyPanels(spec, {.m = p.m, .n = p.n, .k = p.k, .bias = bias, .activation = attrs.activation});
  } else {
    // A weight that was stored already is taken as it lies if that is fast: packing pays only when it is done once.
    const std::optional<Format> stored = spec.input_is_open[1] ? std::nullopt : std::optional(spec.input_formats[1]);
    using Desc = dnnl::inner_product_forward::primitive_desc;
    kernel = ChooseDnnl<dnnl::inner_product_forward>(
        spec, p.flops(), Weights(p, stored),
        [&](const memory::desc& w) { return Desc(p.Forward(w), UserScratchpad(), Engine(), true); },
        [&](const Desc& d) {
          return FromDesc(d.weights_desc(), {p.n, p.k});
        },
        [&](const auto&, const Desc& d, const Format& weight) {
          std::vector<DnnlArgument> arguments = {{DNNL_ARG_SRC, p.X(), DnnlArgument::kInput, 0},
                                                 {DNNL_ARG_WEIGHTS, d.weights_desc(), DnnlArgument::kInput, 1, weight},
                                                 {DNNL_ARG_DST, p.Y(), DnnlArgument::kOutput, 0}};
          if (p.has_bias) arguments.push_back({DNNL_ARG_BIAS, p.Bias(), DnnlArgument::kInput, bias});
          return arguments;
        });
  }
  if (kernel) kernel = WithActivation(*std::move(kernel), spec, attrs.activation, p.m * p.n);
  return kernel;
}

// (dy, weight) -> dx
MaybeKernel MakeFullyConnectedGradData(const KernelSpec& spec) {
  const Product p(spec, spec.outputs[0].shape, spec.inputs[1].shape);
  if (!IsOfDnnl(spec)) return Gemm(spec, {.m = p.m, .n = p.k, .k = p.n, .a = {0, p.n, 1}, .b = {1, p.k, 1}});
  if (IsForLoop(spec, p) && HasPlainWeight(spec)) {
    return WithLoop(PlainKernel(spec, "loop"), [p](const Arguments& args) {
      for (int64_t row = 0; row < p.m; ++row) {
        BestLoops().vector_matrix(args.in(0) + row * p.n, args.in(1), args.out(0) + row * p.k, p.n, p.k);
      }
    });
  }
  // With many outputs its product of weights in blocks (brgemm_bwd_d, which AVX-512 has) is slow: from 4,096 on it takes
  // 1.1 to 1.3 times as long as that of plain ones, with 10,000 twice. From so many rows on this is worth a plain copy
  // of the weights, which is made once for each update, and kept.
  constexpr int64_t kOutputsForPlain = 4096, kRowsForPlain = 256;
  const bool plain =
      AllFloat(spec) && spec.input_formats[1].num_blocks > 0 && p.n >= kOutputsForPlain && p.m >= kRowsForPlain;
  using Desc = dnnl::inner_product_backward_data::primitive_desc;
  return ChooseDnnl<dnnl::inner_product_backward_data>(
      spec, p.flops(), Weights(p, plain ? Format::Plain() : spec.input_formats[1]),
      [&](const memory::desc& w) {
        const auto hint = p.Hint();
        return hint ? Desc({p.X(), w, p.Y()}, UserScratchpad(), Engine(), hint, true) : Desc();
      },
      [&](const Desc& d) {
        return FromDesc(d.weights_desc(), {p.n, p.k});
      },
      [&](const auto&, const Desc& d, const Format& weight) -> std::vector<DnnlArgument> {
        return {{DNNL_ARG_DIFF_DST, p.Y(), DnnlArgument::kInput, 0},
                {DNNL_ARG_WEIGHTS, d.weights_desc(), DnnlArgument::kInput, 1, weight},
                {DNNL_ARG_DIFF_SRC, p.X(), DnnlArgument::kOutput, 0}};
      });
}

// Weights as oneDNN has them with AVX-512, in blocks of inputs and of outputs, AB16b64a, without padding: the numbers of
// a block's outputs and inputs, none for other formats.
struct WeightBlocks {
  int64_t outputs = 0, inputs = 0;

  WeightBlocks(const Format& format, const Product& p) {
    constexpr int8_t kOutputs = 0, kInputs = 1;
    const bool fits = format.kind == Format::Kind::kStrided && format.num_blocks == 2 && format.order[0] == kOutputs &&
                      format.block_axis[0] == kInputs && format.block_axis[1] == kOutputs;
    if (!fits || p.k % format.block_size[0] != 0 || p.n % format.block_size[1] != 0) return;
    inputs = format.block_size[0];
    outputs = format.block_size[1];
  }
};

// dw = dy^T x in the blocks of the weights, by a loop of our own, where they and dy stay near: oneDNN copies x first
// (docs/plan_layouts.md).
MaybeKernel OwnGradWeight(const KernelSpec& spec, const Product& p) {
  constexpr int64_t kMostRows = 128, kMostWeights = 512 * 1024, kMostGradients = 64 * 1024;
  const int64_t lanes = BestLoops().lanes;
  if (!AllFloat(spec) || !spec.output_wishes[0] || p.m > kMostRows || p.n * p.k > kMostWeights ||
      p.m * p.n > kMostGradients) {
    return std::nullopt;
  }
  const WeightBlocks block(*spec.output_wishes[0], p);
  if (block.outputs < 2 * lanes || block.outputs % lanes != 0) return std::nullopt;
  Kernel kernel = PlainKernel(spec, "loop");
  kernel.threads = ThreadsForWork(spec, p.flops());
  kernel.output_formats[0] = *spec.output_wishes[0];
  return WithLoop(std::move(kernel), [p, block, lanes](const Arguments& args) {
    const float *dy = args.in(0), *x = args.in(1);
    const int64_t columns = p.n / block.outputs;
    ParallelFor(p.k / block.inputs * columns, 1, 0, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t k = i / columns * block.inputs, n = i % columns * block.outputs;
        BestLoops().multiply_transposed({.a = x + k,
                                         .a_row = p.k,
                                         .b = dy + n,
                                         .b_row = p.n,
                                         .y = args.out(0) + n * p.k + k * block.outputs,
                                         .y_row = block.outputs,
                                         .rows = block.inputs,
                                         .depth = p.m,
                                         .vectors = block.outputs / lanes});
      }
    });
    if (!p.has_bias) return;
    constexpr float kOne = 1;
    BestLoops().multiply_transposed({.a = &kOne,  // of each row
                                     .a_row = 0,
                                     .b = dy,
                                     .b_row = p.n,
                                     .y = args.out(1),
                                     .y_row = p.n,
                                     .rows = 1,
                                     .depth = p.m,
                                     .vectors = p.n / lanes});
  });
}

// (dy, data) -> dw [, db]
MaybeKernel MakeFullyConnectedGradWeight(const KernelSpec& spec) {
  Product p(spec, spec.inputs[1].shape, spec.outputs[0].shape);
  p.has_bias = spec.outputs.size() > 1 && spec.output_used[1];
  const int channel = spec.inputs[0].shape.rank() - 1;
  if (!spec.output_used[0]) return MakeBiasGradient(spec, channel);
  if (!IsOfDnnl(spec)) {
    return WithBiasGradient(Gemm(spec, {.m = p.n, .n = p.k, .k = p.m, .a = {0, 1, p.n}, .b = {1, p.k, 1}}), spec,
                            channel);
  }
  if (IsForLoop(spec, p)) {
    return WithLoop(PlainKernel(spec, "loop"), [p](const Arguments& args) {
      const Loops& loops = BestLoops();
      const float *dy = args.in(0), *x = args.in(1);
      for (int64_t i = 0; i < p.n; ++i) {
        float* row = args.out(0) + i * p.k;
        loops.scale(x, row, p.k, dy[i]);
        for (int64_t s = 1; s < p.m; ++s) loops.axpy(x + s * p.k, row, p.k, dy[s * p.n + i]);
      }
      if (!p.has_bias) return;
      float* db = args.out(1);
      loops.scale(dy, db, p.n, 1);
      for (int64_t s = 1; s < p.m; ++s) loops.axpy(dy + s * p.n, db, p.n, 1);
    });
  }
  if (MaybeKernel own = OwnGradWeight(spec, p)) return own;
  using Desc = dnnl::inner_product_backward_weights::primitive_desc;
  return ChooseDnnl<dnnl::inner_product_backward_weights>(
      spec, p.flops(), Weights(p, spec.output_wishes[0]),
      [&](const memory::desc& w) {
        const auto hint = p.Hint();
        if (!hint) return Desc();
        if (!p.has_bias) return Desc({p.X(), w, p.Y()}, UserScratchpad(), Engine(), hint, true);
        return Desc({p.X(), w, p.Bias(), p.Y()}, UserScratchpad(), Engine(), hint, true);
      },
      [&](const Desc& d) {
        return FromDesc(d.diff_weights_desc(), {p.n, p.k});
      },
      [&](const auto&, const Desc& d, const Format& weight) {
        std::vector<DnnlArgument> arguments = {
            {DNNL_ARG_DIFF_DST, p.Y(), DnnlArgument::kInput, 0},
            {DNNL_ARG_SRC, p.X(), DnnlArgument::kInput, 1},
            {DNNL_ARG_DIFF_WEIGHTS, d.diff_weights_desc(), DnnlArgument::kOutput, 0, weight}};
        if (p.has_bias) arguments.push_back({DNNL_ARG_DIFF_BIAS, p.Bias(), DnnlArgument::kOutput, 1});
        return arguments;
      });
}

constexpr KernelEntry kEntries[] = {
    {"FullyConnected", MakeFullyConnected},
    {"FullyConnectedGradData", MakeFullyConnectedGradData},
    {"FullyConnectedGradWeight", MakeFullyConnectedGradWeight},
};

}  // namespace

KernelRows FullyConnectedKernels() { return kEntries; }

}  // namespace bindery::cpu
