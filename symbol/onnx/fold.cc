// Shape sub-graphs: Shape, Gather, Concat, arithmetic. Where what they compute from are extents that are known, or
// follow the batch, the operators that take extents get them as attributes. A number that follows from an extent that
// is open is open, too, and those beside it are known all the same.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "symbol/onnx/importer.h"

namespace bindery::onnx {
namespace {

using Folded = std::optional<Numbers>;

bool IsKnown(const std::optional<Extent>& number) { return number.has_value(); }

// Of the first axis of a list.
std::optional<size_t> Place(int64_t index, size_t count) {
  const int64_t place = index < 0 ? index + static_cast<int64_t>(count) : index;
  if (place < 0 || place >= static_cast<int64_t>(count)) return std::nullopt;
  return static_cast<size_t>(place);
}

Folded FoldShape(Importer& im) {
  const PartialExtents extents = im.ExtentsOf(im.In(0));
  const auto rank = static_cast<int64_t>(extents.size());
  const auto bound = [&](const char* key, int64_t otherwise) {
    const int64_t at = im.Int(key, otherwise);
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const int64_t start = bound("start", 0), end = bound("end", rank);
  if (start >= end) return Numbers{};
  return Numbers{.values = {extents.begin() + start, extents.begin() + end}};
}

Folded FoldSize(Importer& im) {
  const auto size = Product(im.ExtentsOf(im.In(0)));
  if (!size) return std::nullopt;
  return Numbers{.values = {*size}, .is_scalar = true};
}

Folded FoldGather(Importer& im, const std::vector<Numbers>& inputs) {
  const Numbers &data = inputs[0], &indices = inputs[1];
  if (im.Int("axis", 0) != 0 || data.is_scalar || !IsFixed(indices)) return std::nullopt;
  Numbers result{.is_scalar = indices.is_scalar, .dtype = data.dtype};
  for (const std::optional<Extent>& index : indices.values) {
    const auto place = Place(index->fixed, data.values.size());
    if (!place) Throw<ModelError>("index {} of {} numbers", index->fixed, data.values.size());
    result.values.push_back(data.values[*place]);
  }
  return result;
}

Folded FoldConcat(Importer& im, const std::vector<Numbers>& inputs) {
  im.Ignore({"axis"});
  Numbers result = inputs[0];
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i].is_scalar || result.values.size() + inputs[i].values.size() > kMaxNumbers) return std::nullopt;
    result.values.insert(result.values.end(), inputs[i].values.begin(), inputs[i].values.end());
  }
  if (result.is_scalar) return std::nullopt;
  return result;
}

// Is a at least b in every batch that is not empty?
bool IsNeverLess(const Extent& a, const Extent& b) {
  return a.batches >= b.batches && CheckedAdd(a.fixed, a.batches) >= CheckedAdd(b.fixed, b.batches);
}

bool IsLess(const Extent& a, const Extent& b) { return b.fixed > INT64_MIN && IsNeverLess(b - Extent{1, 0}, a); }

