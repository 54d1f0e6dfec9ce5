#include "executor/tape/ndarray.h"

#include <utility>

#include "base/error.h"
#include "executor/tape/compute.h"
#include "executor/tape/tape.h"
#include "symbol/ops/cast.h"
#include "symbol/ops/measure.h"
#include "symbol/ops/random.h"
#include "symbol/ops/reduce.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

using tape::NewArray;

// An extent of 0 is the array's own, one of -1 what remains.
Shape Resolved(const std::vector<int64_t>& wanted, const Shape& from) {
  std::vector<int64_t> dims = wanted;
  int rest = -1;
  int64_t others = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 0 && static_cast<int>(i) < from.rank()) dims[i] = from[static_cast<int>(i)];
    if (dims[i] < -1 || (dims[i] == -1 && rest >= 0)) Throw<ShapeError>("Reshape: extents of -1 once, else 0 or more");
    if (dims[i] == -1) rest = static_cast<int>(i);
    if (dims[i] != -1) others = Shape{others, dims[i]}.Elements();  // checked
  }
  if (rest >= 0) {
    if (others == 0 || from.Elements() % others != 0) {
      Throw<ShapeError>("Reshape: {} elements are no multiple of {}", from.Elements(), others);
    }
    dims[rest] = from.Elements() / others;
  }
  return Shape(dims);
}

bool IsTaped(const NDArray& array) { return IsRecording() && array.state()->is_recorded(); }

}  // namespace

NDArray::NDArray(const Tensor& tensor) {
  if (!tensor.defined()) throw Error("an array of an empty tensor");
  *this = NewArray(tensor);
}

NDArray::NDArray(const HostTensor& value, Device device) : NDArray(Tensor(device, value.dtype(), value.shape())) {
  tensor().CopyFrom(value);
}

NDArray NDArray::Zeros(const Shape& shape, Device device, DType dtype) { return NDArray(Tensor(device, dtype, shape)); }

NDArray NDArray::Full(const Shape& shape, double value, Device device, DType dtype) {
  const NDArray array = Zeros(shape, device, dtype);
  array.tensor().Fill(value);
  return array;
}

NDArray NDArray::Normal(const Shape& shape, double scale, Device device) {
  const PauseScope pause;
  const std::vector<int64_t> extents(shape.begin(), shape.end());
  return tape::OnlyOne(tape::ComputeOn(device, [&](const std::vector<Symbol>&) {
    return RandomNormal({{.shape = extents}, 0, scale});
  }));
}

const Tensor& NDArray::tensor() const {
  if (!state_) throw Error("an empty array has no tensor");
  return state_->tensor;
}

double NDArray::Scalar() const {
  if (elements() != 1) Throw<ShapeError>("Scalar of an array of shape {}: expected one element", shape());
  return ToHost().At(0);
}

NDArray NDArray::CopyTo(Device device) const {
  if (IsTaped(*this)) {
    if (device == this->device()) return bindery::Apply(Identity, {*this});
    Throw("CopyTo: the tape lies on {} and does not reach {}; copy before RecordScope, or a Detach()ed array",
          this->device(), device);
  }
  const Tensor copy(tensor().engine(), device, dtype(), shape());
  copy.CopyFrom(tensor());
  return NewArray(copy);
}

NDArray NDArray::Slice(int64_t begin, int64_t end) const {
  const Tensor view = tensor().Slice(begin, end);  // checks
  if (!IsTaped(*this)) return NewArray(view);
  return bindery::Apply(bindery::Slice, {*this}, {.begin = {begin}, .end = {end}, .axes = {0}});
}

NDArray NDArray::Reshape(const std::vector<int64_t>& wanted) const {
  const Shape shape = Resolved(wanted, this->shape());
  const Tensor view = tensor().Reshape(shape);  // checks
  if (!IsTaped(*this)) return NewArray(view);
  return bindery::Apply(bindery::Reshape, {*this}, {.shape = {shape.begin(), shape.end()}, .allow_zero = true});
}

