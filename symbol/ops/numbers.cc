#include "symbol/ops/numbers.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/rules.h"
#include "symbol/ops/shape_ops.h"

namespace bindery::rule {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// f(a) or f(a, b), with what more samples give; unknown where an operand is, whatever f makes of NaN.
template <class F, class... Operand>
Number Map(const F& f, const Operand&... operands) {
  Number result = kUnknown;
  for (size_t k = 0; k < result.at.size(); ++k) {
    if (!(std::isnan(operands.at[k]) || ...)) result.at[k] = f(operands.at[k]...);
  }
  return result;
}

using Steps = std::vector<int64_t>;  // from element to element along each axis

Steps PlainSteps(const Shape& shape) {
  Steps steps;
  for (int axis = 0; axis < shape.rank(); ++axis) steps.push_back(shape.CountFrom(axis + 1));
  return steps;
}

// Those that repeat a tensor where it is stretched to `to`.
Steps StretchedSteps(const Shape& shape, const Shape& to) {
  Steps steps(to.rank(), 0);
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] != 1) steps[axis + to.rank() - shape.rank()] = shape.CountFrom(axis + 1);
  }
  return steps;
}

// Calls visit(i, place) for the elements of `shape` in their order, with the place of each by steps from `first`.
template <class Visit>
void ForEach(const Shape& shape, int64_t first, const Steps& steps, const Visit& visit) {
  const int64_t count = shape.Elements();
  for (int64_t i = 0; i < count; ++i) {
    int64_t place = first, rest = i;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      place += rest % shape[axis] * steps[axis];
      rest /= shape[axis];
    }
    visit(i, place);
  }
}

// Output `o` = elements of input 0.
void Pick(InferContext& c, int o, int64_t first, const Steps& steps) {
  const Numbers* from = c.in(0).numbers();
  if (from == nullptr || !c.out(o).Known()) return;
  Numbers result;
  ForEach(*c.out(o).shape(), first, steps, [&](int64_t, int64_t place) { result.push_back((*from)[place]); });
  c.out(o).SetNumbers(std::move(result));
}

bool Has(const Value& value) { return value.numbers() != nullptr; }

// Are shapes and numbers of all inputs known, as far as they are of input 0? Then the output's may be computed.
bool Ready(InferContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (!Has(c.in(i))) return false;
  }
  return c.out(0).Known() && c.out(0).dtype();
}

// Operand i at the elements of the output.
Numbers Stretched(InferContext& c, int i) {
  const Numbers& from = *c.in(i).numbers();
  Numbers result;
  ForEach(*c.out(0).shape(), 0, StretchedSteps(*c.in(i).shape(), *c.out(0).shape()),
          [&](int64_t, int64_t place) { result.push_back(from[place]); });
  return result;
}

struct Unary {
  const char* name;
  double (*f)(double);
};
constexpr Unary kUnaryNumbers[] = {
    {"Negative", [](double x) { return -x; }},
    {"Abs", [](double x) { return std::abs(x); }},
    {"Sign", [](double x) { return static_cast<double>((x > 0) - (x < 0)); }},
    {"Square", [](double x) { return x * x; }},
    {"Sqrt", [](double x) { return std::sqrt(x); }},
    {"Reciprocal", [](double x) { return 1 / x; }},
    {"Exp", [](double x) { return std::exp(x); }},
    {"Log", [](double x) { return std::log(x); }},
    {"Floor", [](double x) { return std::floor(x); }},
    {"Ceil", [](double x) { return std::ceil(x); }},
    {"Round", [](double x) { return std::nearbyint(x); }},
    {"Not", [](double x) { return x == 0 ? 1.0 : 0.0; }},
};

