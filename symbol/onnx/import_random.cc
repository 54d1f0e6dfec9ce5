// Random numbers, and integers that stand for real numbers. A file's seeds are not followed: what is drawn depends on the
// run's seed, and on the samples alone.
#include <vector>

#include "symbol/onnx/importer.h"
#include "symbol/ops.h"

namespace bindery::onnx {
namespace {

constexpr int64_t kFloat = 1;  // ONNX' number of float32

template <class Attrs>
Attrs DrawAttrsOf(Importer& im) {
  im.Ignore({"seed"});
  Attrs attrs;
  attrs.shape = im.Ints("shape");
  attrs.own_dtype = im.HasAttribute("dtype");
  attrs.dtype = DTypeOf(static_cast<int>(im.Int("dtype", kFloat)));
  return attrs;
}

void ImportUniform(Importer& im) {
  auto attrs = DrawAttrsOf<RandomUniformAttrs>(im);
  attrs.low = im.Float("low", 0);
  attrs.high = im.Float("high", 1);
  im.Out(im.Has(0) ? RandomUniformLike(im.In(0), attrs, im.name()) : RandomUniform(attrs, im.name()));
}

void ImportNormal(Importer& im) {
  auto attrs = DrawAttrsOf<RandomNormalAttrs>(im);
  attrs.mean = im.Float("mean", 0);
  attrs.scale = im.Float("scale", 1);
  im.Out(im.Has(0) ? RandomNormalLike(im.In(0), attrs, im.name()) : RandomNormal(attrs, im.name()));
}

void ImportBernoulli(Importer& im) {
  im.Ignore({"seed"});
  const BernoulliAttrs attrs{.dtype = DTypeOf(static_cast<int>(im.Int("dtype", kFloat))),
                             .own_dtype = im.HasAttribute("dtype")};
  im.Out(Bernoulli(im.In(0), attrs, im.name()));
}

void ImportMultinomial(Importer& im) {
  im.Ignore({"seed"});
  const MultinomialAttrs attrs{
      .sample_size = im.Int("sample_size", 1), .logits = true, .dtype = DTypeOf(static_cast<int>(im.Int("dtype", 6)))};
  im.Out(Multinomial(im.In(0), attrs, im.name()));
}

void ImportQuantize(Importer& im) {
  im.Ignore({"saturate", "output_dtype", "precision"});
  if (im.Int("block_size", 0) != 0) Throw<ModelError>("attribute \"block_size\": scales of blocks cannot be had");
  QuantizeAttrs attrs{.axis = im.Int("axis", 1), .no_zero_point = !im.Has(2)};
  if (im.Has(2)) attrs.dtype = im.DTypeOf(im.In(2));
  std::vector<Symbol> inputs = {im.In(0), im.In(1)};
  if (im.Has(2)) inputs.push_back(im.In(2));
  im.Out(Apply(QuantizeLinearOp(), attrs, inputs, im.name()));
}

void ImportDequantize(Importer& im) {
  im.Ignore({"output_dtype"});
  if (im.Int("block_size", 0) != 0) Throw<ModelError>("attribute \"block_size\": scales of blocks cannot be had");
  const DequantizeAttrs attrs{.axis = im.Int("axis", 1), .no_zero_point = !im.Has(2)};
  std::vector<Symbol> inputs = {im.In(0), im.In(1)};
  if (im.Has(2)) inputs.push_back(im.In(2));
  im.Out(Apply(DequantizeLinearOp(), attrs, inputs, im.name()));
}

}  // namespace

std::span<const ImportRow> RandomImports() {
  static const std::vector<ImportRow> rows = {
      {"Bernoulli", 15, ImportBernoulli},    {"DequantizeLinear", 10, ImportDequantize},
      {"Multinomial", 7, ImportMultinomial}, {"QuantizeLinear", 10, ImportQuantize},
      {"RandomNormal", 1, ImportNormal},     {"RandomNormalLike", 1, ImportNormal},
      {"RandomUniform", 1, ImportUniform},   {"RandomUniformLike", 1, ImportUniform},
  };
  return rows;
}

}  // namespace bindery::onnx
