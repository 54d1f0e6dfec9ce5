// Is a sum of arrays finite, without writing it down?
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace bindery::flat {

// Of float32 or float64, in the order of `in`, at least one, by the calling thread alone. The sums are those of Sum().
bool SumIsFinite(DType dtype, std::span<const void* const> in, int64_t n);

}  // namespace bindery::flat
