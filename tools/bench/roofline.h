// What this machine can do, to measure kernels by: the roofline.
#pragma once

#include <vector>

#include "tools/bench/model_bench.h"

namespace bindery::bench {

// Both measured, by so many threads, in thousands of millions a second.
struct Roofline {
  double operations = 0;  // of float32, multiplications and additions counted apart, from registers to registers
  double bytes = 0;       // to and from memory, with two reads for each write
  // The part of the time that it would take at best: by its arithmetic or by its bytes, whatever takes longer.
  double Share(double operations_of_kernel, double bytes_of_kernel, double milliseconds) const;
  bool IsBoundByMemory(double operations_of_kernel, double bytes_of_kernel) const;
};

Roofline MeasureRoofline(int threads);

// Kernels by what bounds them, their arithmetic or their bytes, and after them those of each operator together. What of
// the data is still in caches may be faster than memory: then a share is above 1.
void PrintRoofline(const std::vector<KernelTime>& kernels, const Roofline& roofline);

}  // namespace bindery::bench
