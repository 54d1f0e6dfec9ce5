#include "tests/executor/values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/philox.h"

namespace bindery {
namespace {

// Values of one shape differ if their ranges do.
PhiloxStream StreamFor(const char* what, const Shape& shape, double low, double high) {
  return {1, fmt::format("{} {} {} {}", what, shape, low, high)};
}

}  // namespace

HostTensor Uniform(const Shape& shape, double low, double high) {
  PhiloxStream stream = StreamFor("uniform", shape, low, high);
  HostTensor tensor(DType::kFloat64, shape);
  for (double& x : tensor.data<double>()) x = low + (high - low) * (stream.Uniform() + 0x1p-25);
  return tensor;
}

HostTensor AwayFromZero(const Shape& shape, double least, double most) {
  PhiloxStream stream = StreamFor("away from zero", shape, least, most);
  HostTensor tensor(DType::kFloat64, shape);
  for (double& x : tensor.data<double>()) {
    x = least + (most - least) * stream.Uniform();
    if (stream.Next() & 1u) x = -x;
  }
  return tensor;
}

HostTensor Distinct(const Shape& shape) {
  PhiloxStream stream = StreamFor("distinct", shape, 0, 0);
  HostTensor tensor(DType::kFloat64, shape);
  const std::span<double> data = tensor.data<double>();
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<double>(i) / 8 - 3;
  for (size_t i = data.size(); i > 1; --i) std::swap(data[i - 1], data[stream.Below(i)]);
  return tensor;
}

HostTensor Values(const Shape& shape, std::initializer_list<double> values) {
  HostTensor tensor(DType::kFloat64, shape);
  if (static_cast<int64_t>(values.size()) != tensor.elements()) Throw("{} values for shape {}", values.size(), shape);
  std::copy(values.begin(), values.end(), tensor.data<double>().begin());
  return tensor;
}

HostTensor Integers(const Shape& shape, int64_t low, int64_t high) {
  PhiloxStream stream = StreamFor("integers", shape, static_cast<double>(low), static_cast<double>(high));
  HostTensor tensor(DType::kFloat64, shape);
  for (double& x : tensor.data<double>())
    x = static_cast<double>(low + static_cast<int64_t>(stream.Below(high - low + 1)));
  return tensor;
}

double EpsilonOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return 0x1p-52;
    case DType::kFloat32: return 0x1p-23;
    case DType::kFloat16: return 0x1p-10;
    case DType::kBFloat16: return 0x1p-7;
    default: return 0;
  }
}

double MaxAbs(const HostTensor& tensor) {
  const HostTensor values = tensor.Cast(DType::kFloat64);
  double max = 0;
  const double* value = values.data<double>().data();
  for (int64_t left = values.elements(); left > 0; --left, ++value) {
    const double size = *value < 0 ? -*value : *value;
    if (size > max && size < INFINITY) max = size;
  }
  return max;
}

void ExpectNear(const HostTensor& actual, const HostTensor& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(actual.shape(), expected.shape()) << what;
  const HostTensor actual_numbers = actual.Cast(DType::kFloat64), expected_numbers = expected.Cast(DType::kFloat64);
  const double *numbers = actual_numbers.data<double>().data(), *wanted = expected_numbers.data<double>().data();
  const int64_t elements = actual.elements();
  double worst = -1;
  int64_t where = 0;
  for (int64_t i = 0; i < elements; ++i) {
    const double a = numbers[i], e = wanted[i];
    if (a == e && worst >= 0) continue;
    double difference = a == e || (std::isnan(a) && std::isnan(e)) ? 0 : std::fabs(a - e);
    if (std::isnan(difference)) difference = INFINITY;
    if (difference > worst) {
      worst = difference;
      where = i;
    }
  }
  EXPECT_LE(worst, tolerance) << what << " " << ToString(actual.shape()) << ", element " << where << ": "
                              << (elements ? actual.At(where) : 0) << " instead of "
                              << (elements ? expected.At(where) : 0);
}

}  // namespace bindery
