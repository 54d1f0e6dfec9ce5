#include "base/shape.h"

#include <algorithm>

#include "base/checked.h"

namespace bindery {
namespace {

void CheckExtent(int64_t extent) {
  if (extent < kUnknownDim) Throw<ShapeError>("an extent must be 0 or more, got {}", extent);
}

// Zero if any extent is zero, wherever it stands, even where the others alone would overflow.
int64_t Product(const Shape& shape, std::span<const int64_t> dims) {
  bool zero = false;
  for (int64_t extent : dims) {
    if (extent == kUnknownDim) Throw<ShapeError>("the number of elements of {} is not known yet", shape);
    zero |= extent == 0;
  }
  if (zero) return 0;
  int64_t product = 1;
  for (int64_t extent : dims) {
    if (__builtin_mul_overflow(product, extent, &product)) {
      Throw<ShapeError>("the number of elements of {} overflows 64 bits", shape);
    }
  }
  return product;
}

// An axis or the place after the last one, as CountFrom, CountTo and Insert take it.
int Place(const Shape& shape, int axis) {
  const int place = axis < 0 ? axis + shape.rank() : axis;
  if (place < 0 || place > shape.rank()) {
    Throw<ShapeError>("axis {} is out of range for shape {}: expected {} to {}", axis, shape, -shape.rank(),
                      shape.rank());
  }
  return place;
}

}  // namespace

Shape::Shape(std::span<const int64_t> dims) {
  if (dims.size() > kMaxRank) Throw<ShapeError>("rank {} is more than the {} supported", dims.size(), kMaxRank);
  for (int64_t extent : dims) CheckExtent(extent);
  rank_ = static_cast<int>(dims.size());
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

int Shape::Axis(int axis) const {
  const int result = axis < 0 ? axis + rank_ : axis;
  if (result < 0 || result >= rank_) {
    if (rank_ == 0) Throw<ShapeError>("axis {} is out of range: a scalar has no axes", axis);
    Throw<ShapeError>("axis {} is out of range for shape {}: expected {} to {}", axis, *this, -rank_, rank_ - 1);
  }
  return result;
}

void Shape::Set(int axis, int64_t extent) {
  CheckExtent(extent);
  dims_[Axis(axis)] = extent;
}

Shape Shape::With(int axis, int64_t extent) const {
  Shape result = *this;
  result.Set(axis, extent);
  return result;
}

bool Shape::IsKnown() const { return std::find(begin(), end(), kUnknownDim) == end(); }

int64_t Shape::Elements() const { return Product(*this, dims()); }

int64_t Shape::CountFrom(int axis) const { return Product(*this, dims().subspan(Place(*this, axis))); }

int64_t Shape::CountTo(int axis) const { return Product(*this, dims().first(Place(*this, axis))); }

Shape Shape::Insert(int axis, int64_t extent) const {
  if (rank_ == kMaxRank) Throw<ShapeError>("shape {} has the highest rank supported, {}", *this, kMaxRank);
  CheckExtent(extent);
  Shape result = *this;
  const int place = Place(*this, axis);
  std::copy_backward(begin() + place, end(), result.dims_.begin() + rank_ + 1);
  result.dims_[place] = extent;
  ++result.rank_;
  return result;
}

Shape Shape::Erase(int axis) const {
  Shape result = *this;
  const int place = Axis(axis);
  std::copy(begin() + place + 1, end(), result.dims_.begin() + place);
  result.dims_[--result.rank_] = 0;
  return result;
}

bool Shape::operator==(const Shape& other) const { return std::ranges::equal(dims(), other.dims()); }

std::string ToString(const Shape& shape) {
  std::string text = "(";
  for (int64_t extent : shape) {
    if (text.size() > 1) text += ", ";
    text += extent == kUnknownDim ? "?" : std::to_string(extent);
  }
  return text + ")";
}

}  // namespace bindery
