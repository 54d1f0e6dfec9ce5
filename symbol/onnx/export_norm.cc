// Curves and normalisations.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "symbol/onnx/exporter.h"
#include "symbol/onnx/reader.h"
#include "symbol/ops.h"
#include "symbol/ops/rules.h"

namespace bindery::onnx {
namespace {

void OutOneOf(Exporter& ex, const char* op, std::initializer_list<std::pair<const char*, double>> numbers) {
  ex.Out(op, {ex.In(0)});
  for (const auto& [key, value] : numbers) ex.Set(key, value);
}

// x f(...), with what is in the brackets a chain of ONNX' operators.
void ExportGelu(Exporter& ex, DType dtype) {
  const std::string scaled = ex.Add("Mul", {ex.In(0), ex.Number(0.70710678118654752, dtype)});
  const std::string one_more = ex.Add("Add", {ex.Add("Erf", {scaled}), ex.Number(1, dtype)});
  ex.Out("Mul", {ex.Add("Mul", {ex.In(0), ex.Number(0.5, dtype)}), one_more});
}

void ExportGeluTanh(Exporter& ex, DType dtype) {
  const std::string x = ex.In(0), cube = ex.Add("Mul", {ex.Add("Mul", {x, x}), x});
  const std::string sum = ex.Add("Add", {x, ex.Add("Mul", {cube, ex.Number(0.044715, dtype)})});
  const std::string bent = ex.Add("Tanh", {ex.Add("Mul", {sum, ex.Number(0.79788456080286536, dtype)})});
  ex.Out("Mul", {ex.Add("Mul", {x, ex.Number(0.5, dtype)}), ex.Add("Add", {bent, ex.Number(1, dtype)})});
}

void ExportCurve(Exporter& ex) {
  const auto& [type, a, b] = ex.attrs<CurveAttrs>();
  const DType dtype = ex.DTypeOfInput(0);
  const std::string x = ex.In(0);
  switch (type) {
    case CurveType::kLeakyRelu: return OutOneOf(ex, "LeakyRelu", {{"alpha", a}});
    case CurveType::kSelu: return OutOneOf(ex, "Selu", {{"alpha", a}, {"gamma", b}});
    case CurveType::kCelu: return OutOneOf(ex, "Celu", {{"alpha", a}});
    case CurveType::kHardSigmoid: return OutOneOf(ex, "HardSigmoid", {{"alpha", a}, {"beta", b}});
    case CurveType::kThresholdedRelu: return OutOneOf(ex, "ThresholdedRelu", {{"alpha", a}});
    case CurveType::kShrink: return OutOneOf(ex, "Shrink", {{"lambd", a}, {"bias", b}});
    case CurveType::kHardTanh: return ex.Out("Clip", {x, ex.Number(a, dtype), ex.Number(b, dtype)});
    case CurveType::kGelu: return ExportGelu(ex, dtype);
    case CurveType::kGeluTanh: return ExportGeluTanh(ex, dtype);
    case CurveType::kSwish: {
      const std::string scaled = a == 1 ? x : ex.Add("Mul", {x, ex.Number(a, dtype)});
      return ex.Out("Mul", {x, ex.Add("Sigmoid", {scaled})});
    }
    case CurveType::kHardSwish: {
      const std::string bent = ex.Add("HardSigmoid", {x});
      ex.Set("alpha", a);
      ex.Set("beta", b);
      return ex.Out("Mul", {x, bent});
    }
    case CurveType::kMish: return ex.Out("Mul", {x, ex.Add("Tanh", {ex.Add("Softplus", {x})})});
    case CurveType::kSmoothL1: Throw<ModelError>("a smooth L1 is a loss");
  }
}

// By groups of channels an instance-norm of the groups, then the channels' scale and shift.
void ExportGroupNorm(Exporter& ex, const NormalizeAttrs& attrs) {
  const std::optional<Shape> shape = ex.ShapeOfInput(0);
  const DType dtype = ex.DTypeOfInput(0);
  if (!shape || (*shape)[1] == kUnknownDim) Throw<ModelError>("it is not known how many channels it has");
  if (!attrs.center || attrs.sum || dtype == DType::kFloat64) Throw<ModelError>("ONNX has no such normalisation");
  const int64_t channels = (*shape)[1], groups = attrs.groups < 0 ? channels : attrs.groups;
  const auto filled = [&](double value, const char* what) {
    return ex.Constant(HostTensor::Full(dtype, {groups}, value), what);
  };
  std::string y = ex.Add("Reshape", {ex.In(0), ex.Ints({0, groups, -1}, "groups")});
  y = ex.Add("InstanceNormalization", {y, filled(1, "ones"), filled(0, "zeros")});
  ex.Set("epsilon", attrs.eps);
  const std::string own = ex.Add("Shape", {ex.In(0)});
  std::vector<int64_t> of_channels(static_cast<size_t>(shape->rank()) - 1, 1);
  of_channels[0] = -1;
  const auto stretched = [&](int input) { return ex.Add("Reshape", {ex.In(input), ex.Ints(of_channels, "channels")}); };
  if (!attrs.scale && !attrs.shift) return ex.Out("Reshape", {y, own});
  y = ex.Add("Reshape", {y, own});
  if (attrs.scale && attrs.shift) y = ex.Add("Mul", {y, stretched(1)});
  ex.Out(attrs.shift ? "Add" : "Mul", {y, stretched(attrs.scale && attrs.shift ? 2 : 1)});
}

// What (x - m) / sqrt(q + eps) divides, and by what: with the mean m (0 without `center`) and the mean q of squares
// (with `sum` their sum) over axes; none: all.
template <class Attrs>
std::pair<std::string, std::string> Fraction(Exporter& ex, std::string x, const Attrs& attrs,
                                             const std::vector<int64_t>& axes, DType dtype) {
  const auto mean = [&](const std::string& value) {
    std::string result = ex.Add("ReduceMean", {value});
    if (!axes.empty()) ex.Set("axes", axes);
    return result;
  };
  if (attrs.center) x = ex.Add("Sub", {x, mean(x)});
  const std::string square = ex.Add("Mul", {x, x});
  const std::string all =
      attrs.sum ? ex.Add("ReduceSum", {square, axes.empty() ? "" : ex.Ints(axes, "axes")}) : mean(square);
  return {x, ex.Add("Sqrt", {ex.Add("Add", {all, ex.Number(attrs.eps, dtype)})})};
}

// x / sqrt(mean x^2 + eps), or of the sum, from an axis on.
void ExportUncentered(Exporter& ex, const NormalizeAttrs& attrs) {
  const int64_t rank = ex.RankOfInput(0);
  std::vector<int64_t> axes;
  for (int64_t axis = attrs.axis < 0 ? attrs.axis + rank : attrs.axis; axis < rank; ++axis) axes.push_back(axis);
  const auto [x, root] = Fraction(ex, ex.In(0), attrs, axes, ex.DTypeOfInput(0));
  if (!attrs.scale && !attrs.shift) return ex.Out("Div", {x, root});
  std::string y = ex.Add("Div", {x, root});
  if (attrs.scale && attrs.shift) y = ex.Add("Mul", {y, ex.In(1)});
  ex.Out(attrs.shift ? "Add" : "Mul", {y, ex.In(attrs.scale && attrs.shift ? 2 : 1)});
}

// Of 16-bit data in float32, as ours.
void ExportStandardize(Exporter& ex) {
  const auto& attrs = ex.attrs<StandardizeAttrs>();
  const DType dtype = ex.DTypeOfInput(0), wide = rule::StatisticsDType(dtype);
  const auto [x, root] = Fraction(ex, ex.In(0, wide), attrs, attrs.axes, wide);
  if (dtype == wide) return ex.Out("Div", {x, root});
  ex.Out("Cast", {ex.Add("Div", {x, root})});
  ex.Set("to", int64_t{NumberOf(dtype)});
}

void ExportNormalize(Exporter& ex) {
  const auto& attrs = ex.attrs<NormalizeAttrs>();
  if (attrs.groups != 0) return ExportGroupNorm(ex, attrs);
  if (!attrs.center || attrs.sum || !attrs.scale) return ExportUncentered(ex, attrs);
  ex.Out("LayerNormalization", ex.AllInputs());
  ex.Set("axis", attrs.axis);
  ex.Set("epsilon", attrs.eps);
}

void ExportLRN(Exporter& ex) {
  const auto& attrs = ex.attrs<LRNAttrs>();
  ex.Out("LRN", {ex.In(0)});
  ex.Set("size", attrs.size);
  ex.Set("alpha", attrs.alpha);
  ex.Set("beta", attrs.beta);
  ex.Set("bias", attrs.bias);
}

void ExportAlong(Exporter& ex) {
  ex.Out(ex.node().op().name.c_str(), {ex.In(0)});
  ex.Set("axis", ex.attrs<LogSoftmaxAttrs>().axis);
}

}  // namespace

std::span<const ExportRow> NormExports() {
  static constexpr ExportRow kRows[] = {
      {"Curve", ExportCurve},      {"Hardmax", ExportAlong},       {"LRN", ExportLRN},
      {"LogSoftmax", ExportAlong}, {"Normalize", ExportNormalize}, {"Standardize", ExportStandardize},
  };
  return kRows;
}

}  // namespace bindery::onnx
