// What the launches of operators' kernels are made of (engine/cuda/kernel_args.h says how such structs are built).
//
// kImage is the image that a kernel is in, one for each family.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/shape.h"
#include "engine/cuda/kernel_args.h"

namespace bindery::cuda {

// A tensor that is read; null: there is none.
struct Source {
  const void* data = nullptr;
  DType dtype = {};
};
// A tensor that is written; null: nobody reads it.
struct Target {
  void* data = nullptr;
  DType dtype = {};
};

// An index space in C order.
struct Grid {
  int32_t rank = 0;
  int64_t extents[Shape::kMaxRank] = {};
  int64_t n = 1;
};
// Per axis of a grid: how far the next element is.
struct Strides {
  int64_t of[Shape::kMaxRank] = {};
};

// `count` rows, each the work of a block, or of a thread.
struct Rows {
  int64_t count = 0;
  int32_t by_block = 0;
};

}  // namespace bindery::cuda
