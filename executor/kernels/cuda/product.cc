// Products of matrices, plain or of patches, and pooling.
#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cuda/launch.h"
#include "executor/kernels/cuda/library_convolution.h"
#include "executor/kernels/cuda/library_product.h"
#include "executor/kernels/cuda/product_args.h"
#include "executor/kernels/cuda/reduction.h"
#include "executor/kernels/rules.h"
#include "symbol/ops/convolution.h"
#include "symbol/ops/fully_connected.h"
#include "symbol/ops/matmul.h"
#include "symbol/ops/pooling.h"

namespace bindery::cuda {
namespace {

Matrix PlainMatrix(int64_t columns, bool transposed, int64_t rows) {
  return transposed ? Matrix{.row_stride = 1, .column_stride = rows} : Matrix{.row_stride = columns};
}

// Sums that few blocks would take, by several, as the shape has it: a GPU has some hundred processors.
void Split(ProductArgs* args) {
  constexpr int64_t kBlocks = 512, kLeast = 4 * ProductArgs::kStep * ProductArgs::kFold;
  const int64_t tiles = args->tiles();
  if (tiles == 0 || args->k < 2 * kLeast || tiles > kBlocks / 2) return;
  args->split_k = RoundUp(CeilDiv(args->k, std::min(kBlocks / tiles, args->k / kLeast)), kLeast);
  args->splits = CeilDiv(args->k, args->split_k);
}

// Of the sums that are split.
int64_t PartialBytes(const ProductArgs& args) {
  const DType dtype = args.out.dtype;
  const int64_t size = args.numbers || dtype == DType::kFloat64 ? sizeof(double) : sizeof(float);
  return args.splits > 1 ? RoundUp(args.splits * args.elements() * size, 64) : 0;
}

// Of output 0, by a library where that can be. `bind` sets the matrices' sources, and adds what else there is to do: it is
// over when the product begins, whose workspace may thus be where its scratch was.
Kernel Product(const KernelSpec& spec, ProductArgs args, std::function<void(Launches&, ProductArgs*)> bind,
               int64_t more_scratch = 0) {
  args.out.dtype = spec.outputs[0].dtype;
  args.numbers = !IsFloat(args.out.dtype);
  Split(&args);
  const std::optional<PlainProduct> plain = PlainProductOf(args, spec);
  const std::optional<PlainConvolution> convolution = PlainConvolutionOf(args, spec);
  const auto add = [args, plain, convolution, bind = std::move(bind)](Launches& launches) mutable {
    args.out = launches.out(0);
    if (args.splits > 1) args.partial = launches.scratch();
    bind(launches, &args);
    if (!args.out.data || (plain && AddLibraryProduct(launches, *plain, args)) ||
        (convolution && AddLibraryConvolution(launches, *convolution, args))) {
      return;
    }
    launches.Add(args, args.tiles() * args.splits * ProductArgs::kThreads);
    if (args.splits > 1) launches.Add(ProductEndArgs{args}, args.elements());
  };
  Kernel kernel = OwnKernel(spec, add, plain ? "cublaslt" : convolution ? "cudnn" : "own");
  kernel.scratch_bytes = std::max({PartialBytes(args) + more_scratch, plain ? WorkspaceBytes(*plain) : 0,
                                   convolution ? convolution->workspace_bytes : 0});
  return kernel;
}

// The sums of (outer, channels, inner) for each channel.
ReduceArgs ChannelSums(const AxisView& view) {
  ReduceArgs args{.what = Reduction::kSum};
  args.row = GridOf({view.axis});
  args.row_strides.of[0] = view.inner;
  args.each = GridOf({view.outer, view.inner});
  args.each_strides.of[0] = view.axis * view.inner;
  args.each_strides.of[1] = 1;
  JoinAxes(&args.each, {&args.each_strides});
  args.rows = RowsOf(view.axis, args.each.n, view.inner == 1 ? view.axis : 1);
  SplitRows(&args);
  return args;
}

// What products of two inputs are bound to.
void ReadAB(Launches& launches, ProductArgs* args) { launches.Read({&args->a.source, &args->b.source, &args->bias}); }
void ReadBA(Launches& launches, ProductArgs* args) {
  launches.Read({&args->b.source, &args->a.source, &args->bias, &args->addend});
}

// (dy, x) -> dw [, db], which is the sums of dy for each channel.
Kernel GradWeight(const KernelSpec& spec, const ProductArgs& args, const AxisView& dy) {
  ReduceArgs sums = ChannelSums(dy);
  return Product(
      spec, args,
      [sums](Launches& launches, ProductArgs* product) mutable {
        ReadAB(launches, product);
        sums.in = product->a.source;
        launches.Write({&product->out, &sums.out});
        if (sums.out.data) AddReduction(launches, sums, launches.scratch(PartialBytes(*product)));
      },
      ScratchOf(sums));
}

// ---- FullyConnected: y (M, H) = x (M, K) w (H, K)^T + b ----

struct Sizes {
  int64_t m, k, h;
  Sizes(const FullyConnectedAttrs& attrs, const Shape& data)
      : m(attrs.flatten ? data[0] : data.CountTo(data.rank() - 1)), k(attrs.flatten ? data.CountFrom(1) : data[-1]),
        h(attrs.num_hidden) {}
};

// (x, w [, b]) -> y
MaybeKernel MakeFullyConnected(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<FullyConnectedAttrs>();
  const Sizes s(attrs, spec.inputs[0].shape);
  ProductArgs args{.m = s.m, .n = s.h, .k = s.k};
  args.a = PlainMatrix(s.k, false, s.m);
  args.b = PlainMatrix(s.h, true, s.k);
  args.c = PlainMatrix(s.h, false, s.m);
  args.activation = static_cast<int32_t>(attrs.activation) - 1;
  return Product(spec, args, ReadAB);
}

// (dy, w) -> dx = dy w
MaybeKernel MakeFullyConnectedGradData(const KernelSpec& spec) {
  const Sizes s(spec.attributes<FullyConnectedAttrs>(), spec.outputs[0].shape);
  ProductArgs args{.m = s.m, .n = s.k, .k = s.h};
  args.a = PlainMatrix(s.h, false, s.m);
  args.b = PlainMatrix(s.k, false, s.h);
  args.c = PlainMatrix(s.k, false, s.m);
  return Product(spec, args, ReadAB);
}

// (dy, x) -> dw = dy^T x [, db]
MaybeKernel MakeFullyConnectedGradWeight(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<FullyConnectedAttrs>();
  const Sizes s(attrs, spec.inputs[1].shape);
  ProductArgs args{.m = s.h, .n = s.k, .k = s.m};
  args.a = PlainMatrix(s.m, true, s.h);
  args.b = PlainMatrix(s.k, false, s.m);
  args.c = PlainMatrix(s.k, false, s.h);
  return GradWeight(spec, args, {s.m, s.h, 1});
}

MaybeKernel MakeMatMul(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<MatMulAttrs>();
  const MatMulForm form = FormOf(attrs, spec.inputs[0].shape, spec.inputs[1].shape);
  ProductArgs args{.m = form.m, .n = form.n, .k = form.k};
  args.products.rank = static_cast<int32_t>(form.batch.size());
  for (size_t i = form.batch.size(); i-- > 0;) {
    const MatMulAxis& axis = form.batch[i];
    args.products.extents[i] = axis.extent;
    args.a_strides.of[i] = axis.a;
    args.b_strides.of[i] = axis.b;
    args.c_strides.of[i] = args.products.n * form.m * form.n;
    args.products.n *= axis.extent;
  }
  args.a = PlainMatrix(form.k, attrs.transpose_a, form.m);
  args.b = PlainMatrix(form.n, attrs.transpose_b, form.k);
  args.c = PlainMatrix(form.n, false, form.m);
  return Product(spec, args, ReadAB);
}

// ---- windows ----

Slide SlideOf(const std::vector<Window>& windows, const Shape& data) {
  Slide slide;
  for (size_t i = 0; i < windows.size(); ++i) {
    const size_t axis = 3 - windows.size() + i;
    slide.in[axis] = data[2 + static_cast<int>(i)];
    slide.out[axis] = windows[i].output;
    slide.kernel[axis] = windows[i].kernel;
    slide.stride[axis] = windows[i].stride;
    slide.dilate[axis] = windows[i].dilate;
    slide.pad[axis] = windows[i].pad_begin;
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

// A convolution's three products, of each group.
struct Geometry {
  int64_t samples, groups, in, out;  // channels of a group
  Slide slide;
  Geometry(const ConvolutionAttrs& attrs, const Shape& x, const Shape& y)
      : samples(x[0]), groups(attrs.groups), in(x[1] / groups), out(y[1] / groups),
        slide(SlideOf(ConvolutionWindows(attrs, x), x)) {}

  // Matrices (channels of a group, samples' positions) of a tensor; patches of x; windows of y that meet x.
  Matrix Planes(int64_t channels, int64_t plane) const {
    return {.row_stride = plane, .period_stride = groups * channels * plane, .period = Divisor(plane)};
  }
  Matrix Patches(Form form) const { return {.form = form, .sample_stride = groups * in * slide.inputs}; }
  Matrix Met() const { return {.form = Form::kMet, .sample_stride = groups * out * slide.outputs}; }
  ProductArgs Product(int64_t m, int64_t n, int64_t k, int64_t a_group, int64_t b_group, int64_t c_group) const {
    ProductArgs args{.m = m, .n = n, .k = k, .products = GridOf({groups}), .slide = slide};
    args.a_strides.of[0] = a_group;
    args.b_strides.of[0] = b_group;
    args.c_strides.of[0] = c_group;
    return args;
  }
  int64_t weights() const { return out * in * slide.taps; }  // of a group
};

// (x, w [, b] [, addend]) -> y: of a group w (O, C taps) times patches (C taps, N positions)
MaybeKernel MakeConvolution(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<ConvolutionAttrs>();
  const Geometry g(attrs, spec.inputs[0].shape, spec.outputs[0].shape);
  const int64_t taps = g.in * g.slide.taps;
  ProductArgs args =
      g.Product(g.out, g.samples * g.slide.outputs, taps, g.weights(), g.in * g.slide.inputs, g.out * g.slide.outputs);
  args.a = PlainMatrix(taps, false, g.out);
  args.b = g.Patches(Form::kPatches);
  args.c = g.Planes(g.out, g.slide.outputs);
  args.bias_by_row = 1;
  args.activation = static_cast<int32_t>(attrs.activation) - 1;
  return Product(spec, args, ReadBA);
}

// (dy, w) -> dx: w^T (C, O taps) times the outputs that each input meets (O taps, N inputs)
MaybeKernel MakeConvolutionGradData(const KernelSpec& spec) {
  const Geometry g(spec.attributes<ConvolutionGradDataAttrs>(), spec.outputs[0].shape, spec.inputs[0].shape);
  ProductArgs args = g.Product(g.in, g.samples * g.slide.inputs, g.out * g.slide.taps, g.weights(),
                               g.out * g.slide.outputs, g.in * g.slide.inputs);
  args.a = {.row_stride = g.slide.taps, .period_stride = g.in * g.slide.taps, .period = Divisor(g.slide.taps)};
  args.b = g.Met();
  args.c = g.Planes(g.in, g.slide.inputs);
  return Product(spec, args, ReadBA);
}

// (dy, x) -> dw [, db]: dy (O, N positions) times patches^T (N positions, C taps)
MaybeKernel MakeConvolutionGradWeight(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<ConvolutionAttrs>();
  const Geometry g(attrs, spec.inputs[1].shape, spec.inputs[0].shape);
  const int64_t taps = g.in * g.slide.taps;
  ProductArgs args =
      g.Product(g.out, taps, g.samples * g.slide.outputs, g.out * g.slide.outputs, g.in * g.slide.inputs, g.weights());
  args.a = g.Planes(g.out, g.slide.outputs);
  args.b = g.Patches(Form::kPositions);
  args.c = PlainMatrix(taps, false, g.out);
  return GradWeight(spec, args, {g.samples, g.groups * g.out, g.slide.outputs});
}

PoolArgs PoolOf(const PoolingAttrs& attrs, const Shape& data) {
  const std::vector<Window> windows = PoolWindows(attrs, data);
  PoolArgs args{
      .max = attrs.type == PoolType::kMax, .count_padding = attrs.count_include_pad, .slide = SlideOf(windows, data)};
  for (size_t i = 0; i < windows.size(); ++i) {
    args.padded[3 - windows.size() + i] = data[2 + static_cast<int>(i)] + windows[i].pad_end;
  }
  return args;
}

// x -> y [, state if max]
MaybeKernel MakePooling(const KernelSpec& spec) {
  PoolArgs args = PoolOf(spec.attributes<PoolingAttrs>(), spec.inputs[0].shape);
  if (args.slide.inputs > std::numeric_limits<int32_t>::max()) return std::nullopt;
  args.n = spec.outputs[0].shape.Elements();
  Kernel kernel = OwnKernel(spec, [args](Launches& launches) mutable {
    args.in = launches.in(0);
    args.out = launches.out(0);
    if (args.max) args.winners = static_cast<int32_t*>(launches.out(1).data);
    launches.Add(args, args.n);
  });
  if (args.max) kernel.output_formats[1] = StateFormat(args.n * static_cast<int64_t>(sizeof(int32_t)));
  return kernel;
}

// (dy [, state if max]) -> dx
MaybeKernel MakePoolingGrad(const KernelSpec& spec) {
  PoolArgs args = PoolOf(spec.attributes<PoolingGradAttrs>(), spec.outputs[0].shape);
  if (args.max && !IsState(spec.input_formats[1])) return std::nullopt;
  args.grad = 1;
  args.n = spec.outputs[0].shape.Elements();
  return OwnKernel(spec, [args](Launches& launches) mutable {
    args.in = launches.in(0);
    args.out = launches.out(0);
    if (args.max) args.winners = static_cast<int32_t*>(const_cast<void*>(launches.in(1).data));
    launches.Add(args, args.n);
  });
}

constexpr KernelEntry kEntries[] = {
    {"FullyConnected", MakeFullyConnected},
    {"FullyConnectedGradData", MakeFullyConnectedGradData},
    {"FullyConnectedGradWeight", MakeFullyConnectedGradWeight},
    {"MatMul", MakeMatMul},
    {"Convolution", MakeConvolution},
    {"ConvolutionAdd", MakeConvolution},
    {"ConvolutionGradData", MakeConvolutionGradData},
    {"ConvolutionGradWeight", MakeConvolutionGradWeight},
    {"Pooling", MakePooling},
    {"PoolingGrad", OfFloats<MakePoolingGrad>},
};

}  // namespace

KernelRows ProductKernels() { return kEntries; }

}  // namespace bindery::cuda
