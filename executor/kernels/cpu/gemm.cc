#include "executor/kernels/cpu/gemm.h"

#include <algorithm>

#include "base/checked.h"
#include "engine/team.h"
#include "executor/kernels/cpu/activation_pass.h"
#include "executor/kernels/cpu/dnnl_util.h"
#include "executor/kernels/cpu/simd/loops.h"

namespace bindery::cpu {
namespace {

// y (rows, kGemmTile) += a (rows, depth) b (depth, kGemmTile)
template <class A>
void AddProducts(const A* a, const A* b, A* y, int64_t rows, int64_t depth) {
  if constexpr (std::is_floating_point_v<A>) {
    static_assert(kGemmTile == LoopsOf<A>::kTile);
    BestLoops<A>().add_products(
        {.a = a, .a_row = kGemmTile, .a_column = 1, .b = b, .y = y, .rows = rows, .depth = depth});
  } else {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t p = 0; p < depth; ++p) {
        const A factor = a[i * kGemmTile + p];
        for (int64_t j = 0; j < kGemmTile; ++j) {
          y[i * kGemmTile + j] = Sum(y[i * kGemmTile + j], factor, b[p * kGemmTile + j]);
        }
      }
    }
  }
}

template <class T>
TileLoader<T> LoaderOf(const GemmSpec& g, const GemmOperand& from, int64_t MatMulAxis::*step) {
  return [from, step, batch = g.batch](const Arguments& args, const TilePart& part, Accumulator<T>* tile) {
    const T* x = args.in<T>(from.input) + part.row * from.row;
    int64_t product = part.product;
    for (size_t axis = batch.size(); axis-- > 0; product /= batch[axis].extent) {
      x += product % batch[axis].extent * (batch[axis].*step);
    }
    for (int64_t j = 0; j < part.columns; ++j) {
      const int64_t at = part.column + j;
      const T* column = x + at % from.split * from.column + at / from.split * from.next_part;
      for (int64_t i = 0; i < part.rows; ++i) tile[i * kGemmTile + j] = Widened(column[i * from.row]);
    }
  };
}

// Rows and columns, which may lie either way, as oneDNN's matrix or matrices, one of which may serve a whole axis.
dnnl::memory::desc DescOf(int64_t rows, int64_t columns, int64_t row, int64_t column,
                          const std::vector<MatMulAxis>& batch, int64_t MatMulAxis::*step,
                          dnnl::memory::data_type type) {
  dnnl::memory::dims dims, strides;
  for (const MatMulAxis& axis : batch) {
    dims.push_back(axis.*step == 0 ? 1 : axis.extent);
    strides.push_back(axis.*step == 0 ? rows * columns : axis.*step);
  }
  dims.insert(dims.end(), {rows, columns});
  strides.insert(strides.end(), {row, column});
  return {dims, type, strides};
}

MaybeKernel DnnlGemm(const KernelSpec& spec, const GemmSpec& g) {
  std::vector<MatMulAxis> output = g.batch;  // a: of y, b: of the bias
  int64_t step = g.m * g.n;
  for (size_t i = output.size(); i-- > 0; step *= output[i].extent) output[i] = {output[i].extent, step, 0};
  const auto type = DnnlTypeOf(spec);
  const auto a = DescOf(g.m, g.k, g.a.row, g.a.column, g.batch, &MatMulAxis::a, type);
  const auto b = DescOf(g.k, g.n, g.b.row, g.b.column, g.batch, &MatMulAxis::b, type);
  const auto y = DescOf(g.m, g.n, g.n, 1, output, &MatMulAxis::a, type);
  const auto bias = DescOf(1, g.n, g.n, 1, output, &MatMulAxis::b, type);
  std::vector<DnnlArgument> arguments = {{DNNL_ARG_SRC, a, DnnlArgument::kInput, g.a.input},
                                         {DNNL_ARG_WEIGHTS, b, DnnlArgument::kInput, g.b.input},
                                         {DNNL_ARG_DST, y, DnnlArgument::kOutput, 0}};
  if (g.bias >= 0) arguments.push_back({DNNL_ARG_BIAS, bias, DnnlArgument::kInput, g.bias});
  MaybeKernel kernel = MakeDnnl<dnnl::matmul>(
      spec, 2 * g.work(),
      [&] {
        const auto product = g.bias >= 0 ? dnnl::matmul::desc(a, b, bias, y) : dnnl::matmul::desc(a, b, y);
        return dnnl::matmul::primitive_desc(product, UserScratchpad(), Engine(), true);
      },
      std::move(arguments));
  if (kernel) kernel = WithActivation(*std::move(kernel), spec, g.activation, g.products() * g.m * g.n);
  return kernel;
}

}  // namespace

