// Bodies of products of matrices and of patches, and of pooling (bodies_fixture.h).
#include <array>

#include "executor/kernels/cuda/product_body.h"
#include "symbol/ops/convolution.h"
#include "symbol/ops/fully_connected.h"
#include "symbol/ops/matmul.h"
#include "symbol/ops/pooling.h"
#include "tests/engine/cuda/cpu_block.h"
#include "tests/executor/cuda/bodies_fixture.h"

namespace bindery::cuda {
namespace {

// At once; and by three splits, the last of which is shorter. A product takes as many threads as its tiles.
void ExpectProduct(ProductArgs args, const HostTensor& expected) {
  args.numbers = !IsFloat(expected.dtype());
  const double terms = static_cast<double>(args.k);
  ExpectWrites({expected}, terms, [&](const std::vector<Target>& out, int blocks, int) {
    args.out = out[0];
    RunOnCpu(args, blocks, ProductArgs::kThreads);
  });
  args.splits = 3;
  args.split_k = (args.k + 2) / 3;
  std::vector<double> partial(static_cast<size_t>(args.splits * args.elements()));
  args.partial = partial.data();
  ExpectWrites({expected}, terms, [&](const std::vector<Target>& out, int blocks, int threads) {
    args.out = out[0];
    RunOnCpu(args, blocks, ProductArgs::kThreads);
    RunOnCpu(ProductEndArgs{args}, blocks, threads);
  });
}

Matrix MatrixOf(const HostTensor& tensor, int64_t rows, int64_t columns, bool transposed) {
  Matrix matrix{.source = From(tensor), .row_stride = columns};
  if (transposed) {
    matrix.row_stride = 1;
    matrix.column_stride = rows;
  }
  return matrix;
}

// (2, 1) and (3) matrices, of more than a tile each.
TEST(CudaProductBodiesTest, Matrices) {
  constexpr int64_t kM = 70, kN = 66, kK = 35;
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16, DType::kInt8}) {
    for (const int flags : {0, 1, 2, 3}) {
      const bool transpose_a = flags & 1, transpose_b = flags & 2;
      const HostTensor a = Integers(transpose_a ? Shape{2, 1, kK, kM} : Shape{2, 1, kM, kK}, -2, 2).Cast(dtype);
      const HostTensor b = Integers(transpose_b ? Shape{3, kN, kK} : Shape{3, kK, kN}, -2, 2).Cast(dtype);
      ExpectProduct({.m = kM,
                     .n = kN,
                     .k = kK,
                     .products = GridOver({2, 3}),
                     .a_strides = {.of = {kM * kK, 0}},
                     .b_strides = {.of = {0, kK * kN}},
                     .c_strides = {.of = {3 * kM * kN, kM * kN}},
                     .a = MatrixOf(a, kM, kK, transpose_a),
                     .b = MatrixOf(b, kK, kN, transpose_b),
                     .c = {.row_stride = kN}},
                    Reference(MatMulOp(), MatMulAttrs{transpose_a, transpose_b}, {a, b})[0]);
    }
  }
}

// f(x w^T + bias), of x (m, k) and w (n, k).
void ExpectFullyConnected(const HostTensor& x, const HostTensor& w, const HostTensor& bias, ActivationType f) {
  const int64_t m = x.shape()[0], k = x.shape()[1], n = w.shape()[0];
  ExpectProduct({.m = m,
                 .n = n,
                 .k = k,
                 .a = MatrixOf(x, m, k, false),
                 .b = MatrixOf(w, k, n, true),
                 .c = {.row_stride = n},
                 .bias = From(bias),
                 .activation = static_cast<int32_t>(f) - 1},
                Reference(FullyConnectedOp(), FullyConnectedAttrs{.num_hidden = n, .activation = f}, {x, w, bias})[0]);
}

// With all that is beyond the sum.
TEST(CudaProductBodiesTest, Integers) {
  for (const DType dtype : {DType::kInt8, DType::kInt32, DType::kInt64, DType::kUInt64}) {
    const int low = dtype == DType::kUInt64 ? 0 : -2;
    ExpectFullyConnected(Integers({5, 20}, low, 2).Cast(dtype), Integers({9, 20}, low, 2).Cast(dtype),
                         Integers({9}, low, 9).Cast(dtype), ActivationType::kRelu);
  }
}

