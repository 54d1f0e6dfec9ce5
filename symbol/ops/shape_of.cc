#include "symbol/ops/shape_of.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "symbol/compose.h"
#include "symbol/ops/arrange.h"
#include "symbol/ops/grid.h"
#include "symbol/ops/indexing.h"
#include "symbol/ops/numbers.h"
#include "symbol/ops/open_shapes.h"
#include "symbol/ops/order.h"
#include "symbol/ops/resize.h"
#include "symbol/ops/rules.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

using rule::Value;

// --- Shapes as tensors

struct AxisRange {
  int begin, end;
};
AxisRange AxesOf(const ShapeArrayAttrs& attrs, int rank) {
  const auto clamped = [&](int64_t axis) {
    return static_cast<int>(std::clamp<int64_t>(axis < 0 ? axis + rank : axis, 0, rank));
  };
  const int begin = clamped(attrs.begin);
  return {begin, std::max(begin, clamped(attrs.end))};
}

// The extent of an axis, with what it grows by for each sample.
Number ExtentNumber(InferContext& c, int axis) {
  const int64_t extent = (*c.in(0).shape())[axis];
  if (extent == kUnknownDim) return std::numeric_limits<double>::quiet_NaN();
  const auto now = static_cast<double>(extent);
  const auto* batch = c.batch_of_input();
  if (batch == nullptr || batch->axis != axis) return now;
  const auto folded = static_cast<double>(batch->fold.outer) * static_cast<double>(batch->fold.inner);
  return {now, now + folded, now + 2 * folded};
}

void InferShapeArray(InferContext& c) {
  c.out(0).SetDType(DType::kInt64);
  if (!c.in(0).shape()) return;
  const auto [begin, end] = AxesOf(c.attrs<ShapeArrayAttrs>(), c.in(0).shape()->rank());
  c.out(0).Set({end - begin});
}

void ShapeArrayNumbers(InferContext& c) {
  if (!c.in(0).shape()) return;
  const auto [begin, end] = AxesOf(c.attrs<ShapeArrayAttrs>(), c.in(0).shape()->rank());
  Numbers numbers;
  for (int axis = begin; axis < end; ++axis) numbers.push_back(ExtentNumber(c, axis));
  c.out(0).SetNumbers(std::move(numbers));
}

void SizeArrayNumbers(InferContext& c) {
  if (!c.in(0).Known()) return;
  Number count = 1;
  for (int axis = 0; axis < c.in(0).shape()->rank(); ++axis) {
    const Number extent = ExtentNumber(c, axis);
    for (size_t k = 0; k < count.at.size(); ++k) count.at[k] *= extent.at[k];
  }
  c.out(0).SetNumbers({count});
}

// --- Range

void CheckRange(const AnyAttrs& any) {
  const auto& attrs = any.get<RangeAttrs>();
  rule::CheckFinite("begin", attrs.begin);
  rule::CheckFinite("end", attrs.end);
  rule::CheckFinite("step", attrs.step);
  if (attrs.step == 0) Throw<ModelError>("step must not be 0");
  if (attrs.dtype == DType::kBool) Throw<ModelError>("there is no range of bool");
}

void RangeNumbers(InferContext& c) {
  const auto& attrs = c.attrs<RangeAttrs>();
  Numbers numbers;
  for (int64_t i = 0; i < CountOf(attrs); ++i) {
    numbers.emplace_back(rule::Rounded(attrs.dtype, attrs.begin + static_cast<double>(i) * attrs.step));
  }
  c.out(0).SetNumbers(std::move(numbers));
}

// --- By numbers. Where some are open, or extents of data, as much follows as does from all that they may be: `open`.

using OpenRule = void (*)(InferContext&);
struct Row : ByNumbers {
  OpenRule open;
};

