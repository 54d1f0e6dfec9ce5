// Products of matrices of float64, which oneDNN does not know.
#pragma once

#include "executor/kernel.h"

namespace bindery::cpu {

// An input of a kernel seen as a matrix: how far the next row and the next column are, in elements.
struct GemmOperand {
  int input;
  int64_t row, column;
};

// Output 0 (m, n), row by row, = a (m, k) b (k, n). Sums are taken in order of k, whatever the number of threads.
Kernel Float64Gemm(const KernelSpec& spec, int64_t m, int64_t n, int64_t k, const GemmOperand& a, const GemmOperand& b);

}  // namespace bindery::cpu
