// What the kernels of all tables must agree on: how an operator's attributes are read. Formulas are not shared, since
// the reference kernels are there to check the others.
#pragma once

#include "base/shape.h"
#include "executor/kernel.h"
#include "symbol/ops/batch_norm.h"
#include "symbol/ops/dropout.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/loss.h"

namespace bindery {

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

// What a Constant or a Scalar gives.
inline std::shared_ptr<const HostTensor> ConstantOf(const KernelSpec& spec) {
  if (&spec.attrs.type() == &AttrsOf<ConstantAttrs>()) return spec.attributes<ConstantAttrs>().value;
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
