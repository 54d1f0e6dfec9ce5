#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "executor/executor.h"
#include "symbol/gradient.h"
#include "symbol/ops.h"
#include "tests/executor/cases/operator_cases.h"
#include "tests/executor/graph_runner.h"

namespace bindery {
namespace {

TEST(Operators, Activation) { CheckOperators(ActivationCases()); }
TEST(Operators, Binary) { CheckOperators(BinaryCases()); }
TEST(Operators, Unary) { CheckOperators(UnaryCases()); }

template <class T>
HostTensor TensorOf(const std::vector<T>& values) {
  HostTensor tensor(kDTypeOf<T>, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), tensor.data<T>().begin());
  return tensor;
}

// f(a, b) of one element type, by the fast kernels.
template <class T>
std::vector<T> Compute(const char* op, const std::vector<T>& a, const std::vector<T>& b = {}) {
  std::vector<Symbol> operands = {Variable("a")};
  HostTensorMap inputs = {{"a", TensorOf(a)}};
  if (!b.empty()) {
    operands.push_back(Variable("b"));
    inputs["b"] = TensorOf(b);
  }
  const RunResult result = RunGraph(Apply(FindOp(op), {}, operands, "y"), inputs, {});
  EXPECT_NE(result.implementations.at("y"), "reference") << op;
  const auto values = result.outputs[0].data<T>();
  return {values.begin(), values.end()};
}

using Int64s = std::vector<int64_t>;
using Int32s = std::vector<int32_t>;
using Bytes = std::vector<uint8_t>;

// Each type is computed in itself: nothing is rounded to what a double holds, and integers wrap around.
TEST(ElementTypes, IntegersAreExact) {
  const int64_t big = (int64_t{1} << 53) + 1, max = std::numeric_limits<int64_t>::max(),
                min = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(Compute<int64_t>("Add", {big, max}, {2, 1}), (Int64s{big + 2, min}));
  EXPECT_EQ(Compute<int64_t>("Sub", {big, min}, {1, 1}), (Int64s{big - 1, max}));
  EXPECT_EQ(Compute<int64_t>("Mul", {big, big}, {3}), (Int64s{3 * big, 3 * big}));
  EXPECT_EQ(Compute<int64_t>("Maximum", {big, big - 1}, {big + 1, big}), (Int64s{big + 1, big}));
  EXPECT_EQ(Compute<int64_t>("Negative", {big, min}), (Int64s{-big, min}));
  EXPECT_EQ(Compute<int64_t>("Abs", {-big, min}), (Int64s{big, min}));
  EXPECT_EQ(Compute<int64_t>("Power", {3, -3, 2, -1, 7}, {5, 3, -1, -3, 0}), (Int64s{243, -27, 0, -1, 1}));
  EXPECT_EQ(Compute<int32_t>("Square", {-5, 65536}), (Int32s{25, 0}));
  EXPECT_EQ(Compute<uint8_t>("Add", {250, 3}, {10, 4}), (Bytes{4, 7}));
  EXPECT_EQ(Compute<uint8_t>("Sub", {1}, {2}), (Bytes{255}));
  const uint64_t most = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(Compute<uint64_t>("Add", {most, most - 7}, {1, 2}), (std::vector<uint64_t>{0, most - 5}));
  EXPECT_EQ(Compute<uint64_t>("Maximum", {most, 3}, {1, most}), (std::vector<uint64_t>{most, most}));
  EXPECT_EQ(Compute<uint64_t>("Div", {most, 9}, {2, 0}), (std::vector<uint64_t>{most / 2, most}));
  EXPECT_EQ(Compute<uint32_t>("Power", {3, 2, 2}, {5, 31, 32}), (std::vector<uint32_t>{243, 1u << 31, 0}));
  EXPECT_EQ(Compute<uint16_t>("Mul", {65535, 300}, {65535, 300}), (std::vector<uint16_t>{1, 24464}));
  EXPECT_EQ(Compute<int16_t>("Square", {-32768, 182}), (std::vector<int16_t>{0, -32412}));
  EXPECT_EQ(Compute<int16_t>("Abs", {-5, -32768}), (std::vector<int16_t>{5, -32768}));
}

// Division by zero, and of the least number by -1, is no processor's trap.
TEST(ElementTypes, IntegersAreDividedSafely) {
  const int32_t max = std::numeric_limits<int32_t>::max(), min = std::numeric_limits<int32_t>::min();
  EXPECT_EQ(Compute<int32_t>("Div", {7, -7, 5, -5, 0, min}, {2, 2, 0, 0, 0, -1}), (Int32s{3, -3, max, min, 0, max}));
  EXPECT_EQ(Compute<int32_t>("Mod", {7, -7, 7, -7, 5, min}, {3, 3, -3, -3, 0, -1}), (Int32s{1, 2, -2, -1, 0, 0}));
  EXPECT_EQ(Compute<uint8_t>("Div", {7, 7}, {2, 0}), (Bytes{3, 255}));
}

TEST(ElementTypes, TruthValues) {
  HostTensor a(DType::kBool, {4}), b(DType::kBool, {4});
  for (int i = 0; i < 4; ++i) {
    a.Set(i, i / 2);
    b.Set(i, i % 2);
  }
  const auto truth = [&](const char* op) {
    const RunResult result =
        RunGraph(Apply(FindOp(op), {}, {Variable("a"), Variable("b")}, "y"), {{"a", a}, {"b", b}}, {});
    std::string text;
    for (int i = 0; i < 4; ++i) text += result.outputs[0].At(i) != 0 ? '1' : '0';
    return text;
  };
  EXPECT_EQ(truth("And"), "0001");
  EXPECT_EQ(truth("Or"), "0111");
  EXPECT_EQ(truth("Xor"), "0110");
  EXPECT_EQ(truth("Add"), "0111");
  const auto holds = [](const Symbol& symbol, const HostTensorMap& inputs) {
    const RunResult result = RunGraph(symbol, inputs, {});
    EXPECT_EQ(result.outputs[0].dtype(), DType::kBool);
    EXPECT_NE(result.implementations.at("y"), "reference");
    std::string text;
    for (int64_t i = 0; i < result.outputs[0].elements(); ++i) text += result.outputs[0].At(i) != 0 ? '1' : '0';
    return text;
  };
  const int64_t big = (int64_t{1} << 53) + 1;
  const Symbol x = Variable("x");
  EXPECT_EQ(holds(Not(x, "y"), {{"x", TensorOf<int64_t>({0, 3, -1})}}), "100");
  EXPECT_EQ(holds(Equal(x, Variable("z"), "y"),
                  {{"x", TensorOf<int64_t>({big, big})}, {"z", TensorOf<int64_t>({big - 1, big})}}),
            "01");
  EXPECT_EQ(holds(IsNaN(x, "y"), {{"x", TensorOf<float>({0, NAN, INFINITY})}}), "010");
  EXPECT_EQ(holds(LessEqual(x, 2.0, "y"), {{"x", TensorOf<uint8_t>({1, 2, 3})}}), "110");
}

// From integers to integers they keep the low bits; from floating point numbers they saturate.
TEST(ElementTypes, CastsToIntegersAreExact) {
  const int64_t big = (int64_t{1} << 53) + 1;
  const auto cast = [](const HostTensor& from, DType to) {
    const RunResult result = RunGraph(Cast(Variable("a"), {.dtype = to}, "y"), {{"a", from}}, {});
    EXPECT_NE(result.implementations.at("y"), "reference") << ToString(to);
    return result.outputs[0];
  };
  EXPECT_EQ(cast(TensorOf<int64_t>({big, -big, 5}), DType::kInt32), TensorOf<int32_t>({1, -1, 5}));
  const uint64_t most = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(cast(TensorOf<uint64_t>({most, 5}), DType::kInt64), TensorOf<int64_t>({-1, 5}));
  EXPECT_EQ(cast(TensorOf<int64_t>({-1, big}), DType::kUInt64), TensorOf<uint64_t>({most, static_cast<uint64_t>(big)}));
  EXPECT_EQ(cast(TensorOf<uint64_t>({most, 70000}), DType::kUInt16), TensorOf<uint16_t>({65535, 4464}));
  EXPECT_EQ(cast(TensorOf<double>({0x1p64, -3, 2.5}), DType::kUInt32), TensorOf<uint32_t>({4294967295u, 0, 2}));
  EXPECT_EQ(cast(TensorOf<int32_t>({-1, 256, 7}), DType::kUInt8), TensorOf<uint8_t>({255, 0, 7}));
  EXPECT_EQ(cast(TensorOf<float>({2.5f, -3.5f, 1e30f}), DType::kInt32),
            TensorOf<int32_t>({2, -3, std::numeric_limits<int32_t>::max()}));
  // Towards zero, from every floating point type, also next to the bounds.
  EXPECT_EQ(cast(TensorOf<float>({-0.9f, 0.9f, -128.9f, 127.9f, NAN, -INFINITY, INFINITY}), DType::kInt8),
            TensorOf<int8_t>({0, 0, -128, 127, 0, -128, 127}));
  EXPECT_EQ(cast(TensorOf<double>({-0.9, 255.9, 256, -1}), DType::kUInt8), TensorOf<uint8_t>({0, 255, 255, 0}));
  EXPECT_EQ(cast(TensorOf<double>({-0x1p63, 0x1p63, -0x1p64, 3.99}), DType::kInt64),
            TensorOf<int64_t>({std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(),
                               std::numeric_limits<int64_t>::min(), 3}));
  EXPECT_EQ(cast(TensorOf<double>({0x1p63, 0x1p64}), DType::kUInt64), TensorOf<uint64_t>({uint64_t{1} << 63, most}));
  for (const DType half : {DType::kBFloat16, DType::kFloat16}) {
    EXPECT_EQ(cast(TensorOf<float>({1.75f, -2.5f}).Cast(half), DType::kInt32), TensorOf<int32_t>({1, -2}));
  }
  EXPECT_EQ(cast(TensorOf<float>({0.5f, 0, NAN}), DType::kBool).Cast(DType::kInt32), TensorOf<int32_t>({1, 0, 1}));
  EXPECT_EQ(cast(TensorOf<double>({0.1, -2, 1e-50}), DType::kFloat32), TensorOf<float>({0.1f, -2, 0}));
}

// What a function is made for is told by its name in the error.
TEST(ElementTypes, FunctionsOfFloatsTakeNoIntegers) {
  try {
    RunGraph(Exp(Variable("a"), "y"), {{"a", TensorOf<int32_t>({1})}}, {});
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("takes floating point numbers, got int32"), std::string::npos) << e.message();
  }
}

