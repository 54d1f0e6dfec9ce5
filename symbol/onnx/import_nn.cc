// Layers: windows, dropout, matrices.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "base/checked.h"
#include "symbol/onnx/importer.h"
#include "symbol/ops.h"
#include "symbol/ops/quantized.h"
#include "symbol/ops/window.h"

namespace bindery::onnx {
namespace {

// --- Windows.

AutoPad AutoPadOf(const Importer& im) {
  const std::string name = im.String("auto_pad", "NOTSET");
  if (name == "NOTSET" || name.empty()) return AutoPad::kNone;
  if (name == "VALID") return AutoPad::kValid;
  if (name == "SAME_UPPER") return AutoPad::kSameUpper;
  if (name == "SAME_LOWER") return AutoPad::kSameLower;
  Throw<ModelError>("attribute \"auto_pad\": expected NOTSET, VALID, SAME_UPPER or SAME_LOWER, got \"{}\"", name);
}

void ImportConv(Importer& im) {
  const ConvolutionAttrs attrs = ConvolutionAttrsOf(im, 1, 2);
  std::vector<Symbol> inputs = {im.In(0), im.WeightIn(1)};
  if (!attrs.no_bias) inputs.push_back(im.WeightIn(2));
  im.Out(Apply(ConvolutionOp(), attrs, inputs, im.name()));
}

// Pads, from how far the output is to reach where it is told: what is too much is cut on both sides, what is too little
// follows at the end.
void PadTo(const std::vector<int64_t>& wanted, const Shape& data, bool more_at_end, DeconvolutionAttrs* attrs) {
  const size_t spatial = attrs->kernel.size();
  if (wanted.size() != spatial || data.rank() != static_cast<int>(spatial) + 2) {
    Throw<ModelError>("attribute \"output_shape\": {} extents for data {}", wanted.size(), data);
  }
  rule::CheckPerAxis("stride", attrs->stride, spatial, 1);
  rule::CheckPerAxis("dilate", attrs->dilate, spatial, 1);
  attrs->pad.assign(2 * spatial, 0);
  attrs->output_padding.resize(spatial);
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t size = data[static_cast<int>(i) + 2], stride = attrs->stride.empty() ? 1 : attrs->stride[i];
    const int64_t extent = CheckedMul(attrs->kernel[i] - 1, attrs->dilate.empty() ? 1 : attrs->dilate[i]) + 1;
    const int64_t whole = CheckedAdd(CheckedAdd(CheckedMul(stride, size - 1), extent), attrs->output_padding[i]);
    const int64_t total = CheckedAdd(whole, -wanted[i]);
    if (total < 0) attrs->output_padding[i] = CheckedAdd(attrs->output_padding[i], -total);
    attrs->pad[i] = more_at_end ? std::max<int64_t>(total, 0) / 2 : CeilDiv(std::max<int64_t>(total, 0), 2);
    attrs->pad[i + spatial] = std::max<int64_t>(total, 0) - attrs->pad[i];
  }
}

void ImportConvTranspose(Importer& im) {
  const ConvolutionAttrs windows = ConvolutionAttrsOf(im, 1, 2);
  const int64_t channels = im.ShapeOf(im.WeightIn(1))[1];
  DeconvolutionAttrs attrs{.num_filter = CheckedMul(channels, windows.groups, "output channels"),
                           .kernel = windows.kernel,
                           .stride = windows.stride,
                           .pad = windows.pad,
                           .dilate = windows.dilate,
                           .output_padding = im.Ints("output_padding"),
                           .auto_pad = windows.auto_pad,
                           .groups = windows.groups,
                           .no_bias = windows.no_bias};
  const std::vector<int64_t> wanted = im.Ints("output_shape");
  if (!wanted.empty()) {
    const Shape data = im.ShapeOf(im.In(0));
    if (std::ranges::count(data.dims().subspan(std::min(data.rank(), 2)), kUnknownDim) > 0) {
      Throw<ModelError>("attribute \"output_shape\": the spatial extents of data {} must be known", data);
    }
    PadTo(wanted, data, attrs.auto_pad == AutoPad::kSameUpper, &attrs);
    attrs.auto_pad = AutoPad::kNone;
  }
  const Symbol bias = windows.no_bias ? Symbol() : im.WeightIn(2);
  im.Out(Deconvolution(im.In(0), im.WeightIn(1), bias, attrs, im.name()));
}

// Where each window of one channel has its elements: `places` within the channel, of a window of `taps` elements. In
// padding, where none is, the first that there is stands again: who looks for the first of the largest finds that. No
// window has padding alone: Pooling refuses those.
struct WindowPlaces {
  int64_t windows = 1, taps = 1;
  std::vector<int64_t> places = {};  // (windows, taps)
};
WindowPlaces PlacesOf(const PoolingAttrs& attrs, const Shape& data, bool column_major) {
  const std::vector<Window> axes = PoolWindows(attrs, data);
  WindowPlaces result;
  for (const Window& axis : axes) {
    result.windows = CheckedMul(result.windows, axis.output);
    result.taps = CheckedMul(result.taps, axis.kernel);
  }
  CheckTerms(CheckedMul(result.windows, result.taps));
  for (int64_t window = 0; window < result.windows; ++window) {
    const size_t begin = result.places.size();
    int64_t first = -1;
    for (int64_t tap = 0; tap < result.taps; ++tap) {
      int64_t place = 0, step = 1, left_window = window, left_tap = tap;
      std::vector<int64_t> at(axes.size());
      for (size_t i = axes.size(); i-- > 0;) {
        const Window& axis = axes[i];
        at[i] = left_window % axis.output * axis.stride - axis.pad_begin + left_tap % axis.kernel * axis.dilate;
        left_window /= axis.output;
        left_tap /= axis.kernel;
      }
      for (size_t k = 0; k < axes.size(); ++k) {
        const size_t i = column_major ? k : axes.size() - 1 - k;
        const int64_t extent = data[static_cast<int>(i) + 2];
        place = place < 0 || at[i] < 0 || at[i] >= extent ? -1 : place + at[i] * step;
        step *= extent;
      }
      if (first < 0) first = place;
      result.places.push_back(place);
    }
    std::replace(result.places.begin() + static_cast<std::ptrdiff_t>(begin), result.places.end(), int64_t{-1}, first);
  }
  return result;
}

Symbol Table(const std::vector<int64_t>& values, const Shape& shape) {
  HostTensor table(DType::kInt64, shape);
  std::ranges::copy(values, table.data<int64_t>().begin());
  return bindery::Constant(std::move(table));
}

// Which element won each window: its index in the whole input, samples and channels included.
Symbol IndicesOfMax(Importer& im, const PoolingAttrs& attrs, bool column_major) {
  const Symbol x = im.In(0);
  const Shape data = im.ShapeOf(x);
  for (int axis = 1; axis < data.rank(); ++axis) {
    if (data[axis] >= 1) continue;
    Throw<ModelError>("output 1, which element won: extent {} of its input {} is not known{}", axis, data,
                      im.HowToState());
  }
  const auto [windows, taps, rows] = PlacesOf(attrs, data, false);
  const int64_t channels = data[1], elements = data.CountFrom(2);
  const Symbol seen = Take(Reshape(x, {.shape = {0, 0, -1}}), Table(rows, {windows * taps}), {.axis = 2});
  const Symbol tap = ArgMax(Reshape(seen, {.shape = {0, 0, windows, taps}}), {.axis = 3, .keepdims = false});
  std::vector<int64_t> begins, of_channels, shape = {0, 0};
  for (int64_t i = 0; i < windows; ++i) begins.push_back(i * taps);
  for (int64_t i = 0; i < channels; ++i) of_channels.push_back(CheckedMul(i, elements));
  const std::vector<int64_t> told = column_major ? PlacesOf(attrs, data, true).places : rows;
  const Symbol place = Take(Table(told, {windows * taps}), tap + Table(begins, {windows}), {.axis = 0});
  const Symbol samples = RangeBy({Table({0}, {}), Reshape(ShapeArray(x, {.end = 1}), {.shape = {}}), Table({1}, {})},
                                 RangeAttrs{.dtype = DType::kInt64});
  const Symbol of_sample = Reshape(samples, {.shape = {-1, 1, 1}}) * Table({CheckedMul(channels, elements)}, {}) +
                           Table(of_channels, {channels, 1});
  for (const Window& axis : PoolWindows(attrs, data)) shape.push_back(axis.output);
  return Reshape(place + of_sample, {.shape = shape});
}

ImportFn Pool(PoolType type) {
  return [type](Importer& im) {
    const PoolingAttrs attrs = PoolingAttrsOf(im, type);
    const bool column_major = im.Flag("storage_order");
    im.Out(Pooling(im.In(0), attrs, im.name()));
    if (im.IsRead(1)) im.Out(1, IndicesOfMax(im, attrs, column_major));
  };
}

ImportFn GlobalPool(PoolType type) {
  return [type](Importer& im) { im.Out(Pooling(im.In(0), {.type = type, .global = true}, im.name())); };
}

// (sum |x|^p)^(1/p). Nothing flows back where all is 0, and the root has no slope: as in PyTorch.
Symbol PowerMean(const Symbol& x, double p, const std::function<Symbol(const Symbol&)>& sum, const std::string& name) {
  if (p == 1) return Identity(sum(Abs(x)), name);
  const Symbol whole = sum(p == 2 ? Square(x) : Power(Abs(x), p)), nothing = Equal(whole, 0.0);
  const Symbol inside = Where(nothing, 1.0, whole);
  return Where(nothing, 0.0, p == 2 ? Sqrt(inside) : Power(inside, 1 / p), name);
}

// Was a real number in the first version.
double Exponent(const Importer& im) {
  const double p = im.opset() < 2 ? im.Float("p", 2) : static_cast<double>(im.Int("p", 2));
  if (!(p > 0)) Throw<ModelError>("attribute \"p\": expected more than 0, got {}", p);
  return p;
}

// A sum is an average that counts padding, which is 0, times the elements of a window.
void ImportLpPool(Importer& im) {
  const PoolingAttrs attrs{.type = PoolType::kAvg,
                           .kernel = im.Ints("kernel_shape"),
                           .stride = im.Ints("strides"),
                           .pad = im.Ints("pads"),
                           .dilate = im.Ints("dilations"),
                           .auto_pad = AutoPadOf(im)};
  if (im.Flag("ceil_mode")) Throw<ModelError>("attribute \"ceil_mode\": only 0 can be had");
  double size = 1;
  for (const int64_t extent : attrs.kernel) size *= static_cast<double>(extent);
  const auto sum = [&](const Symbol& x) { return Pooling(x, attrs) * size; };
  im.Out(PowerMean(im.In(0), Exponent(im), sum, im.name()));
}

void ImportGlobalLpPool(Importer& im) {
  const auto sum = [](const Symbol& x) { return Sum(x, {.axes = {0, 1}, .keepdims = true, .exclude = true}); };
  im.Out(PowerMean(im.In(0), Exponent(im), sum, im.name()));
}

// Drops while the model is trained, whatever the file says of that.
void ImportDropout(Importer& im) {
  im.Ignore({"is_test", "seed"});
  double ratio = im.Float("ratio", 0.5);
  if (im.Has(1)) {
    if (im.Static(1).elements() != 1) Throw<ModelError>("input 1, the ratio: expected one number");
    ratio = im.Static(1).At(0);
  }
  if (!im.IsRead(1)) return im.Out(Dropout(im.In(0), {.p = ratio}, im.name()));
  // The mask is where something is left of ones.
  const Symbol left = Dropout(FullLike(im.In(0), {1}), {.p = ratio});
  im.Out(Mul(im.In(0), left, im.name()));
  im.Out(1, Cast(left, {.dtype = im.opset() < 10 ? im.DTypeOf(im.In(0)) : DType::kBool}));
}

// --- Matrices.

HostTensor Transposed(const HostTensor& matrix) {
  const int64_t rows = matrix.shape()[0], columns = matrix.shape()[1], size = SizeOf(matrix.dtype());
  HostTensor result(matrix.dtype(), {columns, rows});
  const auto* from = static_cast<const char*>(matrix.raw());
  auto* to = static_cast<char*>(result.raw());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c)
      std::copy_n(from + (r * columns + c) * size, size, to + (c * rows + r) * size);
  }
  return result;
}

