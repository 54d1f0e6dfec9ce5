// Gradients of gradients where parts of these would not be finite by themselves: the product of what holds zeros, a
// norm of 0, powers of 0, bent lines far from their bend. In double, beside central differences of the gradient.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "executor/executor.h"
#include "symbol/gradient.h"
#include "symbol/ops.h"

namespace bindery {
namespace {

using Names = std::vector<std::string>;

HostTensor Doubles(const Shape& shape, std::initializer_list<double> values) {
  HostTensor tensor(DType::kFloat64, shape);
  std::ranges::copy(values, tensor.data<double>().begin());
  return tensor;
}

// The gradient of the sum of a symbol's elements by one of its inputs: a symbol of the same inputs.
Symbol SlopeOf(const Symbol& y, const std::string& by, const HostTensorMap& inputs) {
  GivenTypes given;
  const Names names = y.ListInputs();
  for (const auto& [name, value] : inputs) {
    if (std::ranges::find(names, name) == names.end()) continue;
    given.shapes[name] = value.shape();
    given.dtypes[name] = value.dtype();
  }
  return Gradient(MakeLoss(y), Names{by}, given).gradients[0];
}

HostTensor ValueOf(const Symbol& y, const HostTensorMap& inputs) {
  std::vector<DataDesc> described;
  HostTensorMap read;
  for (const std::string& name : y.ListInputs()) {
    const HostTensor& value = inputs.at(name);
    described.push_back(
        {name, value.shape(), value.dtype(), std::string(static_cast<size_t>(value.shape().rank()), '-')});
    read[name] = value;
  }
  Executor executor(y, {.inputs = described, .for_training = false});
  executor.Forward(read);
  return executor.Output(0);
}

double SumOf(const HostTensor& tensor) {
  double sum = 0;
  for (int64_t i = 0; i < tensor.elements(); ++i) sum += tensor.At(i);
  return sum;
}

// d/d `by` of the sum of `slope`'s elements, as its gradient and by differences.
void ExpectSlope(const Symbol& slope, const std::string& by, const HostTensorMap& inputs, const std::string& what) {
  constexpr double kStep = 1e-5;
  const HostTensor found = ValueOf(SlopeOf(slope, by, inputs), inputs);
  ASSERT_EQ(found.shape(), inputs.at(by).shape()) << what;
  for (int64_t i = 0; i < found.elements(); ++i) {
    HostTensorMap more = inputs, less = inputs;
    more[by].Set(i, inputs.at(by).At(i) + kStep);
    less[by].Set(i, inputs.at(by).At(i) - kStep);
    const double expected = (SumOf(ValueOf(slope, more)) - SumOf(ValueOf(slope, less))) / (2 * kStep);
    EXPECT_NEAR(found.At(i), expected, 1e-6 * (1 + std::abs(expected))) << what << ", by element " << i << " of " << by;
  }
}

const Symbol x = Variable("x"), b = Variable("b"), w = Variable("w");

TEST(SecondDerivatives, OfProductsOfZeros) {
  const HostTensorMap inputs = {{"x", Doubles({2, 3, 2}, {0, 2, 0, 3, 1.5, -1, 0, 0.5, 2, 0, -2, 3})},
                                {"w", Doubles({2, 3, 2}, {0.3, -1, 2, 0.7, 1.1, -0.4, 0.2, 0.9, -1.3, 0.6, 1, 2})}};
  for (const ReduceAttrs& attrs : {ReduceAttrs{.axes = {1}}, ReduceAttrs{.axes = {2, 0}, .keepdims = true},
                                   ReduceAttrs{.axes = {0}, .exclude = true}, ReduceAttrs{}}) {
    const Symbol slope = w * SlopeOf(Prod(x, attrs), "x", inputs);
    ExpectSlope(slope, "x", inputs, ToString(AnyAttrs(attrs).ToMap()["axes"]));
  }
}

// None, one, two and three of the factors that meet at a place are 0, and what they are multiplied by is or is not.
TEST(SecondDerivatives, OfScatteredProductsOfZeros) {
  const Symbol i = Variable("i"), u = Variable("u");
  HostTensorMap inputs = {{"x", Doubles({6}, {2, 3, 0, 5, -1, 0.5})},
                          {"u", Doubles({12}, {4, 0, 0.5, 0, 0, -2, 0, 7, 3, 0, 0, 0})},
                          {"w", Doubles({12}, {0.3, -1, 2, 0.7, 1.5, 0.2, -0.4, 1, 0.9, 2, -1, 0.6})},
                          {"b", Doubles({6}, {0.3, -1, 2, 0.7, 1.5, 0.2})}};
  for (const bool by_elements : {true, false}) {
    inputs["i"] = Doubles(by_elements ? Shape{12} : Shape{12, 1}, {0, 1, 1, 2, 2, 2, 3, 3, 3, 5, 5, 5});
    const Symbol y = b * (by_elements ? ScatterElements(x, i, u, {.reduction = ScatterReduction::kMul})
                                      : ScatterND(x, i, u, {.reduction = ScatterReduction::kMul}));
    const Symbol by_updates = w * SlopeOf(y, "u", inputs), by_data = b * SlopeOf(y, "x", inputs);
    for (const std::string by : {"u", "x", "b"}) ExpectSlope(by_updates, by, inputs, "by updates");
    for (const std::string by : {"u", "b"}) ExpectSlope(by_data, by, inputs, "by data");
  }
}

TEST(SecondDerivatives, OfANormOfZeroByWhatFlowsBack) {
  const HostTensorMap inputs = {{"x", Doubles({2, 2}, {0, 0, 3, 4})}, {"b", Doubles({2}, {0.5, -2})}};
  ExpectSlope(SlopeOf(b * L2Norm(x, {.axes = {1}}), "x", inputs), "b", inputs, "a norm");
}

TEST(SecondDerivatives, OfPowersOfZero) {
  const HostTensorMap inputs = {{"x", Doubles({5}, {0, 0, 2, 2, 0.5})},
                                {"b", Doubles({5}, {2, 3.5, 0, 3, -1})},
                                {"w", Doubles({5}, {0.3, -1, 2, 0.7, 1.5})}};
  const Symbol by_base = SlopeOf(w * Power(x, b), "x", inputs), by_exponent = SlopeOf(w * Power(x, b), "b", inputs);
  for (const std::string by : {"w", "b"}) ExpectSlope(by_base, by, inputs, "by the base");
  ExpectSlope(by_exponent, "w", inputs, "by the exponent");
  const HostTensor nothing =
      ValueOf(by_base, {{"x", Doubles({1}, {0})}, {"b", Doubles({1}, {0})}, {"w", Doubles({1}, {2})}});
  EXPECT_EQ(nothing.At(0), 0);
}

// Three times.
TEST(SecondDerivatives, OfBentLinesFarFromTheirBend) {
  const HostTensorMap inputs = {{"x", Doubles({3}, {-0.7, 0.4, 1000})}};
  for (const Symbol& y : {Elu(x), Celu(x, 0.5), Selu(x)}) {
    const Symbol slope = SlopeOf(y, "x", inputs);
    ExpectSlope(slope, "x", inputs, y.name());
    ExpectSlope(SlopeOf(slope, "x", inputs), "x", inputs, y.name());
  }
}

}  // namespace
}  // namespace bindery
