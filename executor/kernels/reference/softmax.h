// Softmax along one axis, for the operators that contain it.
#pragma once

#include "executor/kernels/reference/util.h"

namespace bindery::reference {

void SoftmaxAlong(const AxisView& view, double temperature, const double* x, double* y);

}  // namespace bindery::reference