// The shape of an input that integers of the file stand for; none for others.
std::optional<Shape> ShapeOfIntegers(Importer& im, int input) {
  if (im.Constant(input) != nullptr) return std::nullopt;
  const Symbol x = im.In(input);
  const Node& node = *x.entry().node;
  const bool is_real = IsDequantizeLinear(node) && node.inputs()[0].node->is_variable();
  return is_real ? std::optional(im.ShapeOf(x)) : std::nullopt;
}

// The same for a weight of integers.
std::optional<Symbol> LayerOfIntegers(Importer& im, int bias) {
  const std::optional<Shape> weight = ShapeOfIntegers(im, 1);
  if (!weight || weight->rank() != 2 || !weight->IsKnown() || weight->Elements() == 0) return std::nullopt;
  const FullyConnectedAttrs attrs{.num_hidden = (*weight)[0], .no_bias = bias < 0 || !im.Has(bias), .flatten = false};
  std::vector<Symbol> inputs = {im.In(0), im.In(1)};
  if (!attrs.no_bias) {
    inputs.push_back(ShapeOfIntegers(im, bias) ? im.In(bias) : im.WeightIn(bias));
    if (im.ShapeOf(inputs[2]) != Shape{attrs.num_hidden}) return std::nullopt;
  }
  return Apply(FullyConnectedOp(), attrs, inputs, im.name());
}

