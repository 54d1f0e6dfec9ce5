// Shape: the extents of a tensor, outermost first (C order), at most kMaxRank of them.
//
// An extent is >= 0, or kUnknownDim (-1) in a shape that is still being inferred. A whole shape of which not even the
// rank is known is `std::optional<Shape>` without a value. Value type, no allocation.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace bindery {

inline constexpr int64_t kUnknownDim = -1;

class Shape {
 public:
  static constexpr int kMaxRank = 8;

  Shape() = default;  // rank 0: a scalar
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims);  // throws ShapeError: rank > kMaxRank or an extent < -1

  int rank() const { return rank_; }
  // Negative axes count from the end: shape[-1] is the innermost extent. Throws ShapeError out of range.
  int64_t operator[](int axis) const { return dims_[Axis(axis)]; }
  int Axis(int axis) const;                    // 0 <= result < rank(); throws ShapeError otherwise
  void Set(int axis, int64_t extent);          // throws ShapeError if extent < -1
  Shape With(int axis, int64_t extent) const;  // a copy with one extent replaced

  bool IsKnown() const;                          // no kUnknownDim
  int64_t Elements() const;                      // product; checked; throws ShapeError if not known
  int64_t CountFrom(int axis) const;             // product of extents axis .. rank-1 (axis may be rank())
  int64_t CountTo(int axis) const;               // product of extents 0 .. axis-1
  Shape Insert(int axis, int64_t extent) const;  // rank + 1
  Shape Erase(int axis) const;                   // rank - 1

  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }
  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return dims_.data() + rank_; }
  bool operator==(const Shape&) const;

 private:
  int rank_ = 0;
  std::array<int64_t, kMaxRank> dims_{};
};

std::string ToString(const Shape& shape);  // "(64, 1, 28, 28)", unknown extents as "?"; scalar "()"
inline std::string format_as(const Shape& shape) { return ToString(shape); }

}  // namespace bindery
