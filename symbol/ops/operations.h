// How many multiplications and additions an operator takes: OpDef::operations.
#pragma once

#include "base/shape.h"

namespace bindery {

// A sum over the weights of one filter, (filter, ...), for each element of `sums`; 0 if nobody has that weight.
inline double OperationsOfSums(const Shape& sums, const Shape& weight) {
  if (weight.rank() == 0) return 0;
  return 2.0 * static_cast<double>(sums.Elements()) * static_cast<double>(weight.CountFrom(1));
}

}  // namespace bindery
