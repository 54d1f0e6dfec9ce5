// HostTensor: plain data in host memory, C order, and nothing else: no device, no asynchrony. What users hand in and
// get back, what files hold. A value: copying copies the elements. Not thread safe while written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"

namespace bindery {

class HostTensor {
 public:
  HostTensor() = default;                       // float32, shape (0): empty
  HostTensor(DType dtype, const Shape& shape);  // zero-filled; throws ShapeError if too large to address
  HostTensor(const HostTensor& other);
  HostTensor(HostTensor&&) noexcept = default;
  HostTensor& operator=(const HostTensor& other);
  HostTensor& operator=(HostTensor&&) noexcept = default;

  // Float32 from values; throws ShapeError unless values.size() == shape.Elements().
  static HostTensor From(const Shape& shape, std::span<const float> values);
  static HostTensor From(const Shape& shape, std::initializer_list<float> values);
  static HostTensor Full(DType dtype, const Shape& shape, double value);

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t elements() const { return elements_; }
  int64_t bytes() const { return elements_ * SizeOf(dtype_); }

  void* raw() { return data_.get(); }  // 64-byte aligned
  const void* raw() const { return data_.get(); }
  // Typed view; throws Error if T is not the element type.
  template <class T>
  std::span<T> data() {
    CheckType(kDTypeOf<T>);
    return {static_cast<T*>(raw()), size_t(elements_)};
  }
  template <class T>
  std::span<const T> data() const {
    CheckType(kDTypeOf<T>);
    return {static_cast<const T*>(raw()), size_t(elements_)};
  }

  // One element by flat index, of any dtype, as double. Slow: for tests and printing.
  double At(int64_t index) const;
  void Set(int64_t index, double value);

  HostTensor Cast(DType dtype) const;                            // element-wise, by StoreDouble's rules
  HostTensor Reshape(const Shape& shape) const&;                 // same elements; throws ShapeError on another count
  HostTensor Slice(int axis, int64_t begin, int64_t end) const;  // rows begin..end-1 along `axis`; throws ShapeError

  bool operator==(const HostTensor& other) const;  // dtype, shape and bits
  // Largest |a - b|, element-wise, in double; throws ShapeError if shapes differ. NaN counts as infinity unless in
  // both.
  friend double MaxAbsDiff(const HostTensor& a, const HostTensor& b);

 private:
  void CheckType(DType wanted) const;
  struct Free {
    void operator()(std::byte* p) const;
  };
  DType dtype_ = DType::kFloat32;
  Shape shape_{0};
  int64_t elements_ = 0;
  std::unique_ptr<std::byte[], Free> data_;
};

double MaxAbsDiff(const HostTensor& a, const HostTensor& b);
// Concatenates along `axis`; all other extents and the dtype must agree. Throws ShapeError.
HostTensor Concatenate(std::span<const HostTensor> parts, int axis);

using HostTensorMap = std::map<std::string, HostTensor>;

}  // namespace bindery