// Of two numbers; nothing where the batch would have to be known, or where it is better left to the operator.
std::optional<Extent> Of(const std::string& op, const Extent& x, const Extent& y) {
  const bool fixed = x.batches == 0 && y.batches == 0;
  if (fixed && (op == "Add" || op == "Sub" || op == "Mul")) {
    int64_t result;
    const bool wraps = op == "Add"   ? __builtin_add_overflow(x.fixed, y.fixed, &result)
                       : op == "Sub" ? __builtin_sub_overflow(x.fixed, y.fixed, &result)
                                     : __builtin_mul_overflow(x.fixed, y.fixed, &result);
    return wraps ? std::nullopt : std::optional(Extent{result, 0});
  }
  if (op == "Add") return x + y;
  if (op == "Sub") return x - y;
  if (op == "Mul" && (x.batches == 0 || y.batches == 0)) return x.batches == 0 ? y * x.fixed : x * y.fixed;
  if (op == "Div" && x == y && x.batches != 0) return Extent{1, 0};
  if (op == "Div" && y.batches == 0 && y.fixed > 0) {  // of integers, towards 0
    const bool even = x.fixed % y.fixed == 0 && x.batches % y.fixed == 0;
    if (fixed || even) return Extent{x.fixed / y.fixed, x.batches / y.fixed};
  }
  if (op == "Equal" && (x == y || IsLess(x, y) || IsLess(y, x))) return Extent{x == y, 0};
  if (op == "Less" && (IsLess(x, y) || IsNeverLess(x, y))) return Extent{IsLess(x, y), 0};
  if (op == "LessOrEqual" && (IsNeverLess(y, x) || IsLess(y, x))) return Extent{IsNeverLess(y, x), 0};
  if (op == "Greater" && (IsLess(y, x) || IsNeverLess(y, x))) return Extent{IsLess(y, x), 0};
  if (op == "GreaterOrEqual" && (IsNeverLess(x, y) || IsLess(x, y))) return Extent{IsNeverLess(x, y), 0};
  if (op == "Max" && IsNeverLess(y, x)) return y;
  if (op == "Max" && IsNeverLess(x, y)) return x;
  if (op == "Min" && IsNeverLess(y, x)) return x;
  if (op == "Min" && IsNeverLess(x, y)) return y;
  if (!fixed) return std::nullopt;
  if (op == "Mod" && y.fixed > 0) return Extent{(x.fixed % y.fixed + y.fixed) % y.fixed, 0};
  if (op == "And") return Extent{x.fixed != 0 && y.fixed != 0, 0};
  if (op == "Or") return Extent{x.fixed != 0 || y.fixed != 0, 0};
  return std::nullopt;
}

bool IsComparison(const std::string& op) {
  return op == "Equal" || op.starts_with("Less") || op.starts_with("Greater");
}
bool IsTruth(const std::string& op) { return IsComparison(op) || op == "And" || op == "Or"; }

// TensorFlow compares the counters of its loops as floating point. A list might be a weight, which training changes.
Folded WholeFloat(const Importer& im, int input) {
  const HostTensor* constant = im.Constant(input);
  if (im.ValueOf(input)->is_input || constant == nullptr || !IsFloat(constant->dtype()) ||
      constant->shape().rank() > 1 || constant->elements() != 1) {
    return std::nullopt;
  }
  const double number = constant->At(0);
  if (std::trunc(number) != number || std::abs(number) > 9007199254740992.0) return std::nullopt;  // 2^53
  return Numbers{.values = {Extent{static_cast<int64_t>(number), 0}},
                 .is_scalar = constant->shape().rank() == 0,
                 .dtype = constant->dtype()};
}

// Operators of two operands, either of which may be one number.
Folded FoldBinary(Importer& im, const std::vector<Numbers>& inputs) {
  const Numbers &a = inputs[0], &b = inputs[1];
  const size_t count = std::max(a.values.size(), b.values.size());
  if ((a.values.size() != count && a.values.size() != 1) || (b.values.size() != count && b.values.size() != 1) ||
      im.HasAttribute("axis") || im.Flag("fmod")) {
    return std::nullopt;
  }
  im.Ignore({"broadcast"});  // as without folding
  Numbers result{.is_scalar = a.is_scalar && b.is_scalar, .dtype = IsTruth(im.op()) ? DType::kBool : a.dtype};
  for (size_t i = 0; i < count; ++i) {
    const auto &x = a.values[a.values.size() == 1 ? 0 : i], &y = b.values[b.values.size() == 1 ? 0 : i];
    result.values.push_back(x && y ? Of(im.op(), *x, *y) : std::nullopt);
  }
  return result;
}

Folded FoldWhere(Importer&, const std::vector<Numbers>& inputs) {
  const Numbers &condition = inputs[0], &a = inputs[1], &b = inputs[2];
  const size_t count = std::max({condition.values.size(), a.values.size(), b.values.size()});
  const auto at = [&](const Numbers& list, size_t i) { return list.values[list.values.size() == 1 ? 0 : i]; };
  Numbers result{.is_scalar = condition.is_scalar && a.is_scalar && b.is_scalar, .dtype = a.dtype};
  for (const Numbers* list : {&condition, &a, &b}) {
    if (list->values.size() != count && list->values.size() != 1) return std::nullopt;
  }
  for (size_t i = 0; i < count; ++i) {
    const std::optional<Extent> is = at(condition, i), yes = at(a, i), no = at(b, i);
    const bool is_known = is && is->batches == 0;
    result.values.push_back(is_known ? (is->fixed != 0 ? yes : no) : yes == no ? yes : std::nullopt);
  }
  return result;
}

