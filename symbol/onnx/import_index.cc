// Elements picked and put by index, and their order; grids of places.
#include <string>
#include <vector>

#include "symbol/onnx/importer.h"
#include "symbol/ops.h"

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

void ImportCumSum(Importer& im) {
  const ScanAttrs attrs{.axis = im.StaticNumber(1), .exclusive = im.Flag("exclusive"), .reverse = im.Flag("reverse")};
  im.Out(CumSum(im.In(0), attrs, im.name()));
}

void ImportTrilu(Importer& im) {
  const TriluAttrs attrs{.k = im.Has(1) ? im.StaticNumber(1) : 0, .upper = im.Flag("upper", true)};
  im.Out(Trilu(im.In(0), attrs, im.name()));
}

void ImportReverseSequence(Importer& im) {
  const SequenceAttrs attrs{.axis = im.Int("time_axis", 0), .batch_axis = im.Int("batch_axis", 1)};
  im.Out(SequenceReverse(im.In(0), im.In(1), attrs, im.name()));
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
      {"CumSum", 11, ImportCumSum},
      {"Gather", 1, ImportGather},
      {"GatherElements", 11, ImportGatherElements},
      {"GatherND", 11, ImportGatherND},
      {"GridSample", 16, GridSampling("bilinear", "bicubic")},
      {"GridSample", 20, GridSampling("linear", "cubic")},
      {"OneHot", 9, ImportOneHot},
      {"ReverseSequence", 10, ImportReverseSequence},
      {"Scatter", 9, ImportScatterElements},
      {"ScatterElements", 11, ImportScatterElements},
      {"ScatterND", 11, ImportScatterND},
      {"TopK", 1, ImportTopK},
      {"Trilu", 14, ImportTrilu},
  };
  return rows;
}

}  // namespace bindery::onnx