// As in PyTorch.
TEST(Gradients, AtBends) {
  const Symbol x = Variable("x", {.shape = Shape{9}}), quarter = Constant(HostTensor::Full(DType::kFloat32, {1}, 0.25));
  struct Bend {
    Symbol y;
    double at, slope;
  };
  for (const auto& [y, at, slope] : {Bend{LeakyRelu(x, 0.25), 0, 0.25},
                                     {PRelu(x, quarter), 0, 0.25},
                                     {Elu(x, 0.25), 0, 0.25},
                                     {Selu(x, 2, 3), 0, 6},
                                     {Celu(x, 0.25), 0, 1},
                                     {Relu(x), 0, 0},
                                     {Relu6(x), 0, 0},
                                     {Relu6(x), 6, 0},
                                     {HardTanh(x), -1, 0},
                                     {HardTanh(x), 1, 0},
                                     {HardSigmoid(x, 0.25, 0.5), 2, 0},
                                     {Shrink(x, 0.5), 0.5, 0},
                                     {ThresholdedRelu(x), 1, 0}}) {
    const std::vector<std::string> wrt = {"x"};
    const Symbol grad = Gradient(MakeLoss(Sum(y)), wrt).gradients[0];
    for (const KernelPolicy policy : {KernelPolicy::kFast, KernelPolicy::kReference}) {
      const HostTensor dx =
          RunGraph(grad, {{"x", HostTensor::Full(DType::kFloat32, {9}, at)}}, {.policy = policy}).outputs[0];
      EXPECT_EQ(dx, HostTensor::Full(DType::kFloat32, {9}, slope)) << y.entry().node->name() << " at " << at;
    }
  }
}

