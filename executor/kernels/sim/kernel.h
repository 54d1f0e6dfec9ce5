// Kernels for simulated devices: those of the reference table, run by the device's stream at the addresses where
// kernels find its memory.
#pragma once

#include "executor/kernel.h"

namespace bindery {

Kernel OnSimulatedDevice(Kernel reference, std::string what);

}  // namespace bindery