// x W^T (+ b) with W in the file: our layer. `transposed`: the file has W^T.
std::optional<Symbol> Layer(Importer& im, int bias, bool transposed) {
  if (!transposed && im.Weight(0) == nullptr && im.Has(1)) {
    if (const auto layer = LayerOfIntegers(im, bias)) return layer;
  }
  const HostTensor* weight = im.Weight(1);
  if (weight == nullptr || weight->shape().rank() != 2 || im.Weight(0) != nullptr) return std::nullopt;
  const int64_t hidden = weight->shape()[transposed ? 1 : 0];
  const bool has_bias = bias > 0 && im.Has(bias);
  if (has_bias && (im.Weight(bias) == nullptr || im.Weight(bias)->shape() != Shape{hidden})) return std::nullopt;
  if (weight->elements() == 0) return std::nullopt;
  const Symbol matrix = transposed ? im.Parameter(1, "transposed", Transposed) : im.WeightIn(1);
  const FullyConnectedAttrs attrs{.num_hidden = hidden, .no_bias = !has_bias, .flatten = false};
  std::vector<Symbol> inputs = {im.In(0), matrix};
  if (has_bias) inputs.push_back(im.WeightIn(bias));
  return Apply(FullyConnectedOp(), attrs, inputs, im.name());
}

