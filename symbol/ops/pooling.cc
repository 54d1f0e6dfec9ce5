#include "symbol/ops/pooling.h"

#include "base/error.h"
#include "symbol/ops/rules.h"

namespace bindery {
namespace {

using rule::Value;

void CheckPooling(const PoolingAttrs& attrs) {
  if (attrs.global) return;  // kernel, stride and the like are not looked at
  rule::CheckWindows(rule::WindowsOf(attrs));
  const size_t spatial = attrs.kernel.size();
  for (size_t i = 0; i < attrs.pad.size(); ++i) {
    const int64_t taps = attrs.kernel[i % spatial] - 1, dilate = attrs.dilate.empty() ? 1 : attrs.dilate[i % spatial];
    if (attrs.pad[i] > taps * dilate) {  // a window could see nothing but padding
      Throw<ModelError>("pad {} must be smaller than kernel {}{}", rule::ToString(attrs.pad),
                        rule::ToString(attrs.kernel),
                        attrs.dilate.empty() ? "" : fmt::format(" dilated by {}", rule::ToString(attrs.dilate)));
    }
  }
}

Window WindowOf(const PoolingAttrs& attrs, int axis, int64_t size) {
  if (attrs.global) return {.kernel = size};
  const Window window = rule::WindowOf(rule::WindowsOf(attrs), axis, size);
  if (window.dilate > size && window.pad_begin > 0) {
    Throw<ShapeError>("a window dilated by {} along axis {} of {} could see nothing but padding", window.dilate,
                      axis + 2, size);
  }
  return window;
}

const char* AxesOf(const PoolingAttrs& attrs) { return rule::DataAxes(static_cast<int>(attrs.kernel.size()) + 2); }

// data (N, C, spatial...), output (N, C, spatial'...); extents of the output follow from the data's, not back. Windows
// mix nothing along N and C.
void InferPooling(const PoolingAttrs& attrs, Value data, Value output) {
  rule::SameDType({data, output});
  if (!attrs.global) {
    const int rank = static_cast<int>(attrs.kernel.size()) + 2;
    if (data.shape()) rule::ExpectRank(*data.shape(), rank, AxesOf(attrs));
    data.Set(rule::Unknown(rank));
  }
  if (!data.shape() && !rule::SameRank(data, output)) return;
  const Shape in = *data.shape();
  if (in.rank() < 3 || in.rank() > 2 + static_cast<int>(rule::kMaxSpatial)) {
    Throw<ShapeError>("expected 3 to 5 axes (N, C, spatial...), got {}", in);
  }
  rule::ExpectNotEmpty(in);
  Shape out = in;
  for (int axis = 2; axis < in.rank(); ++axis) {
    if (attrs.global) {
      out.Set(axis, 1);
    } else if (in[axis] != kUnknownDim) {
      out.Set(axis, WindowOf(attrs, axis - 2, in[axis]).output);
    }
  }
  output.Set(out);
  data.Set(rule::Unknown(in.rank()).With(0, (*output.shape())[0]).With(1, (*output.shape())[1]));
  rule::Share(data, output, [](int axis) { return axis < 2; });
}

void CheckPoolingAttrs(const AnyAttrs& any) { CheckPooling(any.get<PoolingAttrs>()); }

void CheckGrad(const AnyAttrs& any) {
  const auto& attrs = any.get<PoolingGradAttrs>();
  CheckPooling(attrs);
  if (attrs.extents.empty() || attrs.extents.size() > rule::kMaxSpatial) {
    Throw<ModelError>("extents must be 1 to {} numbers, got {}", rule::kMaxSpatial, rule::ToString(attrs.extents));
  }
  rule::CheckPerAxis("extents", attrs.extents, attrs.global ? attrs.extents.size() : attrs.kernel.size(), 1);
}

template <class Attrs>
Slot StateOfMax() {
  return Optional("state", [](const AnyAttrs& any) { return any.get<Attrs>().type == PoolType::kMax; });
}

// (output gradient [, state]) -> data gradient
void InferPoolingGrad(InferContext& c) {
  const auto& attrs = c.attrs<PoolingGradAttrs>();
  const Value grad = c.in(0), data = c.out(0);
  Shape shape = rule::Unknown(static_cast<int>(attrs.extents.size()) + 2);
  for (size_t i = 0; i < attrs.extents.size(); ++i) shape.Set(static_cast<int>(i) + 2, attrs.extents[i]);
  if (grad.shape() && grad.shape()->rank() == shape.rank()) {
    shape.Set(0, (*grad.shape())[0]);
    shape.Set(1, (*grad.shape())[1]);
  }
  data.Set(shape);
  InferPooling(attrs, data, grad);
  rule::State(c.in(1));
}

// max: dx = dy at the element that won (the state). avg: dx = sum over the windows that see x of dy / divisor.
std::vector<Symbol> PoolingGradient(const GradientContext& g) {
  PoolingGradAttrs attrs{g.attrs<PoolingAttrs>(), {}};
  const Extents shape = g.shape(0);
  for (size_t i = 2; i < shape.size(); ++i) attrs.extents.push_back(shape[i].fixed);
  return {PoolingGrad(g.output_grad(0), attrs.type == PoolType::kMax ? g.output(1) : Symbol(), attrs)};
}

// The average's is linear: d/d dy = the average pooling of what flows back.
std::vector<Symbol> PoolingGradGradient(const GradientContext& g) {
  const auto& attrs = g.attrs<PoolingGradAttrs>();
  if (attrs.type == PoolType::kMax) {
    Throw<ModelError>("PoolingGrad \"{}\": the second derivative of a maximum is not provided", g.name());
  }
  return {Pooling(g.output_grad(0), attrs)};
}

}  // namespace

std::vector<Window> PoolWindows(const PoolingAttrs& attrs, const Shape& data) {
  if (!attrs.global) rule::ExpectRank(data, static_cast<int>(attrs.kernel.size()) + 2, AxesOf(attrs));
  rule::ExpectNotEmpty(data);
  std::vector<Window> windows;
  for (int axis = 2; axis < data.rank(); ++axis) windows.push_back(WindowOf(attrs, axis - 2, data[axis]));
  return windows;
}

const OpDef& PoolingOp() {
  static const OpDef op = {
      .name = "Pooling",
      .doc = "The maximum or the average of each window.",
      .attrs_type = &AttrsOf<PoolingAttrs>(),
      .outputs = {"output", Hidden(StateOfMax<PoolingAttrs>())},
      .infer =
          [](InferContext& c) {
            InferPooling(c.attrs<PoolingAttrs>(), c.in(0), c.out(0));
            rule::State(c.out(1));
          },
      .check = CheckPoolingAttrs,
      .gradient = PoolingGradient,
      // Windows of zeros give zero; but along the channels only, never mixed, so blocked channels keep their padding.
      .zero_to_zero = true,
  };
  return op;
}

const OpDef& PoolingGradOp() {
  static const OpDef op = {
      .name = "PoolingGrad",
      .doc = "max: dy where the maximum was; avg: dy / divisor everywhere in the window; summed over windows.",
      .attrs_type = &AttrsOf<PoolingGradAttrs>(),
      .inputs = {"output_grad", StateOfMax<PoolingGradAttrs>()},
      .infer = InferPoolingGrad,
      .check = CheckGrad,
      .gradient = PoolingGradGradient,
      .zero_to_zero = true,
  };
  return op;
}

}  // namespace bindery
