// The instruction sets that our own loops are compiled for. Chosen at run time, never by compiler flags, so that one
// program runs everywhere.
#pragma once

namespace bindery {

// kAvx2 includes FMA; kAvx512 includes kAvx2 and the subsets F, BW, DQ and VL.
enum class Isa { kBaseline, kAvx2, kAvx512 };

Isa MachineIsa();               // the best that this machine has
const char* ToString(Isa isa);  // "baseline", "AVX2", "AVX-512"

}  // namespace bindery
