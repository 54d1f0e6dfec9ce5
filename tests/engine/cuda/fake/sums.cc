#include "tests/engine/cuda/fake/sums.h"

namespace bindery::cuda::fake {

void AddScaled(double factor, const double* values, double* sums, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sums[i] += factor * values[i];
}

double DotProduct(const double* a, const double* b, int64_t n) {
  double parts[4] = {};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (int64_t part = 0; part < 4; ++part) parts[part] += a[i + part] * b[i + part];
  }
  for (; i < n; ++i) parts[0] += a[i] * b[i];
  return parts[0] + parts[1] + (parts[2] + parts[3]);
}

}  // namespace bindery::cuda::fake