struct Binary {
  const char* name;
  double (*f)(double a, double b);
  bool compares = false;  // rounded operands do, too, unless both are large
};
constexpr Binary kBinaryNumbers[] = {
    {"Add", [](double a, double b) { return a + b; }},
    {"Sub", [](double a, double b) { return a - b; }},
    {"Mul", [](double a, double b) { return a * b; }},
    {"Div", [](double a, double b) { return b == 0 ? kUnknown : a / b; }},
    {"Mod", [](double a, double b) { return b == 0 ? kUnknown : a - std::floor(a / b) * b; }},
    {"Power", [](double a, double b) { return std::pow(a, b); }},
    {"Maximum", [](double a, double b) { return std::max(a, b); }, true},
    {"Minimum", [](double a, double b) { return std::min(a, b); }, true},
    {"Less", [](double a, double b) { return static_cast<double>(a < b); }, true},
    {"LessEqual", [](double a, double b) { return static_cast<double>(a <= b); }, true},
    {"Greater", [](double a, double b) { return static_cast<double>(a > b); }, true},
    {"GreaterEqual", [](double a, double b) { return static_cast<double>(a >= b); }, true},
    {"Equal", [](double a, double b) { return static_cast<double>(a == b); }, true},
    {"NotEqual", [](double a, double b) { return static_cast<double>(a != b); }, true},
    {"And", [](double a, double b) { return static_cast<double>(a != 0 && b != 0); }, true},
    {"Or", [](double a, double b) { return static_cast<double>(a != 0 || b != 0); }, true},
    {"Xor", [](double a, double b) { return static_cast<double>((a != 0) != (b != 0)); }, true},
};

Number RoundedTo(DType dtype, const Number& number) {
  return Map([&](double x) { return Rounded(dtype, x); }, number);
}

// A double from 2^53 on may stand for several integers: as an extent or an index it is too much, whichever it is, but
// nothing is computed from it.
bool IsExact(DType dtype, double x) { return IsFloat(dtype) || std::abs(x) < 0x1p53; }

double LowBits(DType dtype, int64_t x) {
  return Dispatch(dtype, [&]<class T>() {
    if constexpr (std::is_integral_v<T>) return static_cast<double>(static_cast<T>(x));
    return kUnknown;
  });
}

// What kernels make of a result; unknown where an integer leaves its type, for there they wrap.
Number HeldBy(DType dtype, const Number& result, bool is_operand = false) {
  if (IsFloat(dtype) || dtype == DType::kBool || is_operand) return RoundedTo(dtype, result);
  const auto held = [&](double x) {
    return IsExact(dtype, x) && Rounded(dtype, x) == std::trunc(x) ? std::trunc(x) : kUnknown;
  };
  return Map(held, result);
}

// Of two numbers of one type, before the result is one of a type.
Number Computed(const Binary& row, DType dtype, const Number& a, const Number& b) {
  const auto told = [&](double x, double y) {
    const bool exact_x = IsExact(dtype, x), exact_y = IsExact(dtype, y);
    return (row.compares ? exact_x || exact_y : exact_x && exact_y) ? row.f(x, y) : kUnknown;
  };
  return Map(told, a, b);
}

}  // namespace

double Rounded(DType dtype, double number) {
  if (std::isnan(number)) return number;
  if (!IsFloat(dtype) && dtype != DType::kBool) number = std::trunc(number);
  return Dispatch(dtype, [&]<class T>() { return LoadDouble(StoreDouble<T>(number)); });
}

void ConstantNumbers(InferContext& c) {
  const HostTensor& value = *c.attrs<ConstantAttrs>().value;
  Numbers numbers;
  for (int64_t i = 0; i < value.elements(); ++i) numbers.emplace_back(value.At(i));
  c.out(0).SetNumbers(std::move(numbers));
}

// None where the type does not hold it: that is an error of whoever computes with it (GiveScalarsTypes).
void ScalarNumbers(InferContext& c) {
  if (!c.out(0).dtype()) return;
  const DType dtype = *c.out(0).dtype();
  const double number = c.attrs<ScalarAttrs>().scalar, held = Rounded(dtype, number);
  if (IsFloat(dtype) || held == number) c.out(0).SetNumbers({held});
}

void SameNumbers(InferContext& c) {
  for (int o = 0; o < c.num_outputs() && Has(c.in(0)); ++o) c.out(o).SetNumbers(*c.in(0).numbers());
}

