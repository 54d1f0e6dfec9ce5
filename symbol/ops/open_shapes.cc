#include "symbol/ops/open_shapes.h"

#include <algorithm>

#include "base/checked.h"
#include "symbol/ops/rules.h"

namespace bindery::rule {
namespace {

bool AllKnown(const OpenNumbers& numbers) {
  return std::ranges::all_of(numbers, [](const std::optional<int64_t>& number) { return number.has_value(); });
}

// Which of the axes are named, if all are told; complaints are left to who makes what the operator is made of.
std::optional<std::vector<bool>> NamedOf(const OpenNumbers& axes, int rank) {
  if (!AllKnown(axes)) return std::nullopt;
  std::vector<bool> named(static_cast<size_t>(rank), false);
  for (const std::optional<int64_t>& axis : axes) {
    if (*axis < -rank || *axis >= rank) return std::nullopt;
    named[static_cast<size_t>(*axis < 0 ? *axis + rank : *axis)] = true;
  }
  return named;
}

OpenShape Ranked(int64_t rank) {
  if (rank < 0 || rank > Shape::kMaxRank) return std::nullopt;
  return Unknown(static_cast<int>(rank));
}

// With 1 in front, up to so many axes.
Shape Aligned(Shape shape, int rank) {
  while (shape.rank() < rank) shape = shape.Insert(0, 1);
  return shape;
}
OpenNumbers Aligned(OpenNumbers numbers, int rank) {
  while (std::ssize(numbers) < rank) numbers.insert(numbers.begin(), 1);
  return numbers;
}

}  // namespace

OpenNumbers Known(const std::vector<int64_t>& numbers) { return {numbers.begin(), numbers.end()}; }

OpenNumbers Known(const std::vector<int64_t>& fixed, const std::vector<int64_t>& batches,
                  std::optional<int64_t> batch) {
  OpenNumbers numbers;
  for (size_t i = 0; i < fixed.size(); ++i) numbers.push_back(ExtentList{fixed, batches}.At(i, batch, "an extent"));
  return numbers;
}

std::optional<OpenNumbers> NumbersIn(const InferContext::Value& input) {
  if (!input.Known() || input.shape()->rank() > 1 || input.shape()->Elements() > kMaxNumbers) return std::nullopt;
  OpenNumbers numbers(static_cast<size_t>(input.shape()->Elements()));
  for (size_t i = 0; input.numbers() != nullptr && i < numbers.size(); ++i) {
    const Number& number = (*input.numbers())[i];
    if (number.IsKnown()) numbers[i] = Number::ToInteger(number.at[0]);
  }
  return numbers;
}

OpenShape OpenExpandDims(const Shape& data, const OpenNumbers& axes) {
  OpenShape shape = Ranked(data.rank() + std::ssize(axes));
  const auto is_new = shape ? NamedOf(axes, shape->rank()) : std::nullopt;
  if (!is_new || std::ranges::count(*is_new, true) != std::ssize(axes)) return shape;
  for (int axis = 0, next = 0; axis < shape->rank(); ++axis) {
    shape->Set(axis, (*is_new)[static_cast<size_t>(axis)] ? 1 : data[next++]);
  }
  return shape;
}

OpenShape OpenSqueeze(const Shape& data, const OpenNumbers& axes) {
  if (axes.empty()) return std::nullopt;  // all that are 1
  const auto named = NamedOf(axes, data.rank());
  if (!named) return Ranked(data.rank() - std::ssize(axes));
  Shape shape;
  for (int axis = 0; axis < data.rank(); ++axis) {
    if (!(*named)[static_cast<size_t>(axis)]) shape = shape.Insert(shape.rank(), data[axis]);
  }
  return shape;
}

OpenShape OpenExpand(const Shape& data, const OpenNumbers& shape) {
  OpenShape result = Ranked(std::max<int64_t>(data.rank(), std::ssize(shape)));
  if (!result) return result;
  const Shape from = Aligned(data, result->rank());
  const OpenNumbers to = Aligned(shape, result->rank());
  for (int axis = 0; axis < result->rank(); ++axis) {
    const std::optional<int64_t>& asked = to[static_cast<size_t>(axis)];
    if (from[axis] != kUnknownDim && from[axis] != 1) {
      result->Set(axis, from[axis]);
    } else if (asked && *asked >= 0 && (*asked != 1 || from[axis] == 1)) {
      result->Set(axis, *asked);
    }
  }
  return result;
}

OpenShape OpenTile(const Shape& data, const OpenNumbers& repeats) {
  OpenShape result = Ranked(std::max<int64_t>(data.rank(), std::ssize(repeats)));
  if (!result) return result;
  const Shape from = Aligned(data, result->rank());
  const OpenNumbers times = Aligned(repeats, result->rank());
  for (int axis = 0; axis < result->rank(); ++axis) {
    const std::optional<int64_t>& count = times[static_cast<size_t>(axis)];
    if (count && *count >= 0 && from[axis] != kUnknownDim)
      result->Set(axis, CheckedMul(from[axis], *count, "an extent"));
  }
  return result;
}

OpenShape OpenAxes(const Shape& data, const OpenNumbers& axes) {
  const auto named = NamedOf(axes, data.rank());
  Shape shape = Unknown(data.rank());
  for (int axis = 0; named && axis < data.rank(); ++axis) {
    if (!(*named)[static_cast<size_t>(axis)]) shape.Set(axis, data[axis]);
  }
  return shape;
}

OpenShape OpenReshape(const OpenShape& data, const OpenNumbers& shape, bool allow_zero) {
  OpenShape result = Ranked(std::ssize(shape));
  for (int axis = 0; result && axis < result->rank(); ++axis) {
    const std::optional<int64_t>& extent = shape[static_cast<size_t>(axis)];
    if (!extent || *extent < 0) continue;
    const bool is_kept = *extent == 0 && !allow_zero;
    if (!is_kept) result->Set(axis, *extent);
    if (is_kept && data && axis < data->rank()) result->Set(axis, (*data)[axis]);
  }
  return result;
}

}  // namespace bindery::rule
