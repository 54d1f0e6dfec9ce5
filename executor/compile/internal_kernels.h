// The compiler's own calls, which no kernel of an operator stands for. One output, and one input of its format, flat.
#pragma once

#include "base/host_tensor.h"
#include "executor/kernel.h"

namespace bindery {

Kernel MakeCopy(int64_t bytes, const Format& format);                           // output = input
Kernel MakeAddTo(DType dtype, int64_t storage_elements, const Format& format);  // output += input
Kernel MakeConstantFill(const HostTensor& value);                               // no input; output = value

}  // namespace bindery