void CastNumbers(InferContext& c) {
  if (!Ready(c) || !c.in(0).dtype()) return;
  const DType from = *c.in(0).dtype(), to = *c.out(0).dtype();
  const auto held = [&](double x) {
    const double rounded = Rounded(to, x);
    if (IsFloat(from) || IsFloat(to) || to == DType::kBool || rounded == x) return rounded;
    return IsExact(from, x) ? LowBits(to, static_cast<int64_t>(x)) : kUnknown;
  };
  Numbers result;
  for (const Number& x : *c.in(0).numbers()) result.push_back(Map(held, x));
  c.out(0).SetNumbers(std::move(result));
}

void BroadcastNumbers(InferContext& c) {
  if (c.in(0).Known()) Pick(c, 0, 0, StretchedSteps(*c.in(0).shape(), *c.out(0).shape()));
}

void TransposeNumbers(InferContext& c) {
  if (!c.in(0).Known()) return;
  const auto& axes = c.attrs<TransposeAttrs>().axes;
  const Steps plain = PlainSteps(*c.in(0).shape());
  Steps steps;
  for (size_t i = 0; i < plain.size(); ++i) steps.push_back(plain[axes.empty() ? plain.size() - 1 - i : axes[i]]);
  Pick(c, 0, 0, steps);
}

void SliceNumbers(InferContext& c) {
  if (!Has(c.in(0))) return;
  const Shape& data = *c.in(0).shape();
  const std::vector<SliceRange> ranges = SliceRanges(c.attrs<SliceAttrs>(), data, c.batch());
  Steps steps = PlainSteps(data);
  int64_t first = 0;
  for (int axis = 0; axis < data.rank(); ++axis) {
    first += ranges[axis].begin * steps[axis];
    steps[axis] *= ranges[axis].step;
  }
  Pick(c, 0, first, steps);
}

void PadNumbers(InferContext& c) {
  const auto& attrs = c.attrs<PadAttrs>();
  if (!Has(c.in(0)) || !c.out(0).Known() || !c.out(0).dtype()) return;
  const Shape &data = *c.in(0).shape(), &output = *c.out(0).shape();
  const std::vector<SliceRange> ranges = PadRanges(attrs, data, c.batch());
  Steps steps = PlainSteps(output);
  int64_t first = 0;
  for (int axis = 0; axis < data.rank(); ++axis) {
    first += ranges[axis].begin * steps[axis];
    steps[axis] *= ranges[axis].step;
  }
  Numbers result(output.Elements(), Rounded(*c.out(0).dtype(), attrs.value));
  ForEach(data, first, steps, [&](int64_t i, int64_t place) { result[place] = (*c.in(0).numbers())[i]; });
  c.out(0).SetNumbers(std::move(result));
}

void ConcatNumbers(InferContext& c) {
  const auto known = [&](int i) { return Has(c.in(i)); };
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (!known(i) && !c.in(i).Known()) return;
  }
  if (!c.out(0).Known()) return;
  const Shape& whole = *c.out(0).shape();
  const int axis = Axis(c.attrs<ConcatAttrs>().axis, whole);
  Numbers result(whole.Elements(), kUnknown);
  int64_t begin = 0;
  for (int i = 0; i < c.num_inputs(); ++i) {
    const Shape& part = *c.in(i).shape();
    if (known(i)) {
      ForEach(part, begin * whole.CountFrom(axis + 1), PlainSteps(whole),
              [&](int64_t k, int64_t place) { result[place] = (*c.in(i).numbers())[k]; });
    }
    begin += part[axis];
  }
  c.out(0).SetNumbers(std::move(result));
}

void SliceChannelNumbers(InferContext& c) {
  if (!Has(c.in(0))) return;
  const auto& attrs = c.attrs<SliceChannelAttrs>();
  const Shape& data = *c.in(0).shape();
  const int axis = Axis(attrs.axis, data);
  Steps steps = PlainSteps(data);
  const int64_t step = data[axis] / attrs.num_outputs * steps[axis];
  if (attrs.squeeze_axis) steps.erase(steps.begin() + axis);
  for (int o = 0; o < c.num_outputs(); ++o) Pick(c, o, o * step, steps);
}

