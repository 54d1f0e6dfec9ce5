// Random numbers. A file's seeds are not followed: what is drawn depends on the run's seed, and on the samples alone.
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

}  // namespace

std::span<const ImportRow> RandomImports() {
  static const std::vector<ImportRow> rows = {
      {"Bernoulli", 15, ImportBernoulli},  {"Multinomial", 7, ImportMultinomial},
      {"RandomNormal", 1, ImportNormal},   {"RandomNormalLike", 1, ImportNormal},
      {"RandomUniform", 1, ImportUniform}, {"RandomUniformLike", 1, ImportUniform},
  };
  return rows;
}

}  // namespace bindery::onnx
