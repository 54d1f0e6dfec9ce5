// Products of tiles of floats by units for bfloat16, where the processor has them.
#pragma once

#include "executor/kernels/cpu/simd/loops.h"

namespace bindery::cpu {

// As Loops::add_products, of a and b rounded to bfloat16, where a_row or a_column is 1; sums are of floats. Denormal
// numbers count as zero. Null: no such units, or none allowed.
using RoundedProducts = void (*)(const Loops::Product& p);
RoundedProducts BestRoundedProducts();

}  // namespace bindery::cpu
