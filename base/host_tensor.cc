#include "base/host_tensor.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "base/checked.h"

namespace bindery {
namespace {

constexpr size_t kAlignment = 64;
// From here on a tensor has pages of its own, which go back to the system with it, whatever malloc keeps: parameters of
// a model that has been bound, say. Not under AddressSanitizer, which watches malloc's blocks.
#ifdef __SANITIZE_ADDRESS__
constexpr size_t kMappedBytes = std::numeric_limits<size_t>::max();
#else
constexpr size_t kMappedBytes = size_t{1} << 20;
#endif
constexpr size_t kHugeBytes = size_t{4} << 20;  // huge pages, where there are any, are touched faster

// Lies before a tensor's elements, to free it by.
struct Block {
  void* begin;
  size_t mapped_bytes;  // 0: malloc's
};
static_assert(sizeof(Block) <= alignof(std::max_align_t));  // as far as elements are from the beginning, at least

// Of zeros; begin is null if there is no memory.
Block Allocate(size_t bytes) {
  // calloc and not aligned_alloc: pages that were never touched stay unmapped zeros.
  if (bytes < kMappedBytes) return {std::calloc(1, bytes), 0};
  void* const pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return {nullptr, 0};
  if (bytes >= kHugeBytes) madvise(pages, bytes, MADV_HUGEPAGE);  // a wish
  return {pages, bytes};
}

std::byte* AllocateZeros(int64_t bytes) {
  if (bytes == 0) return nullptr;
  const Block block = Allocate(static_cast<size_t>(bytes) + kAlignment);
  if (block.begin == nullptr) Throw<DeviceError>("out of host memory: cannot allocate {} bytes for a tensor", bytes);
  const uintptr_t aligned = (reinterpret_cast<uintptr_t>(block.begin) + kAlignment) / kAlignment * kAlignment;
  std::byte* const elements = reinterpret_cast<std::byte*>(aligned);
  std::memcpy(elements - sizeof block, &block, sizeof block);
  return elements;
}

void Copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

// Memory from a file may hold any byte where a bool belongs.
template <class T>
T Element(const void* data, int64_t index) {
  if constexpr (std::is_same_v<T, bool>) {
    return static_cast<const unsigned char*>(data)[index] != 0;
  } else {
    return static_cast<const T*>(data)[index];
  }
}
template <class T>
double Load(const void* data, int64_t index) {
  return LoadDouble(Element<T>(data, index));
}

double AbsDiff(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double difference = std::fabs(a - b);
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
}

}  // namespace

void HostTensor::Free::operator()(std::byte* p) const {
  Block block;
  std::memcpy(&block, p - sizeof block, sizeof block);
  if (block.mapped_bytes == 0) {
    std::free(block.begin);
  } else {
    munmap(block.begin, block.mapped_bytes);
  }
}

HostTensor::HostTensor(DType dtype, const Shape& shape) : dtype_(dtype), shape_(shape), elements_(shape.Elements()) {
  // Room for the alignment, and pointer differences must not overflow either.
  CheckedAdd(CheckedMul(elements_, SizeOf(dtype), "bytes of a tensor"), kAlignment, "bytes of a tensor");
  data_.reset(AllocateZeros(bytes()));
}

HostTensor::HostTensor(const HostTensor& other) : HostTensor(other.dtype_, other.shape_) {
  Copy(raw(), other.raw(), bytes());
}

HostTensor& HostTensor::operator=(const HostTensor& other) {
  if (this != &other) *this = HostTensor(other);
  return *this;
}

HostTensor HostTensor::From(const Shape& shape, std::span<const float> values) {
  if (shape.Elements() != static_cast<int64_t>(values.size())) {
    Throw<ShapeError>("a tensor of shape {} has {} elements, got {} values", shape, shape.Elements(), values.size());
  }
  HostTensor result(DType::kFloat32, shape);
  Copy(result.raw(), values.data(), result.bytes());
  return result;
}

HostTensor HostTensor::From(const Shape& shape, std::initializer_list<float> values) {
  return From(shape, std::span(values.begin(), values.size()));
}

HostTensor HostTensor::Full(DType dtype, const Shape& shape, double value) {
  HostTensor result(dtype, shape);
  Dispatch(dtype, [&]<class T>() { std::ranges::fill(result.data<T>(), StoreDouble<T>(value)); });
  return result;
}

void HostTensor::CheckType(DType wanted) const {
  if (wanted != dtype_) Throw("a tensor of {} was accessed as {}", dtype_, wanted);
}

double HostTensor::At(int64_t index) const {
  if (index < 0 || index >= elements_) Throw<ShapeError>("index {} is out of range for shape {}", index, shape_);
  return Dispatch(dtype_, [&]<class T>() { return Load<T>(raw(), index); });
}

void HostTensor::Set(int64_t index, double value) {
  if (index < 0 || index >= elements_) Throw<ShapeError>("index {} is out of range for shape {}", index, shape_);
  Dispatch(dtype_, [&]<class T>() { data<T>()[index] = StoreDouble<T>(value); });
}

HostTensor HostTensor::Cast(DType dtype) const {
  if (dtype == dtype_) return *this;
  HostTensor result(dtype, shape_);
  Dispatch(dtype_, [&]<class From>() {
    Dispatch(dtype, [&]<class To>() {
      To* to = static_cast<To*>(result.raw());
      for (int64_t i = 0; i < elements_; ++i) to[i] = Convert<To>(Element<From>(raw(), i));
    });
  });
  return result;
}

HostTensor HostTensor::Reshape(const Shape& shape) const& {
  if (shape.Elements() != elements_) {
    Throw<ShapeError>("cannot reshape {} with {} elements to {} with {}", shape_, elements_, shape, shape.Elements());
  }
  HostTensor result(dtype_, shape);
  Copy(result.raw(), raw(), bytes());
  return result;
}

HostTensor HostTensor::Slice(int axis, int64_t begin, int64_t end) const {
  axis = shape_.Axis(axis);
  if (begin < 0 || begin > end || end > shape_[axis]) {
    Throw<ShapeError>("slice {}..{} is out of range for axis {} of shape {}", begin, end, axis, shape_);
  }
  HostTensor result(dtype_, shape_.With(axis, end - begin));
  if (result.elements_ == 0) return result;
  const int64_t row = shape_.CountFrom(axis + 1) * SizeOf(dtype_);  // bytes of one step along the axis
  const int64_t outer = shape_.CountTo(axis);
  for (int64_t i = 0; i < outer; ++i) {
    Copy(result.data_.get() + i * (end - begin) * row, data_.get() + (i * shape_[axis] + begin) * row,
         (end - begin) * row);
  }
  return result;
}

bool HostTensor::operator==(const HostTensor& other) const {
  return dtype_ == other.dtype_ && shape_ == other.shape_ &&
         (bytes() == 0 || std::memcmp(raw(), other.raw(), static_cast<size_t>(bytes())) == 0);
}

double MaxAbsDiff(const HostTensor& a, const HostTensor& b) {
  if (a.shape_ != b.shape_) Throw<ShapeError>("cannot compare tensors of shapes {} and {}", a.shape_, b.shape_);
  double largest = 0;
  Dispatch(a.dtype_, [&]<class A>() {
    Dispatch(b.dtype_, [&]<class B>() {
      for (int64_t i = 0; i < a.elements_; ++i) {
        largest = std::max(largest, AbsDiff(Load<A>(a.raw(), i), Load<B>(b.raw(), i)));
      }
    });
  });
  return largest;
}

HostTensor Concatenate(std::span<const HostTensor> parts, int axis) {
  if (parts.empty()) Throw<ShapeError>("cannot concatenate no tensors");
  const HostTensor& first = parts.front();
  axis = first.shape().Axis(axis);
  int64_t extent = 0;
  for (const HostTensor& part : parts) {
    if (part.dtype() != first.dtype()) {
      Throw<ShapeError>("cannot concatenate tensors of {} and {}", first.dtype(), part.dtype());
    }
    if (part.shape().rank() != first.shape().rank() || part.shape().With(axis, 0) != first.shape().With(axis, 0)) {
      Throw<ShapeError>("cannot concatenate tensors of shapes {} and {} along axis {}", first.shape(), part.shape(),
                        axis);
    }
    extent = CheckedAdd(extent, part.shape()[axis], "extent of the concatenation");
  }
  HostTensor result(first.dtype(), first.shape().With(axis, extent));
  if (result.elements() == 0) return result;
  const int64_t row = result.shape().CountFrom(axis + 1) * SizeOf(result.dtype());
  const int64_t outer = result.shape().CountTo(axis);
  int64_t start = 0;  // of the part, along the axis
  for (const HostTensor& part : parts) {
    const int64_t rows = part.shape()[axis];
    for (int64_t i = 0; i < outer; ++i) {
      Copy(static_cast<std::byte*>(result.raw()) + (i * extent + start) * row,
           static_cast<const std::byte*>(part.raw()) + i * rows * row, rows * row);
    }
    start += rows;
  }
  return result;
}

}  // namespace bindery
