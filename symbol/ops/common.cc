#include "symbol/ops/common.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "base/error.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/shape_ops.h"

namespace bindery::rule {

std::function<std::vector<std::string>(const AnyAttrs&, int)> Inputs(std::vector<std::string> names) {
  return [names = std::move(names)](const AnyAttrs&, int) { return names; };
}

std::function<std::vector<std::string>(const AnyAttrs&)> Outputs(std::vector<std::string> names) {
  return [names = std::move(names)](const AnyAttrs&) { return names; };
}

std::vector<std::string> AnyNumberOfInputs(const AnyAttrs&, int given) {
  std::vector<std::string> names;
  for (int i = 0; i < std::max(given, 1); ++i) names.push_back("arg" + std::to_string(i));
  return names;
}

// First everything known goes into one value, then from there into all: setting merges.
void Alike(std::span<const Value> values) {
  const Value* first = nullptr;
  for (const Value& value : values) {
    if (!value.shape()) continue;
    if (first == nullptr) {
      first = &value;
      continue;
    }
    value.Set(*first->shape());  // complains in the name of the later one
    first->Set(*value.shape());
  }
  if (first == nullptr) return;
  const Shape merged = *first->shape();
  for (const Value& value : values) value.Set(merged);
}

void Alike(std::initializer_list<Value> values) { Alike(std::span(values.begin(), values.size())); }

void AllAlike(InferContext& c) {
  std::vector<Value> values;
  values.reserve(c.num_inputs() + c.num_outputs());
  for (int i = 0; i < c.num_inputs(); ++i) values.push_back(Value::In(c, i));
  for (int i = 0; i < c.num_outputs(); ++i) values.push_back(Value::Out(c, i));
  Alike(values);
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

bool AlwaysView(const ViewContext&) { return true; }

void ExpectRank(const Shape& shape, int rank, const char* axes) {
  if (shape.rank() != rank) Throw<ShapeError>("expected {} axes {}, got {}", rank, axes, shape);
}

void AlikeDTypes(InferDTypeContext& c, std::initializer_list<int> inputs, std::initializer_list<int> outputs) {
  std::optional<DType> dtype;
  for (int i : inputs) dtype = dtype ? dtype : c.input(i);
  for (int i : outputs) dtype = dtype ? dtype : c.output(i);
  if (!dtype) return;
  for (int i : inputs) c.SetInput(i, *dtype);
  for (int i : outputs) c.SetOutput(i, *dtype);
}

DType StatisticsDType(DType data) { return data == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32; }

void NotBatched(BatchAxisContext& c) { std::ranges::fill(c.output_axes, -1); }

std::function<void(BatchAxisContext&)> BatchedAs(int input) {
  return [input](BatchAxisContext& c) {
    NotBatched(c);
    c.output_axes[0] = c.input_axes[input];
  };
}

void BatchAligned(BatchAxisContext& c) {
  NotBatched(c);
  const Shape& output = c.output_shapes[0];
  int result = -1;
  for (size_t i = 0; i < c.input_axes.size(); ++i) {
    if (c.input_axes[i] < 0) continue;
    const Shape& input = c.input_shapes[i];
    const int axis = c.input_axes[i] + output.rank() - input.rank();
    if (axis < 0 || output[axis] != input[c.input_axes[i]]) return;
    if (result >= 0 && result != axis) return;
    result = axis;
  }
  c.output_axes[0] = result;
}

// Seen as (before, N, after), the samples of both are the same if an axis of the output holds `outer` of before's
// elements, N and `inner` of after's, where the axes in front hold the others of before, and those behind of after.
void BatchAfterReshape(BatchAxisContext& c, std::initializer_list<int> likely) {
  const int axis = c.input_axes[0];
  if (axis < 0) return;
  const Shape &from = c.input_shapes[0], &to = c.output_shapes[0];
  const BatchFold& fold = c.input_folds[0];
  const int64_t before = from.CountTo(axis) * fold.outer, after = fold.inner * from.CountFrom(axis + 1);
  const int64_t batch = from[axis] / std::max<int64_t>(fold.outer * fold.inner, 1);
  const auto fold_at = [&](int i) -> std::optional<BatchFold> {
    const int64_t in_front = to.CountTo(i), behind = to.CountFrom(i + 1);
    if (in_front == 0 || behind == 0 || before % in_front != 0 || after % behind != 0) return std::nullopt;
    const BatchFold result{before / in_front, after / behind};
    return to[i] == result.outer * batch * result.inner ? std::optional(result) : std::nullopt;
  };
  const auto take = [&](int i, bool may_fold) {
    const auto found = i >= 0 && i < to.rank() ? fold_at(i) : std::nullopt;
    if (c.output_axes[0] >= 0 || !found || (!may_fold && *found != BatchFold{})) return;
    c.output_axes[0] = i;
    c.output_folds[0] = found;
  };
  for (const int i : likely) take(i, true);
  for (const bool may_fold : {false, true}) {
    take(axis, may_fold);
    for (int i = 0; i < to.rank(); ++i) take(i, may_fold);
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

int64_t ExtentAt(const std::vector<int64_t>& fixed, const std::vector<int64_t>& batches, size_t i,
                 std::optional<int64_t> batch) {
  if (batches.empty() || batches[i] == 0) return fixed[i];
  if (!batch) return kUnknownDim;
  const int64_t extent = CheckedAdd(fixed[i], CheckedMul(batches[i], *batch, "an extent"), "an extent");
  if (extent < 0) {
    Throw<ShapeError>("an extent of {} batches and {} elements cannot be, with a batch of {}", batches[i], fixed[i],
                      *batch);
  }
  return extent;
}

int FollowingAxis(const std::vector<int64_t>& batches) {
  const auto first = std::ranges::find_if(batches, [](int64_t count) { return count != 0; });
  return first == batches.end() ? -1 : static_cast<int>(first - batches.begin());
}

void CheckBatches(const char* field, const std::vector<int64_t>& batches, const std::vector<int64_t>& fixed) {
  if (batches.empty() || batches.size() == fixed.size()) return;
  Throw<ModelError>("{} must be empty or have {} entries, got {}", field, fixed.size(), ToString(batches));
}

Symbol ReshapeTo(const Symbol& data, const Extents& shape) {
  // Reshape takes 0 for "as it is": what has no elements is made anew.
  if (std::ranges::find(shape, Extent{0, 0}) != shape.end()) return BroadcastTo(SumTo(data, Extents{}), shape);
  return Reshape(data, {.shape = FixedParts(shape), .batches = BatchParts(shape)});
}

Symbol BroadcastTo(const Symbol& data, const Extents& shape) {
  return bindery::BroadcastTo(data, {.shape = FixedParts(shape), .batches = BatchParts(shape)});
}

Symbol SumTo(const Symbol& data, const Extents& shape) {
  return bindery::SumTo(data, {.shape = FixedParts(shape), .batches = BatchParts(shape)});
}

Symbol Zeros(const Extents& shape, DType dtype) { return BroadcastTo(Constant(HostTensor(dtype, {})), shape); }

void CheckFinite(const char* field, double value) {
  if (!std::isfinite(value)) Throw<ModelError>("{} must be a finite number, got {}", field, value);
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

void CheckCut(const std::vector<int64_t>& begin, const std::vector<int64_t>& end, const std::vector<int64_t>& step,
              const std::vector<int64_t>& axes) {
  const auto expect = [&](const char* field, const std::vector<int64_t>& list, bool may_be_empty) {
    if (list.size() == begin.size() || (may_be_empty && list.empty())) return;
    Throw<ModelError>("{} must have as many entries as begin, {}, got {}", field, begin.size(), ToString(list));
  };
  if (begin.size() > Shape::kMaxRank) {
    Throw<ModelError>("begin has {} entries, more than the {} axes a shape can have", begin.size(), Shape::kMaxRank);
  }
  expect("end", end, false);
  expect("step", step, true);
  expect("axes", axes, true);
  CheckAxesAttr("axes", axes);
}

std::vector<int> CutAxes(const std::vector<int64_t>& axes, size_t count, const Shape& shape) {
  std::vector<int> cut;
  for (size_t i = 0; i < count; ++i) {
    const int axis = Axis(axes.empty() ? static_cast<int64_t>(i) : axes[i], shape);
    if (std::ranges::find(cut, axis) != cut.end()) Throw<ShapeError>("axis {} of {} is named twice", axis, shape);
    cut.push_back(axis);
  }
  return cut;
}

std::string ToString(const std::vector<int64_t>& list) {
  std::string text = "(";
  for (size_t i = 0; i < list.size() && i < 10; ++i) text += (i == 0 ? "" : ", ") + std::to_string(list[i]);
  return text + (list.size() > 10 ? ", ...)" : ")");
}

}  // namespace bindery::rule
