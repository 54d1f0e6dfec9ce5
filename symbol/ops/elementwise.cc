// The elementwise operators: a row each. What follows from the family is said once below: shapes (operands of two are
// stretched as in NumPy, and the gradient of one that was is summed), types, batch axes, memory. How a function is
// computed stands in executor/kernels/functions.h.
#include "symbol/ops/elementwise.h"

#include <array>
#include <string>
#include <utility>

#include "base/error.h"
#include "symbol/ops/activation.h"
#include "symbol/ops/broadcast.h"
#include "symbol/ops/numbers.h"
#include "symbol/ops/rules.h"

namespace bindery {
namespace {

enum Flags : unsigned {
  kAny = 0,
  kFloats = 1,    // floating point operands only
  kZeroKept = 2,  // f(0) = 0, f(0, 0) = 0
  kTruth = 4,     // gives bool
  kIntegers = 8,  // integer operands only, not bool
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

constexpr ActivationAttrs kRelu{ActivationType::kRelu};
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
    {"Trunc", "the next whole number towards zero", kFloats | kZeroKept, nullptr},
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
    {"Not", "x is 0", kTruth, nullptr},
    {"IsNaN", "x is not a number", kFloats | kTruth | kZeroKept, nullptr},
    {"IsInf", "x is infinite", kFloats | kTruth | kZeroKept, nullptr},
    {"BitNot", "each bit the other", kIntegers, nullptr},
};

// Gradients of a^b, dy b a^(b - 1) and dy a^b log a. Where a is 0 they, or their own gradients, would be 0 times
// infinity: 1, whose powers and logarithm are finite, takes its place there, and nothing flows. By the base, it takes
// that of NaN as well: what is raised to 0 has no slope.
Symbol PowerByBase(G g) {
  const std::optional<double> exponent = ScalarValue(*g.b.entry().node);
  const bool is_certain = exponent && *exponent != 0;
  const Symbol a = is_certain ? g.a : Where(And(Not(Greater(Abs(g.a), 0.0)), Equal(g.b, 0.0)), 1.0, g.a);
  return g.dy * g.b * Power(a, g.b - 1.0);
}
Symbol PowerByExponent(G g) { return g.dy * g.y * Log(Where(And(Equal(g.a, 0.0), GreaterEqual(g.b, 0.0)), 1.0, g.a)); }

constexpr BinaryRow kBinary[] = {
    {"Add", "a + b", kZeroKept, [](G g) { return g.dy; }, [](G g) { return g.dy; }},
    {"Sub", "a - b", kZeroKept, [](G g) { return g.dy; }, [](G g) { return -g.dy; }},
    {"Mul", "a b", kZeroKept, [](G g) { return g.dy * g.b; }, [](G g) { return g.dy * g.a; }},
    // As y / b = a / b^2; integers are divided towards zero.
    {"Div", "a / b", kAny, [](G g) { return g.dy / g.b; }, [](G g) { return -(g.dy / g.b * g.y); }},
    {"Mod", "a - floor(a / b) b", kAny, [](G g) { return g.dy; }, [](G g) { return -(g.dy * Floor(g.a / g.b)); }},
    {"Fmod", "a - trunc(a / b) b", kAny, [](G g) { return g.dy; }, [](G g) { return -(g.dy * Trunc(g.a / g.b)); }},
    {"Power", "a^b", kAny, PowerByBase, PowerByExponent},
    {"Maximum", "max(a, b)", kZeroKept, [](G g) { return Where(GreaterEqual(g.a, g.b), g.dy, 0.0); },
     [](G g) { return Where(GreaterEqual(g.a, g.b), 0.0, g.dy); }},
    {"Minimum", "min(a, b)", kZeroKept, [](G g) { return Where(LessEqual(g.a, g.b), g.dy, 0.0); },
     [](G g) { return Where(LessEqual(g.a, g.b), 0.0, g.dy); }},
    {"PRelu", "a, below 0 a b: b is a learned slope", kFloats | kZeroKept,
     [](G g) { return g.dy * Where(Greater(g.a, 0.0), 1.0, g.b); }, [](G g) { return g.dy * Minimum(g.a, 0.0); }},
    {"AddRelu", "max(0, a + b); made by fusion", kZeroKept, [](G g) { return ActivationGrad(g.dy, g.y, kRelu); },
     [](G g) { return ActivationGrad(g.dy, g.y, kRelu); }},
    {"Less", "a < b", kTruth | kZeroKept, nullptr, nullptr},
    {"LessEqual", "a <= b", kTruth, nullptr, nullptr},
    {"Greater", "a > b", kTruth | kZeroKept, nullptr, nullptr},
    {"GreaterEqual", "a >= b", kTruth, nullptr, nullptr},
    {"Equal", "a = b", kTruth, nullptr, nullptr},
    {"NotEqual", "a is not b", kTruth | kZeroKept, nullptr, nullptr},
    {"And", "neither is 0", kTruth | kZeroKept, nullptr, nullptr},
    {"Or", "one is not 0", kTruth | kZeroKept, nullptr, nullptr},
    {"Xor", "one is 0 and the other is not", kTruth | kZeroKept, nullptr, nullptr},
    {"BitAnd", "the bits that both have", kIntegers | kZeroKept, nullptr, nullptr},
    {"BitOr", "the bits that one has", kIntegers | kZeroKept, nullptr, nullptr},
    {"BitXor", "the bits that differ", kIntegers | kZeroKept, nullptr, nullptr},
    {"ShiftLeft", "a's bits moved up by b", kIntegers | kZeroKept, nullptr, nullptr},
    {"ShiftRight", "a's bits moved down by b, its sign kept", kIntegers | kZeroKept, nullptr, nullptr},
};

// One type for all operands, floating point if the row wants it; the result's too, or bool.
void InferTypes(InferContext& c, unsigned flags) {
  std::optional<DType> common = flags & kTruth ? std::nullopt : c.out(0).dtype();
  for (int i = 0; i < c.num_inputs() && !common; ++i) common = c.in(i).dtype();
  if (flags & kTruth) c.out(0).SetDType(DType::kBool);
  if (!common) return;
  if ((flags & kFloats) && !IsFloat(*common)) Throw<ShapeError>("takes floating point numbers, got {}", *common);
  if ((flags & kIntegers) && (IsFloat(*common) || *common == DType::kBool))
    Throw<ShapeError>("takes integers, got {}", *common);
  for (int i = 0; i < c.num_inputs(); ++i) c.in(i).SetDType(*common);
  if (!(flags & kTruth)) c.out(0).SetDType(*common);
}

// A rule of a row as a gradient: each operand's in the output's shape, then summed to the operand's.
std::vector<Symbol> GradientOf(const GradientContext& g, std::initializer_list<Rule> rules) {
  const Symbol second = rules.size() > 1 ? g.input(1) : Symbol();
  const Terms terms = {.dy = g.output_grad(0), .x = g.input(0), .y = g.output(0), .a = g.input(0), .b = second};
  std::vector<Symbol> gradients;
  for (const Rule rule : rules) {
    const int i = static_cast<int>(gradients.size());
    gradients.push_back(rule && g.wants(i) ? rule::OperandGradient(g, i, rule(terms)) : Symbol());
  }
  return gradients;
}

OpDef OfIntegers(unsigned flags, OpDef op) {
  if (!(flags & kIntegers)) return op;
  op.gradient = {};
  op.not_differentiable = "bits have no derivatives";
  return op;
}

OpDef Define(const UnaryRow& row) {
  OpDef op = {.name = row.name,
              .doc = row.doc,
              .infer =
                  [flags = row.flags](InferContext& c) {
                    InferTypes(c, flags);
                    rule::SameShape({c.in(0), c.out(0)});
                    c.in(0).Carry(c.out(0));
                  },
              .gradient = [dx = row.dx](const GradientContext& g) { return GradientOf(g, {dx}); },
              .numbers = rule::ElementwiseNumbers(row.name),
              .inplace = {{0, 0}},
              .zero_to_zero = (row.flags & kZeroKept) != 0};
  return OfIntegers(row.flags, std::move(op));
}

OpDef Define(const BinaryRow& row) {
  OpDef op = {.name = row.name,
              .doc = row.doc,
              .inputs = {"a", "b"},
              .infer =
                  [flags = row.flags](InferContext& c) {
                    InferTypes(c, flags);
                    rule::BroadcastShapes(c);
                  },
              .gradient =
                  [da = row.da, db = row.db](const GradientContext& g) {
                    return GradientOf(g, {da, db});
                  },
              .numbers = rule::ElementwiseNumbers(row.name),
              .inplace = {{0, 0}, {1, 0}},  // for the operand that is not stretched
              .zero_to_zero = (row.flags & kZeroKept) != 0};
  return OfIntegers(row.flags, std::move(op));
}

const OpDef& WhereOp() {
  static const OpDef op = {
      .name = "Where",
      .doc = "a where the condition is true, else b.",
      .inputs = {"condition", "a", "b"},
      .infer =
          [](InferContext& c) {
            c.in(0).SetDType(DType::kBool);
            rule::SameDType({c.in(1), c.in(2), c.out(0)});
            rule::BroadcastShapes(c);
          },
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        const Symbol &condition = g.input(0), &dy = g.output_grad(0);
        std::vector<Symbol> gradients(3);
        if (g.wants(1)) gradients[1] = rule::OperandGradient(g, 1, Where(condition, dy, 0.0));
        if (g.wants(2)) gradients[2] = rule::OperandGradient(g, 2, Where(condition, 0.0, dy));
        return gradients;
      },
      .numbers = rule::WhereNumbers,
      .inplace = {{1, 0}, {2, 0}},
      .zero_to_zero = true,
  };
  return op;
}

template <const auto& kRows, size_t kRow>
const OpDef& OpOf() {
  static const OpDef op = Define(kRows[kRow]);
  return op;
}

using Accessor = const OpDef& (*)();
constexpr auto kOps = []<size_t... kU, size_t... kB>(std::index_sequence<kU...>, std::index_sequence<kB...>) {
  return std::array<Accessor, sizeof...(kU) + sizeof...(kB) + 1>{OpOf<kUnary, kU>..., OpOf<kBinary, kB>..., WhereOp};
}
(std::make_index_sequence<std::size(kUnary)>(), std::make_index_sequence<std::size(kBinary)>());

}  // namespace

std::span<const OpDef& (*const)()> ElementwiseOps() { return kOps; }

const OpDef& ElementwiseOp(std::string_view name) {
  for (size_t i = 0; i < std::size(kUnary); ++i) {
    if (name == kUnary[i].name) return kOps[i]();
  }
  for (size_t i = 0; i < std::size(kBinary); ++i) {
    if (name == kBinary[i].name) return kOps[std::size(kUnary) + i]();
  }
  Throw<ModelError>("no elementwise operator is called \"{}\"", name);
}

Symbol Where(const Symbol& condition, const Operand& a, const Operand& b, const std::string& name) {
  return Apply(WhereOp(), {}, {condition, a.symbol, b.symbol}, name);
}

}  // namespace bindery
