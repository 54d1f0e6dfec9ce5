// Values for tests of operators, and their comparison.
#pragma once

#include <initializer_list>
#include <string>

#include "base/host_tensor.h"

namespace bindery {

// Values of inputs, float64, the same in every run: a function of kind, shape and range.
HostTensor Uniform(const Shape& shape, double low = -1, double high = 1);
HostTensor AwayFromZero(const Shape& shape, double least = 0.2, double most = 1.5);  // of both signs
HostTensor Distinct(const Shape& shape);  // a shuffle of -3, -2.875, -2.75, ...
HostTensor Values(const Shape& shape, std::initializer_list<double> values);
HostTensor Integers(const Shape& shape, int64_t low, int64_t high);  // low <= value <= high

double EpsilonOf(DType dtype);            // of float types: the rounding of 1; else 0
double MaxAbs(const HostTensor& tensor);  // of what is finite

// Expects equal shapes and |actual - expected| <= tolerance everywhere (NaN equals NaN); reports the worst element.
void ExpectNear(const HostTensor& actual, const HostTensor& expected, double tolerance, const std::string& what);

}  // namespace bindery
