// Element by element: functions of one value, of two, of many.
#include <algorithm>
#include <numbers>
#include <vector>

#include "symbol/mxnet/importer.h"

namespace bindery::mxnet {
namespace {

// Of two values, and of one and an attribute: MXNet's comparisons give numbers of their operands' type.
ImportFn Truth(const BinaryFunction& f) {
  return [f](Importer& im) {
    const Symbol a = im.In(0);
    im.Out(AsNumbers(f(a, im.In(1)), a, im.name()));
  };
}

void ImportNot(Importer& im) { im.Out(AsNumbers(Not(im.In(0)), im.In(0), im.name())); }

Symbol Hypot(const Symbol& a, const Operand& b, const std::string& name) {
  return Sqrt(Square(a) + Square(b.symbol), name);
}

// The cube root of |x|, with x's sign.
Symbol CubeRoot(const Symbol& x, const std::string& name) { return Mul(Sign(x), Power(Abs(x), 1.0 / 3), name); }

// Halves go away from 0; rint takes the lower of two that are as near. By what is cut off, which is exact: x + 0.5 is not.
Symbol RoundAway(const Symbol& x, const std::string& name) {
  const Symbol whole = Trunc(x), away = AsNumbers(GreaterEqual(Abs(x - whole), 0.5), x, "");
  return Add(whole, away * Sign(x), name);
}
Symbol RoundDown(const Symbol& x, const std::string& name) {
  const Symbol whole = Floor(x);
  return Add(whole, AsNumbers(Greater(x - whole, 0.5), x, ""), name);
}

void ImportSum(Importer& im) {
  im.Ignore({"num_args"});
  im.Out(Apply(AddNOp(), {}, im.AllInputs(), im.name()));
}

void ImportCast(Importer& im) { im.Out(Cast(im.In(0), {.dtype = im.Type("dtype")}, im.name())); }

void ImportClip(Importer& im) { im.Out(Clip(im.In(0), im.Float("a_min"), im.Float("a_max"), im.name())); }

// A condition of one axis chooses rows: its axes are the first of the others, not the last.
void ImportWhere(Importer& im) {
  const Symbol condition = im.In(0), own = ShapeArray(condition), all = ShapeArray(im.In(1));
  const Symbol rank = Reshape(SizeArray(own), {.shape = {1}});
  const Symbol behind = SliceBy({all, rank, Indices({INT64_MAX}), Indices({0}), Indices({1})});
  const Symbol shape = Concat({own, Add(Sub(behind, behind), Indices({1}))}, {.axis = 0});
  im.Out(Where(NotEqual(ReshapeBy({condition, shape}), 0.0), im.In(1), im.In(2), im.name()));
}

void ImportSmoothL1(Importer& im) { im.Out(SmoothL1(im.In(0), im.Float("scalar", 1), im.name())); }

void ImportHardSigmoid(Importer& im) {
  im.Out(HardSigmoid(im.In(0), im.Float("alpha", 0.2), im.Float("beta", 0.5), im.name()));
}

// x / sqrt(the last extent): the scores of attention. The extent is the sum of as many ones, of x's element type.
void ImportDivSqrtDim(Importer& im) {
  const Symbol x = im.In(0);
  const Symbol rows = ReshapeBy({x, Concat({Indices({-1}), ShapeArray(x, {.begin = -1})}, {.axis = 0})});
  const Symbol one = Slice(rows, {.begin = {0}, .end = {1}, .axes = {0}});
  im.Out(Div(x, Sqrt(Sum(FullLike(one, {1}))), im.name()));
}

// The first input alone counts; the second says what a gradient is like.
void ImportLikeRhs(Importer& im) { im.Out(Identity(im.In(0), im.name())); }

ImportFn Times(double factor) {
  return Unary([factor](const Symbol& x, const std::string& name) { return Mul(x, factor, name); });
}

}  // namespace

std::span<const ImportRow> ElementwiseImports() {
  static const std::vector<ImportRow> rows = [] {
    std::vector<ImportRow> all = {
        {"_contrib_div_sqrt_dim", ImportDivSqrtDim},
        {"_identity_with_attr_like_rhs", ImportLikeRhs},
        {"abs", Unary(Abs)},
        {"arccos", Unary(Acos)},
        {"arccosh", Unary(Acosh)},
        {"arcsin", Unary(Asin)},
        {"arcsinh", Unary(Asinh)},
        {"arctan", Unary(Atan)},
        {"arctanh", Unary(Atanh)},
        {"cbrt", Unary(CubeRoot)},
        {"ceil", Unary(Ceil)},
        {"clip", ImportClip},
        {"cos", Unary(Cos)},
        {"cosh", Unary(Cosh)},
        {"degrees", Times(180 / std::numbers::pi)},
        {"erf", Unary(Erf)},
        {"exp", Unary(Exp)},
        {"expm1", Unary(Expm1)},
        {"fix", Unary(Trunc)},
        {"floor", Unary(Floor)},
        {"hard_sigmoid", ImportHardSigmoid},
        {"log", Unary(Log)},
        {"log10", Unary(Log10)},
        {"log1p", Unary(Log1p)},
        {"log2", Unary(Log2)},
        {"logical_not", ImportNot},
        {"negative", Unary(Negative)},
        {"radians", Times(std::numbers::pi / 180)},
        {"rcbrt", Unary([](const Symbol& x, const std::string& name) { return Reciprocal(CubeRoot(x, ""), name); })},
        {"reciprocal", Unary(Reciprocal)},
        {"relu", Unary(Relu)},
        {"rint", Unary(RoundDown)},
        {"round", Unary(RoundAway)},
        {"rsqrt", Unary(Rsqrt)},
        {"sigmoid", Unary(Sigmoid)},
        {"sign", Unary(Sign)},
        {"sin", Unary(Sin)},
        {"sinh", Unary(Sinh)},
        {"smooth_l1", ImportSmoothL1},
        {"softsign", Unary(SoftSign)},
        {"sqrt", Unary(Sqrt)},
        {"square", Unary(Square)},
        {"tan", Unary(Tan)},
        {"tanh", Unary(Tanh)},
        {"trunc", Unary(Trunc)},
        {"where", ImportWhere},
    };
    // What is the same by many names, in the course of MXNet's versions.
    const auto add = [&](const ImportFn& import, std::initializer_list<const char*> names) {
      for (const char* name : names) all.push_back({name, import});
    };
    add(ImportCast, {"Cast", "cast", "amp_cast"});
    add(ImportSum, {"ElementWiseSum", "elemwise_sum", "add_n"});
    add(Unary([](const Symbol& x, const std::string& name) { return Identity(x, name); }),
        {"_copy", "identity", "_copyto", "_CrossDeviceCopy"});
    add(Binary(Add), {"_plus", "_Plus", "_add", "elemwise_add", "broadcast_add", "broadcast_plus", "_grad_add"});
    add(Binary(Sub), {"_minus", "_Minus", "_sub", "elemwise_sub", "broadcast_sub", "broadcast_minus"});
    add(Binary(Mul), {"_mul", "_Mul", "elemwise_mul", "broadcast_mul"});
    add(Binary(Div), {"_div", "_Div", "elemwise_div", "broadcast_div"});
    add(Binary(Mod), {"_mod", "_Mod", "broadcast_mod"});
    add(Binary(Power), {"_power", "_Power", "broadcast_power"});
    add(Binary(Maximum), {"_maximum", "_Maximum", "broadcast_maximum"});
    add(Binary(Minimum), {"_minimum", "_Minimum", "broadcast_minimum"});
    add([](Importer& im) { im.Out(Hypot(im.In(0), im.In(1), im.name())); }, {"_hypot", "_Hypot", "broadcast_hypot"});
    add(Truth(Equal), {"_equal", "_Equal", "broadcast_equal"});
    add(Truth(NotEqual), {"_not_equal", "_Not_Equal", "broadcast_not_equal"});
    add(Truth(Greater), {"_greater", "_Greater", "broadcast_greater"});
    add(Truth(GreaterEqual), {"_greater_equal", "_Greater_Equal", "broadcast_greater_equal"});
    add(Truth(Less), {"_lesser", "_Lesser", "broadcast_lesser"});
    add(Truth(LessEqual), {"_lesser_equal", "_Lesser_Equal", "broadcast_lesser_equal"});
    add(Truth(And), {"_logical_and", "_Logical_And", "broadcast_logical_and"});
    add(Truth(Or), {"_logical_or", "_Logical_Or", "broadcast_logical_or"});
    add(Truth(Xor), {"_logical_xor", "_Logical_Xor", "broadcast_logical_xor"});
    return all;
  }();
  return rows;
}

namespace {

// A value and a number, which is the attribute `scalar`.
using ScalarFn = std::function<Symbol(const Symbol& x, double scalar, const std::string& name)>;
ImportFn WithScalar(ScalarFn f) {
  return [f = std::move(f)](Importer& im) {
    im.Ignore({"is_int", "reverse"});
    im.Out(f(im.In(0), im.Float("scalar"), im.name()));
  };
}
ImportFn Left(const BinaryFunction& f) {
  return WithScalar([f](const Symbol& x, double scalar, const std::string& name) { return f(x, scalar, name); });
}
ImportFn Right(const BinaryFunction& f) {
  return WithScalar([f](const Symbol& x, double scalar, const std::string& name) { return f(scalar, x, name); });
}
ImportFn TruthOf(const BinaryFunction& f) {
  return WithScalar(
      [f](const Symbol& x, double scalar, const std::string& name) { return AsNumbers(f(x, scalar), x, name); });
}

}  // namespace

std::span<const ImportRow> ScalarImports() {
  static const std::vector<ImportRow> rows = [] {
    std::vector<ImportRow> all;
    const auto add = [&](const ImportFn& import, const char* name, const char* old_name) {
      all.push_back({name, import});
      all.push_back({old_name, import});
    };
    add(Left(Add), "_plus_scalar", "_PlusScalar");
    add(Left(Sub), "_minus_scalar", "_MinusScalar");
    add(Right(Sub), "_rminus_scalar", "_RMinusScalar");
    add(Left(Mul), "_mul_scalar", "_MulScalar");
    add(Left(Div), "_div_scalar", "_DivScalar");
    add(Right(Div), "_rdiv_scalar", "_RDivScalar");
    add(Left(Mod), "_mod_scalar", "_ModScalar");
    add(Right(Mod), "_rmod_scalar", "_RModScalar");
    add(Left(Power), "_power_scalar", "_PowerScalar");
    add(Right(Power), "_rpower_scalar", "_RPowerScalar");
    add(Left(Maximum), "_maximum_scalar", "_MaximumScalar");
    add(Left(Minimum), "_minimum_scalar", "_MinimumScalar");
    add(WithScalar([](const Symbol& x, double scalar, const std::string& name) { return Hypot(x, scalar, name); }),
        "_hypot_scalar", "_HypotScalar");
    add(TruthOf(Equal), "_equal_scalar", "_EqualScalar");
    add(TruthOf(NotEqual), "_not_equal_scalar", "_NotEqualScalar");
    add(TruthOf(Greater), "_greater_scalar", "_GreaterScalar");
    add(TruthOf(GreaterEqual), "_greater_equal_scalar", "_GreaterEqualScalar");
    add(TruthOf(Less), "_lesser_scalar", "_LesserScalar");
    add(TruthOf(LessEqual), "_lesser_equal_scalar", "_LesserEqualScalar");
    add(TruthOf(And), "_logical_and_scalar", "_LogicalAndScalar");
    add(TruthOf(Or), "_logical_or_scalar", "_LogicalOrScalar");
    add(TruthOf(Xor), "_logical_xor_scalar", "_LogicalXorScalar");
    return all;
  }();
  return rows;
}

}  // namespace bindery::mxnet
