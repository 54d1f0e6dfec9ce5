#include <gtest/gtest.h>

#include <algorithm>

#include "symbol/ops/resize.h"
#include "symbol/ops/shape_ops.h"
#include "tests/executor/cases/operator_cases.h"
#include "tests/executor/graph_runner.h"

namespace bindery {
namespace {

TEST(Operators, Shape) { CheckOperators(ShapeCases()); }
TEST(Operators, Reduce) { CheckOperators(ReduceCases()); }
TEST(Operators, Arrange) { CheckOperators(ArrangeCases()); }

HostTensor Resized(int64_t from, int64_t to, ResizeAttrs attrs) {
  attrs.sizes = {to};
  HostTensor x(DType::kFloat32, {from});
  for (int64_t i = 0; i < from; ++i) x.Set(i, static_cast<double>(i));
  return RunGraph(Resize(Variable("x"), attrs, "y"), {{"x", x}}, {}).outputs[0];
}

// Of whole numbers, by division that rounds nothing.
TEST(Resize, PlacesOfSizesAreExact) {
  for (int64_t from = 1; from <= 40; ++from) {
    for (const int64_t to : {1, 3, 9, 17, 18, 29, 34, 61}) {
      const HostTensor left =
          Resized(from, to, {.coordinates = Coordinates::kAsymmetric, .nearest = NearestMode::kFloor});
      const HostTensor corners =
          Resized(from, to, {.coordinates = Coordinates::kAlignCorners, .nearest = NearestMode::kCeil});
      const HostTensor middles = Resized(from, to, {.nearest = NearestMode::kFloor});
      for (int64_t i = 0; i < to; ++i) {
        EXPECT_EQ(left.At(i), i * from / to) << from << " to " << to;
        EXPECT_EQ(corners.At(i), to == 1 ? 0 : (i * (from - 1) + to - 2) / (to - 1)) << from << " to " << to;
        EXPECT_EQ(middles.At(i), std::clamp<int64_t>(((2 * i + 1) * from + to) / (2 * to) - 1, 0, from - 1))
            << from << " to " << to;
      }
    }
    EXPECT_EQ(Resized(from, 1, {.mode = ResizeMode::kLinear, .coordinates = Coordinates::kPytorchHalfPixel}).At(0), 0);
  }
}

TEST(Resize, WhatEndsAtTheEdgeIsInside) {
  for (int64_t from = 2; from <= 20; ++from) {
    for (const double begin : {0.1, 0.2, 0.35, 0.85}) {
      for (const int64_t to : {3, 10, 17}) {
        const HostTensor y = Resized(from, to,
                                     {.mode = ResizeMode::kLinear,
                                      .coordinates = Coordinates::kCropAndResize,
                                      .roi = {begin, 1},
                                      .extrapolation = -1});
        EXPECT_EQ(y.At(to - 1), from - 1) << from << " to " << to << " from " << begin;
      }
    }
  }
}

}  // namespace
}  // namespace bindery
