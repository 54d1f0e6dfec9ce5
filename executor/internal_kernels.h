// The compiler's own steps, which no operator stands for. One input, one output, equal formats, flat.
#pragma once

#include "executor/kernel.h"

namespace bindery {

Kernel MakeCopy(int64_t bytes, const Format& format);                           // output = input
Kernel MakeAddTo(DType dtype, int64_t storage_elements, const Format& format);  // output += input

}  // namespace bindery