TEST(CudaProductBodiesTest, SpecialNumbersBiasAndActivation) {
  for (const DType dtype : kFloats) {
    HostTensor x = Uniform({5, 20}).Cast(dtype);
    x.Set(3, NAN);
    x.Set(20 + 5, INFINITY);
    ExpectFullyConnected(x, Uniform({9, 20}).Cast(dtype), Uniform({9}).Cast(dtype), ActivationType::kSoftSign);
  }
}

// ---- windows ----

struct Axis {
  int64_t in, kernel, stride, dilate, pad;
  int64_t out() const { return (in + 2 * pad - dilate * (kernel - 1) - 1) / stride + 1; }
};
constexpr std::array<Axis, 2> kAxes = {{{7, 3, 2, 1, 1}, {6, 2, 1, 2, 1}}};

Slide SlideOverAxes() {
  Slide slide;
  for (size_t i = 0; i < kAxes.size(); ++i) {
    slide.in[i + 1] = kAxes[i].in;
    slide.out[i + 1] = kAxes[i].out();
    slide.kernel[i + 1] = kAxes[i].kernel;
    slide.stride[i + 1] = kAxes[i].stride;
    slide.dilate[i + 1] = kAxes[i].dilate;
    slide.pad[i + 1] = kAxes[i].pad;
  }
  for (int axis = 0; axis < 3; ++axis) {
    slide.inputs *= slide.in[axis];
    slide.outputs *= slide.out[axis];
    slide.taps *= slide.kernel[axis];
    slide.per_in[axis] = Divisor(slide.in[axis]);
    slide.per_out[axis] = Divisor(slide.out[axis]);
    slide.per_kernel[axis] = Divisor(slide.kernel[axis]);
    slide.per_stride[axis] = Divisor(slide.stride[axis]);
  }
  slide.per_inputs = Divisor(slide.inputs);
  slide.per_outputs = Divisor(slide.outputs);
  slide.per_taps = Divisor(slide.taps);
  return slide;
}
template <class Attrs>
Attrs WithWindows(Attrs attrs) {
  for (const Axis& axis : kAxes) {
    attrs.kernel.push_back(axis.kernel);
    attrs.stride.push_back(axis.stride);
    attrs.dilate.push_back(axis.dilate);
    attrs.pad.push_back(axis.pad);
  }
  return attrs;
}
const Shape kOut = {kAxes[0].out(), kAxes[1].out()};

