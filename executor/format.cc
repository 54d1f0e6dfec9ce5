#include "executor/format.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"

namespace bindery {
namespace {

// The number of elements that the blocks of one axis hold together: its extent is padded to a multiple of it.
int64_t BlockOf(const Format& format, int axis) {
  int64_t block = 1;
  for (int i = 0; i < format.num_blocks; ++i) {
    if (format.block_axis[i] == axis) block *= format.block_size[i];
  }
  return block;
}

void CheckFits(const Format& format, const Shape& shape) {
  if (format.kind == Format::Kind::kStrided && format.rank != shape.rank()) {
    Throw("format {} has {} axes, the shape {} has {}", format, format.rank, shape, shape.rank());
  }
}

}  // namespace

Format Format::Permuted(std::initializer_list<int> order) {
  Check(order.size() <= size_t{Shape::kMaxRank}, "a format has at most Shape::kMaxRank axes");
  Format format;
  format.kind = Kind::kStrided;
  unsigned seen = 0;
  for (int axis : order) {
    Check(axis >= 0 && axis < static_cast<int>(order.size()) && !(seen >> axis & 1u), "the order is a permutation");
    seen |= 1u << axis;
    format.order[format.rank++] = static_cast<int8_t>(axis);
  }
  return std::is_sorted(order.begin(), order.end()) ? Plain() : format;
}

Format Format::ChannelsLast(int rank) {
  Check(rank <= Shape::kMaxRank, "a format has at most Shape::kMaxRank axes");
  if (rank < 3) return Plain();
  Format format;
  format.kind = Kind::kStrided;
  format.rank = static_cast<int8_t>(rank);
  for (int i = 1; i < rank - 1; ++i) format.order[i] = static_cast<int8_t>(i + 1);
  format.order[rank - 1] = 1;
  return format;
}

Format Format::Opaque(int64_t bytes, const char* family) {
  Format format;
  format.kind = Kind::kOpaque;
  format.opaque_bytes = bytes;
  Check(bytes >= 0 && std::strlen(family) < format.family.size(), "an opaque format has a size and a short name");
  std::copy_n(family, std::strlen(family), format.family.begin());
  return format;
}

Shape PaddedShape(const Format& format, const Shape& shape) {
  CheckFits(format, shape);
  Shape padded = shape;
  if (format.kind != Format::Kind::kStrided) return padded;
  for (int axis = 0; axis < shape.rank(); ++axis) padded.Set(axis, RoundUp(shape[axis], BlockOf(format, axis)));
  return padded;
}

int64_t StorageElements(const Format& format, const Shape& shape) {
  return format.kind == Format::Kind::kOpaque ? format.opaque_bytes : PaddedShape(format, shape).Elements();
}

int64_t StorageBytes(const Format& format, DType dtype, const Shape& shape) {
  if (format.kind == Format::Kind::kOpaque) return format.opaque_bytes;
  return CheckedMul(StorageElements(format, shape), SizeOf(dtype), "bytes of a value");
}

int64_t ElementOffset(const Format& format, const Shape& shape, const int64_t* index) {
  Check(format.kind != Format::Kind::kOpaque, "elements of an opaque value have no known place");
  CheckFits(format, shape);
  const std::span<const int64_t> dims = shape.dims();
  int64_t offset = 0;
  if (format.is_plain()) {
    for (int axis = 0; axis < shape.rank(); ++axis) offset = offset * dims[axis] + index[axis];
    return offset;
  }
  // The outer blocks in the format's order of axes; then the place inside the blocks, outermost block first.
  std::array<int64_t, Shape::kMaxRank> block;  // still to be divided among an axis' inner blocks
  for (int axis = 0; axis < shape.rank(); ++axis) block[axis] = BlockOf(format, axis);
  for (int i = 0; i < format.rank; ++i) {
    const int axis = format.order[i];
    offset = offset * CeilDiv(dims[axis], block[axis]) + index[axis] / block[axis];
  }
  for (int i = 0; i < format.num_blocks; ++i) {
    const int axis = format.block_axis[i];
    const int64_t rest = index[axis] % block[axis];
    block[axis] /= format.block_size[i];
    offset = offset * format.block_size[i] + rest / block[axis];
  }
  return offset;
}

std::string ToString(const Format& format) {
  if (format.is_plain()) return "plain";
  if (format.kind == Format::Kind::kOpaque) {
    return fmt::format("opaque:{}:{}", format.family.data(), format.opaque_bytes);
  }
  std::string text;
  for (int i = 0; i < format.rank; ++i) {
    text += static_cast<char>((BlockOf(format, format.order[i]) > 1 ? 'A' : 'a') + format.order[i]);
  }
  for (int i = 0; i < format.num_blocks; ++i) {
    text += fmt::format("{}{}", format.block_size[i], static_cast<char>('a' + format.block_axis[i]));
  }
  return text;
}

}  // namespace bindery
