// The elementwise operators: a row each. What follows from the family is said once below: shapes (operands of two are
// stretched as in NumPy, and the gradient of one that was is summed), types, batch axes, memory. How a function is
// computed stands in executor/kernels/functions.h.
#include "symbol/ops/elementwise.h"

#include <array>
#include <string>
#include <utility>

#include "base/error.h"
#include "symbol/ops/broadcast.h"
#include "symbol/ops/common.h"

namespace bindery {
namespace {

enum Flags : unsigned {
  kAny = 0,
  kFloats = 1,    // floating point operands only
  kZeroKept = 2,  // f(0) = 0, f(0, 0) = 0
};

// What a gradient is made of: dy, the operands, the result.
struct Terms {
  Symbol dy, x, y;  // of one operand
  Symbol a, b;      // of two
};
using G = const Terms&;
using Rule = Symbol (*)(G g);  // null: piecewise constant, the gradient is 0

struct UnaryRow {
  const char *name, *doc;
  unsigned flags;
  Rule dx;
};
struct BinaryRow {
  const char *name, *doc;
  unsigned flags;
  Rule da, db;
};

constexpr double kTwoOverRootPi = 1.1283791670955126;

constexpr UnaryRow kUnary[] = {
    {"Negative", "-x", kZeroKept, [](G g) { return -g.dy; }},
    {"Abs", "|x|", kZeroKept, [](G g) { return g.dy * Sign(g.x); }},
    {"Sign", "-1, 0 or 1", kZeroKept, nullptr},
    {"Square", "x^2", kZeroKept, [](G g) { return g.dy * g.x * 2.0; }},
    {"Sqrt", "the square root", kFloats | kZeroKept, [](G g) { return g.dy / g.y * 0.5; }},
    {"Reciprocal", "1 / x", kFloats, [](G g) { return -(g.dy * Square(g.y)); }},
    {"Exp", "e^x", kFloats, [](G g) { return g.dy * g.y; }},
    {"Expm1", "e^x - 1", kFloats | kZeroKept, [](G g) { return g.dy * (g.y + 1.0); }},
    {"Log", "the natural logarithm", kFloats, [](G g) { return g.dy / g.x; }},
    {"Log1p", "log(1 + x)", kFloats | kZeroKept, [](G g) { return g.dy / (g.x + 1.0); }},
    {"Floor", "the next whole number below", kFloats | kZeroKept, nullptr},
    {"Ceil", "the next whole number above", kFloats | kZeroKept, nullptr},
    {"Round", "the nearest whole number; of two, the even one", kFloats | kZeroKept, nullptr},
    {"Erf", "the error function", kFloats | kZeroKept, [](G g) { return g.dy * Exp(-Square(g.x)) * kTwoOverRootPi; }},
    {"Sin", "sin x", kFloats | kZeroKept, [](G g) { return g.dy * Cos(g.x); }},
    {"Cos", "cos x", kFloats, [](G g) { return -(g.dy * Sin(g.x)); }},
    {"Tan", "tan x", kFloats | kZeroKept, [](G g) { return g.dy * (Square(g.y) + 1.0); }},
    {"Asin", "the angle", kFloats | kZeroKept, [](G g) { return g.dy / Sqrt(1.0 - Square(g.x)); }},
    {"Acos", "the angle", kFloats, [](G g) { return -(g.dy / Sqrt(1.0 - Square(g.x))); }},
    {"Atan", "the angle", kFloats | kZeroKept, [](G g) { return g.dy / (Square(g.x) + 1.0); }},
    {"Sinh", "(e^x - e^-x) / 2", kFloats | kZeroKept, [](G g) { return g.dy * Cosh(g.x); }},
    {"Cosh", "(e^x + e^-x) / 2", kFloats, [](G g) { return g.dy * Sinh(g.x); }},
    {"Asinh", "the inverse of Sinh", kFloats | kZeroKept, [](G g) { return g.dy / Sqrt(Square(g.x) + 1.0); }},
    {"Acosh", "the inverse of Cosh, not negative", kFloats, [](G g) { return g.dy / Sqrt(Square(g.x) - 1.0); }},
    {"Atanh", "the inverse of tanh", kFloats | kZeroKept, [](G g) { return g.dy / (1.0 - Square(g.x)); }},
    {"Not", "1 where x is 0, else 0", kAny, nullptr},
    {"IsNaN", "1 where x is not a number, else 0", kFloats | kZeroKept, nullptr},
    {"IsInf", "1 where x is infinite, else 0", kFloats | kZeroKept, nullptr},
};

constexpr BinaryRow kBinary[] = {
    {"Add", "a + b", kZeroKept, [](G g) { return g.dy; }, [](G g) { return g.dy; }},
    {"Sub", "a - b", kZeroKept, [](G g) { return g.dy; }, [](G g) { return -g.dy; }},
    {"Mul", "a b", kZeroKept, [](G g) { return g.dy * g.b; }, [](G g) { return g.dy * g.a; }},
    // As y / b = a / b^2; integers are divided towards zero.
    {"Div", "a / b", kAny, [](G g) { return g.dy / g.b; }, [](G g) { return -(g.dy / g.b * g.y); }},
    {"Mod", "a - floor(a / b) b", kAny, [](G g) { return g.dy; }, [](G g) { return -(g.dy * Floor(g.a / g.b)); }},
    {"Power", "a^b", kAny, [](G g) { return g.dy * g.b * Power(g.a, g.b - 1.0); },
     [](G g) { return g.dy * g.y * Log(g.a); }},
    {"Maximum", "max(a, b)", kZeroKept, [](G g) { return g.dy * GreaterEqual(g.a, g.b); },
     [](G g) { return g.dy * (1.0 - GreaterEqual(g.a, g.b)); }},
    {"Minimum", "min(a, b)", kZeroKept, [](G g) { return g.dy * LessEqual(g.a, g.b); },
     [](G g) { return g.dy * (1.0 - LessEqual(g.a, g.b)); }},
    {"Less", "1 where a < b, else 0", kZeroKept, nullptr, nullptr},
    {"LessEqual", "1 where a <= b, else 0", kAny, nullptr, nullptr},
    {"Greater", "1 where a > b, else 0", kZeroKept, nullptr, nullptr},
    {"GreaterEqual", "1 where a >= b, else 0", kAny, nullptr, nullptr},
    {"Equal", "1 where a = b, else 0", kAny, nullptr, nullptr},
    {"NotEqual", "1 where a is not b, else 0", kZeroKept, nullptr, nullptr},
    {"And", "1 where neither is 0, else 0", kZeroKept, nullptr, nullptr},
    {"Or", "1 where one is not 0, else 0", kZeroKept, nullptr, nullptr},
    {"Xor", "1 where one is 0 and the other is not, else 0", kZeroKept, nullptr, nullptr},
};

// One type for all; floating point if the row wants it.
void FloatsAlike(InferDTypeContext& c) {
  std::optional<DType> common = c.output(0);
  for (int i = 0; i < c.num_inputs() && !common; ++i) common = c.input(i);
  if (!common) return;
  if (!IsFloat(*common)) Throw<ShapeError>("takes floating point numbers, got {}", *common);
  for (int i = 0; i < c.num_inputs(); ++i) c.SetInput(i, *common);
  c.SetOutput(0, *common);
}

// A rule of a row as a gradient: each operand's in the output's shape, then summed to the operand's.
std::vector<Symbol> GradientOf(const GradientContext& g, std::initializer_list<Rule> rules) {
  const bool unary = rules.size() == 1;
  const Terms terms = {.dy = g.output_grad(0),
                       .x = unary ? g.input(0) : Symbol(),
                       .y = g.output(0),
                       .a = unary ? Symbol() : g.input(0),
                       .b = unary ? Symbol() : g.input(1)};
  std::vector<Symbol> gradients;
  int i = 0;
  for (const Rule rule : rules) {
    if (!rule || !g.wants(i)) {
      gradients.emplace_back();
    } else {
      gradients.push_back(unary ? rule(terms) : rule::OperandGradient(g, i, rule(terms)));
    }
    ++i;
  }
  return gradients;
}

OpDef Common(const char* name, const char* doc, unsigned flags) {
  OpDef op = {.name = name, .doc = doc, .zero_to_zero = (flags & kZeroKept) != 0};
  if (flags & kFloats) op.infer_dtype = FloatsAlike;
  return op;
}

OpDef Define(const UnaryRow& row) {
  OpDef op = Common(row.name, row.doc, row.flags);
  op.infer_shape = rule::AllAlike;
  op.gradient = [dx = row.dx](const GradientContext& g) { return GradientOf(g, {dx}); };
  op.inplace = {{0, 0}};
  return op;
}

OpDef Define(const BinaryRow& row) {
  OpDef op = Common(row.name, row.doc, row.flags);
  op.inputs = rule::Inputs({"a", "b"});
  op.infer_shape = rule::InferBroadcast;
  op.batch_axis = rule::BatchAligned;
  op.gradient = [da = row.da, db = row.db](const GradientContext& g) { return GradientOf(g, {da, db}); };
  op.inplace = {{0, 0}, {1, 0}};  // for the operand that is not stretched
  return op;
}

template <const auto& kRows, size_t kRow>
const OpDef& OpOf() {
  static const OpDef op = Define(kRows[kRow]);
  return op;
}

using Accessor = const OpDef& (*)();
constexpr auto kOps = []<size_t... kU, size_t... kB>(std::index_sequence<kU...>, std::index_sequence<kB...>) {
  return std::array<Accessor, sizeof...(kU) + sizeof...(kB)>{OpOf<kUnary, kU>..., OpOf<kBinary, kB>...};
}
(std::make_index_sequence<std::size(kUnary)>(), std::make_index_sequence<std::size(kBinary)>());

}  // namespace

std::span<const OpDef& (*const)()> ElementwiseOps() { return kOps; }

const OpDef& ElementwiseOp(std::string_view name) {
  for (size_t i = 0; i < kOps.size(); ++i) {
    if (name == (i < std::size(kUnary) ? kUnary[i].name : kBinary[i - std::size(kUnary)].name)) return kOps[i]();
  }
  Throw<ModelError>("no elementwise operator is called \"{}\"", name);
}

Symbol operator+(const Symbol& a, const Symbol& b) { return Add(a, b); }
Symbol operator-(const Symbol& a, const Symbol& b) { return Sub(a, b); }
Symbol operator*(const Symbol& a, const Symbol& b) { return Mul(a, b); }
Symbol operator/(const Symbol& a, const Symbol& b) { return Div(a, b); }

}  // namespace bindery
