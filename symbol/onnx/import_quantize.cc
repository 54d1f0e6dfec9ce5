// Integers that stand for real numbers. What is computed with them is computed with the real numbers.
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "symbol/onnx/importer.h"
#include "symbol/ops.h"
#include "symbol/ops/resize.h"

namespace bindery::onnx {

Symbol Step(Importer& im, int input) {
  const HostTensor* constant = im.Constant(input);
  if (constant == nullptr || constant->shape() != Shape{1}) return im.In(input);
  return bindery::Constant(constant->Reshape({}));
}

namespace {

// --- Scales of blocks, each of so many elements along an axis, the last of them perhaps of fewer.

struct BlockScales {
  int axis;
  int64_t block, extent;  // of the elements along the axis
};

// Has what is said of blocks, with the number of the input that it is, one for each? Empty: it is not said.
void CheckBlocks(Importer& im, const BlockScales& blocks, std::initializer_list<std::pair<int, Symbol>> said) {
  if (blocks.block < 1) Throw<ModelError>("attribute \"block_size\": expected more than 0, got {}", blocks.block);
  if (blocks.extent == kUnknownDim) {
    Throw<ModelError>("attribute \"block_size\": axis {} of its input is not known{}", blocks.axis, im.HowToState());
  }
  const int64_t count = CeilDiv(blocks.extent, blocks.block);
  for (const auto& [input, x] : said) {
    if (x.empty()) continue;
    const Shape shape = im.ShapeOf(x);
    if (blocks.axis < shape.rank() && (shape[blocks.axis] == count || shape[blocks.axis] == kUnknownDim)) continue;
    Throw<ModelError>("input {}: {} has not {} along axis {}, one for each block of {}", input, shape, count,
                      blocks.axis, blocks.block);
  }
}

// What is said of blocks, for each element.
Symbol OfElements(Importer& im, const Symbol& x, const BlockScales& blocks) {
  CheckTerms(blocks.extent);
  std::vector<int64_t> places;
  for (int64_t i = 0; i < blocks.extent; ++i) places.push_back(i / blocks.block);
  return Take(x, im.List(places), {.axis = blocks.axis});
}

// If attributes say blocks, of input 0.
std::optional<BlockScales> ScalesOf(Importer& im, int64_t axis) {
  const int64_t block = im.Int("block_size", 0);
  if (block == 0) return std::nullopt;
  const int at = im.AxisOf(im.In(0), axis);
  const BlockScales blocks{at, block, im.ShapeOf(im.In(0))[at]};
  CheckBlocks(im, blocks, {{1, im.In(1)}, {2, im.Has(2) ? im.In(2) : Symbol()}});
  return blocks;
}

const CastAttrs kReal{.dtype = DType::kFloat32};

// (integers - zero point) scale, with both of blocks, in float32; an empty zero point is one number for all.
Symbol Restored(Importer& im, const Symbol& integers, const Symbol& scale, const Symbol& zero, double otherwise,
                const BlockScales& blocks) {
  const auto each = [&](const Symbol& x) { return OfElements(im, Cast(x, kReal), blocks); };
  const Symbol x = Cast(integers, kReal);
  return (!zero.empty() ? x - each(zero) : otherwise == 0 ? x : x - otherwise) * each(scale);
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

// The nearest whole numbers to x / scale, + zero point, within the type's bounds.
Symbol QuantizedByBlocks(Importer& im, const BlockScales& blocks, std::optional<DType> stated) {
  const auto each = [&](int i) { return OfElements(im, Cast(im.In(i), kReal), blocks); };
  Symbol q = Round(Div(Cast(im.In(0), kReal), each(1)));
  if (im.Has(2)) q = q + each(2);
  const DType dtype = im.Has(2) ? im.DTypeOf(im.In(2)) : stated.value_or(DType::kUInt8);
  return Cast(q, {.dtype = dtype}, im.name());  // which ends at the type's bounds
}

void ImportQuantize(Importer& im) {
  im.Ignore({"saturate", "precision"});
  const int64_t axis = im.Int("axis", 1);
  const std::optional<BlockScales> blocks = ScalesOf(im, axis);
  const int bits = im.Has(2) ? im.BitsOf(2) : 0;
  const std::optional<DType> stated = bits == 0 ? StatedType(im) : std::nullopt;
  const Symbol q = blocks ? QuantizedByBlocks(im, *blocks, stated) : Quantized(im, im.In(0), 1, axis, stated);
  if (bits == 0) return im.Out(q);
  im.Ignore({"output_dtype"});  // the zero point's
  const bool is_signed = im.DTypeOf(q) == DType::kInt8;
  const auto bound = [&](int value) { return bindery::Constant(HostTensor::Full(im.DTypeOf(q), {}, value)); };
  const int half = 1 << (bits - 1);
  im.Out(Clip(q, bound(is_signed ? -half : 0), bound(is_signed ? half - 1 : 2 * half - 1)));
}

void ImportDequantize(Importer& im) {
  const std::optional<DType> stated = StatedType(im);
  if (const std::optional<BlockScales> blocks = ScalesOf(im, im.Int("axis", 1))) {
    const Symbol x = Restored(im, im.IntegersIn(0), im.In(1), im.Has(2) ? im.In(2) : Symbol(), 0, *blocks);
    return im.Out(Cast(x, {.dtype = stated.value_or(im.DTypeOf(im.In(1)))}, im.name()));
  }
  if (!stated || *stated == im.DTypeOf(im.In(1))) return im.Out(Dequantized(im, 0, im.Int("axis", 1), im.name()));
  im.Out(Cast(Dequantized(im, 0, im.Int("axis", 1)), {.dtype = *stated}, im.name()));
}

// Integers, scale and zero point: those with which 0 to 255 reach from the smallest to the largest, 0 among them.
std::vector<Symbol> DynamicallyQuantized(const Symbol& x, const std::string& name = {}) {
  const Symbol least = Minimum(Min(x), 0.0), scale = Div(Sub(Maximum(Max(x), 0.0), least), 255.0);
  const Symbol zero = Cast(Clip(Round(Div(Negative(least), scale)), 0.0, 255.0), {.dtype = DType::kUInt8});
  return {QuantizeLinear(x, scale, zero, {.dtype = DType::kUInt8}, name), scale, zero};
}

void ImportDynamicQuantize(Importer& im) {
  const std::vector<Symbol> outputs = DynamicallyQuantized(im.In(0), im.name());
  for (const int i : {0, 1, 2}) im.Out(i, outputs[static_cast<size_t>(i)]);
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

// --- ONNX Runtime's own, which its quantizer writes: what is computed with the real numbers, quantized.

using OnReals = std::function<Symbol(Importer& im, const std::vector<Symbol>& inputs)>;

// By scale and zero point, input i and the next; without the latter, integers of the type of input `like`.
Symbol QuantizedLike(Importer& im, int like, const Symbol& x, int i) {
  return Quantized(im, x, i, 0, im.Has(i + 1) ? std::nullopt : std::optional(im.DTypeOf(im.In(like))));
}

// Of `count` values, each with scale and zero point, as the result has behind them.
ImportFn Through(int count, const OnReals& f) {
  return [=](Importer& im) {
    std::vector<Symbol> inputs;
    for (int i = 0; i < count; ++i) inputs.push_back(Dequantized(im, 3 * i, 0));
    im.Out(QuantizedLike(im, 0, f(im, inputs), 3 * count));
  };
}

Symbol FirstChannels(Importer& im, const Symbol& x, const PoolingAttrs& attrs) {
  if (im.Flag("channels_last")) Throw<ModelError>("attribute \"channels_last\": only 0 can be had");
  return Pooling(x, attrs);
}

Symbol SoftmaxOfOpset(Importer& im, const Symbol& x) {
  const int64_t axis = im.Int("axis", -1), opset = im.Int("opset", 13);
  if (opset < 13 && im.AxisOf(x, axis) != im.RankOf(x) - 1) {  // several axes count as one
    Throw<ModelError>("attribute \"axis\": of opset {} only the last can be had", opset);
  }
  return Softmax(x, {.axis = axis});
}

// The result's scale and zero point come first.
void ImportQLinearConcat(Importer& im) {
  std::vector<Symbol> inputs;
  for (int i = 2; i < im.num_inputs(); i += 3) inputs.push_back(Dequantized(im, i, 0));
  im.Out(QuantizedLike(im, 2, Concat(inputs, {.axis = im.Int("axis", 0)}), 0));
}

void ImportQLinearWhere(Importer& im) {
  im.Out(QuantizedLike(im, 1, Where(im.In(0), Dequantized(im, 1, 0), Dequantized(im, 4, 0)), 7));
}

// The bias is in steps of the product of alpha and both scales. Without a scale the result is of real numbers.
void ImportQGemm(Importer& im) {
  const MatMulAttrs attrs{.transpose_a = im.Flag("transA"), .transpose_b = im.Flag("transB")};
  const double alpha = im.Float("alpha", 1);
  Symbol y = MatMul(Dequantized(im, 0, 1), Dequantized(im, 3, attrs.transpose_b ? 0 : 1), attrs);
  if (im.Has(6)) {
    const DequantizeAttrs of_bias{.axis = -1, .no_zero_point = true};
    y = y + Apply(DequantizeLinearOp(), of_bias, {im.IntegersIn(6), Mul(im.In(1), im.In(4))});
  }
  if (alpha != 1) y = y * alpha;
  im.Out(im.Has(7) ? Quantized(im, y, 7, 0) : Identity(y, im.name()));
}

Symbol WithBias(Importer& im, const Symbol& y, int bias) {
  return im.Has(bias) ? Add(y, im.In(bias), im.name()) : Identity(y, im.name());
}

// Scales are inputs 2 and 3, zero points 4 and 5.
void ImportMatMulIntegerToFloat(Importer& im) {
  const int64_t rows = im.RankOf(im.In(0)) > 1 ? -2 : -1;
  const Symbol product = Cast(MatMul(Shifted(im, 0, 4, rows), Shifted(im, 1, 5, -1)), kReal);
  const Symbol y = product * Mul(Cast(im.In(2), kReal), Cast(im.In(3), kReal));
  im.Out(WithBias(im, Cast(y, {.dtype = im.DTypeOf(im.In(3))}), 6));
}

void ImportDynamicQuantizeMatMul(Importer& im) {
  const Symbol x = Apply(DequantizeLinearOp(), DequantizeAttrs{}, DynamicallyQuantized(im.In(0)));
  im.Out(WithBias(im, MatMul(x, Dequantized(im, 1, -1)), 4));
}

// --- Weights of a few bits in bytes.

int64_t WeightBits(const Importer& im) {
  const int64_t bits = im.Int("bits", 4);
  if (bits != 2 && bits != 4 && bits != 8) Throw<ModelError>("attribute \"bits\": expected 2, 4 or 8, got {}", bits);
  return bits;
}

// The constant that is this input, of bytes, as a parameter (rows, columns) of its integers. Each row has `held` of
// them, in whole bytes, of which the first are read.
Symbol UnpackedIn(Importer& im, int input, int64_t bits, int64_t rows, int64_t columns, int64_t held) {
  const HostTensor& packed = im.Static(input);
  if (packed.dtype() != DType::kUInt8 || rows < 1 || columns < 1 ||
      packed.elements() != CheckedMul(rows, CeilDiv(CheckedMul(held, bits), 8))) {
    Throw<ModelError>("input {}: {} {} does not hold {} rows of {} numbers of {} bits", input, packed.dtype(),
                      packed.shape(), rows, held, bits);
  }
  return im.Parameter(input, fmt::format("unpacked_{}_{}_{}", bits, rows, columns), [&](const HostTensor& bytes) {
    im.ChargeBytes(CheckedMul(rows, columns));
    return Unpacked(bytes, static_cast<int>(bits), DType::kUInt8, rows, columns);
  });
}

// x W^T, the rows of W in blocks of whole bytes.
void ImportMatMulNBits(Importer& im) {
  im.Ignore({"accuracy_level"});
  const int64_t rows = im.Int("N", 0), columns = im.Int("K", 0), bits = WeightBits(im);
  const BlockScales blocks{1, im.Int("block_size", 0), columns};
  if (im.Int("weight_prepacked", 0) != 0) Throw<ModelError>("attribute \"weight_prepacked\": only 0 can be had");
  if (im.Has(4)) Throw<ModelError>("input 4, which group each column is of, cannot be had");
  if (blocks.block < 1 || blocks.block % (8 / bits) != 0) {
    Throw<ModelError>("attribute \"block_size\": {} numbers of {} bits are no whole bytes", blocks.block, bits);
  }
  const int64_t count = CeilDiv(columns, blocks.block);
  const Symbol weight = UnpackedIn(im, 1, bits, rows, columns, CheckedMul(count, blocks.block));
  const auto of_blocks = [&](int input) {
    const Shape shape = im.ShapeOf(im.In(input));
    if (shape.IsKnown() && shape.Elements() != CheckedMul(rows, count)) {
      Throw<ModelError>("input {}: {} has not {} for each of {} rows, one for each block of {}", input, shape, count,
                        rows, blocks.block);
    }
    return Reshape(im.In(input), {.shape = {rows, count}});
  };
  Symbol zero;
  if (im.Has(3)) {
    zero = im.DTypeOf(im.In(3)) == DType::kUInt8 ? UnpackedIn(im, 3, bits, rows, count, count) : of_blocks(3);
  }
  const auto middle = static_cast<double>(1 << (bits - 1));
  const Symbol matrix = Restored(im, weight, of_blocks(2), zero, middle, blocks);
  const CastAttrs own{.dtype = im.DTypeOf(im.In(0))};
  im.Out(WithBias(im, MatMul(im.In(0), Cast(matrix, own), {.transpose_b = true}), 5));
}

// Rows of such a table, or along another axis of integers that are not packed.
void ImportGatherBlockQuantized(Importer& im) {
  const int64_t bits = WeightBits(im), gather = im.Int("gather_axis", 0);
  const bool packed = im.DTypeOf(im.In(0)) == DType::kUInt8 && im.BitsOf(0) == 0;
  const auto table = [&](int input) {
    const Shape bytes = im.Static(input).shape();
    if (!packed || bytes.rank() == 0) return im.IntegersIn(input);
    const int64_t columns = input == 0 ? CheckedMul(bytes[-1], 8 / bits) : im.ShapeOf(im.In(2))[-1];
    std::vector<int64_t> extents(bytes.begin(), bytes.end());
    extents.back() = columns;
    const int64_t rows = bytes.CountTo(bytes.rank() - 1);
    return Reshape(UnpackedIn(im, input, bits, rows, columns, columns), {.shape = extents});
  };
  const Symbol data = table(0), zero = im.Has(3) ? table(3) : Symbol();
  const int at = im.AxisOf(data, im.Int("quantize_axis", 1)), picked = im.AxisOf(data, gather);
  if (at == picked) Throw<ModelError>("attribute \"quantize_axis\": it is the axis of indices, too");
  const int more = im.RankOf(im.In(1)) - 1;
  BlockScales blocks{at, im.Int("block_size", 128), im.ShapeOf(data)[at]};
  CheckBlocks(im, blocks, {{2, im.In(2)}, {3, zero}});
  if (at > picked) blocks.axis += more;
  const auto take = [&](const Symbol& x) { return x.empty() ? x : Take(x, im.In(1), {.axis = picked}); };
  const double middle = packed ? static_cast<double>(1 << (bits - 1)) : 0;
  const Symbol y = Restored(im, take(data), take(im.In(2)), take(zero), middle, blocks);
  im.Out(Cast(y, {.dtype = im.DTypeOf(im.In(2))}, im.name()));
}

}  // namespace

std::span<const ImportRow> QuantizeImports() {
  static const auto alone = [](const auto& f) {
    return Through(1, [f](Importer& im, const std::vector<Symbol>& x) { return f(im, x[0]); });
  };
  static const std::vector<ImportRow> rows = {
      {"ConvInteger", 10, ImportConvInteger},
      {"DequantizeLinear", 10, ImportDequantize},
      {"DynamicQuantizeLinear", 11, ImportDynamicQuantize},
      {"MatMulInteger", 10, ImportMatMulInteger},
      {"QLinearConv", 10, ImportQLinearConv},
      {"QLinearMatMul", 10, ImportQLinearMatMul},
      {"QuantizeLinear", 10, ImportQuantize},
      {"com.microsoft.DequantizeLinear", 1, ImportDequantize},
      {"com.microsoft.DynamicQuantizeMatMul", 1, ImportDynamicQuantizeMatMul},
      {"com.microsoft.GatherBlockQuantized", 1, ImportGatherBlockQuantized},
      {"com.microsoft.MatMulIntegerToFloat", 1, ImportMatMulIntegerToFloat},
      {"com.microsoft.MatMulNBits", 1, ImportMatMulNBits},
      {"com.microsoft.QGemm", 1, ImportQGemm},
      {"com.microsoft.QLinearAdd", 1, Through(2, [](Importer&, const auto& x) { return Add(x[0], x[1]); })},
      {"com.microsoft.QLinearAveragePool", 1,
       alone([](Importer& im, const Symbol& x) { return FirstChannels(im, x, PoolingAttrsOf(im, PoolType::kAvg)); })},
      {"com.microsoft.QLinearConcat", 1, ImportQLinearConcat},
      {"com.microsoft.QLinearGlobalAveragePool", 1, alone([](Importer& im, const Symbol& x) {
         return FirstChannels(im, x, {.type = PoolType::kAvg, .global = true});
       })},
      {"com.microsoft.QLinearLeakyRelu", 1,
       alone([](Importer& im, const Symbol& x) { return LeakyRelu(x, im.Float("alpha", 0.01)); })},
      {"com.microsoft.QLinearMul", 1, Through(2, [](Importer&, const auto& x) { return Mul(x[0], x[1]); })},
      {"com.microsoft.QLinearSigmoid", 1, alone([](Importer&, const Symbol& x) { return Sigmoid(x); })},
      {"com.microsoft.QLinearSoftmax", 1, alone(SoftmaxOfOpset)},
      {"com.microsoft.QLinearWhere", 1, ImportQLinearWhere},
      {"com.microsoft.QuantizeLinear", 1, ImportQuantize},
  };
  return rows;
}

}  // namespace bindery::onnx
