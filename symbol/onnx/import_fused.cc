// Operators of ONNX Runtime's own domain that its optimizers write for several of ONNX', but for attention.
#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "symbol/onnx/importer.h"
#include "symbol/ops.h"

namespace bindery::onnx {
namespace {

Symbol SumOf(Importer& im, std::initializer_list<int> inputs) {
  Symbol sum;
  for (const int i : inputs) {
    if (im.Has(i)) sum = sum.empty() ? im.In(i) : Add(sum, im.In(i));
  }
  return sum;
}

// A curve of the sum of both inputs, of which the second may be missing.
ImportFn Biased(const SymbolFn& f) {
  return [f](Importer& im) { im.Out(f(SumOf(im, {0, 1}), im.name())); };
}

// --- Activations that are joined to a layer.

// `numbers`: its alpha, beta and gamma, as far as they are said.
Symbol Activated(Importer& im, const Symbol& x, const std::vector<std::optional<double>>& numbers) {
  const std::string by = im.String("activation", "");
  const auto said = std::ranges::count_if(numbers, [](const auto& number) { return number.has_value(); });
  const auto number = [&](size_t i, double otherwise) {
    return i < numbers.size() ? numbers[i].value_or(otherwise) : otherwise;
  };
  if (by.empty()) return x;
  if (by == "Relu") return Relu(x);
  if (by == "Tanh") return Tanh(x);
  if (by == "Sigmoid") return Sigmoid(x);
  if (by == "LeakyRelu") return LeakyRelu(x, number(0, 0.01));
  if (by == "HardSigmoid") return HardSigmoid(x, number(0, 0.2), number(1, 0.5));
  if (by == "Clip" && said == 2 && numbers[0] && numbers[1]) return Clip(x, *numbers[0], *numbers[1]);
  Throw<ModelError>(
      "attribute \"activation\": expected Relu, Tanh, Sigmoid, LeakyRelu, HardSigmoid, or Clip with two numbers, got "
      "\"{}\" with {}",
      by, said);
}

// What is added before the activation is input 3.
void ImportFusedConv(Importer& im) {
  const ConvolutionAttrs attrs = ConvolutionAttrsOf(im, 1, 2);
  std::vector<Symbol> inputs = {im.In(0), im.WeightIn(1)};
  if (!attrs.no_bias) inputs.push_back(im.WeightIn(2));
  Symbol y = Apply(ConvolutionOp(), attrs, inputs, im.name());
  if (im.Has(3)) y = Add(y, im.In(3));
  const std::vector<double> numbers = im.Floats("activation_params");
  im.Out(Activated(im, y, {numbers.begin(), numbers.end()}));
}

void ImportFusedGemm(Importer& im) {
  const GemmAttrs attrs{im.Float("alpha", 1), im.Float("beta", 1), im.Flag("transA"), im.Flag("transB")};
  std::vector<std::optional<double>> numbers;
  for (const char* key : {"activation_alpha", "activation_beta", "activation_gamma"}) {
    numbers.push_back(im.HasAttribute(key) ? std::optional(im.Float(key, 0)) : std::nullopt);
  }
  im.Out(Activated(im, Gemm(im.In(0), im.In(1), im.Has(2) ? im.In(2) : Symbol(), attrs, im.name()), numbers));
}

// "transBatchA" moves the first axis before the last but one.
void ImportFusedMatMul(Importer& im) {
  const auto operand = [&](int input, const char* batches) {
    const Symbol x = im.In(input);
    if (!im.Flag(batches)) return x;
    const int rank = im.RankOf(x);
    if (rank < 3) Throw<ModelError>("attribute \"{}\": input {} has {} axes", batches, input, rank);
    std::vector<int64_t> axes;
    for (int axis = 1; axis < rank - 1; ++axis) axes.push_back(axis);
    axes.push_back(0);
    axes.push_back(rank - 1);
    return Transpose(x, {.axes = axes});
  };
  const double alpha = im.Float("alpha", 1);
  const Symbol a = operand(0, "transBatchA"), b = operand(1, "transBatchB");
  const MatMulAttrs attrs{.transpose_a = im.Flag("transA") && im.RankOf(a) > 1,
                          .transpose_b = im.Flag("transB") && im.RankOf(b) > 1};
  const Symbol y = MatMul(a, b, attrs, alpha == 1 ? im.name() : "");
  im.Out(alpha == 1 ? y : Mul(y, alpha, im.name()));
}

// --- Norms, of sums and of embeddings.

constexpr double kEps = 1e-12;  // where none is said

// Normalized with a factor and, where it is there, a shift.
Symbol LayerNormed(Importer& im, const Symbol& x, int factor, int shift, NormalizeAttrs attrs) {
  attrs.eps = im.Float("epsilon", attrs.eps);
  attrs.shift = shift > 0 && im.Has(shift);
  std::vector<Symbol> inputs = {x, im.WeightIn(factor)};
  if (attrs.shift) inputs.push_back(im.WeightIn(shift));
  return Apply(NormalizeOp(), attrs, inputs, im.name());
}

void CheckNoStatistics(const Importer& im) {
  for (const int i : {1, 2}) {
    if (im.IsRead(i)) Throw<ModelError>("output {}, of training, cannot be had", i);
  }
}

// Behind the factor, input 2, are the shift, if it centers, and the bias, which is added to the sum.
ImportFn SkipNorm(bool center) {
  return [center](Importer& im) {
    CheckNoStatistics(im);
    const Symbol sum = SumOf(im, {0, 1, center ? 4 : 3});
    im.Out(0, LayerNormed(im, sum, 2, center ? 3 : -1, {.eps = kEps, .center = center}));
    im.Out(3, sum);
  };
}

// Of ONNX' domain, although it is ONNX Runtime's.
void ImportSimplifiedLayerNorm(Importer& im) {
  im.Ignore({"stash_type"});
  im.OnlyFirst();
  im.Out(LayerNormed(im, im.In(0), 1, -1, {.axis = im.Int("axis", -1), .center = false}));
}

// Rows of three tables, the second by places, the third by segments; and how many words the mask, input 7, leaves.
void ImportEmbedLayerNorm(Importer& im) {
  im.Ignore({"mask_index_type"});
  const Symbol ids = im.In(0);
  const auto number = [](int64_t value, const Shape& shape) {
    return bindery::Constant(HostTensor::Full(DType::kInt64, shape, static_cast<double>(value)));
  };
  const Symbol length = Reshape(ShapeArray(ids, {.begin = 1, .end = 2}), {.shape = {}});
  const Symbol places =
      im.Has(8) ? im.In(8) : RangeBy({number(0, {}), length, number(1, {})}, RangeAttrs{.dtype = DType::kInt64});
  Symbol sum = Add(Take(im.WeightIn(2), ids), Take(im.WeightIn(3), places));
  if (im.Has(1) && im.Has(4)) sum = Add(sum, Take(im.WeightIn(4), im.In(1)));
  im.Out(0, LayerNormed(im, sum, 5, 6, {.eps = kEps}));
  if (im.IsRead(1)) {
    if (!im.Has(7)) Throw<ModelError>("output 1, how many words there are, needs input 7, the mask");
    im.Out(1, Sum(Cast(im.In(7), {.dtype = DType::kInt32}), {.axes = {1}}));
  }
  im.Out(2, sum);
}

}  // namespace

std::span<const ImportRow> FusedImports() {
  static const std::vector<ImportRow> rows = {
      {"SimplifiedLayerNormalization", 1, ImportSimplifiedLayerNorm},
      {"com.microsoft.BiasGelu", 1, Biased([](const auto& x, const auto& name) { return Gelu(x, name); })},
      {"com.microsoft.EmbedLayerNormalization", 1, ImportEmbedLayerNorm},
      {"com.microsoft.FastGelu", 1, Biased([](const auto& x, const auto& name) { return GeluTanh(x, name); })},
      {"com.microsoft.FusedConv", 1, ImportFusedConv},
      {"com.microsoft.FusedGemm", 1, ImportFusedGemm},
      {"com.microsoft.FusedMatMul", 1, ImportFusedMatMul},
      {"com.microsoft.Gelu", 1, Unary([](const auto& x, const auto& name) { return Gelu(x, name); })},
      {"com.microsoft.QuickGelu", 1,
       [](Importer& im) { im.Out(Swish(im.In(0), im.Float("alpha", 1.702), im.name())); }},
      {"com.microsoft.SkipLayerNormalization", 1, SkipNorm(true)},
      {"com.microsoft.SkipSimplifiedLayerNormalization", 1, SkipNorm(false)},
      {"com.microsoft.TransposeMatMul", 1, ImportFusedMatMul},
  };
  return rows;
}

}  // namespace bindery::onnx