NDArray NDArray::As(DType dtype) const {
  return dtype == this->dtype() ? *this : bindery::Apply(Cast, {*this}, {.dtype = dtype});
}

NDArray NDArray::Detach() const { return NewArray(tensor()); }

NDArray NDArray::Sum(const std::vector<int64_t>& axes) const {
  return bindery::Apply(bindery::Sum, {*this}, {.axes = axes});
}
NDArray NDArray::Mean(const std::vector<int64_t>& axes) const {
  return bindery::Apply(bindery::Mean, {*this}, {.axes = axes});
}
NDArray NDArray::ArgMax(int64_t axis) const { return bindery::Apply(bindery::ArgMax, {*this}, {.axis = axis}); }
NDArray NDArray::operator-() const { return bindery::Apply(Negative, {*this}); }

// --- gradients ---

void NDArray::AttachGradient(GradReq request) {
  tensor();  // throws if empty
  if (state_->node) throw Error("AttachGradient: the array is a recorded result; attach it to a Detach()ed one");
  if (!IsFloat(dtype())) Throw("AttachGradient: arrays of {} have no gradient", dtype());
  if (request == GradReq::kNull) {
    state_->slot = nullptr;
    return;
  }
  state_->slot = std::make_shared<tape::GradientSlot>(
      tape::GradientSlot{Tensor(tensor().engine(), device(), dtype(), shape()), request});
}

bool NDArray::has_gradient() const { return state_ && state_->slot; }

NDArray NDArray::gradient() const {
  if (!has_gradient()) throw Error("gradient: none is attached to the array; call AttachGradient first");
  return NewArray(state_->slot->gradient);
}

void NDArray::Backward() const { bindery::Backward({*this}); }
void NDArray::Backward(const NDArray& head_gradient) const {
  bindery::Backward({*this}, {.head_gradients = {head_gradient}});
}

// --- in place ---

void NDArray::CheckMayChange(const char* name, const NDArray* other) const {
  tensor();  // throws if empty
  if (!IsTaped(*this) && (other == nullptr || !IsTaped(*other))) return;
  Throw(
      "{}: changes in place are not recorded; make a new array (a = a - b), or do it outside of RecordScope or in a "
      "PauseScope",
      name);
}

void NDArray::CopyFrom(const HostTensor& value) {
  CheckMayChange("CopyFrom");
  tensor().CopyFrom(value);
}

void NDArray::CopyFrom(const NDArray& value) {
  CheckMayChange("CopyFrom", value.defined() ? &value : nullptr);
  tensor().CopyFrom(value.tensor());
}

void NDArray::Fill(double value) {
  CheckMayChange("Fill");
  tensor().Fill(value);
}

void NDArray::ChangeInPlace(const char* name, const BinaryFunction& function, const NDArray& other) {
  CheckMayChange(name, other.defined() ? &other : nullptr);
  tape::PreparedCall call =
      tape::Prepare([&](const std::vector<Symbol>& x) { return function(x[0], x[1]); }, {*this, other});
  const ValueType& result = call.unit->program.results[0].type;
  if (result.shape != shape() || result.dtype != dtype()) {
    Throw<ShapeError>("{}: the result would be {} {}, the array is {} {}", name, result.dtype, result.shape, dtype(),
                      shape());
  }
  // One kernel that reads an element before it writes it does it where it is, unless the other is of the same memory.
  call.options.in_place = call.unit->program.in_place && call.options.arguments[0].address() == tensor().address() &&
                          call.options.arguments[1].var() != tensor().var();
  if (call.options.in_place) call.options.into = {tensor()};
  const bool done = call.options.in_place;
  const std::vector<Tensor> made = call.runtime->Run(call.unit->program, std::move(call.options));
  if (!done || made[0].address() != tensor().address()) tensor().CopyFrom(made[0]);
}

