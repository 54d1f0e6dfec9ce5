// Integers that stand for real numbers. What is computed with them is computed with the real numbers.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "symbol/onnx/importer.h"
#include "symbol/ops.h"

namespace bindery::onnx {
namespace {

void CheckNoBlocks(const Importer& im) {
  if (im.Int("block_size", 0) != 0) Throw<ModelError>("attribute \"block_size\": scales of blocks cannot be had");
}

// A scale or a zero point. One for all may be a list of one: writers have the scale of a bias so, and its zero point as
// a number.
Symbol Step(Importer& im, int i) {
  const HostTensor* constant = im.Constant(i);
  if (constant == nullptr || constant->shape() != Shape{1}) return im.In(i);
  return bindery::Constant(constant->Reshape({}));
}

// Inputs i, i + 1 and i + 2: the integers, their scale and, unless it is 0, their zero point.
Symbol Dequantized(Importer& im, int i, int64_t axis, const std::string& name = {}) {
  std::vector<Symbol> inputs = {im.IntegersIn(i), Step(im, i + 1)};
  if (im.Has(i + 2)) inputs.push_back(Step(im, i + 2));
  const DequantizeAttrs attrs{.axis = axis, .no_zero_point = !im.Has(i + 2)};
  return Apply(DequantizeLinearOp(), attrs, inputs, name);
}

// The element type that the attribute output_dtype names; no value where it leaves it open.
std::optional<DType> StatedType(Importer& im) {
  const int64_t code = im.Int("output_dtype", 0);
  if (code == 0) return std::nullopt;
  return DTypeOf(static_cast<int>(std::clamp<int64_t>(code, -1, INT32_MAX)));
}

// By the scale and the zero point that are inputs i and i + 1.
Symbol Quantized(Importer& im, const Symbol& x, int i, int64_t axis, std::optional<DType> stated = std::nullopt) {
  QuantizeAttrs attrs{.axis = axis, .no_zero_point = !im.Has(i + 1)};
  std::vector<Symbol> inputs = {x, Step(im, i)};
  if (im.Has(i + 1)) {
    attrs.dtype = im.DTypeOf(im.In(i + 1));
    inputs.push_back(Step(im, i + 1));
    if (stated && *stated != attrs.dtype) {
      Throw<ModelError>("output_dtype says {}, but the zero point is {}", *stated, attrs.dtype);
    }
  } else if (stated) {
    attrs.dtype = *stated;
  }
  return Apply(QuantizeLinearOp(), attrs, inputs, im.name());
}

void ImportQuantize(Importer& im) {
  im.Ignore({"saturate", "precision"});
  CheckNoBlocks(im);
  im.Out(Quantized(im, im.In(0), 1, im.Int("axis", 1), StatedType(im)));
}

void ImportDequantize(Importer& im) {
  CheckNoBlocks(im);
  const std::optional<DType> stated = StatedType(im);
  if (!stated || *stated == im.DTypeOf(im.In(1))) return im.Out(Dequantized(im, 0, im.Int("axis", 1), im.name()));
  im.Out(Cast(Dequantized(im, 0, im.Int("axis", 1)), {.dtype = *stated}, im.name()));
}

// The scale and the zero point with which 0 to 255 reach from the smallest to the largest, 0 among them.
void ImportDynamicQuantize(Importer& im) {
  const Symbol x = im.In(0), least = Minimum(Min(x), 0.0);
  const Symbol scale = Div(Sub(Maximum(Max(x), 0.0), least), 255.0);
  const Symbol zero = Cast(Clip(Round(Div(Negative(least), scale)), 0.0, 255.0), {.dtype = DType::kUInt8});
  im.Out(0, QuantizeLinear(x, scale, zero, {.dtype = DType::kUInt8}, im.name()));
  im.Out(1, scale);
  im.Out(2, zero);
}

// --- Products of integers: in float64, which holds their sums.

// Input i less its zero point, input `zero`; one for each place along an axis, if they are several.
Symbol Shifted(Importer& im, int i, int zero, int64_t axis) {
  const Symbol x = Cast(im.In(i), {.dtype = DType::kFloat64});
  if (!im.Has(zero)) return x;
  Symbol shift = Cast(im.In(zero), {.dtype = DType::kFloat64});
  if (im.RankOf(shift) == 1) {
    const auto behind = static_cast<size_t>(im.RankOf(x) - 1 - im.AxisOf(x, axis));
    std::vector<int64_t> shape(behind + 1, 1);
    shape[0] = -1;
    shift = Reshape(shift, {.shape = shape});
  }
  return Sub(x, shift);
}

void ImportMatMulInteger(Importer& im) {
  const int64_t rows = im.RankOf(im.In(0)) > 1 ? -2 : -1;
  const Symbol product = MatMul(Shifted(im, 0, 2, rows), Shifted(im, 1, 3, -1));
  im.Out(Cast(product, {.dtype = DType::kInt32}, im.name()));
}

void ImportConvInteger(Importer& im) {
  const ConvolutionAttrs attrs = ConvolutionAttrsOf(im, 1, -1);
  const Symbol y = Apply(ConvolutionOp(), attrs, {Shifted(im, 0, 2, 1), Shifted(im, 1, 3, 0)});
  im.Out(Cast(y, {.dtype = DType::kInt32}, im.name()));
}

// (a, b and y each with scale and zero point)
void ImportQLinearMatMul(Importer& im) {
  const int64_t rows = im.RankOf(im.In(0)) > 1 ? -2 : -1;
  im.Out(Quantized(im, MatMul(Dequantized(im, 0, rows), Dequantized(im, 3, -1)), 6, rows));
}

void ImportQLinearConv(Importer& im) {
  std::vector<Symbol> inputs = {Dequantized(im, 0, 1), Dequantized(im, 3, 0)};
  const ConvolutionAttrs attrs = ConvolutionAttrsOf(im, 3, 8);  // of what is a parameter by now
  if (im.Has(8)) {                                              // of the product of both scales
    const DequantizeAttrs of_bias{.axis = 0, .no_zero_point = true};
    inputs.push_back(Apply(DequantizeLinearOp(), of_bias, {im.IntegersIn(8), Mul(im.In(1), im.In(4))}));
  }
  im.Out(Quantized(im, Apply(ConvolutionOp(), attrs, inputs), 6, 1));
}

}  // namespace

std::span<const ImportRow> QuantizeImports() {
  static const std::vector<ImportRow> rows = {
      {"ConvInteger", 10, ImportConvInteger},
      {"DequantizeLinear", 10, ImportDequantize},
      {"DynamicQuantizeLinear", 11, ImportDynamicQuantize},
      {"MatMulInteger", 10, ImportMatMulInteger},
      {"QLinearConv", 10, ImportQLinearConv},
      {"QLinearMatMul", 10, ImportQLinearMatMul},
      {"QuantizeLinear", 10, ImportQuantize},
  };
  return rows;
}

}  // namespace bindery::onnx