void ImportGemm(Importer& im) {
  im.Ignore({"broadcast"});
  const bool transpose_a = im.Flag("transA"), transpose_b = im.Flag("transB");
  const double alpha = im.Float("alpha", 1), beta = im.Float("beta", 1);
  if (!transpose_a && alpha == 1 && (beta == 1 || !im.Has(2))) {
    if (const auto layer = Layer(im, 2, !transpose_b)) return im.Out(*layer);
  }
  const Symbol c = im.Has(2) ? im.In(2) : Symbol();
  im.Out(Gemm(im.In(0), im.In(1), c, {alpha, beta, transpose_a, transpose_b}, im.name()));
}

void ImportMatMul(Importer& im) {
  const Symbol x = im.In(0);
  if (im.RankOf(x) >= 2) {
    if (const auto layer = Layer(im, -1, true)) return im.Out(*layer);
  }
  im.Out(MatMul(x, im.In(1), {}, im.name()));
}

// Of matrices of up to 3 rows, by their minors along the first.
void ImportDet(Importer& im) {
  constexpr int kMost = 3;
  const Symbol x = im.In(0);
  const Shape shape = im.ShapeOf(x);
  const int64_t rows = shape.rank() < 2 ? 0 : shape[-1];
  if (rows < 1 || rows > kMost || shape[-2] != rows) {
    Throw<ModelError>("input 0: square matrices of 1 to {} rows can be had, got {}", kMost, shape);
  }
  const auto at = [&](int64_t row, int64_t column) {
    const Symbol element =
        Slice(x, {.begin = {row, column}, .end = {row + 1, column + 1}, .axes = {shape.rank() - 2, shape.rank() - 1}});
    return Squeeze(element, {.axes = {-2, -1}});
  };
  const auto minor = [&](int64_t row, int64_t a, int64_t b) {
    return at(row, a) * at(row + 1, b) - at(row, b) * at(row + 1, a);
  };
  const Symbol determinant = rows == 1 ? at(0, 0)
                             : rows == 2
                                 ? minor(0, 0, 1)
                                 : at(0, 0) * minor(1, 1, 2) - at(0, 1) * minor(1, 0, 2) + at(0, 2) * minor(1, 0, 1);
  im.Out(Identity(determinant, im.name()));
}

}  // namespace