// Where the formulas of the gradients would multiply 0 by infinity.
TEST(Gradients, OfPowersOfZero) {
  const GradRequest both = std::map<std::string, GradReq>{{"a", GradReq::kWrite}, {"b", GradReq::kWrite}};
  Executor executor(Power(Variable("a"), Variable("b")), {.inputs = {{"a", {4}}, {"b", {4}}}, .grad_req = both});
  executor.Forward({{"a", TensorOf<float>({0, 0, 0, 2})}, {"b", TensorOf<float>({0, 1, 3, 0})}});
  executor.Backward(TensorOf<float>({1, 1, 1, 1}));
  EXPECT_EQ(MaxAbsDiff(executor.Gradient("a"), TensorOf<float>({0, 1, 0, 0})), 0);
  EXPECT_LE(MaxAbsDiff(executor.Gradient("b"), TensorOf<float>({0, 0, 0, std::log(2.0f)})), 1e-6);
  // A constant's slope is 0 wherever it is asked for, as PyTorch has it.
  executor.Forward({{"a", TensorOf<float>({NAN, INFINITY, -INFINITY, -2})}, {"b", TensorOf<float>({0, 0, 0, 0})}});
  executor.Backward(TensorOf<float>({1, 1, 1, 1}));
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(executor.Gradient("a").At(i), 0) << i;
}

}  // namespace
}  // namespace bindery
