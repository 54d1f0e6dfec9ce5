// Not a number, infinities, both zeros and the smallest and largest numbers mean the same to both tables of kernels.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "symbol/ops.h"
#include "tests/executor/graph_runner.h"

namespace bindery {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();
const std::vector<float> kSpecial = {NAN,   INFINITY, -INFINITY, 0.0f,     -0.0f,    1.5f,
                                     -2.0f, 1e-45f,   -1e-40f,   kLargest, -kLargest};

HostTensor TensorOf(const Shape& shape, const std::vector<float>& values) {
  HostTensor tensor(DType::kFloat32, shape);
  std::copy(values.begin(), values.end(), tensor.data<float>().begin());
  return tensor;
}

// Every pair of special values: (a, b) of the same shape.
std::pair<HostTensor, HostTensor> Pairs() {
  std::vector<float> a, b;
  for (float x : kSpecial) {
    for (float y : kSpecial) {
      a.push_back(x);
      b.push_back(y);
    }
  }
  const Shape shape = {static_cast<int64_t>(a.size())};
  return {TensorOf(shape, a), TensorOf(shape, b)};
}

bool Agree(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || std::fabs(a - b) <= 1e-6 * std::max(std::fabs(a), std::fabs(b)) + 3e-45;
}

void ExpectTablesAgree(const Symbol& symbol, const HostTensorMap& inputs) {
  const RunResult fast = RunGraph(symbol, inputs, {});
  const RunResult truth = RunGraph(symbol, inputs, {.policy = KernelPolicy::kReference});
  for (const auto& [node, implementation] : fast.implementations) EXPECT_NE(implementation, "reference") << node;
  for (size_t o = 0; o < truth.outputs.size(); ++o) {
    for (int64_t i = 0; i < truth.outputs[o].elements(); ++i) {
      const double got = fast.outputs[o].At(i), wanted = truth.outputs[o].At(i);
      EXPECT_TRUE(Agree(got, wanted)) << symbol.DebugString() << "element " << i << ": " << got << " instead of "
                                      << wanted;
    }
  }
}

const Symbol x = Variable("x"), a = Variable("a"), b = Variable("b");

TEST(SpecialValues, Unary) {
  const HostTensor values = TensorOf({static_cast<int64_t>(kSpecial.size())}, kSpecial);
  for (const char* name : {"Negative", "Exp", "Log", "Square", "Sqrt", "Abs", "Sign"}) {
    ExpectTablesAgree(Apply(FindOp(name), {}, {x}, name), {{"x", values}});
  }
  for (const char* name : {"AddScalar", "SubScalar", "RSubScalar", "MulScalar", "DivScalar", "RDivScalar"}) {
    for (double scalar : {0.75, -3.0}) {
      ExpectTablesAgree(Apply(FindOp(name), ScalarAttrs{scalar}, {x}, name), {{"x", values}});
    }
  }
  for (ActivationType type : {ActivationType::kRelu, ActivationType::kSigmoid, ActivationType::kTanh,
                              ActivationType::kSoftRelu, ActivationType::kSoftSign}) {
    ExpectTablesAgree(Activation(x, {.type = type}, "y"), {{"x", values}});
  }
  const RunOptions reference{.policy = KernelPolicy::kReference};
  EXPECT_TRUE(std::isnan(RunGraph(Apply(SignOp(), {}, {x}, "y"), {{"x", values}}, reference).outputs[0].At(0)));
}

TEST(SpecialValues, Binary) {
  const auto [left, right] = Pairs();
  for (const char* name :
       {"Add", "Sub", "Mul", "Div", "Maximum", "Minimum", "GreaterEqual", "LessEqual", "AddRelu", "AddN"}) {
    ExpectTablesAgree(Apply(FindOp(name), {}, {a, b}, name), {{"a", left}, {"b", right}});
  }
  const HostTensor values = TensorOf({static_cast<int64_t>(kSpecial.size())}, kSpecial);
  for (const char* name : {"Add", "Sub", "Mul", "Div", "Maximum", "Minimum", "GreaterEqual", "LessEqual"}) {
    for (float value : kSpecial) {  // stretched, on either side
      ExpectTablesAgree(Apply(FindOp(name), {}, {a, b}, name), {{"a", values}, {"b", TensorOf({1}, {value})}});
      ExpectTablesAgree(Apply(FindOp(name), {}, {a, b}, name), {{"a", TensorOf({1}, {value})}, {"b", values}});
    }
  }
}

TEST(SpecialValues, Gradients) {
  auto [dy, y] = Pairs();
  for (float& value : y.data<float>()) {  // what no function gives may overflow between
    if (std::fabs(value) == kLargest) value = 0.5f;
  }
  for (ActivationType type : {ActivationType::kRelu, ActivationType::kSigmoid, ActivationType::kTanh,
                              ActivationType::kSoftRelu, ActivationType::kSoftSign}) {
    ExpectTablesAgree(Apply(ActivationGradOp(), ActivationAttrs{type}, {a, b}, "dx"), {{"a", dy}, {"b", y}});
  }
  ExpectTablesAgree(Apply(AddReluGradOp(), {}, {a, a, b}, "dx"), {{"a", dy}, {"b", y}});
}

// Windows, rows and columns that hold each of the values, in every place.
TEST(SpecialValues, MaximaSumsAndSoftmax) {
  const int64_t channels = 20, size = 6;
  for (float value : kSpecial) {
    for (int64_t place = 0; place < size * size; place += 5) {
      HostTensor data(DType::kFloat32, {1, channels, size, size});
      for (int64_t i = 0; i < data.elements(); ++i) data.Set(i, static_cast<double>(i * 7 % 11) - 4);
      for (int64_t c = 0; c < channels; ++c) data.Set(c * size * size + place, value);
      for (PoolType type : {PoolType::kMax, PoolType::kAvg}) {
        const PoolingAttrs attrs{.type = type, .kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}};
        ExpectTablesAgree(Pooling(x, attrs, "y")[0], {{"x", data}});
      }
      for (int64_t axis : {1, 3}) {
        if (std::fabs(value) < kLargest) {
          ExpectTablesAgree(Softmax(x, {.axis = axis}, "y"), {{"x", data}});
        }
        ExpectTablesAgree(Max(x, {.axes = {axis}}, "y"), {{"x", data}});
        ExpectTablesAgree(Sum(x, {.axes = {axis}}, "y"), {{"x", data}});
      }
      ExpectTablesAgree(Max(x, {}, "y"), {{"x", data}});
    }
  }
}

}  // namespace
}  // namespace bindery
