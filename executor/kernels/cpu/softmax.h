// Softmax over the middle axis of (outer, axis, inner), by the team.
#pragma once

#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {

void SoftmaxAlong(const AxisView& view, float inverse_temperature, const float* x, float* y);

}  // namespace bindery::cpu
