// Elements picked and put by index, and their order; grids of places.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "symbol/onnx/importer.h"
#include "symbol/ops.h"
#include "symbol/ops/rules.h"

namespace bindery::onnx {
namespace {

// Rows of a table in the file: our layer.
void ImportGather(Importer& im) {
  const int64_t axis = im.Int("axis", 0);
  const HostTensor* table = im.Weight(0);
  if (table == nullptr || table->shape().rank() != 2 || axis != 0 || table->elements() == 0) {
    return im.Out(Take(im.In(0), im.In(1), {.axis = axis}, im.name()));
  }
  const EmbeddingAttrs attrs{.input_dim = table->shape()[0], .output_dim = table->shape()[1]};
  im.Out(Embedding(im.In(1), im.WeightIn(0), attrs, im.name()));
}

void ImportGatherND(Importer& im) {
  const int64_t shared = im.Int("batch_dims", 0);
  im.Out(GatherND(im.In(0), im.In(1), {.axis = shared, .batch_dims = shared}, im.name()));
}

void ImportGatherElements(Importer& im) {
  im.Out(GatherElements(im.In(0), im.In(1), {.axis = im.Int("axis", 0)}, im.name()));
}

void ImportScatterND(Importer& im) {
  im.Out(
      ScatterND(im.In(0), im.In(1), im.In(2), {.reduction = im.Enum("reduction", ScatterReduction::kNone)}, im.name()));
}

void ImportScatterElements(Importer& im) {
  const ScatterAttrs attrs{.axis = im.Int("axis", 0), .reduction = im.Enum("reduction", ScatterReduction::kNone)};
  im.Out(ScatterElements(im.In(0), im.In(1), im.In(2), attrs, im.name()));
}

void ImportOneHot(Importer& im) {
  const HostTensor& values = im.Static(2);
  if (values.elements() != 2) Throw<ModelError>("input 2: expected two values, got {}", values.elements());
  OneHotAttrs attrs{.axis = im.Int("axis", -1),
                    .on_value = values.At(1),
                    .off_value = values.At(0),
                    .from_end = true,
                    .dtype = values.dtype()};
  if (im.Constant(1) == nullptr) return im.Out(OneHotBy({im.In(0), im.In(1)}, attrs, im.name()));
  const HostTensor& depth = im.Static(1);
  if (depth.elements() != 1) Throw<ModelError>("input 1: expected one depth, got {}", depth.elements());
  attrs.depth = depth.Cast(DType::kInt64).data<int64_t>()[0];
  im.Out(OneHot(im.In(0), attrs, im.name()));
}

// A cache of each sample, into which what is new is put along an axis from the sample's own index on (0 without any);
// "circular" goes on from the beginning.
void ImportTensorScatter(Importer& im) {
  const Symbol cache = im.In(0), update = im.In(1);
  const std::string mode = im.String("mode", "linear");
  if (mode != "linear" && mode != "circular") {
    Throw<ModelError>("attribute \"mode\": expected linear or circular, got \"{}\"", mode);
  }
  const int axis = im.AxisOf(cache, im.Int("axis", -2));
  if (axis == 0) Throw<ModelError>("attribute \"axis\": it is the samples'");
  const int64_t extent = im.ShapeOf(cache)[axis], count = im.ShapeOf(update)[axis];
  if (extent < 1 || count == kUnknownDim) {
    Throw<ModelError>("it is not known how much is put into how much along axis {}", axis);
  }
  Symbol index = Range({.end = static_cast<double>(count), .dtype = DType::kInt64});
  if (im.Has(2)) index = ExpandDims(Cast(im.In(2), {.dtype = DType::kInt64}), {.axes = {1}}) + index;
  if (mode == "circular") {
    index = Mod(index, bindery::Constant(HostTensor::Full(DType::kInt64, {}, static_cast<double>(extent))));
  }
  const ScatterAttrs attrs{.axis = axis, .batch_dims = im.Has(2) ? 1 : 0};
  im.Out(ScatterND(cache, ExpandDims(index, {.axes = {-1}}), update, attrs, im.name()));
}

ImportFn Place(const OpFunction<ArgAttrs>& f) {
  return [f](Importer& im) {
    const ArgAttrs attrs{.axis = im.Int("axis", 0),
                         .keepdims = im.Flag("keepdims", true),
                         .select_last_index = im.Flag("select_last_index")};
    im.Out(f(im.In(0), attrs, im.name()));
  };
}

// How many: an attribute up to version 9, an input since.
void ImportTopK(Importer& im) {
  TopKAttrs attrs{.k = im.Int("k", 0),
                  .axis = im.Int("axis", -1),
                  .largest = im.Flag("largest", true),
                  .sorted = im.Flag("sorted", true)};
  const bool is_computed = im.Has(1) && im.Constant(1) == nullptr;
  if (im.Has(1) && !is_computed) attrs.k = im.StaticNumber(1);
  if (attrs.k < 1 && !is_computed) Throw<ModelError>("{} elements are sought", attrs.k);
  const Symbol both = is_computed ? TopKBy({im.In(0), im.In(1)}, attrs, im.name()) : TopK(im.In(0), attrs, im.name());
  for (const int i : {0, 1}) im.Out(i, both[i]);
}

ImportFn Accumulated(const OpFunction<ScanAttrs>& f) {
  return [f](Importer& im) {
    const ScanAttrs attrs{.axis = im.StaticNumber(1), .exclusive = im.Flag("exclusive"), .reverse = im.Flag("reverse")};
    im.Out(f(im.In(0), attrs, im.name()));
  };
}

void ImportTrilu(Importer& im) {
  const TriluAttrs attrs{.k = im.Has(1) ? im.StaticNumber(1) : 0, .upper = im.Flag("upper", true)};
  im.Out(Trilu(im.In(0), attrs, im.name()));
}

void ImportReverseSequence(Importer& im) {
  const SequenceAttrs attrs{.axis = im.Int("time_axis", 0), .batch_axis = im.Int("batch_axis", 1)};
  im.Out(SequenceReverse(im.In(0), im.In(1), attrs, im.name()));
}

// --- The ways back of windows.

// Numbers of windows along each axis; `dilate` is for those that have it.
struct WindowNumbers {
  std::vector<int64_t> kernel, stride, begin, end, dilate;
};
WindowNumbers WindowNumbersOf(const Importer& im, std::vector<int64_t> kernel) {
  const size_t axes = kernel.size();
  const auto list = [&](const char* key, int64_t otherwise, size_t count) {
    std::vector<int64_t> values = im.Ints(key);
    if (values.empty()) values.assign(count, otherwise);
    if (values.size() != count) {
      Throw<ModelError>("attribute \"{}\": expected {} numbers, got {}", key, count, values.size());
    }
    return values;
  };
  const std::vector<int64_t> pads = list("pads", 0, 2 * axes);
  const auto half = pads.begin() + static_cast<std::ptrdiff_t>(axes);
  WindowNumbers numbers{std::move(kernel), list("strides", 1, axes), {pads.begin(), half}, {half, pads.end()}, {}};
  const auto check = [](const std::vector<int64_t>& all, int64_t least, const char* what) {
    for (const int64_t number : all) {
      if (number < least || number > INT32_MAX) Throw<ModelError>("a {} of {}", what, number);
    }
  };
  check(numbers.kernel, 1, "window");
  check(numbers.stride, 1, "stride");
  check(pads, 0, "padding");
  return numbers;
}

// Of all but the first axis.
std::vector<int64_t> KnownBehindSamples(Importer& im, int input) {
  const Shape shape = im.ShapeOf(im.In(input));
  if (shape.rank() < 3) Throw<ModelError>("input {}: expected 3 or more axes, got {}", input, shape.rank());
  const std::vector<int64_t> extents(shape.begin() + 1, shape.end());
  if (std::ranges::any_of(extents, [](int64_t extent) { return extent < 1; })) {
    Throw<ModelError>("input {}: all extents of {} but the first must be known, and above 0", input, shape);
  }
  return extents;
}

// Updates (N, elements) put at indices within zeros (N, extent), as (N, shape): those of each sample, or of all alike.
Symbol PutIntoSamples(Importer& im, const Symbol& indices, const Symbol& updates, ScatterAttrs attrs,
                      const std::vector<int64_t>& shape) {
  const PartialExtents extents = im.ExtentsOf(im.In(0));
  if (!extents[0]) Throw<ModelError>("input 0: it is not known how many samples there are");
  Extents zeros = {*extents[0]}, whole = zeros;
  for (const int64_t extent : attrs.shape) zeros.push_back({extent, 0});
  for (const int64_t extent : shape) whole.push_back({extent, 0});
  attrs.shape = rule::FixedParts(zeros);
  attrs.batches = rule::BatchParts(zeros);
  return rule::ReshapeTo(PutND(indices, updates, attrs), whole);
}

// Columns (N, C kernel, places) added up where an image has them: `places` go over the windows, row by row.
void ImportCol2Im(Importer& im) {
  const std::vector<int64_t> image = im.StaticInts(1);
  WindowNumbers windows = WindowNumbersOf(im, im.StaticInts(2));
  const size_t axes = image.size();
  windows.dilate = im.Ints("dilations");
  if (windows.dilate.empty()) windows.dilate.assign(axes, 1);
  if (axes == 0 || windows.kernel.size() != axes || windows.dilate.size() != axes) {
    Throw<ModelError>("image, block and dilations have {}, {} and {} numbers", axes, windows.kernel.size(),
                      windows.dilate.size());
  }
  int64_t kernel = 1, places = 1, elements = 1;
  std::vector<int64_t> counts;
  for (size_t i = 0; i < axes; ++i) {
    const int64_t reach = CheckedAdd(CheckedMul(windows.kernel[i] - 1, windows.dilate[i]), 1);
    const int64_t padded = CheckedAdd(CheckedAdd(image[i], windows.begin[i]), windows.end[i]);
    if (image[i] < 1 || windows.dilate[i] < 1 || padded < reach) {
      Throw<ModelError>("a window of {} elements in {}", reach, padded);
    }
    counts.push_back((padded - reach) / windows.stride[i] + 1);
    kernel = CheckedMul(kernel, windows.kernel[i]);
    places = CheckedMul(places, counts.back());
    elements = CheckedMul(elements, image[i]);
  }
  CheckTerms(CheckedMul(kernel, places));
  const std::vector<int64_t> columns = KnownBehindSamples(im, 0);
  if (columns.size() != 2 || columns[0] % kernel != 0 || columns[1] != places) {
    Throw<ModelError>("input 0: expected (N, channels times {}, {}), got {} and {}", kernel, places, columns[0],
                      columns[1]);
  }
  // Where each element of each window is; -1 in padding, where nothing is put.
  HostTensor index(DType::kInt64, {kernel * places, 1});
  const auto at = index.data<int64_t>();
  for (int64_t k = 0; k < kernel; ++k) {
    for (int64_t place = 0; place < places; ++place) {
      int64_t flat = 0, step = 1, left_k = k, left_place = place;
      for (size_t i = axes; i-- > 0;) {
        const int64_t row = left_place % counts[i] * windows.stride[i] - windows.begin[i] +
                            left_k % windows.kernel[i] * windows.dilate[i];
        flat = row < 0 || row >= image[i] || flat < 0 ? -1 : flat + row * step;
        step *= image[i];
        left_k /= windows.kernel[i];
        left_place /= counts[i];
      }
      at[static_cast<size_t>(k * places + place)] = flat;
    }
  }
  const int64_t channels = columns[0] / kernel;
  std::vector<int64_t> shape = {channels};
  shape.insert(shape.end(), image.begin(), image.end());
  const Symbol updates = Reshape(im.In(0), {.shape = {0, channels, kernel * places}});
  const ScatterAttrs attrs{
      .axis = 2, .mode = IndexMode::kZero, .reduction = ScatterReduction::kAdd, .shape = {channels, elements}};
  im.Out(Identity(PutIntoSamples(im, bindery::Constant(std::move(index)), updates, attrs, shape), im.name()));
}

// What won a MaxPool, put back where it was: indices count in the whole pooled input, samples and channels included. An
// input 2 says extents of which that is the beginning.
void ImportMaxUnpool(Importer& im) {
  const WindowNumbers windows = WindowNumbersOf(im, im.Ints("kernel_shape"));
  const std::vector<int64_t> pooled = KnownBehindSamples(im, 0);
  if (windows.kernel.size() + 1 != pooled.size()) {
    Throw<ModelError>("attribute \"kernel_shape\": {} numbers for {} axes", windows.kernel.size(), pooled.size() - 1);
  }
  std::vector<int64_t> shape = {pooled[0]};
  int64_t count = pooled[0], elements = pooled[0];
  for (size_t i = 0; i < windows.kernel.size(); ++i) {
    const int64_t inside = CheckedAdd(CheckedMul(pooled[i + 1] - 1, windows.stride[i]), windows.kernel[i]);
    shape.push_back(CheckedAdd(CheckedAdd(inside, -windows.begin[i]), -windows.end[i]));
    if (shape.back() < 1) Throw<ModelError>("nothing is left of {} elements without padding", inside);
    count = CheckedMul(count, pooled[i + 1]);
    elements = CheckedMul(elements, shape.back());
  }
  const Symbol of_sample =
      Mod(im.In(1), bindery::Constant(HostTensor::Full(DType::kInt64, {}, static_cast<double>(elements))));
  const ScatterAttrs attrs{.axis = 1, .batch_dims = 1, .shape = {elements}};
  const Symbol unpooled = PutIntoSamples(im, Reshape(of_sample, {.shape = {0, count, 1}}),
                                         Reshape(im.In(0), {.shape = {0, count}}), attrs, shape);
  if (!im.Has(2)) return im.Out(Identity(unpooled, im.name()));
  const Extents wanted = im.StaticExtents(2);
  if (wanted.size() != shape.size() + 1) Throw<ModelError>("input 2: it has {} numbers", wanted.size());
  PadAttrs pad;
  for (size_t i = 1; i < shape.size(); ++i) {
    const Extent& extent = wanted[i + 1];
    if (extent.batches != 0 || extent.fixed < shape[i]) Throw<ModelError>("input 2: it is less than {}", shape[i]);
    pad.axes.push_back(static_cast<int64_t>(i) + 1);
    pad.begin.push_back(0);
    pad.end.push_back(extent.fixed - shape[i]);
  }
  im.Out(Pad(unpooled, pad, im.name()));
}

// --- Grids

// Its ways, whose names changed with version 20: from then on there are volumes.
ImportFn GridSampling(const char* linear, const char* cubic) {
  return [=](Importer& im) {
    GridSampleAttrs attrs{.padding = im.Enum("padding_mode", GridPadding::kZeros),
                          .align_corners = im.Flag("align_corners")};
    const std::string mode = im.String("mode", linear);
    if (mode == "nearest") {
      attrs.mode = ResizeMode::kNearest;
    } else if (mode == cubic) {
      attrs.mode = ResizeMode::kCubic;
    } else if (mode != linear) {
      Throw<ModelError>("attribute \"mode\": expected nearest, {} or {}, got \"{}\"", linear, cubic, mode);
    }
    const Symbol data = im.In(0), grid = im.In(1);
    const DType type = im.DTypeOf(data), places = im.DTypeOf(grid);
    if (type == places || !IsFloat(type)) return im.Out(GridSample(data, grid, attrs, im.name()));
    // Ours have one type, and 16 bits have two.
    const CastAttrs wide{type == DType::kFloat64 || places == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32};
    im.Out(Cast(GridSample(Cast(data, wide), Cast(grid, wide), attrs, im.name()), {.dtype = type}));
  };
}

// The size is (N, C, H, W) or (N, C, D, H, W).
void ImportAffineGrid(Importer& im) {
  AffineGridAttrs attrs{.align_corners = im.Flag("align_corners")};
  if (im.IsComputed(1)) {
    const Symbol sizes = Slice(im.In(1), {.begin = {2}, .end = {kSliceEnd}, .axes = {0}});
    return im.Out(AffineGridBy({im.In(0), sizes}, attrs, im.name()));
  }
  const Extents size = im.StaticExtents(1);
  for (size_t i = 2; i < size.size(); ++i) {
    if (size[i].batches != 0) Throw<ModelError>("input 1, the size: its entry {} is the batch's", i);
    attrs.sizes.push_back(size[i].fixed);
  }
  im.Out(AffineGrid(im.In(0), attrs, im.name()));
}

}  // namespace

std::span<const ImportRow> IndexImports() {
  static const std::vector<ImportRow> rows = {
      {"AffineGrid", 20, ImportAffineGrid},
      {"ArgMax", 1, Place(ArgMax)},
      {"ArgMin", 1, Place(ArgMin)},
      {"Col2Im", 18, ImportCol2Im},
      {"CumProd", 26, Accumulated(CumProd)},
      {"CumSum", 11, Accumulated(CumSum)},
      {"Gather", 1, ImportGather},
      {"GatherElements", 11, ImportGatherElements},
      {"GatherND", 11, ImportGatherND},
      {"GridSample", 16, GridSampling("bilinear", "bicubic")},
      {"GridSample", 20, GridSampling("linear", "cubic")},
      {"MaxUnpool", 9, ImportMaxUnpool},
      {"OneHot", 9, ImportOneHot},
      {"ReverseSequence", 10, ImportReverseSequence},
      {"Scatter", 9, ImportScatterElements},
      {"ScatterElements", 11, ImportScatterElements},
      {"ScatterND", 11, ImportScatterND},
      {"TensorScatter", 24, ImportTensorScatter},
      {"TopK", 1, ImportTopK},
      {"Trilu", 14, ImportTrilu},
  };
  return rows;
}

}  // namespace bindery::onnx
