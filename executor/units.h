// What a kind of device computes with.
#pragma once

#include "base/device.h"
#include "base/dtype.h"

namespace bindery {

// Are there units that multiply in this element type? CPUs have them for float32 and float64; for bfloat16 those with
// AVX-512 BF16 or AMX, if neither BINDERY_MAX_ISA nor ONEDNN_MAX_CPU_ISA forbids them; for float16 none that are used.
// Without, kernels convert to float32 and back: a 16-bit type spares memory, and costs time.
bool HasUnitsFor(DeviceKind kind, DType dtype);

}  // namespace bindery
