// The tables of vector loops that tests walk, and random numbers for them.
#pragma once

#include <cstdint>
#include <vector>

#include "executor/kernels/cpu/simd/loops.h"

namespace bindery::cpu {

// Every set of instructions that runs here. Sixteen lanes are among them everywhere: the same source once more, on
// vectors that the compiler takes apart.
std::vector<const LoopSet*> LoopSets();
std::vector<const Loops*> LoopTables();            // those of floats
std::vector<const IntegerLoops*> IntegerTables();  // and VNNI's, where it runs

// The same in every run: a function of the number, the name and the range.
std::vector<float> RandomFloats(int64_t n, const char* name, float low = -2, float high = 2);

}  // namespace bindery::cpu
