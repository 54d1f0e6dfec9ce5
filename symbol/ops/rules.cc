#include "symbol/ops/rules.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "base/checked.h"
#include "base/error.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/shape_ops.h"

namespace bindery::rule {

namespace {

// All inputs and outputs that the node has: places of the declaration may be empty, also before others.
std::vector<Value> AllOf(InferContext& c) {
  std::vector<Value> all;
  const auto add = [&](int count, const auto& at) {
    for (int place = 0; count > 0; ++place) {
      const Value value = at(place);
      if (!value.exists()) continue;
      all.push_back(value);
      --count;
    }
  };
  add(c.num_inputs(), [&](int place) { return c.in(place); });
  add(c.num_outputs(), [&](int place) { return c.out(place); });
  return all;
}

// What is known goes into the first of which anything is, then from there into all: setting merges.
void MergeShapes(std::span<const Value> all) {
  const auto first = std::ranges::find_if(all, [](const Value& value) { return value.shape().has_value(); });
  if (first == all.end()) return;
  const Value& target = *first;
  for (const Value& value : std::span(first + 1, all.end())) {
    if (!value.shape() || *value.shape() == *target.shape()) continue;
    value.Set(*target.shape());  // complains in the name of the later one
    target.Set(*value.shape());
  }
  for (const Value& value : all) {
    if (value.shape() != target.shape()) value.Set(*target.shape());
  }
}

void MergeDTypes(std::span<const Value> all) {
  const auto first = std::ranges::find_if(all, [](const Value& value) { return value.dtype().has_value(); });
  if (first == all.end()) return;
  for (const Value& value : all) value.SetDType(*first->dtype());
}

}  // namespace

void SameDTypes(InferContext& c) { MergeDTypes(AllOf(c)); }

void AllAlike(InferContext& c) {
  SameDTypes(c);
  MergeShapes(AllOf(c));
}

std::function<void(InferContext&)> Like(int input) {
  return [input](InferContext& c) {
    AllAlike(c);
    for (int o = 0; o < c.num_outputs(); ++o) c.in(input).Carry(c.out(o));
  };
}

void LikeEach(InferContext& c) {
  AllAlike(c);
  for (int i = 0; i < c.num_inputs(); ++i) c.in(i).Carry(c.out(0));
}

void SameShape(std::initializer_list<Value> values) { MergeShapes({values.begin(), values.size()}); }

void SameDType(std::initializer_list<Value> values) { MergeDTypes({values.begin(), values.size()}); }

void ExpectFloat(Value value) {
  if (value.dtype() && !IsFloat(*value.dtype()))
    Throw<ShapeError>("takes floating point numbers, got {}", *value.dtype());
}

void Same(std::initializer_list<Value> values) {
  SameDType(values);
  SameShape(values);
}

void State(Value value) {
  value.Set({1});
  value.SetDType(DType::kUInt8);
}

OpDef View(OpDef op) {
  op.inplace = {{0, 0}};
  op.is_view = [](const ViewContext&) { return true; };
  op.zero_to_zero = true;
  return op;
}

void InferAlongAxis(int64_t along, bool keepdims, Value data, Value place, Value output) {
  if (!data.shape()) return;
  const int axis = Axis(along, *data.shape());
  output.Set(keepdims ? data.shape()->With(axis, 1) : data.shape()->Erase(axis));
  SameShape({place, output});
  const int64_t extent = (*data.shape())[axis];
  data.Set(keepdims ? output.shape()->With(axis, extent) : output.shape()->Insert(axis, extent));
  if (data.Known() && extent == 0 && output.shape()->Elements() != 0) {
    Throw<ShapeError>("there are no elements along axis {} of {}", axis, *data.shape());
  }
  data.Carry(output, [&](int own) { return own == axis ? -1 : own - (!keepdims && axis < own); });
}

bool SameRank(Value a, Value b) {
  if (a.shape() && !b.shape()) b.Set(Unknown(a.shape()->rank()));
  if (b.shape() && !a.shape()) a.Set(Unknown(b.shape()->rank()));
  return a.shape().has_value();
}

Shape Unknown(int rank) {
  const std::vector<int64_t> dims(rank, kUnknownDim);
  return Shape(std::span<const int64_t>(dims));
}

int Axis(int64_t axis, const Shape& shape) {
  const int rank = shape.rank();
  if (axis < -rank || axis >= rank) {
    if (rank == 0) Throw<ShapeError>("axis {} is out of range: a scalar has no axes", axis);
    Throw<ShapeError>("axis {} is out of range for shape {}: expected {} to {}", axis, shape, -rank, rank - 1);
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::vector<int> AxesIn(const Shape& shape, std::vector<int64_t> axes, size_t if_empty) {
  if (axes.empty()) {
    axes.resize(if_empty);
    std::iota(axes.begin(), axes.end(), 0);
  }
  std::vector<int> result;
  for (const int64_t entry : axes) {
    const int axis = Axis(entry, shape);
    if (std::ranges::find(result, axis) != result.end()) Throw<ShapeError>("axis {} of {} is named twice", axis, shape);
    result.push_back(axis);
  }
  return result;
}

int64_t ProductFrom(const Shape& shape, int first) {
  const Shape rest(shape.dims().subspan(first));
  return rest.IsKnown() ? rest.Elements() : kUnknownDim;
}

Shape FillFromProduct(Shape shape, int first, int64_t product) {
  int unknown = -1;
  for (int axis = first; axis < shape.rank(); ++axis) {
    if (shape[axis] != kUnknownDim) continue;
    if (unknown >= 0) return shape;
    unknown = axis;
  }
  if (unknown < 0) return shape;
  const int64_t others = ProductFrom(shape.With(unknown, 1), first);
  if (others > 0 && product % others == 0) shape.Set(unknown, product / others);
  return shape;
}

void ExpectRank(const Shape& shape, int rank, const char* axes) {
  if (shape.rank() != rank) Throw<ShapeError>("expected {} axes {}, got {}", rank, axes, shape);
}

DType StatisticsDType(DType data) { return data == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32; }

void CheckExtentsAttr(const ExtentList& shape) {
  CheckShapeAttr(shape);
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape.fixed[i] >= 0 || shape.Follows(i)) continue;
    Throw<ModelError>("shape must have extents of 0 or more, got {}", ToString(shape.fixed));
  }
}

std::vector<int64_t> FixedParts(const Extents& extents) {
  std::vector<int64_t> fixed;
  for (const Extent& extent : extents) fixed.push_back(extent.fixed);
  return fixed;
}

std::vector<int64_t> BatchParts(const Extents& extents) {
  std::vector<int64_t> batches;
  for (const Extent& extent : extents) batches.push_back(extent.batches);
  return std::ranges::count(batches, 0) == std::ssize(batches) ? std::vector<int64_t>() : batches;
}

int ExtentList::FirstFollowing() const {
  const auto first = std::ranges::find_if(batches, [](int64_t count) { return count != 0; });
  return first == batches.end() ? -1 : static_cast<int>(first - batches.begin());
}

std::optional<int64_t> ExtentList::At(size_t i, std::optional<int64_t> batch, const char* what) const {
  if (!Follows(i)) return fixed[i];
  if (!batch) return std::nullopt;
  return CheckedAdd(fixed[i], CheckedMul(batches[i], *batch, what), what);
}

void ExtentList::CheckLength(const char* field) const {
  if (batches.empty() || batches.size() == fixed.size()) return;
  Throw<ModelError>("{} must be empty or have {} entries, got {}", field, fixed.size(), ToString(batches));
}

int64_t ExtentAt(const ExtentList& list, size_t i, std::optional<int64_t> batch) {
  const std::optional<int64_t> extent = list.At(i, batch, "an extent");
  if (extent && *extent < 0 && list.Follows(i)) {
    Throw<ShapeError>("an extent of {} batches and {} elements cannot be, with a batch of {}", list.batches[i],
                      list.fixed[i], *batch);
  }
  return extent.value_or(kUnknownDim);
}

Shape ShapeAt(const ExtentList& list, std::optional<int64_t> batch) {
  Shape shape = Unknown(static_cast<int>(list.size()));
  for (int i = 0; i < shape.rank(); ++i) shape.Set(i, ExtentAt(list, i, batch));
  return shape;
}

void CheckShapeAttr(const ExtentList& shape) {
  if (shape.size() > Shape::kMaxRank) {
    Throw<ModelError>("shape has {} entries, more than the {} axes a shape can have", shape.size(), Shape::kMaxRank);
  }
  shape.CheckLength("batches");
}

Symbol ReshapeTo(const Symbol& data, const Extents& shape, const std::string& name) {
  const bool empty = std::ranges::find(shape, Extent{0, 0}) != shape.end();
  return Reshape(data, {.shape = FixedParts(shape), .batches = BatchParts(shape), .allow_zero = empty}, name);
}

Symbol BroadcastTo(const Symbol& data, const Extents& shape, const std::string& name) {
  return bindery::BroadcastTo(data, {.shape = FixedParts(shape), .batches = BatchParts(shape)}, name);
}

Symbol SumTo(const Symbol& data, const Extents& shape) {
  return bindery::SumTo(data, {.shape = FixedParts(shape), .batches = BatchParts(shape)});
}

Symbol Zeros(const Extents& shape, DType dtype) { return BroadcastTo(Constant(HostTensor(dtype, {})), shape); }

void CheckFinite(const char* field, double value) {
  if (!std::isfinite(value)) Throw<ModelError>("{} must be a finite number, got {}", field, value);
}

void CheckNotNegative(const char* field, double value) {
  CheckFinite(field, value);
  if (value < 0) Throw<ModelError>("{} must not be negative, got {}", field, value);
}

void CheckAtLeast(const char* field, int64_t value, int64_t least) {
  if (value < least) Throw<ModelError>("{} must be at least {}, got {}", field, least, value);
}

void CheckAxisAttr(const char* field, int64_t axis) {
  if (axis < -Shape::kMaxRank || axis >= Shape::kMaxRank) {
    Throw<ModelError>("{} must be from {} to {}, got {}", field, -Shape::kMaxRank, Shape::kMaxRank - 1, axis);
  }
}

void CheckAxesAttr(const char* field, const std::vector<int64_t>& axes) {
  if (axes.size() > Shape::kMaxRank) {
    Throw<ModelError>("{} has {} entries, more than the {} axes a shape can have", field, axes.size(), Shape::kMaxRank);
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    CheckAxisAttr(field, axes[i]);
    if (std::find(axes.begin(), axes.begin() + i, axes[i]) != axes.begin() + i) {
      Throw<ModelError>("{} names axis {} twice", field, axes[i]);
    }
  }
}

std::string ToString(const std::vector<int64_t>& list) {
  std::string text = "(";
  for (size_t i = 0; i < list.size() && i < 10; ++i) text += (i == 0 ? "" : ", ") + std::to_string(list[i]);
  return text + (list.size() > 10 ? ", ...)" : ")");
}

}  // namespace bindery::rule
