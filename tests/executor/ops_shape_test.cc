#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "symbol/ops/grid.h"
#include "symbol/ops/resize.h"
#include "symbol/ops/shape_ops.h"
#include "tests/executor/graph_runner.h"
#include "tests/executor/operator_cases.h"

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

// NaN, infinities and a number beyond all integers, along x; y is the middle between two rows, of which the nearest is
// the first.
TEST(GridSample, NoPlaceLeadsOutOfTheData) {
  constexpr double kInf = HUGE_VAL, kNaN = NAN;
  const HostTensor x = Values({1, 1, 2, 2}, {1, 2, 3, 4}).Cast(DType::kFloat32);
  const HostTensor grid = Values({1, 1, 4, 2}, {kNaN, 0, kInf, 0, -kInf, 0, 1e30, 0}).Cast(DType::kFloat32);
  using enum GridPadding;
  const struct {
    ResizeMode mode;
    GridPadding padding;
    HostTensor expected;
  } kRows[] = {{ResizeMode::kNearest, kZeros, Values({1, 1, 1, 4}, {0, 0, 0, 0})},
               {ResizeMode::kLinear, kZeros, Values({1, 1, 1, 4}, {kNaN, 0, 0, 0})},
               {ResizeMode::kCubic, kZeros, Values({1, 1, 1, 4}, {kNaN, 0, 0, 0})},
               {ResizeMode::kNearest, kBorder, Values({1, 1, 1, 4}, {1, 2, 1, 2})},
               {ResizeMode::kLinear, kBorder, Values({1, 1, 1, 4}, {kNaN, 3, 2, 3})},
               {ResizeMode::kCubic, kBorder, Values({1, 1, 1, 4}, {kNaN, 3, 2, 3})},
               {ResizeMode::kLinear, kReflection, Values({1, 1, 1, 3}, {kNaN, kNaN, kNaN})},
               {ResizeMode::kCubic, kReflection, Values({1, 1, 1, 3}, {kNaN, kNaN, kNaN})}};
  for (const auto& row : kRows) {
    const GridSampleAttrs attrs{.mode = row.mode, .padding = row.padding, .align_corners = true};
    // Where 1e30 is after so many reflections is nobody's business.
    const Symbol places = Slice(Variable("grid"), {.begin = {0}, .end = {row.expected.shape()[3]}, .axes = {2}});
    for (const KernelPolicy policy : {KernelPolicy::kReference, KernelPolicy::kFast}) {
      const Symbol y = GridSample(Variable("x"), places, attrs, "y");
      ExpectNear(RunGraph(y, {{"x", x}, {"grid", grid}}, {.policy = policy}).outputs[0],
                 row.expected.Cast(DType::kFloat32), 1e-6,
                 fmt::format("mode {}, padding {}", static_cast<int>(row.mode), static_cast<int>(row.padding)));
    }
  }
}

}  // namespace
}  // namespace bindery
