// Windows that slide over 1 to 3 spatial axes of (N, C, spatial...). Private to symbol/ops.
#pragma once

#include <cstdint>
#include <vector>

#include "symbol/op_def.h"

namespace bindery::rule {

inline constexpr size_t kMaxSpatial = 3;
// Of kernels, strides, pads and dilations, so that a product of two overflows nowhere.
inline constexpr int64_t kMaxWindow = INT32_MAX;

// 1 to 3 extents from 1 to kMaxWindow, or ModelError.
void CheckKernel(const std::vector<int64_t>& kernel);
// Empty, or one number from `least` to kMaxWindow per spatial axis, or ModelError.
void CheckPerAxis(const char* field, const std::vector<int64_t>& list, size_t spatial, int64_t least);

// The number for a spatial axis from a list that may be empty.
inline int64_t PerAxis(const std::vector<int64_t>& list, int axis, int64_t otherwise) {
  return list.empty() ? otherwise : list[axis];
}

int64_t PaddedExtent(int64_t extent, int64_t pad_begin, int64_t pad_end);  // checked
const char* DataAxes(int rank);                                            // "(N, C, H, W)" for 4
// Only the batch may be empty: throws ShapeError if a channel or spatial extent is 0.
void ExpectNotEmpty(const Shape& data);
// Output 0 is batched where input 0 is, if that is the first axis.
void BatchedAtFirstAxis(BatchAxisContext& c);

}  // namespace bindery::rule