template <class T>
MaybeKernel OwnGemm(const KernelSpec& spec, const GemmSpec& g, TileLoader<T> load_b) {
  using A = Accumulator<T>;
  typename LoopsOf<double>::UnaryLoop activation = nullptr;
  if constexpr (std::is_floating_point_v<T>) {
    activation = ActivationPass<double>(g.activation).loop;
  } else if (g.activation != ActivationType::kNone) {
    return std::nullopt;
  }
  int64_t rows = kGemmTile;  // of a tile; fewer if there are not enough for every thread, which changes no result
  const int64_t wide = CeilDiv(g.n, kGemmTile);
  while (rows > 8 && g.products() * CeilDiv(g.m, rows) * wide < 2 * spec.threads) rows /= 2;
  const int64_t high = CeilDiv(g.m, rows), tiles = g.products() * high * wide;
  const int64_t biases = g.bias_of_rows && !g.batch.empty() ? g.batch.back().extent : 1;
  return WithLoop(PlainKernel(spec, "gemm"), [=, load_a = LoaderOf<T>(g, g.a, &MatMulAxis::a)](const Arguments& args) {
    const T* bias = g.bias >= 0 ? args.in<T>(g.bias) : nullptr;
    ParallelFor(tiles, 1, g.work() <= kSerialElements ? tiles : 0, [&](int64_t begin, int64_t end, int) {
      alignas(64) A a[kGemmTile * kGemmTile], b[kGemmTile * kGemmTile], sums[kGemmTile * kGemmTile];
      std::ranges::fill(b, A{});  // its last columns may be missing
      for (int64_t tile = begin; tile < end; ++tile) {
        const int64_t product = tile / (high * wide), row = tile / wide % high * rows, column = tile % wide * kGemmTile;
        const int64_t height = std::min(rows, g.m - row), width = std::min(kGemmTile, g.n - column);
        std::fill_n(sums, height * kGemmTile, A{});
        for (int64_t at = 0; at < g.k; at += kGemmTile) {
          const int64_t depth = std::min(kGemmTile, g.k - at);
          load_a(args, {product, row, height, at, depth}, a);
          load_b(args, {product, at, depth, column, width}, b);
          AddProducts(a, b, sums, height, depth);
        }
        for (int64_t i = 0; i < height; ++i) {
          A* sum = sums + i * kGemmTile;
          const T* add = bias ? bias + (g.bias_of_rows ? product % biases * g.m + row + i : column) : nullptr;
          for (int64_t j = 0; j < width && add; ++j) sum[j] = Sum(sum[j], Widened(add[g.bias_of_rows ? 0 : j]));
          if constexpr (std::is_floating_point_v<A>) {
            if (activation) activation(sum, sum, width);
          }
          T* y = args.out<T>(0) + (product * g.m + row + i) * g.n + column;
          for (int64_t j = 0; j < width; ++j) y[j] = Narrowed<T>(sum[j]);
        }
      }
    });
  });
}

template MaybeKernel OwnGemm<float>(const KernelSpec&, const GemmSpec&, TileLoader<float>);
template MaybeKernel OwnGemm<double>(const KernelSpec&, const GemmSpec&, TileLoader<double>);
template MaybeKernel OwnGemm<int8_t>(const KernelSpec&, const GemmSpec&, TileLoader<int8_t>);
template MaybeKernel OwnGemm<int16_t>(const KernelSpec&, const GemmSpec&, TileLoader<int16_t>);
template MaybeKernel OwnGemm<int32_t>(const KernelSpec&, const GemmSpec&, TileLoader<int32_t>);
template MaybeKernel OwnGemm<int64_t>(const KernelSpec&, const GemmSpec&, TileLoader<int64_t>);
template MaybeKernel OwnGemm<uint8_t>(const KernelSpec&, const GemmSpec&, TileLoader<uint8_t>);
template MaybeKernel OwnGemm<uint16_t>(const KernelSpec&, const GemmSpec&, TileLoader<uint16_t>);
template MaybeKernel OwnGemm<uint32_t>(const KernelSpec&, const GemmSpec&, TileLoader<uint32_t>);
template MaybeKernel OwnGemm<uint64_t>(const KernelSpec&, const GemmSpec&, TileLoader<uint64_t>);
template MaybeKernel OwnGemm<bool>(const KernelSpec&, const GemmSpec&, TileLoader<bool>);

MaybeKernel Gemm(const KernelSpec& spec, const GemmSpec& g) {
  if (IsOfDnnl(spec) && !g.bias_of_rows) {
    if (MaybeKernel kernel = DnnlGemm(spec, g)) return kernel;
  }
  return OfGemmTypes(spec.outputs[0].dtype,
                     [&]<class T>() { return OwnGemm<T>(spec, g, LoaderOf<T>(g, g.b, &MatMulAxis::b)); });
}

}  // namespace bindery::cpu