Folded FoldSlice(Importer& im, const std::vector<Numbers>& inputs) {
  const Numbers& data = inputs[0];
  const auto one = [&](int input, int64_t otherwise) -> std::optional<int64_t> {
    if (!im.Has(input)) return otherwise;
    const Folded list = im.NumbersOf(input);
    if (!list || list->values.size() != 1 || !IsFixed(*list)) return std::nullopt;
    return list->values[0]->fixed;
  };
  const auto begin = one(1, 0), end = one(2, 0), step = one(4, 1);
  if (data.is_scalar || im.opset() < 10 || !begin || !end || step != 1) return std::nullopt;
  const auto count = static_cast<int64_t>(data.values.size());
  const auto bound = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + count : at, 0, count); };
  Numbers result{.dtype = data.dtype};
  for (int64_t i = bound(*begin); i < bound(*end); ++i) result.values.push_back(data.values[static_cast<size_t>(i)]);
  return result;
}

Folded FoldRange(Importer& im, const std::vector<Numbers>& inputs) {
  for (const Numbers& input : inputs) {
    if (input.values.size() != 1 || !IsFixed(input)) return std::nullopt;
  }
  const int64_t start = inputs[0].values[0]->fixed, limit = inputs[1].values[0]->fixed,
                step = inputs[2].values[0]->fixed;
  if (step == 0) Throw<ModelError>("a range cannot have steps of 0");
  im.Ignore({"stash_type"});
  Numbers result{.dtype = inputs[0].dtype};
  for (int64_t i = start; step > 0 ? i < limit : i > limit; i = CheckedAdd(i, step)) {
    if (result.values.size() == kMaxNumbers) return std::nullopt;
    result.values.push_back(Extent{i, 0});
  }
  return result;
}

// One number, with its axis taken away or with one added; more axes are no list's.
Folded FoldAxes(Importer& im, const std::vector<Numbers>& inputs, bool to_scalar) {
  Numbers data = inputs[0];
  const size_t axes = inputs.size() > 1 ? inputs[1].values.size() : im.Ints("axes").size();
  if (data.is_scalar == to_scalar || data.values.size() != 1 || (!to_scalar && axes != 1)) return std::nullopt;
  data.is_scalar = to_scalar;
  return data;
}

Folded FoldReshape(Importer& im, const std::vector<Numbers>& inputs) {
  Numbers data = inputs[0];
  const Numbers& to = inputs[1];
  if (to.values.size() > 1 || !IsFixed(to)) return std::nullopt;
  const auto count = static_cast<int64_t>(data.values.size());
  if (to.values.empty() ? count != 1 : to.values[0]->fixed != -1 && to.values[0]->fixed != count) return std::nullopt;
  im.Ignore({"allowzero"});
  data.is_scalar = to.values.empty();
  return data;
}

Folded FoldProduct(Importer& im, const std::vector<Numbers>& inputs) {
  const Numbers& data = inputs[0];
  const auto product = Product(data.values);
  if (!product || im.num_inputs() > 1) return std::nullopt;
  const bool has_no_axes = im.Ints("axes").empty(), keeps = im.Flag("keepdims", true);
  if (im.Flag("noop_with_empty_axes") && has_no_axes) return data;
  const bool is_scalar = data.is_scalar || !keeps;
  return Numbers{.values = {*product}, .is_scalar = is_scalar, .dtype = data.dtype};
}

Folded FoldFull(Importer& im, const std::vector<Numbers>& inputs) {
  const Numbers& shape = inputs[0];
  if (shape.is_scalar || shape.values.size() > 1 || !IsFixed(shape)) return std::nullopt;
  const int64_t count = shape.values.empty() ? 1 : shape.values[0]->fixed;
  const std::optional<HostTensor> value = im.Tensor("value");
  if (!value || value->elements() != 1 || IsFloat(value->dtype()) || count < 0 || count > int64_t{kMaxNumbers}) {
    return std::nullopt;
  }
  const Extent number{value->Cast(DType::kInt64).data<int64_t>()[0], 0};
  return Numbers{.values = PartialExtents(static_cast<size_t>(count), number),
                 .is_scalar = shape.values.empty(),
                 .dtype = value->dtype()};
}

