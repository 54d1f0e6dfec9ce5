#include "executor/kernels/cpu/gemm.h"

#include <algorithm>

#include "base/checked.h"
#include "engine/team.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

constexpr int64_t kRows = 64, kColumns = 64, kDepth = 128, kStrip = 8;  // of a tile; kStrip columns stay in registers

// One tile of y += a b, with b's part of it packed: rows of kColumns.
void AddTile(const double* a, int64_t a_row, int64_t a_column, const double* packed, double* y, int64_t y_row,
             int64_t rows, int64_t columns, int64_t depth) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; j += kStrip) {
      double sums[kStrip] = {};
      const int64_t width = std::min(kStrip, columns - j);
      std::copy_n(y + i * y_row + j, width, sums);
      for (int64_t p = 0; p < depth; ++p) {
        const double factor = a[i * a_row + p * a_column];
        for (int64_t q = 0; q < kStrip; ++q) sums[q] += factor * packed[p * kColumns + j + q];
      }
      std::copy_n(sums, width, y + i * y_row + j);
    }
  }
}

}  // namespace

Kernel Float64Gemm(const KernelSpec& spec, int64_t m, int64_t n, int64_t k, const GemmOperand& a,
                   const GemmOperand& b) {
  Kernel kernel = PlainKernel(spec, "gemm");
  const int64_t wide = CeilDiv(n, kColumns), tiles = CeilDiv(m, kRows) * wide;
  const double work = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const int64_t serial_below = work <= kSerialElements ? tiles : 0;
  kernel.bind = [=](const KernelArgs& args) -> Call {
    return [=, left = static_cast<const double*>(args.inputs[a.input]),
            right = static_cast<const double*>(args.inputs[b.input]), y = static_cast<double*>(args.outputs[0])] {
      ParallelFor(tiles, 1, serial_below, [&](int64_t begin, int64_t end, int) {
        alignas(64) double packed[kDepth * kColumns];
        for (int64_t tile = begin; tile < end; ++tile) {
          const int64_t i = tile / wide * kRows, j = tile % wide * kColumns;
          const int64_t rows = std::min(kRows, m - i), columns = std::min(kColumns, n - j);
          for (int64_t r = 0; r < rows; ++r) std::fill_n(y + (i + r) * n + j, columns, 0.0);
          for (int64_t first = 0; first < k; first += kDepth) {
            const int64_t depth = std::min(kDepth, k - first);
            for (int64_t p = 0; p < depth; ++p) {
              const double* row = right + (first + p) * b.row + j * b.column;
              for (int64_t q = 0; q < kColumns; ++q) packed[p * kColumns + q] = q < columns ? row[q * b.column] : 0.0;
            }
            AddTile(left + i * a.row + first * a.column, a.row, a.column, packed, y + i * n + j, n, rows, columns,
                    depth);
          }
        }
      });
    };
  };
  return kernel;
}

}  // namespace bindery::cpu
