// Sampling at the places of a grid: values and gradients as PyTorch has them, and what is special about places.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "symbol/gradient.h"
#include "symbol/ops.h"
#include "tests/executor/graph_runner.h"
#include "tests/executor/values.h"

namespace bindery {
namespace {

constexpr double kInf = HUGE_VAL, kNaN = NAN;
const Symbol x = Variable("x"), grid = Variable("grid");

// y and its gradients by x and by the grid, with dy = "y_output_grad" of the inputs.
std::vector<HostTensor> WithGradients(const GridSampleAttrs& attrs, const HostTensorMap& inputs,
                                      const RunOptions& options) {
  const Symbol y = GridSample(x, grid, attrs, "y");
  const ShapeMap shapes = {{"x", inputs.at("x").shape()}, {"grid", inputs.at("grid").shape()}};
  const GradientResult gradient = Gradient(y, std::vector<std::string>{"x", "grid"}, {.shapes = shapes});
  std::vector<Symbol> outputs = {y, gradient.gradients[0]};
  if (!gradient.gradients[1].empty()) outputs.push_back(gradient.gradients[1]);
  HostTensorMap all = inputs;
  all[gradient.head_gradients[0]] = inputs.at("dy");
  all.erase("dy");
  return RunGraph(Group(outputs), all, options).outputs;
}

// Of F.grid_sample in PyTorch 2.15, in double: within the data, exactly at its corner and at its side, and outside,
// near and far.
TEST(GridSample, ValuesAndGradientsOfPyTorch) {
  const HostTensorMap inputs = {{"x", Values({1, 1, 3, 4}, {3, -1, 4, 1, -5, 9, 2, -6, 5, 3, -5, 8})},
                                {"grid", Values({1, 1, 5, 2}, {0.3, -0.7, 1, 1, -1, 0.5, -1.4, 0.2, 2.6, -3.1})},
                                {"dy", Values({1, 1, 1, 5}, {1, -2, 3, -4, 5})}};
  const struct {
    ResizeMode mode;
    GridPadding padding;
    bool align_corners;
    std::vector<double> y, dx, dgrid;
  } kRows[] = {
      {ResizeMode::kLinear,
       GridPadding::kZeros,
       true,
       {3.33, 8, 0, -1.2, 0},
       {0, 0.035, 0.665, 0, 0.22, 0.015, 0.285, 0, 1.18, 0, 0, -2},
       {2.1, -1.4, 24, 16, 27, 30, 18, -16, 0, 0}},
      {ResizeMode::kLinear,
       GridPadding::kBorder,
       false,
       {3.7, 8, 2.5, -2, 1},
       {0, 0, 0.9, 5.1, -2.05, 0, 0, 0, 1.05, 0, 0, -2},
       {-6, 0, 0, 0, 0, 45, 0, -60, 0, 0}},
      {ResizeMode::kLinear,
       GridPadding::kReflection,
       true,
       {3.33, 8, 0, 3.48, 3.76},
       {0, 0.035, 0.665, 0, 0.42, -1.605, 0.285, 0, 2.98, 2.22, 0, -2},
       {2.1, -1.4, 0, 0, 0, 30, 64.8, -1.6, 3, 2}},
      {ResizeMode::kLinear,
       GridPadding::kReflection,
       false,
       {3.7, 8, 2.5, 0.76, 4.4},
       {0, 0, 0.9, 0.1, -1.21, -0.84, 0, 0, 4.91, 1.14, 0, -2},
       {-6, 0, 0, 0, 0, 45, 73.6, -31.2, 20, 0}},
      {ResizeMode::kCubic,
       GridPadding::kZeros,
       false,
       {4.01254899, 3.45019531, 1.29833984, 0.314846437, 0},
       {-0.11124232, -0.0505300781, 0.973397461, 0.0882646484, 0.832767773, -0.0715523906, -0.0507026953, 0.108324492,
        1.70942801, -0.247192383, 0.111328125, -0.705078125},
       {0.426689531, 2.11244695, 30.2578125, 22.6582031, 17.8154297, 34.4619141, 1.199415, 7.58575125, 0, 0}},
      {ResizeMode::kCubic,
       GridPadding::kBorder,
       true,
       {3.89144004, 8, -0.75, -4.937664, 1},
       {0.129113719, 0.00198059375, 0.717057031, 4.97559866, -2.16429113, 0.278366836, 0.32446582, -0.0110415234,
        0.745396164, 0.0487463203, -0.0469916016, -1.99840088},
       {-2.98573945, 0.492505078, -29.25, -21, 25.9453125, 38.25, 18.59328, -35.23776, 0, 0}},
      {ResizeMode::kCubic,
       GridPadding::kReflection,
       false,
       {4.16957688, 13.8007812, 2.02978516, 0.528664, 5.77264203},
       {0.192716859, 0.100737422, 0.992780719, 0.08492125, -2.08005508, -1.50816586, 0.0922359375, 0.44239125,
        6.17083822, 1.11042844, 0.221483344, -2.8203125},
       {0.13426875, -3.1782375, 0, 0, 0, 72.3251953, 115.18662, -34.9175025, 30.1522031, 9.42173438}},
      {ResizeMode::kNearest,
       GridPadding::kReflection,
       false,
       {4, 8, 5, -5, 5},
       {0, 0, 1, 0, -4, 0, 0, 0, 8, 0, 0, -2},
       {0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
  };
  for (const auto& row : kRows) {
    const GridSampleAttrs attrs{row.mode, row.padding, row.align_corners};
    for (const KernelPolicy policy : {KernelPolicy::kReference, KernelPolicy::kFast}) {
      const auto results = WithGradients(attrs, inputs, {.policy = policy});
      const std::vector<double>* const expected[] = {&row.y, &row.dx, &row.dgrid};
      ASSERT_EQ(results.size(), row.mode == ResizeMode::kNearest ? 2U : 3U);
      for (size_t o = 0; o < results.size(); ++o) {
        HostTensor wanted(DType::kFloat64, results[o].shape());
        for (int64_t i = 0; i < wanted.elements(); ++i) wanted.Set(i, expected[o]->at(static_cast<size_t>(i)));
        ExpectNear(
            results[o], wanted, 1e-7,
            fmt::format("{} of mode {}, padding {}", o, static_cast<int>(row.mode), static_cast<int>(row.padding)));
      }
    }
  }
}

// NaN, infinities and a number beyond all integers, along x; y is the middle between two rows, of which the nearest is
// the first.
TEST(GridSample, NoPlaceLeadsOutOfTheData) {
  const HostTensor data = Values({1, 1, 2, 2}, {1, 2, 3, 4}).Cast(DType::kFloat32);
  const HostTensor points = Values({1, 1, 4, 2}, {kNaN, 0, kInf, 0, -kInf, 0, 1e30, 0}).Cast(DType::kFloat32);
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
    const Symbol places = Slice(grid, {.begin = {0}, .end = {row.expected.shape()[3]}, .axes = {2}});
    for (const KernelPolicy policy : {KernelPolicy::kReference, KernelPolicy::kFast}) {
      const Symbol y = GridSample(x, places, attrs, "y");
      ExpectNear(RunGraph(y, {{"x", data}, {"grid", points}}, {.policy = policy}).outputs[0],
                 row.expected.Cast(DType::kFloat32), 1e-6,
                 fmt::format("mode {}, padding {}", static_cast<int>(row.mode), static_cast<int>(row.padding)));
    }
  }
}

// Numbers that are none, in data, in what flows back and in the grid, go the same ways through both tables.
TEST(GridSample, UnusualNumbersAreThoseOfTheReference) {
  const Shape shape = {1, 2, 4, 3};
  HostTensor points(DType::kFloat32, {1, 6, 7, 2});
  constexpr double kPlaces[] = {-1, -0.55, 0, 0.35, 1, 1.3, -7, kNaN, kInf, -kInf};
  for (int64_t i = 0; i < points.elements(); ++i) points.Set(i, kPlaces[i * i * 7 % 10]);
  for (const ResizeMode mode : {ResizeMode::kNearest, ResizeMode::kLinear, ResizeMode::kCubic}) {
    for (const GridPadding padding : {GridPadding::kZeros, GridPadding::kBorder, GridPadding::kReflection}) {
      for (const bool align_corners : {false, true}) {
        for (const double unusual : {1.0, kNaN, kInf, -kInf}) {
          HostTensor data = Uniform(shape).Cast(DType::kFloat32), dy = Uniform({1, 2, 6, 7}).Cast(DType::kFloat32);
          data.Set(5, unusual);
          dy.Set(20, unusual);
          const HostTensorMap inputs = {{"x", data}, {"grid", points}, {"dy", dy}};
          const GridSampleAttrs attrs{mode, padding, align_corners};
          const auto truth = WithGradients(attrs, inputs, {.policy = KernelPolicy::kReference});
          const auto fast = WithGradients(attrs, inputs, {});
          for (size_t o = 0; o < truth.size(); ++o) {
            ExpectNear(fast[o], truth[o], 1e-4,
                       fmt::format("{} of mode {}, padding {}, {}, {}", o, static_cast<int>(mode),
                                   static_cast<int>(padding), align_corners, unusual));
          }
        }
      }
    }
  }
}

TEST(GridSample, TheNearestElementsKeepAllBits) {
  HostTensor data(DType::kInt64, {1, 1, 1, 2});
  data.data<int64_t>()[0] = (int64_t{1} << 53) + 1;  // no double
  data.data<int64_t>()[1] = INT64_MIN + 1;
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
    const HostTensor points = Values({1, 1, 3, 2}, {0.5, 0, -0.5, 0, 3, 0}).Cast(dtype);
    for (const KernelPolicy policy : {KernelPolicy::kReference, KernelPolicy::kFast}) {
      const Symbol y = GridSample(x, grid, {.mode = ResizeMode::kNearest}, "y");
      const HostTensor taken = RunGraph(y, {{"x", data}, {"grid", points}}, {.policy = policy}).outputs[0];
      EXPECT_EQ(taken.data<int64_t>()[0], data.data<int64_t>()[1]);
      EXPECT_EQ(taken.data<int64_t>()[1], data.data<int64_t>()[0]);
      EXPECT_EQ(taken.data<int64_t>()[2], 0);
    }
  }
}

// Slopes are differences of neighbours: what all elements have in common is not lost in them.
TEST(GridSample, SlopesOfDataFarFromZero) {
  HostTensor near = Uniform({1, 50, 6, 5}).Cast(DType::kFloat32), far = near;
  for (int64_t i = 0; i < far.elements(); ++i) far.Set(i, std::round(near.At(i) * 64) / 64 + 4096);
  for (int64_t i = 0; i < near.elements(); ++i) near.Set(i, far.At(i) - 4096);
  const HostTensor points = Uniform({1, 9, 9, 2}, -0.8, 0.8).Cast(DType::kFloat32),
                   dy = Uniform({1, 50, 9, 9}).Cast(DType::kFloat32);
  const auto slopes = [&](const HostTensor& data) {
    return WithGradients({}, {{"x", data}, {"grid", points}, {"dy", dy}}, {})[2];
  };
  ExpectNear(slopes(far), slopes(near), 1e-4, "slopes");
}

// The gradient of data is linear in what flows back, by the same weights: of y = Sample(x), with s the sum of the
// squares of y, d(g . ds/dx)/dx = 2 Sample'(Sample(g)).
TEST(GridSample, SecondDerivativeByData) {
  const HostTensorMap inputs = {
      {"x", Uniform({2, 3, 4, 5})}, {"grid", Uniform({2, 3, 4, 2}, -1.2, 1.2)}, {"g", Uniform({2, 3, 4, 5}, -2, 2)}};
  const auto derive = [&](const Symbol& of, GivenTypes given) {
    given.shapes["x"] = {2, 3, 4, 5};
    given.shapes["grid"] = {2, 3, 4, 2};
    given.dtypes["x"] = DType::kFloat64;
    return Gradient(MakeLoss(of), std::vector<std::string>{"x"}, given).gradients[0];
  };
  const Symbol dx = derive(SumSquare(GridSample(x, grid, {}, "y")), {});
  const Symbol second = derive(Sum(Variable("g") * dx), {.shapes = {{"g", {2, 3, 4, 5}}}});
  const Symbol sampled = GridSample(Variable("g"), grid, {}, "again");
  const Symbol expected = GridSampleGradData(sampled * 2.0, grid, {{}, {4, 5}}, "back");
  ExpectNear(RunGraph(second, inputs, {}).outputs[0],
             RunGraph(expected, {{"grid", inputs.at("grid")}, {"g", inputs.at("g")}}, {}).outputs[0], 1e-12,
             "second derivative");
}

TEST(GridSample, HasTheSameBitsByAnyNumberOfThreads) {
  const HostTensorMap inputs = {{"x", Uniform({1, 5, 61, 47}).Cast(DType::kFloat32)},
                                {"grid", Uniform({1, 63, 41, 2}, -1.2, 1.2).Cast(DType::kFloat32)},
                                {"dy", Uniform({1, 5, 63, 41}).Cast(DType::kFloat32)}};
  for (const ResizeMode mode : {ResizeMode::kNearest, ResizeMode::kLinear, ResizeMode::kCubic}) {
    const auto serial = WithGradients({.mode = mode}, inputs, {.watch = false});
    for (const int threads : {2, 3, 7}) {
      const auto parallel = WithGradients({.mode = mode}, inputs, {.threads = threads, .watch = false});
      for (size_t o = 0; o < serial.size(); ++o) {
        EXPECT_EQ(std::memcmp(parallel[o].raw(), serial[o].raw(), static_cast<size_t>(serial[o].bytes())), 0) << o;
      }
    }
  }
}

}  // namespace
}  // namespace bindery