void WhereNumbers(InferContext& c) {
  if (!Ready(c)) return;
  const Numbers condition = Stretched(c, 0), a = Stretched(c, 1), b = Stretched(c, 2);
  Numbers result;
  for (size_t i = 0; i < a.size(); ++i) {
    result.push_back(
        Map([](double is, double yes, double no) { return is != 0 ? yes : no; }, condition[i], a[i], b[i]));
  }
  c.out(0).SetNumbers(std::move(result));
}

void TakeNumbers(InferContext& c, int64_t axis_attr) {
  if (!Has(c.in(0)) || !Has(c.in(1)) || !c.out(0).Known()) return;
  const Shape& data = *c.in(0).shape();
  if (c.out(0).shape()->Elements() == 0) return c.out(0).SetNumbers({});  // however many rows of nothing there are
  const int axis = Axis(axis_attr, data);
  const int64_t inner = data.CountFrom(axis + 1), extent = data[axis];
  Numbers result;
  for (int64_t outer = 0; outer < data.CountTo(axis); ++outer) {
    for (const Number& index : *c.in(1).numbers()) {
      const double at = index.at[0] < 0 ? index.at[0] + static_cast<double>(extent) : index.at[0];
      const bool inside = at >= 0 && at < static_cast<double>(extent) && !index.FollowsBatch();  // not if it is unknown
      for (int64_t i = 0; i < inner; ++i) {
        result.push_back(inside ? (*c.in(0).numbers())[(outer * extent + static_cast<int64_t>(at)) * inner + i]
                                : Number(kUnknown));
      }
    }
  }
  c.out(0).SetNumbers(std::move(result));
}

NumbersRule ElementwiseNumbers(std::string_view name) {
  for (const Unary& row : kUnaryNumbers) {
    if (name != row.name) continue;
    return [f = row.f](InferContext& c) {
      if (!Ready(c) || !c.in(0).dtype()) return;
      const DType from = *c.in(0).dtype();
      const auto told = [&](double x) { return IsExact(from, x) ? f(x) : kUnknown; };
      Numbers result;
      for (const Number& x : *c.in(0).numbers()) result.push_back(HeldBy(*c.out(0).dtype(), Map(told, x)));
      c.out(0).SetNumbers(std::move(result));
    };
  }
  for (const Binary& row : kBinaryNumbers) {
    if (name != row.name) continue;
    return [row](InferContext& c) {
      if (!Ready(c) || !c.in(0).dtype()) return;
      const Numbers a = Stretched(c, 0), b = Stretched(c, 1);
      Numbers result;
      for (size_t i = 0; i < a.size(); ++i) {
        result.push_back(HeldBy(*c.out(0).dtype(), Computed(row, *c.in(0).dtype(), a[i], b[i]), row.compares));
      }
      c.out(0).SetNumbers(std::move(result));
    };
  }
  return {};
}

NumbersRule ReducedNumbers(std::string_view name) {
  struct Reduction {
    double start;
    Binary row;
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  static constexpr Reduction kRows[] = {
      {0, {"Sum", [](double a, double b) { return a + b; }}},
      {1, {"Prod", [](double a, double b) { return a * b; }}},
      {-kInfinity, {"Max", [](double a, double b) { return std::max(a, b); }, true}},
      {kInfinity, {"Min", [](double a, double b) { return std::min(a, b); }, true}},
  };
  for (const auto& [start, row] : kRows) {
    if (name != row.name) continue;
    return [start, row](InferContext& c) {
      if (!Ready(c) || c.out(0).shape()->Elements() != 1) return;
      const DType dtype = *c.out(0).dtype();
      Number result = dtype == DType::kBool ? std::max(start, 0.0) : start;  // 0 is the least bool, not less
      for (const Number& x : *c.in(0).numbers()) result = Computed(row, dtype, result, x);
      c.out(0).SetNumbers({HeldBy(dtype, result, row.compares)});
    };
  }
  return {};
}

}  // namespace bindery::rule
