// Element-wise operators, casts and constants.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "symbol/onnx/importer.h"
#include "symbol/ops.h"

namespace bindery::onnx {
namespace {

// Up to version 6 the second operand may be aligned at an axis instead of the last one.
Symbol AlignedOperand(Importer& im) {
  const Symbol b = im.In(1);
  im.Ignore({"broadcast"});
  const int64_t axis = im.Int("axis", -1);
  if (axis < 0) return b;
  PartialExtents extents = im.ExtentsOf(b);
  const int64_t rank = im.RankOf(im.In(0));
  while (static_cast<int64_t>(extents.size()) + axis < rank) extents.push_back(Extent{1, 0});
  return ReshapeTo(b, extents);
}

ImportFn Binary(const BinaryFunction& f) {
  return [f](Importer& im) { im.Out(f(im.In(0), AlignedOperand(im), im.name())); };
}

// What a MatMul left to be a layer without bias, and a weight of its size: the layer with bias.
void ImportAdd(Importer& im) {
  for (const int layer : {0, 1}) {
    const int bias = 1 - layer;
    if (im.num_inputs() != 2 || im.HasAttribute("axis") || im.Weight(bias) == nullptr || !im.IsOnlyReader(layer))
      continue;
    if (im.Weight(layer) != nullptr) continue;
    const NodePtr node = im.In(layer).entry().node;
    if (node->is_variable() || &node->op() != &FullyConnectedOp()) continue;
    FullyConnectedAttrs attrs = node->attrs().get<FullyConnectedAttrs>();
    if (!attrs.no_bias || im.Weight(bias)->shape() != Shape{attrs.num_hidden}) continue;
    attrs.no_bias = false;
    return im.Out(
        FullyConnected(Symbol(node->inputs()[0]), Symbol(node->inputs()[1]), im.WeightIn(bias), attrs, node->name()));
  }
  Binary(Add)(im);
}

// Exporters write equal weights once, and the other names as identities: each is a parameter of its own.
void ImportIdentity(Importer& im) {
  if (im.Held(0) != nullptr) return im.OutHeld(0);
  im.Out(Identity(im.In(0), im.name()));
}

// Any number of operands, from left to right.
Symbol Chain(Importer& im, const BinaryFunction& f) {
  im.Ignore({"consumed_inputs"});
  Symbol y = Identity(im.In(0));
  for (int i = 1; i < im.num_inputs(); ++i) y = f(y, im.In(i));
  return y;
}

ImportFn Variadic(const BinaryFunction& f) {
  return [f](Importer& im) { im.Out(Chain(im, f)); };
}

void ImportMean(Importer& im) { im.Out(Div(Chain(im, Add), static_cast<double>(im.num_inputs()), im.name())); }

void ImportIsInf(Importer& im) {
  const Symbol x = im.In(0);
  Symbol y = IsInf(x, im.name());
  if (!im.Flag("detect_negative", true)) y = And(y, Greater(x, 0.0));
  if (!im.Flag("detect_positive", true)) y = And(y, Less(x, 0.0));
  im.Out(y);
}

// The result has the base's type.
void ImportPow(Importer& im) {
  const DType base = im.DTypeOf(im.In(0)), exponent = im.DTypeOf(im.In(1));
  if (base == exponent) return Binary(Power)(im);
  const DType own = IsFloat(base) || !IsFloat(exponent) ? base : exponent;
  const Symbol y = Power(Cast(im.In(0), {.dtype = own}), Cast(im.In(1), {.dtype = own}), im.name());
  im.Out(Cast(y, {.dtype = base}));
}

// With `fmod` the remainder has the dividend's sign, else the divisor's.
void ImportMod(Importer& im) { Binary(im.Flag("fmod") ? Fmod : Mod)(im); }

void ImportBitShift(Importer& im) {
  const std::string direction = im.String("direction", "");
  if (direction != "LEFT" && direction != "RIGHT") {
    Throw<ModelError>("attribute \"direction\": expected LEFT or RIGHT, got \"{}\"", direction);
  }
  Binary(direction == "LEFT" ? ShiftLeft : ShiftRight)(im);
}

void ImportClipByAttributes(Importer& im) {
  constexpr double kMost = std::numeric_limits<float>::max();
  im.Out(Clip(im.In(0), im.Float("min", -kMost), im.Float("max", kMost), im.name()));
}

// Either bound may be missing.
void ImportClip(Importer& im) {
  const Symbol x = im.In(0);
  if (im.Has(1) && im.Has(2)) return im.Out(Clip(x, im.In(1), im.In(2), im.name()));
  im.Out(im.Has(1) ? Maximum(x, im.In(1), im.name()) : im.Has(2) ? Minimum(x, im.In(2), im.name()) : Identity(x));
}

void ImportCast(Importer& im) {
  im.Ignore({"saturate", "round_mode"});  // of types of 8 bits
  im.Out(Cast(im.In(0), {.dtype = DTypeOf(static_cast<int>(im.Int("to", 0)))}, im.name()));
}

void ImportCastLike(Importer& im) {
  im.Ignore({"saturate", "round_mode"});
  im.Out(Cast(im.In(0), {.dtype = im.DTypeOf(im.In(1))}, im.name()));
}

template <class T, class From>
HostTensor TensorOf(const Shape& shape, const std::vector<From>& values) {
  HostTensor tensor(kDTypeOf<T>, shape);
  std::ranges::transform(values, tensor.data<T>().begin(), [](From value) { return static_cast<T>(value); });
  return tensor;
}
template <class T, class From>
HostTensor ListOf(const std::vector<From>& values) {
  return TensorOf<T>({std::ssize(values)}, values);
}

void ImportConstant(Importer& im) {
  int bits = 0;
  if (auto tensor = im.Tensor("value", &bits)) return im.OutConstant(std::move(*tensor), bits);
  if (im.HasAttribute("value_int")) return im.OutConstant(TensorOf<int64_t>({}, std::vector{im.Int("value_int", 0)}));
  if (im.HasAttribute("value_float")) {
    return im.OutConstant(HostTensor::Full(DType::kFloat32, {}, im.Float("value_float", 0)));
  }
  if (im.HasAttribute("value_ints")) return im.OutConstant(ListOf<int64_t>(im.Ints("value_ints")));
  if (im.HasAttribute("value_floats")) return im.OutConstant(ListOf<float>(im.Floats("value_floats")));
  Throw<ModelError>("it has no value that is a tensor of numbers");
}

// A window of a signal: a - b cos t + c cos 2t, for t from 0 to before 2 pi, or to 2 pi if it is not periodic.
ImportFn SignalWindow(double a, double b, double c) {
  return [=](Importer& im) {
    const int64_t size = im.StaticNumber(0);
    const DType dtype = DTypeOf(static_cast<int>(im.Int("output_datatype", 1)));
    if (size < 0) Throw<ModelError>("input 0: a window of {} numbers", size);
    CheckTerms(size);
    const int64_t period = im.Flag("periodic", true) ? size : size - 1;
    HostTensor window(dtype, {size});
    for (int64_t i = 0; i < size; ++i) {
      const double t =
          2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(std::max<int64_t>(period, 1));
      window.Set(i, period == 0 ? 1 : a - b * std::cos(t) + c * std::cos(2 * t));
    }
    im.OutConstant(std::move(window));
  };
}

}  // namespace

std::span<const ImportRow> ElementwiseImports() {
  static const std::vector<ImportRow> rows = {
      {"Abs", 1, Unary(Abs)},
      {"Acos", 7, Unary(Acos)},
      {"Acosh", 9, Unary(Acosh)},
      {"Add", 1, ImportAdd},
      {"And", 1, Binary(And)},
      {"Asin", 7, Unary(Asin)},
      {"Asinh", 9, Unary(Asinh)},
      {"Atan", 7, Unary(Atan)},
      {"Atanh", 9, Unary(Atanh)},
      {"BitShift", 11, ImportBitShift},
      {"BitwiseAnd", 18, Binary(BitAnd)},
      {"BitwiseNot", 18, Unary(BitNot)},
      {"BitwiseOr", 18, Binary(BitOr)},
      {"BitwiseXor", 18, Binary(BitXor)},
      {"BlackmanWindow", 17, SignalWindow(0.42, 0.5, 0.08)},
      {"Cast", 6, ImportCast},
      {"CastLike", 15, ImportCastLike},
      {"Ceil", 1, Unary(Ceil)},
      {"Clip", 1, ImportClipByAttributes},
      {"Clip", 11, ImportClip},
      {"Constant", 1, ImportConstant},
      {"Cos", 7, Unary(Cos)},
      {"Cosh", 9, Unary(Cosh)},
      {"Div", 1, Binary(Div)},
      {"Equal", 1, Binary(Equal)},
      {"Erf", 9, Unary(Erf)},
      {"Exp", 1, Unary(Exp)},
      {"Floor", 1, Unary(Floor)},
      {"Greater", 1, Binary(Greater)},
      {"GreaterOrEqual", 12, Binary(GreaterEqual)},
      {"HammingWindow", 17, SignalWindow(25. / 46, 21. / 46, 0)},
      {"HannWindow", 17, SignalWindow(0.5, 0.5, 0)},
      {"Identity", 1, ImportIdentity},
      {"IsInf", 10, ImportIsInf},
      {"IsNaN", 9, Unary(IsNaN)},
      {"Less", 1, Binary(Less)},
      {"LessOrEqual", 12, Binary(LessEqual)},
      {"Log", 1, Unary(Log)},
      {"Max", 1, Variadic(Maximum)},
      {"Mean", 1, ImportMean},
      {"Min", 1, Variadic(Minimum)},
      {"Mod", 10, ImportMod},
      {"Mul", 1, Binary(Mul)},
      {"Neg", 1, Unary(Negative)},
      {"Not", 1, Unary(Not)},
      {"Or", 1, Binary(Or)},
      {"Pow", 1, ImportPow},
      {"Reciprocal", 1, Unary(Reciprocal)},
      {"Relu", 1, Unary(Relu)},
      {"Round", 11, Unary(Round)},
      {"Sigmoid", 1, Unary(Sigmoid)},
      {"Sign", 9, Unary(Sign)},
      {"Sin", 7, Unary(Sin)},
      {"Sinh", 9, Unary(Sinh)},
      {"Softplus", 1, Unary(SoftRelu)},
      {"Softsign", 1, Unary(SoftSign)},
      {"Sqrt", 1, Unary(Sqrt)},
      {"Sub", 1, Binary(Sub)},
      {"Sum", 1, Variadic(Add)},
      {"Tan", 7, Unary(Tan)},
      {"Tanh", 1, Unary(Tanh)},
      {"Where", 9, [](Importer& im) { im.Out(Where(im.In(0), im.In(1), im.In(2), im.name())); }},
      {"Xor", 1, Binary(Xor)},
  };
  return rows;
}

}  // namespace bindery::onnx