// Output 0 by data's shape and the numbers of input 1.
template <rule::OpenShape (*kShape)(const Shape& data, const rule::OpenNumbers& numbers)>
void Open(InferContext& c) {
  const std::optional<rule::OpenNumbers> numbers = rule::NumbersIn(c.in(1));
  if (!numbers || !c.in(0).shape()) return;
  if (const rule::OpenShape shape = kShape(*c.in(0).shape(), *numbers)) c.out(0).Set(*shape);
}

void SetOpen(InferContext& c, const rule::OpenShape& shape) {
  if (shape) c.out(0).Set(*shape);
}

void OpenReshapeBy(InferContext& c) {
  const std::optional<rule::OpenNumbers> to = rule::NumbersIn(c.in(1));
  if (to) SetOpen(c, rule::OpenReshape(c.in(0).shape(), *to, c.attrs<ReshapeAttrs>().allow_zero));
}

void OpenBroadcastToBy(InferContext& c) {
  if (const std::optional<rule::OpenNumbers> to = rule::NumbersIn(c.in(1))) {
    SetOpen(c, rule::OpenReshape(std::nullopt, *to, true));
  }
}

// All outputs have data's shape but for these axes.
void OpenBut(InferContext& c, const rule::OpenNumbers& axes) {
  for (int o = 0; o < c.num_outputs() && c.in(0).shape(); ++o) c.out(o).Set(*rule::OpenAxes(*c.in(0).shape(), axes));
}

void OpenSliceBy(InferContext& c) {
  if (const std::optional<rule::OpenNumbers> axes = rule::NumbersIn(c.in(3))) OpenBut(c, *axes);
}

// Those that are named, or all.
void OpenNamed(InferContext& c, const std::vector<int64_t>& axes) {
  OpenBut(c, axes.empty() ? rule::OpenNumbers(1) : rule::Known(axes));
}

constexpr Row kRows[] = {
    {{"ReshapeBy", ReshapeOp, {"shape"}}, OpenReshapeBy},
    {{"BroadcastToBy", BroadcastToOp, {"shape"}}, OpenBroadcastToBy},
    {{"SliceBy", SliceOp, {"begin", "end", "axes", "step"}}, OpenSliceBy},
    {{"PadBy", PadWithOp, {"begin", "end"}}, [](InferContext& c) { OpenNamed(c, c.attrs<PadWithAttrs>().axes); }},
    {{"RangeBy",
      RangeOp,
      {"begin", "end", "step"},
      [](InferContext& c) { c.out(0).SetDType(c.attrs<RangeAttrs>().dtype); }},
     [](InferContext& c) { c.out(0).Set(rule::Unknown(1)); }},
    {{"ExpandDimsBy", ExpandDimsOp, {"axes"}}, Open<rule::OpenExpandDims>},
    {{"SqueezeBy", SqueezeOp, {"axes"}}, Open<rule::OpenSqueeze>},
    {{"ExpandBy", ExpandOp, {"shape"}}, Open<rule::OpenExpand>},
    {{"TileBy", TileOp, {"repeats"}}, Open<rule::OpenTile>},
    {{"SplitBy", SplitOp, {"sizes"}}, [](InferContext& c) { OpenBut(c, {c.attrs<SplitAttrs>().axis}); }},
    {{"CenterCropPadBy", CenterCropPadOp, {"shape"}},
     [](InferContext& c) { OpenNamed(c, c.attrs<CenterCropPadAttrs>().axes); }},
    {{"ResizeBy", ResizeOp, {"scales", "sizes", "roi"}},
     [](InferContext& c) { OpenNamed(c, c.attrs<ResizeAttrs>().axes); }},
    {{"AffineGridBy",
      AffineGridOp,
      {"sizes"},
      [](InferContext& c) {
        rule::SameDType({c.in(0), c.out(0)});
        rule::ExpectFloat(c.in(0));
      }},
     [](InferContext& c) {
       const std::optional<rule::OpenNumbers> sizes = rule::NumbersIn(c.in(1));
       if (sizes && std::ssize(*sizes) + 2 <= Shape::kMaxRank) c.out(0).Set(rule::Unknown(int(std::ssize(*sizes)) + 2));
     }},
    {{"TopKBy",
      TopKOp,
      {"k"},
      [](InferContext& c) {
        rule::SameDType({c.in(0), c.out(0)});
        c.out(1).SetDType(c.attrs<TopKAttrs>().dtype);
      }},
     [](InferContext& c) { OpenBut(c, {c.attrs<TopKAttrs>().axis}); }},
    {{"OneHotBy", OneHotOp, {"depth"}, [](InferContext& c) { c.out(0).SetDType(c.attrs<OneHotAttrs>().dtype); }},
     [](InferContext& c) {
       const std::optional<Shape>& data = c.in(0).shape();
       if (data && data->rank() < Shape::kMaxRank) c.out(0).Set(rule::Unknown(data->rank() + 1));
     }},
};

