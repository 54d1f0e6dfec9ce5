#pragma once

#include <gtest/gtest.h>

#include <initializer_list>

#include "base/host_tensor.h"
#include "executor/tape/ndarray.h"
#include "tests/test_device.h"

namespace bindery {

inline NDArray Values(const Shape& shape, std::initializer_list<float> values, int device = 0) {
  return NDArray(HostTensor::From(shape, values), TestDevice(device));
}

inline void ExpectNumbers(const NDArray& array, const Shape& shape, std::initializer_list<double> expected,
                          double tolerance = 1e-6) {
  const HostTensor host = array.ToHost();
  ASSERT_EQ(host.shape(), shape);
  int64_t i = 0;
  for (const double number : expected) {
    EXPECT_NEAR(host.At(i), number, tolerance) << "element " << i;
    ++i;
  }
}

}  // namespace bindery
