// Random numbers, and integers that stand for real numbers.
#include <string>

#include "symbol/onnx/exporter.h"
#include "symbol/onnx/reader.h"
#include "symbol/ops.h"

namespace bindery::onnx {
namespace {

// --- Random numbers: other ones than ours, wherever the file is run.

template <class Attrs>
void ExportDraw(Exporter& ex, const char* op, const char* op_like) {
  const auto& attrs = ex.attrs<Attrs>();
  const DType dtype = attrs.like && !attrs.own_dtype ? ex.DTypeOfInput(0) : attrs.dtype;
  if (dtype == DType::kBFloat16) Throw<ModelError>("ONNX draws no numbers of bfloat16");
  ex.Out(attrs.like ? op_like : op, ex.AllInputs());
  if (!attrs.like) ex.Set("shape", attrs.shape);
  if (!attrs.like || attrs.own_dtype) ex.Set("dtype", int64_t{NumberOf(attrs.dtype)});
}

void ExportRandomUniform(Exporter& ex) {
  ExportDraw<RandomUniformAttrs>(ex, "RandomUniform", "RandomUniformLike");
  ex.Set("low", ex.attrs<RandomUniformAttrs>().low);
  ex.Set("high", ex.attrs<RandomUniformAttrs>().high);
}

void ExportRandomNormal(Exporter& ex) {
  ExportDraw<RandomNormalAttrs>(ex, "RandomNormal", "RandomNormalLike");
  ex.Set("mean", ex.attrs<RandomNormalAttrs>().mean);
  ex.Set("scale", ex.attrs<RandomNormalAttrs>().scale);
}

// Drawn as real numbers of [0, 1), which are stretched.
void ExportRandomInt(Exporter& ex) {
  const auto& attrs = ex.attrs<RandomIntAttrs>();
  const DType dtype = attrs.like && !attrs.own_dtype ? ex.DTypeOfInput(0) : attrs.dtype;
  const double count = static_cast<double>(attrs.high) - static_cast<double>(attrs.low);
  if (count > 0x1p53) Throw<ModelError>("ONNX draws one of up to 2^53 numbers, not of {}", count);
  const std::string drawn = ex.Add(attrs.like ? "RandomUniformLike" : "RandomUniform", ex.AllInputs());
  if (!attrs.like) ex.Set("shape", attrs.shape);
  ex.Set("dtype", int64_t{NumberOf(DType::kFloat64)});
  const auto number = [&](double value) { return ex.Number(value, DType::kFloat64); };
  const std::string floored = ex.Add("Floor", {ex.Add("Mul", {drawn, number(count)})});
  const std::string whole = ex.Add("Min", {floored, number(count - 1)});  // whatever rounding did
  ex.Out("Cast", {ex.Add("Add", {whole, number(static_cast<double>(attrs.low))})});
  ex.Set("to", int64_t{NumberOf(dtype)});
}

void ExportBernoulli(Exporter& ex) {
  const auto& attrs = ex.attrs<BernoulliAttrs>();
  ex.Out("Bernoulli", {ex.In(0)});
  if (attrs.own_dtype) ex.Set("dtype", int64_t{NumberOf(attrs.dtype)});
}

void ExportMultinomial(Exporter& ex) {
  const auto& attrs = ex.attrs<MultinomialAttrs>();
  const bool drawn_as_they_are = attrs.dtype == DType::kInt32 || attrs.dtype == DType::kInt64;
  const Exporter::Names weights = {attrs.logits ? ex.In(0) : ex.Add("Log", {ex.In(0)})};
  const auto set = [&] {
    ex.Set("sample_size", attrs.sample_size);
    ex.Set("dtype", int64_t{NumberOf(drawn_as_they_are ? attrs.dtype : DType::kInt64)});
  };
  if (drawn_as_they_are) {
    ex.Out("Multinomial", weights);
    return set();
  }
  const std::string drawn = ex.Add("Multinomial", weights);
  set();
  ex.Out("Cast", {drawn});
  ex.Set("to", int64_t{NumberOf(attrs.dtype)});
}

// --- Quantization.

void CheckQuantized(const Exporter& ex, DType quantized) {
  if (ex.DTypeOfInput(1) != DType::kFloat32) Throw<ModelError>("opset 17 has scales of float32 alone");
  if (quantized == DType::kInt16 || quantized == DType::kUInt16) {
    Throw<ModelError>("opset 17 quantizes to int8 and uint8, {} came with opset 21", quantized);
  }
}

void ExportQuantizeLinear(Exporter& ex) {
  const auto& attrs = ex.attrs<QuantizeAttrs>();
  CheckQuantized(ex, attrs.dtype);
  Exporter::Names inputs = ex.AllInputs();
  if (attrs.no_zero_point && attrs.dtype != DType::kUInt8) {  // which it would be taken for
    const std::optional<Shape> scale = ex.ShapeOfInput(1);
    if (!scale || !scale->IsKnown()) Throw<ModelError>("it is not known how many scales there are");
    inputs.push_back(ex.Constant(HostTensor(attrs.dtype, *scale), "zero_point"));
  }
  ex.Out("QuantizeLinear", inputs);
  ex.Set("axis", attrs.axis);
}

void ExportDequantizeLinear(Exporter& ex) {
  CheckQuantized(ex, ex.DTypeOfInput(0));
  ex.Out("DequantizeLinear", ex.AllInputs());
  ex.Set("axis", ex.attrs<DequantizeAttrs>().axis);
}

}  // namespace

std::span<const ExportRow> RandomExports() {
  static constexpr ExportRow kRows[] = {
      {"Bernoulli", ExportBernoulli},         {"DequantizeLinear", ExportDequantizeLinear},
      {"Multinomial", ExportMultinomial},     {"QuantizeLinear", ExportQuantizeLinear},
      {"RandomInt", ExportRandomInt},         {"RandomNormal", ExportRandomNormal},
      {"RandomUniform", ExportRandomUniform},
  };
  return kRows;
}

}  // namespace bindery::onnx
