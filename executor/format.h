// Format: how the elements of a value lie in memory. Decided when a program is compiled and part of its plan.
//
// Plain is C order. Permuted is C order of permuted axes ("nhwc"). Blocked splits some axes into outer and inner blocks
// and puts the inner blocks last ("nChw8c": channels in blocks of 8); a blocked axis is padded to a multiple of its
// block, and the padding holds zeros, always: an operator that does not map zero to zero rewrites it. Opaque is a state
// that only the kernels of one family understand (a pooling's winners, Winograd's weights), with its size and the family's
// name.
//
// Two values may be combined element by element in memory order if their shapes and formats are equal.
// (oneDNN's memory descriptors are converted to and from this in executor/kernels/cpu/dnnl_util.)
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/dtype.h"
#include "base/shape.h"

namespace bindery {

struct Format {
  enum class Kind : uint8_t { kPlain, kStrided, kOpaque };

  Kind kind = Kind::kPlain;
  // kStrided (permuted, and blocked when num_blocks > 0): the order of the axes from outermost to innermost, over the
  // outer blocks; then the inner blocks, outermost first.
  std::array<int8_t, Shape::kMaxRank> order{};
  int8_t rank = 0;
  int8_t num_blocks = 0;
  std::array<int8_t, 4> block_axis{};   // e.g. OIhw8i8o: {1, 0}
  std::array<int16_t, 4> block_size{};  // {8, 8}
  // kOpaque
  int64_t opaque_bytes = 0;
  std::array<char, 16> family{};  // "reference", "dnnl": zero-terminated

  bool operator==(const Format&) const = default;
  bool is_plain() const { return kind == Kind::kPlain; }

  static Format Plain() { return {}; }
  // Axes from outermost to innermost; returns Plain() for the identity.
  static Format Permuted(std::initializer_list<int> order);
  static Format ChannelsLast(int rank);  // (N, spatial..., C)
  static Format Opaque(int64_t bytes, const char* family);
};

// Extents with padding, in logical axis order.
Shape PaddedShape(const Format& format, const Shape& shape);
// Elements that a buffer in this format holds, padding included; for opaque: bytes. Checked.
int64_t StorageElements(const Format& format, const Shape& shape);
int64_t StorageBytes(const Format& format, DType dtype, const Shape& shape);
// Memory offset, in elements, of the element with these logical indices (for reference code and tests).
int64_t ElementOffset(const Format& format, const Shape& shape, const int64_t* index);

std::string ToString(const Format& format);  // "plain", "acdb", "aBcd8b" (oneDNN's letters), "opaque:dnnl:128"
inline std::string format_as(const Format& format) { return ToString(format); }

}  // namespace bindery