// Two groups of two channels, to three each.
TEST(CudaProductBodiesTest, Convolutions) {
  constexpr int64_t kSamples = 3, kGroups = 2, kIn = 2, kFilters = 3;
  const Slide s = SlideOverAxes();
  const int64_t taps = kIn * s.taps, x_sample = kGroups * kIn * s.inputs, y_sample = kGroups * kFilters * s.outputs;
  const auto planes = [](int64_t plane, int64_t sample) {
    return Matrix{.row_stride = plane, .period_stride = sample, .period = Divisor(plane)};
  };
  for (const DType dtype : kFloats) {
    const HostTensor x = Uniform({kSamples, kGroups * kIn, 7, 6}).Cast(dtype);
    const HostTensor w = Uniform({kGroups * kFilters, kIn, 3, 2}).Cast(dtype);
    const HostTensor bias = Uniform({kGroups * kFilters}).Cast(dtype);
    const HostTensor dy = Uniform({kSamples, kGroups * kFilters, kOut[0], kOut[1]}).Cast(dtype);
    ConvolutionAttrs attrs = WithWindows(ConvolutionAttrs{.num_filter = kGroups * kFilters, .groups = kGroups});

    ProductArgs args{.m = kFilters, .n = kSamples * s.outputs, .k = taps, .products = GridOver({kGroups}), .slide = s};
    args.a_strides.of[0] = kFilters * taps;
    args.b_strides.of[0] = kIn * s.inputs;
    args.c_strides.of[0] = kFilters * s.outputs;
    args.a = MatrixOf(w, kFilters, taps, false);
    args.b = {.source = From(x), .form = Form::kPatches, .sample_stride = x_sample};
    args.c = planes(s.outputs, y_sample);
    args.bias = From(bias);
    args.bias_by_row = 1;
    ExpectProduct(args, Reference(ConvolutionOp(), attrs, {x, w, bias})[0]);
    args.addend = From(dy);
    args.activation = static_cast<int32_t>(ActivationType::kRelu) - 1;
    attrs.activation = ActivationType::kRelu;
    ExpectProduct(args, Reference(FindOp("ConvolutionAdd"), attrs, {x, w, bias, dy})[0]);
    attrs.activation = ActivationType::kNone;

    args = {.m = kIn, .n = kSamples * s.inputs, .k = kFilters * s.taps, .products = GridOver({kGroups}), .slide = s};
    args.a_strides.of[0] = kFilters * taps;
    args.b_strides.of[0] = kFilters * s.outputs;
    args.c_strides.of[0] = kIn * s.inputs;
    args.a = {.source = From(w), .row_stride = s.taps, .period_stride = taps, .period = Divisor(s.taps)};
    args.b = {.source = From(dy), .form = Form::kMet, .sample_stride = y_sample};
    args.c = planes(s.inputs, x_sample);
    ExpectProduct(args, Reference(ConvolutionGradDataOp(), ConvolutionGradDataAttrs{attrs, {7, 6}}, {dy, w})[0]);

    args = {.m = kFilters, .n = taps, .k = kSamples * s.outputs, .products = GridOver({kGroups}), .slide = s};
    args.a_strides.of[0] = kFilters * s.outputs;
    args.b_strides.of[0] = kIn * s.inputs;
    args.c_strides.of[0] = kFilters * taps;
    args.a = planes(s.outputs, y_sample);
    args.a.source = From(dy);
    args.b = {.source = From(x), .form = Form::kPositions, .sample_stride = x_sample};
    args.c = {.row_stride = taps};
    attrs.no_bias = true;
    ExpectProduct(args, Reference(ConvolutionGradWeightOp(), attrs, {dy, x})[0]);
  }
}

PoolArgs PoolOf(const HostTensor& in, int64_t n) {
  return {.slide = SlideOverAxes(), .padded = {1, 7 + 1, 6 + 1}, .n = n, .in = From(in)};
}

TEST(CudaPoolBodiesTest, Averages) {
  for (const DType dtype : kFloats) {
    const HostTensor x = Uniform({2, 3, 7, 6}).Cast(dtype), dy = Uniform({2, 3, kOut[0], kOut[1]}).Cast(dtype);
    for (const bool count_padding : {false, true}) {
      const auto attrs = WithWindows(PoolingAttrs{.type = PoolType::kAvg, .count_include_pad = count_padding});
      PoolArgs args = PoolOf(x, dy.elements());
      args.count_padding = count_padding;
      ExpectOut(args, Reference(PoolingOp(), attrs, {x})[0], 6);
      args = PoolOf(dy, x.elements());
      args.count_padding = count_padding;
      args.grad = 1;
      ExpectOut(args, Reference(PoolingGradOp(), PoolingGradAttrs{attrs, {7, 6}}, {dy})[0], 6);
    }
  }
}

// The error of a sum does not grow with the window.
TEST(CudaPoolBodiesTest, AverageOfManyElements) {
  constexpr int64_t kSide = 512;
  const HostTensor x = HostTensor::Full(DType::kFloat32, {1, 1, kSide, kSide}, 0.1);
  PoolArgs args = PoolOf(x, 1);
  args.slide.in[1] = args.slide.kernel[1] = args.padded[1] = kSide;
  args.slide.in[2] = args.slide.kernel[2] = args.padded[2] = kSide;
  args.slide.out[1] = args.slide.out[2] = args.slide.stride[1] = args.slide.stride[2] = 1;
  args.slide.pad[1] = args.slide.pad[2] = 0;
  args.slide.dilate[1] = args.slide.dilate[2] = 1;
  args.slide.inputs = kSide * kSide;
  args.slide.outputs = 1;
  args.slide.per_outputs = Divisor(1);
  for (int axis = 0; axis < 3; ++axis) args.slide.per_out[axis] = Divisor(1);
  ExpectOut(args, Reference(PoolingOp(), PoolingAttrs{.type = PoolType::kAvg, .global = true}, {x})[0],
            128 + kSide * kSide / 128);
}

