// Elements picked by index, their order, sequences; grids of places; random numbers.
#include <vector>

#include "symbol/mxnet/importer.h"

namespace bindery::mxnet {
namespace {

// An index outside is the nearest that there is.
void ImportEmbedding(Importer& im) {
  im.Ignore({"dtype"});
  im.Out(Apply(EmbeddingOp(),
               EmbeddingAttrs{.input_dim = im.Int("input_dim"),
                              .output_dim = im.Int("output_dim"),
                              .mode = IndexMode::kClip,
                              .sparse_grad = im.Flag("sparse_grad")},
               {im.In(0), im.In(1)}, im.name()));
}

IndexMode ModeOf(Importer& im) {
  im.Expect("mode", {"clip", "wrap", "raise"});
  return im.Enum("mode", IndexMode::kClip);
}

void ImportTake(Importer& im) {
  im.Out(Take(im.In(0), im.In(1), {.axis = im.Int("axis", 0), .mode = ModeOf(im)}, im.name()));
}

void ImportPick(Importer& im) {
  const bool keepdims = im.Flag("keepdims");
  const int64_t axis = im.op() == "pick" ? im.Int("axis", -1) : 1;
  const Symbol picked = Pick(im.In(0), im.In(1), {.axis = axis, .mode = ModeOf(im)}, keepdims ? "" : im.name());
  im.Out(keepdims ? ExpandDims(picked, {.axes = {axis}}, im.name()) : picked);
}

void ImportOneHot(Importer& im) {
  im.Out(OneHot(im.In(0),
                {.depth = im.Int("depth"),
                 .on_value = im.Float("on_value", 1),
                 .off_value = im.Float("off_value", 0),
                 .dtype = im.Type("dtype")},
                im.name()));
}

// The last unless it is said; None means all elements in one row.
int64_t AxisOf(const Importer& im) {
  if (im.IsNone("axis")) Throw<ModelError>("attribute \"axis\": None cannot be imported");
  return im.Int("axis", -1);
}

void ImportTopK(Importer& im) {
  im.Expect("ret_typ", {"indices", "value", "both"});
  const std::string type = im.String("ret_typ", "indices");
  const Symbol x = im.In(0);
  const int64_t axis = AxisOf(im);
  const DType dtype = im.Type("dtype");
  const Symbol y =
      TopK(x, {.k = im.Int("k", 1), .axis = axis, .largest = !im.Flag("is_ascend")}, im.name() + "_sorted");
  if (type == "value") return im.Out(Identity(y[0], im.name()));
  const Symbol indices = Cast(y[1], {.dtype = dtype}, im.name());
  type == "both" ? im.Out({y[0], indices}) : im.Out(indices);
}

void ImportSort(Importer& im) {
  const Symbol x = im.In(0);
  const int64_t axis = AxisOf(im);
  im.Out(Identity(Sort(x, {.axis = axis, .descending = !im.Flag("is_ascend", true)}), im.name()));
}

void ImportArgSort(Importer& im) {
  const Symbol x = im.In(0);
  const int64_t axis = AxisOf(im);
  const Symbol indices = ArgSort(x, {.axis = axis, .descending = !im.Flag("is_ascend", true)});
  im.Out(Cast(indices, {.dtype = im.Type("dtype")}, im.name()));
}

// --- Sequences: without lengths all steps count.

int64_t TimeAxis(const Importer& im) {
  const int64_t axis = im.Int("axis", 0);
  if (axis != 0 && axis != 1) Throw<ModelError>("attribute \"axis\": expected 0 or 1, got {}", axis);
  return axis;
}

void ImportSequenceMask(Importer& im) {
  const int64_t axis = TimeAxis(im);
  const double value = im.Float("value", 0);
  if (!im.Flag("use_sequence_length")) return im.Out(Identity(im.In(0), im.name()));
  im.Out(SequenceMask(im.In(0), im.In(1), {{.axis = axis, .batch_axis = 1 - axis}, value}, im.name()));
}

void ImportSequenceLast(Importer& im) {
  const int64_t axis = TimeAxis(im);
  if (im.Flag("use_sequence_length")) {
    return im.Out(SequenceLast(im.In(0), im.In(1), {.axis = axis, .batch_axis = 1 - axis}, im.name()));
  }
  const Symbol last = Slice(im.In(0), {.begin = {-1}, .end = {kSliceEnd}, .axes = {axis}});
  im.Out(Squeeze(last, {.axes = {axis}}, im.name()));
}

void ImportSequenceReverse(Importer& im) {
  const int64_t axis = TimeAxis(im);
  if (!im.Flag("use_sequence_length")) return im.Out(Flip(im.In(0), {.axes = {axis}}, im.name()));
  im.Out(SequenceReverse(im.In(0), im.In(1), {.axis = axis, .batch_axis = 1 - axis}, im.name()));
}

// --- Grids, which are (N, 2, H, W) in MXNet, of x and y from centre to centre.

// Of an affine map for each sample, (N, 6).
Symbol AffinePlaces(Importer& im, const Symbol& maps) {
  im.Expect("transform_type", {"affine"});
  const std::vector<int64_t> sizes = im.Ints("target_shape");
  if (sizes.size() != 2) Throw<ModelError>("attribute \"target_shape\": expected (H, W), got {} extents", sizes.size());
  return AffineGrid(Reshape(maps, {.shape = {-1, 2, 3}}), {.sizes = sizes, .align_corners = true});
}

void ImportGridGenerator(Importer& im) {
  im.Out(Transpose(AffinePlaces(im, im.In(0)), {.axes = {0, 3, 1, 2}}, im.name()));
}

void ImportBilinearSampler(Importer& im) {
  im.Ignore({"cudnn_off"});
  const Symbol places = Transpose(im.In(1), {.axes = {0, 2, 3, 1}});
  im.Out(GridSample(im.In(0), places, {.align_corners = true}, im.name()));
}

void ImportSpatialTransformer(Importer& im) {
  im.Ignore({"cudnn_off"});
  im.Expect("sampler_type", {"bilinear"});
  im.Out(GridSample(im.In(0), AffinePlaces(im, im.In(1)), {.align_corners = true}, im.name()));
}

// --- Random numbers, by our generator: not those of MXNet's.

DrawAttrs Drawn(Importer& im) {
  im.Ignore({"ctx"});
  std::vector<int64_t> shape = im.Ints("shape");
  if (shape.empty()) shape = {1};
  return {.shape = std::move(shape), .dtype = im.Type("dtype")};
}

void ImportUniform(Importer& im) {
  im.Out(RandomUniform({Drawn(im), im.Float("low", 0), im.Float("high", 1)}, im.name()));
}
void ImportNormal(Importer& im) {
  im.Out(RandomNormal({Drawn(im), im.Float("loc", 0), im.Float("scale", 1)}, im.name()));
}

}  // namespace

std::span<const ImportRow> IndexImports() {
  static const std::vector<ImportRow> rows = {
      {"BilinearSampler", ImportBilinearSampler},
      {"Embedding", ImportEmbedding},
      {"GridGenerator", ImportGridGenerator},
      {"SequenceLast", ImportSequenceLast},
      {"SequenceMask", ImportSequenceMask},
      {"SequenceReverse", ImportSequenceReverse},
      {"SpatialTransformer", ImportSpatialTransformer},
      {"_contrib_SparseEmbedding", ImportEmbedding},
      {"_random_normal", ImportNormal},
      {"_random_uniform", ImportUniform},
      {"argsort", ImportArgSort},
      {"batch_take", ImportPick},
      {"choose_element_0index", ImportPick},
      {"one_hot", ImportOneHot},
      {"pick", ImportPick},
      {"sort", ImportSort},
      {"take", ImportTake},
      {"topk", ImportTopK},
  };
  return rows;
}

}  // namespace bindery::mxnet
