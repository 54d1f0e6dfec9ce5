// Values for tests, and how far apart two sets of them are.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/host_tensor.h"

namespace bindery {

// Element i is value_at(i).
template <class F>
HostTensor Filled(const Shape& shape, const F& value_at, DType dtype = DType::kFloat32) {
  HostTensor tensor(dtype, shape);
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.Set(i, static_cast<double>(value_at(i)));
  return tensor;
}

// Numbers from -1 to 1 in no order.
inline HostTensor Sines(const Shape& shape) {
  return Filled(shape, [](int64_t i) { return std::sin(i * i); });
}

// Labels: 0, 1, ..., classes - 1, and again.
inline HostTensor ClassesInTurn(int64_t count, int64_t classes) {
  return Filled({count}, [=](int64_t i) { return i % classes; });
}

// Of tensors of the same names.
inline double MostDifferent(const HostTensorMap& a, const HostTensorMap& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (const auto& [name, value] : a) most = std::max(most, MaxAbsDiff(value, b.at(name)));
  return most;
}

}  // namespace bindery