PoolingAttrs PoolingAttrsOf(const Importer& im, PoolType type) {
  return {.type = type,
          .kernel = im.Ints("kernel_shape"),
          .stride = im.Ints("strides"),
          .pad = im.Ints("pads"),
          .dilate = im.Ints("dilations"),
          .auto_pad = AutoPadOf(im),
          .ceil_mode = im.Flag("ceil_mode"),
          .count_include_pad = im.Flag("count_include_pad")};
}

ConvolutionAttrs ConvolutionAttrsOf(Importer& im, int weight, int bias) {
  const Shape shape = im.ShapeOf(im.WeightIn(weight));
  if (shape.rank() < 3 || !shape.IsKnown()) {
    Throw<ModelError>("input {}, the weight: expected at least 3 known extents, got {}", weight, shape);
  }
  const std::vector<int64_t> kernel(shape.begin() + 2, shape.end()), said = im.Ints("kernel_shape");
  if (!said.empty() && said != kernel) Throw<ModelError>("attribute \"kernel_shape\": the weight is {}", shape);
  return {.num_filter = shape[0],
          .kernel = kernel,
          .stride = im.Ints("strides"),
          .pad = im.Ints("pads"),
          .dilate = im.Ints("dilations"),
          .auto_pad = AutoPadOf(im),
          .groups = im.Int("group", 1),
          .no_bias = bias < 0 || !im.Has(bias)};
}

std::span<const ImportRow> NnImports() {
  static const std::vector<ImportRow> rows = {
      {"AveragePool", 1, Pool(PoolType::kAvg)},
      {"Conv", 1, ImportConv},
      {"ConvTranspose", 1, ImportConvTranspose},
      {"Det", 11, ImportDet},
      {"Dropout", 1, ImportDropout},
      {"Gemm", 1, ImportGemm},
      {"GlobalAveragePool", 1, GlobalPool(PoolType::kAvg)},
      {"GlobalLpPool", 1, ImportGlobalLpPool},
      {"GlobalMaxPool", 1, GlobalPool(PoolType::kMax)},
      {"LpPool", 1, ImportLpPool},
      {"MatMul", 1, ImportMatMul},
      {"MaxPool", 1, Pool(PoolType::kMax)},
  };
  return rows;
}

}  // namespace bindery::onnx