// An element looks at the windows that it is in, not at all of their places: those would be 2^36 here.
TEST(CudaPoolBodiesTest, GradientOfLongWindows) {
  constexpr int64_t kLength = 1 << 18;
  const HostTensor dy = Uniform({1, 1, 1}).Cast(DType::kFloat32);
  PoolArgs args{.grad = 1, .n = kLength, .in = From(dy)};
  Slide& slide = args.slide;
  slide.in[2] = slide.kernel[2] = slide.inputs = slide.taps = args.padded[2] = kLength;
  slide.per_in[2] = slide.per_inputs = slide.per_kernel[2] = slide.per_taps = Divisor(kLength);
  const PoolingAttrs attrs{.type = PoolType::kAvg, .global = true};
  ExpectOut(args, Reference(PoolingGradOp(), PoolingGradAttrs{attrs, {kLength}}, {dy})[0]);
}

// The reference computes in double: 2^53 + 1 it would not tell from 2^53.
TEST(CudaPoolBodiesTest, Integers) {
  for (const DType dtype : {DType::kInt8, DType::kUInt8, DType::kInt32, DType::kInt64, DType::kUInt64}) {
    const HostTensor x = Integers({2, 3, 7, 6}, 0, 100).Cast(dtype);
    for (const PoolType type : {PoolType::kMax, PoolType::kAvg}) {
      const auto attrs = WithWindows(PoolingAttrs{.type = type});
      PoolArgs args = PoolOf(x, 2 * 3 * kOut[0] * kOut[1]);
      args.max = type == PoolType::kMax;
      args.count_padding = attrs.count_include_pad;
      ExpectOut(args, Reference(PoolingOp(), attrs, {x})[0]);
    }
  }
  HostTensor x = HostTensor::Full(DType::kInt64, {2, 3, 7, 6}, 0x1p53);
  ++x.data<int64_t>()[1];
  HostTensor y(DType::kInt64, {2, 3, kOut[0], kOut[1]});
  PoolArgs args = PoolOf(x, y.elements());
  args.max = 1;
  args.out = To(&y);
  RunOnCpu(args, 2, 7);
  EXPECT_EQ(y.data<int64_t>()[0], (int64_t{1} << 53) + 1);
}

// Of equal ones the first, and of those that are no numbers.
TEST(CudaPoolBodiesTest, Maxima) {
  const auto attrs = WithWindows(PoolingAttrs{.type = PoolType::kMax});
  const Symbol x_variable = Variable("x"), dy_variable = Variable("dy");
  const std::vector<Symbol> pooled = ApplyAll(PoolingOp(), attrs, {x_variable}, "y");
  const Symbol dx = Apply(PoolingGradOp(), PoolingGradAttrs{attrs, {7, 6}}, {dy_variable, pooled[1]}, "dx");
  for (const DType dtype : kFloats) {
    HostTensor x = Integers({2, 3, 7, 6}, -3, 3).Cast(dtype);
    const HostTensor dy = Uniform({2, 3, kOut[0], kOut[1]}).Cast(dtype);
    x.Set(11, NAN);
    x.Set(12, NAN);
    x.Set(50, -INFINITY);
    const auto expected =
        RunGraph(Group({pooled[0], dx}), {{"x", x}, {"dy", dy}}, {.policy = KernelPolicy::kReference, .watch = false})
            .outputs;
    PoolArgs args = PoolOf(x, dy.elements()), grad = PoolOf(dy, x.elements());
    std::vector<int32_t> winners(static_cast<size_t>(dy.elements()));
    args.max = grad.max = grad.grad = 1;
    args.winners = grad.winners = winners.data();
    ExpectOut(args, expected[0]);
    ExpectOut(grad, expected[1], 6);
  }
}

}  // namespace
}  // namespace bindery::cuda