Folded FoldNot(Importer&, const std::vector<Numbers>& inputs) {
  Numbers result = inputs[0];
  if (!IsFixed(result)) return std::nullopt;
  for (std::optional<Extent>& value : result.values) value = Extent{value->fixed == 0, 0};
  return result;
}

Folded FoldCast(Importer& im, const std::vector<Numbers>& inputs) {
  Numbers result = inputs[0];
  result.dtype = DTypeOf(static_cast<int>(im.Int("to", 0)));
  if ((IsFloat(result.dtype) || result.dtype == DType::kBool) && !IsFixed(result)) return std::nullopt;
  im.Ignore({"saturate", "round_mode"});
  return result;
}

// Does the type hold them? If not, what the operator makes of them depends on the type.
bool Fit(const Numbers& numbers) {
  return Dispatch(numbers.dtype, [&]<class T>() {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      const auto fits = [](const std::optional<Extent>& number) { return !number || std::in_range<T>(number->fixed); };
      return std::ranges::all_of(numbers.values, fits);
    }
    return true;
  });
}

// What computes with the numbers of all its inputs, at least so many and at most that many.
struct FoldRow {
  size_t least, most;
  Folded (*fold)(Importer& im, const std::vector<Numbers>& inputs);
};
const std::unordered_map<std::string, FoldRow>& FoldRows() {
  static const auto rows = [] {
    std::unordered_map<std::string, FoldRow> all = {
        {"Cast", {1, 1, FoldCast}},
        {"Concat", {1, kMaxNumbers, FoldConcat}},
        {"ConstantOfShape", {1, 1, FoldFull}},
        {"Gather", {2, 2, FoldGather}},
        {"Identity", {1, 1, [](Importer&, const std::vector<Numbers>& inputs) -> Folded { return inputs[0]; }}},
        {"Not", {1, 1, FoldNot}},
        {"Range", {3, 3, FoldRange}},
        {"ReduceProd", {1, 1, FoldProduct}},
        {"Reshape", {2, 2, FoldReshape}},
        {"Slice", {3, 5, FoldSlice}},
        {"Squeeze", {1, 2, [](Importer& im, const auto& inputs) { return FoldAxes(im, inputs, true); }}},
        {"Unsqueeze", {1, 2, [](Importer& im, const auto& inputs) { return FoldAxes(im, inputs, false); }}},
        {"Where", {3, 3, FoldWhere}},
    };
    for (const char* op : {"Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max",
                           "Min", "Mod", "Mul", "Or", "Sub"}) {
      all[op] = {2, 2, FoldBinary};
    }
    return all;
  }();
  return rows;
}

}  // namespace

bool AreKnown(const Numbers& numbers) { return std::ranges::all_of(numbers.values, IsKnown); }

bool IsFixed(const Numbers& numbers) {
  const auto is_fixed = [](const std::optional<Extent>& number) { return number && number->batches == 0; };
  return std::ranges::all_of(numbers.values, is_fixed);
}

std::optional<Numbers> Fold(Importer& im) {
  if (im.op() == "Shape") return FoldShape(im);
  if (im.op() == "Size") return FoldSize(im);
  const auto row = FoldRows().find(im.op());
  if (row == FoldRows().end()) return std::nullopt;
  std::vector<std::pair<int, Folded>> found;
  bool is_any_known = false;
  for (int i = 0; i < im.num_inputs(); ++i) {
    if (!im.Has(i)) continue;
    Folded numbers = im.NumbersOf(i);
    if (!numbers && IsComparison(im.op())) numbers = WholeFloat(im, i);
    is_any_known = is_any_known || numbers;
    found.emplace_back(i, std::move(numbers));
  }
  std::vector<Numbers> inputs;
  for (auto& [i, numbers] : found) {
    if (!numbers && is_any_known) numbers = im.OpenNumbers(i);
    if (!numbers) return std::nullopt;
    inputs.push_back(*std::move(numbers));
  }
  const auto& [least, most, fold] = row->second;
  Folded result = inputs.size() < least || inputs.size() > most ? std::nullopt : fold(im, inputs);
  const bool says_something = result && (result->values.empty() || std::ranges::any_of(result->values, IsKnown));
  return says_something && Fit(*result) ? result : std::nullopt;
}

}  // namespace bindery::onnx
