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
  void Addresses(const auto& visit) { visit(data); }
};
// A tensor that is written; null: nobody reads it.
struct Target {
  void* data = nullptr;
  DType dtype = {};
  void Addresses(const auto& visit) { visit(data); }
};

// Division by a number that is known when a program is compiled: by a product, where the dividend fits 31 bits.
struct Divisor {
  int64_t by = 1;
  uint32_t factor = uint32_t{1} << 31;
  int32_t shift = 31;

  constexpr Divisor() = default;
  constexpr explicit Divisor(int64_t number) : by(number > 0 ? number : 1) {
    if (by > INT32_MAX) return;
    while (by > int64_t{1} << (shift - 31)) ++shift;
    factor =
        static_cast<uint32_t>(((uint64_t{1} << shift) + static_cast<uint64_t>(by) - 1) / static_cast<uint64_t>(by));
  }
  // n / by and n % by, of n from 0 on. With 2^(s - 1) < by <= 2^s the factor is 2^(31 + s) / by + e / by with e < by,
  // so the product is too large by less than n / 2^31 of what is between two quotients.
  constexpr int64_t Of(int64_t n) const {
    if (n > INT32_MAX || by > INT32_MAX) return n / by;
    return static_cast<int64_t>(static_cast<uint64_t>(n) * factor >> shift);
  }
  constexpr int64_t Rest(int64_t n) const { return n - Of(n) * by; }
};

// An index space in C order.
struct Grid {
  int32_t rank = 0;
  int64_t extents[Shape::kMaxRank] = {};
  int64_t n = 1;  // the product of the extents
  constexpr bool fits_32_bits() const { return n <= INT32_MAX; }
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
// Of few long rows, parts of them are taken first, by different blocks, and then what came of these.
enum class Stage : int32_t { kWhole, kParts, kEnd };

}  // namespace bindery::cuda
