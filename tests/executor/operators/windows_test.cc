// Windows as large as attributes allow, over small inputs: both kernel tables agree, and memory follows the input.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "executor/executor.h"
#include "symbol/ops.h"
#include "tests/executor/group_helpers.h"

namespace bindery {
namespace {

constexpr int64_t kHuge = INT32_MAX;

struct Results {
  HostTensor output, gradient;
  int64_t arena;
};
Results Run(const Symbol& symbol, const HostTensor& x, KernelPolicy policy) {
  Executor e(symbol, {.inputs = {{"x", x.shape(), x.dtype()}},
                      .grad_req = std::map<std::string, GradReq>{{"x", GradReq::kWrite}},
                      .switches = {.policy = policy}});
  for (const std::string& name : e.param_names()) e.ArgumentArray(name).Fill(0.5);
  e.Forward({{"x", x}});
  e.Backward(HostTensor::Full(x.dtype(), e.OutputShape(0), 1));
  return {e.Output(0), e.Gradient("x"), e.memory().arena};
}

void ExpectTablesAgree(const Symbol& symbol, const HostTensor& x, const Shape& output) {
  const Results fast = Run(symbol, x, KernelPolicy::kFast), reference = Run(symbol, x, KernelPolicy::kReference);
  EXPECT_EQ(fast.output.shape(), output);
  const auto expect_near = [](double a, double b) { EXPECT_NEAR(a, b, 1e-5 * std::max(1.0, std::abs(b))); };
  for (int64_t i = 0; i < fast.output.elements(); ++i) expect_near(fast.output.At(i), reference.output.At(i));
  for (int64_t i = 0; i < x.elements(); ++i) expect_near(fast.gradient.At(i), reference.gradient.At(i));
  EXPECT_LT(fast.arena, 1 << 20);
}

TEST(WindowsTest, Pooling) {
  const Symbol x = Variable("x");
  for (const PoolType type : {PoolType::kMax, PoolType::kAvg}) {
    for (const bool count_include_pad : {true, false}) {
      PoolingAttrs attrs{.type = type,
                         .kernel = {kHuge, kHuge},
                         .stride = {1 << 30, 1 << 30},
                         .pad = {kHuge - 1, kHuge - 1},
                         .count_include_pad = count_include_pad};
      ExpectTablesAgree(Pooling(x, attrs, "pool"), RandomTensor({2, 3, 2, 3}, 1), {2, 3, 2, 3});
      attrs.ceil_mode = true;
      ExpectTablesAgree(Pooling(x, attrs, "pool"), RandomTensor({2, 16, 2, 3}, 1), {2, 16, 2, 3});
      attrs.auto_pad = AutoPad::kSameUpper;
      attrs.pad = {};
      attrs.stride = {1, 2};
      ExpectTablesAgree(Pooling(x, attrs, "pool"), RandomTensor({2, 3, 2, 3}, 1), {2, 3, 2, 2});
      // Many windows each see one element or few.
      attrs = {.type = type, .kernel = {20, 30}, .pad = {19, 29}, .count_include_pad = count_include_pad};
      ExpectTablesAgree(Pooling(x, attrs, "pool"), RandomTensor({1, 2, 2, 3}, 1), {1, 2, 21, 32});
      attrs = {.type = type,
               .kernel = {kHuge, 2},
               .stride = {kHuge, 1},
               .pad = {kHuge, 0, kHuge, 2},
               .dilate = {2, 3},
               .count_include_pad = count_include_pad};
      ExpectTablesAgree(Pooling(x, attrs, "pool"), RandomTensor({1, 2, 5, 6}, 1), {1, 2, 1, 5});
    }
  }
}

TEST(WindowsTest, Convolution) {
  const Symbol x = Variable("x");
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const HostTensor data = RandomTensor({2, 3, 5}, 1, dtype);
    ExpectTablesAgree(Convolution(x, {.num_filter = 4, .kernel = {1}, .stride = {kHuge}}, "conv"), data, {2, 4, 1});
    ExpectTablesAgree(Convolution(x, {.num_filter = 4, .kernel = {1}, .stride = {kHuge}, .pad = {kHuge}}, "conv"), data,
                      {2, 4, 3});
    ExpectTablesAgree(Convolution(x, {.num_filter = 4, .kernel = {2}, .pad = {0, kHuge}, .dilate = {kHuge}}, "conv"),
                      data, {2, 4, 5});
    const ConvolutionAttrs wide{.num_filter = 4, .kernel = {3}, .stride = {1 << 20}, .pad = {kHuge}, .dilate = {kHuge}};
    ExpectTablesAgree(Convolution(x, wide, "conv"), data, {2, 4, 1});
  }
}

}  // namespace
}  // namespace bindery
