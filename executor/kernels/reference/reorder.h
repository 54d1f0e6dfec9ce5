// The reference reorder: element by element, between any two formats that have elements.
#pragma once

#include "executor/kernel.h"

namespace bindery {

Kernel MakeReferenceReorder(DType dtype, const Shape& shape, const Format& from, const Format& to);

}  // namespace bindery