namespace {

NDArray NumberFor(const NDArray& array, double number) {
  return NewArray(array.state()->runtime->Number(array.device(), array.dtype(), number));
}
NDArray Binary(const BinaryFunction& function, const NDArray& a, const NDArray& b) { return Apply(function, {a, b}); }
NDArray Binary(const BinaryFunction& function, const NDArray& a, double b) {
  a.tensor();  // throws if empty
  return Apply(function, {a, NumberFor(a, b)});
}
NDArray Binary(const BinaryFunction& function, double a, const NDArray& b) {
  b.tensor();
  return Apply(function, {NumberFor(b, a), b});
}

}  // namespace

NDArray& NDArray::operator+=(const NDArray& other) { return ChangeInPlace("operator+=", Add, other), *this; }
NDArray& NDArray::operator-=(const NDArray& other) { return ChangeInPlace("operator-=", Sub, other), *this; }
NDArray& NDArray::operator*=(const NDArray& other) { return ChangeInPlace("operator*=", Mul, other), *this; }
NDArray& NDArray::operator/=(const NDArray& other) { return ChangeInPlace("operator/=", Div, other), *this; }
NDArray& NDArray::operator+=(double number) { return tensor(), *this += NumberFor(*this, number); }
NDArray& NDArray::operator-=(double number) { return tensor(), *this -= NumberFor(*this, number); }
NDArray& NDArray::operator*=(double number) { return tensor(), *this *= NumberFor(*this, number); }
NDArray& NDArray::operator/=(double number) { return tensor(), *this /= NumberFor(*this, number); }

NDArray operator+(const NDArray& a, const NDArray& b) { return Binary(Add, a, b); }
NDArray operator-(const NDArray& a, const NDArray& b) { return Binary(Sub, a, b); }
NDArray operator*(const NDArray& a, const NDArray& b) { return Binary(Mul, a, b); }
NDArray operator/(const NDArray& a, const NDArray& b) { return Binary(Div, a, b); }
NDArray operator==(const NDArray& a, const NDArray& b) { return Binary(Equal, a, b); }
NDArray operator!=(const NDArray& a, const NDArray& b) { return Binary(NotEqual, a, b); }
NDArray operator<(const NDArray& a, const NDArray& b) { return Binary(Less, a, b); }
NDArray operator<=(const NDArray& a, const NDArray& b) { return Binary(LessEqual, a, b); }
NDArray operator>(const NDArray& a, const NDArray& b) { return Binary(Greater, a, b); }
NDArray operator>=(const NDArray& a, const NDArray& b) { return Binary(GreaterEqual, a, b); }
NDArray operator+(const NDArray& a, double b) { return Binary(Add, a, b); }
NDArray operator-(const NDArray& a, double b) { return Binary(Sub, a, b); }
NDArray operator*(const NDArray& a, double b) { return Binary(Mul, a, b); }
NDArray operator/(const NDArray& a, double b) { return Binary(Div, a, b); }
NDArray operator==(const NDArray& a, double b) { return Binary(Equal, a, b); }
NDArray operator!=(const NDArray& a, double b) { return Binary(NotEqual, a, b); }
NDArray operator<(const NDArray& a, double b) { return Binary(Less, a, b); }
NDArray operator<=(const NDArray& a, double b) { return Binary(LessEqual, a, b); }
NDArray operator>(const NDArray& a, double b) { return Binary(Greater, a, b); }
NDArray operator>=(const NDArray& a, double b) { return Binary(GreaterEqual, a, b); }
NDArray operator+(double a, const NDArray& b) { return Binary(Add, a, b); }
NDArray operator-(double a, const NDArray& b) { return Binary(Sub, a, b); }
NDArray operator*(double a, const NDArray& b) { return Binary(Mul, a, b); }
NDArray operator/(double a, const NDArray& b) { return Binary(Div, a, b); }

void WaitAll() { DefaultEngine()->WaitAll(); }
void SeedArrays(uint64_t seed) { tape::Seed(seed); }
TapeStatistics ArrayStatistics() { return tape::Runtime::Of(DefaultEngine())->statistics(); }

}  // namespace bindery
