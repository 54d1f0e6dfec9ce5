// Elements picked and put by index, and their order.
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

}  // namespace

std::span<const ImportRow> IndexImports() {
  static const std::vector<ImportRow> rows = {
      {"ArgMax", 1, Place(ArgMax)},
      {"ArgMin", 1, Place(ArgMin)},
      {"CumSum", 11, ImportCumSum},
      {"Gather", 1, ImportGather},
      {"GatherElements", 11, ImportGatherElements},
      {"GatherND", 11, ImportGatherND},
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
