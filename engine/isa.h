// The instruction sets that our own loops are compiled for. Chosen at run time, never by compiler flags, so that one
// program runs everywhere.
#pragma once

#include <optional>

namespace bindery {

// kAvx2 includes FMA; kAvx512 includes kAvx2 and the subsets F, BW, DQ and VL.
enum class Isa { kBaseline, kAvx2, kAvx512 };

// The best that this machine has and the environment's BINDERY_MAX_ISA (baseline, avx2 or avx512) allows; oneDNN gets
// the same limit before its first use: with avx512 it has units for bfloat16, but not AMX's. Throws Error if the variable
// says something else.
Isa MachineIsa();
std::optional<Isa> IsaLimit();  // BINDERY_MAX_ISA
const char* ToString(Isa isa);  // "baseline", "AVX2", "AVX-512"

}  // namespace bindery