// The field of `attrs` from numbers; false where it cannot follow the batch as these do.
bool SetField(AttrMap& attrs, const std::string& field, const Numbers& numbers, const ComposeContext& c) {
  // What is left of the batch by 2, say, grows by no extent.
  const auto is_even = [](const Number& number) { return number.at[2] - number.at[1] == number.at[1] - number.at[0]; };
  if (c.of_every_batch && !std::ranges::all_of(numbers, is_even)) return false;
  const auto set = [&]<class T>(T& value) {
    constexpr bool kIntegers = std::is_same_v<T, std::vector<int64_t>>;
    if constexpr (kIntegers || std::is_same_v<T, std::vector<double>>) {
      T list;
      std::vector<int64_t> batches;
      for (const Number& number : numbers) {
        const Extent extent = number.ToExtent(c.batch);
        if constexpr (kIntegers) {
          list.push_back(extent.fixed);
        } else {
          list.push_back(number.at[0]);
        }
        batches.push_back(extent.batches);
      }
      const bool follow = std::ranges::count(batches, 0) < std::ssize(batches);
      const auto following = attrs.find(field == "shape" ? "batches" : field + "_batches");
      if (kIntegers && follow && following != attrs.end()) {
        following->second = std::move(batches);
      } else if (follow) {
        if (c.of_every_batch) return false;
        if constexpr (kIntegers) {
          for (size_t i = 0; i < list.size(); ++i) list[i] = Number::ToInteger(numbers[i].at[0]);
        }
      }
      value = std::move(list);
    } else if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, double>) {
      if (numbers.size() != 1) Throw<ShapeError>("{} is one number, got {}", field, numbers.size());
      if (c.of_every_batch && numbers[0].at[1] != numbers[0].at[0]) return false;
      value = std::is_same_v<T, double> ? numbers[0].at[0] : static_cast<T>(Number::ToInteger(numbers[0].at[0]));
    } else {
      Throw<ModelError>("{} cannot be a number of a tensor", field);
    }
    return true;
  };
  return std::visit(set, attrs.at(field));
}

OpDef Define(const Row& row) {
  const OpDef& of = row.of();
  std::vector<std::string> names = of.inputs.Names({});
  const size_t first = names.size();
  names.insert(names.end(), row.fields.begin(), row.fields.end());
  std::vector<Slot> slots;
  for (const std::string& name : names) slots.emplace_back(name.c_str());
  const auto compose = [first, &of, &row](const ComposeContext& c) -> std::vector<Symbol> {
    AttrMap attrs = c.any_attrs.ToFullMap();
    for (size_t i = first; i < c.inputs.size(); ++i) {
      if (!c.numbers[i] || !SetField(attrs, row.fields.begin()[i - first], *c.numbers[i], c)) return {};
    }
    try {
      return ApplyAll(of, of.attrs_type->FromMap(attrs), {c.inputs.begin(), c.inputs.begin() + first}, c.name);
    } catch (const ModelError& error) {  // numbers that shapes gave, not the model
      throw ShapeError(error.message());
    }
  };
  return {.name = row.name,
          .doc = fmt::format("{} with attributes from numbers that are known when it is bound.", of.name),
          .attrs_type = of.attrs_type,
          .inputs = Slots(std::move(slots)),
          .outputs = of.outputs,
          .infer =
              [&row, compose](InferContext& c) {
                for (int o = 0; o < c.num_outputs() && !row.dtypes; ++o) rule::SameDType({c.in(0), c.out(o)});
                if (row.dtypes) row.dtypes(c);
                row.open(c);
                InferComposed(c, compose);
              },
          // Numbers are checked when they are known; how many outputs there are, before there is a node.
          .check = std::ranges::any_of(of.outputs.slots(), &Slot::is_many) ? of.check : nullptr,
          .compose = compose};
}

