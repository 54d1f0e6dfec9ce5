// What the kernels of all tables must agree on: how an operator's attributes are read. Formulas are not shared, since
// the reference kernels are there to check the others.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "base/shape.h"
#include "executor/kernel.h"
#include "symbol/ops/batch_norm.h"
#include "symbol/ops/dropout.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/loss.h"
#include "symbol/ops/normalize.h"
#include "symbol/ops/shape_of.h"

namespace bindery {

// Where the slots of an operator are among the inputs, or the outputs, of a node; -1: it has none.
inline std::vector<int> PlacesIn(const Slots& slots, const AnyAttrs& attrs) {
  std::vector<int> places;
  for (size_t i = 0; i < slots.slots().size(); ++i) places.push_back(slots.Place(attrs, static_cast<int>(i)));
  return places;
}

// A tensor seen from one of its axes: elements (outer, axis, inner).
struct AxisView {
  int64_t outer, axis, inner;
};
inline AxisView ViewAlong(const Shape& shape, int axis) {
  axis = shape.Axis(axis);
  return {shape.CountTo(axis), shape[axis], shape.CountFrom(axis + 1)};
}

// A batched value as (outer, samples, inner), whatever is folded into its batch axis.
inline AxisView SamplesOf(const ValueType& type) {
  const Shape view = type.SampleView();
  return {view[0], view[1], view[2]};
}

// SoftmaxOutput's data as (samples, classes, positions): softmax over the classes, one label per sample and position.
inline AxisView ClassesOf(const SoftmaxOutputAttrs& attrs, const Shape& data) {
  if (attrs.multi_output) return ViewAlong(data, 1);
  if (attrs.preserve_shape) return ViewAlong(data, -1);
  return {data[0], data.CountFrom(1), 1};
}

// What Normalize normalises: `groups` groups, each of `channels` runs of `inner` elements. A parameter belongs to a
// position in the group, or to a channel; without parameters the group is one channel.
struct GroupView {
  int64_t groups, channels, inner, groups_per_sample;
  bool by_position;
  int64_t elements() const { return channels * inner; }
  int64_t parameters() const { return by_position ? inner : groups_per_sample * channels; }
  int64_t Parameter(int64_t group, int64_t element) const {
    return by_position ? element : group % groups_per_sample * channels + element / inner;
  }
};
inline GroupView GroupsOf(const NormalizeAttrs& attrs, const Shape& data) {
  const bool has_parameters = attrs.scale || attrs.shift;
  if (attrs.groups == 0) {
    const int axis = data.Axis(static_cast<int>(attrs.axis));
    return {data.CountTo(axis), 1, data.CountFrom(axis), 1, has_parameters};
  }
  const int64_t per_sample = attrs.groups > 0 ? attrs.groups : data[1],
                channels = per_sample > 0 ? data[1] / per_sample : 0;
  return {data[0] * per_sample, channels, data.CountFrom(2), per_sample, false};
}

// What a Constant gives, and what else is known when it is bound: a Scalar, a ShapeArray and a SizeArray.
inline std::shared_ptr<const HostTensor> ConstantOf(const KernelSpec& spec) {
  if (&spec.attrs.type() == &AttrsOf<ConstantAttrs>()) return spec.attributes<ConstantAttrs>().value;
  if (!spec.inputs.empty()) {
    const Shape& data = spec.inputs[0].shape;
    const auto value = std::make_shared<HostTensor>(DType::kInt64, spec.outputs[0].shape);
    const bool is_size = &spec.attrs.type() != &AttrsOf<ShapeArrayAttrs>();
    std::ranges::copy(is_size ? std::vector{data.Elements()} : ListExtents(spec.attributes<ShapeArrayAttrs>(), data),
                      value->data<int64_t>().begin());
    return value;
  }
  const auto number = std::make_shared<HostTensor>(spec.outputs[0].dtype, Shape());
  number->Set(0, spec.attributes<ScalarAttrs>().scalar);
  return number;
}

// Does this Dropout, or its gradient, leave every element as it is?
inline bool DropsNothing(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<DropoutAttrs>();
  return attrs.p == 0 || (spec.mode == Mode::kPredict && attrs.mode == DropoutMode::kTraining);
}

// Does this BatchNorm normalise by the running values?
inline bool UsesRunningValues(const KernelSpec& spec) {
  return spec.mode == Mode::kPredict || spec.attributes<BatchNormAttrs>().use_global_stats;
}

}  // namespace bindery
