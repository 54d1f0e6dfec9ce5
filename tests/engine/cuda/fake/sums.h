// The sums that the fakes of NVIDIA's libraries compute, which is what the tests on them spend most of their time in: a
// library of its own, whose accesses are not checked one by one.
#pragma once

#include <cstdint>

namespace bindery::cuda::fake {

// sums[i] += factor * values[i]
void AddScaled(double factor, const double* values, double* sums, int64_t n);

// In four sums that are added last.
double DotProduct(const double* a, const double* b, int64_t n);

}  // namespace bindery::cuda::fake