template <size_t kRow>
const OpDef& ByNumbersOp() {
  static const OpDef op = Define(kRows[kRow]);
  return op;
}
constexpr auto kByNumbers = []<size_t... k>(std::index_sequence<k...>) {
  return std::array<const OpDef& (*)(), sizeof...(k)>{ByNumbersOp<k>...};
}
(std::make_index_sequence<std::size(kRows)>());

}  // namespace

Symbol Range(const RangeAttrs& attrs, const std::string& name) { return Apply(RangeOp(), attrs, {}, name); }

std::vector<int64_t> ListExtents(const ShapeArrayAttrs& attrs, const Shape& data) {
  const auto [begin, end] = AxesOf(attrs, data.rank());
  return {data.begin() + begin, data.begin() + end};
}

int64_t CountOf(const RangeAttrs& attrs) {
  const double count = std::ceil((attrs.end - attrs.begin) / attrs.step);
  if (count > 0x1p53) Throw<ShapeError>("a range of {} numbers is too long", count);
  return count > 0 ? static_cast<int64_t>(count) : 0;
}

const OpDef& ByNumbersOp(std::string_view name) {
  for (size_t i = 0; i < std::size(kRows); ++i) {
    if (name == kRows[i].name) return kByNumbers[i]();
  }
  Throw<ModelError>("no operator is called \"{}\"", name);
}

std::span<const OpDef& (*const)()> ByNumbersOps() { return kByNumbers; }

Symbol ByNumbersFunction::operator()(std::vector<Symbol> inputs, const std::string& name) const {
  return Apply(op(), op().attrs_type->FromMap({}), std::move(inputs), name);
}

const OpDef& ShapeArrayOp() {
  static const OpDef op = {
      .name = "ShapeArray",
      .doc = "The extents of data.",
      .attrs_type = &AttrsOf<ShapeArrayAttrs>(),
      .infer = InferShapeArray,
      .gradient = rule::NoGradient,  // constant
      .numbers = ShapeArrayNumbers,
  };
  return op;
}

const OpDef& SizeArrayOp() {
  static const OpDef op = {
      .name = "SizeArray",
      .doc = "The number of elements of data.",
      .infer =
          [](InferContext& c) {
            c.out(0).SetDType(DType::kInt64);
            c.out(0).Set({});
          },
      .gradient = rule::NoGradient,  // constant
      .numbers = SizeArrayNumbers,
  };
  return op;
}

const OpDef& RangeOp() {
  static const OpDef op = {
      .name = "Range",
      .doc = "begin, begin + step, ... before end.",
      .attrs_type = &AttrsOf<RangeAttrs>(),
      .inputs = {},
      .infer =
          [](InferContext& c) {
            c.out(0).SetDType(c.attrs<RangeAttrs>().dtype);
            c.out(0).Set({CountOf(c.attrs<RangeAttrs>())});
          },
      .check = CheckRange,
      .gradient = rule::NoGradient,  // no inputs
      .numbers = RangeNumbers,
  };
  return op;
}

}  // namespace bindery
