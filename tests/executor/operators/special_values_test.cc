// Not a number, infinities, both zeros and the smallest and largest numbers mean the same to both tables of kernels.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "symbol/ops.h"
#include "tests/executor/operators/unusual_values.h"

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

// `magnitude`: of the terms of a sum, whose rounding stays when they cancel.
bool Agree(double a, double b, double magnitude) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || std::fabs(a - b) <= 1e-6 * std::max({std::fabs(a), std::fabs(b), magnitude}) + 3e-45;
}

void ExpectTablesAgree(const Symbol& symbol, const HostTensorMap& inputs, double magnitude = 0) {
  const RunResult fast = RunGraph(symbol, inputs, {});
  const RunResult truth = RunGraph(symbol, inputs, {.policy = KernelPolicy::kReference});
  for (const auto& [node, implementation] : fast.implementations) EXPECT_NE(implementation, "reference") << node;
  for (size_t o = 0; o < truth.outputs.size(); ++o) {
    for (int64_t i = 0; i < truth.outputs[o].elements(); ++i) {
      const double got = fast.outputs[o].At(i), wanted = truth.outputs[o].At(i);
      EXPECT_TRUE(Agree(got, wanted, magnitude))
          << symbol.DebugString() << "element " << i << ": " << got << " instead of " << wanted;
    }
  }
}

const Symbol x = Variable("x"), a = Variable("a"), b = Variable("b");

TEST(SpecialValues, Unary) {
  const HostTensor values = TensorOf({static_cast<int64_t>(kSpecial.size())}, kSpecial);
  for (const OpDef& (*op)() : ElementwiseOps()) {
    if (op().inputs.Count({}) > 1 || !op().gradient) continue;  // those without gradient take integers
    // How large angles are reduced is the C library's affair.
    HostTensor operands = values;
    if (op().name == "Sin" || op().name == "Cos" || op().name == "Tan") {
      for (float& value : operands.data<float>()) value = std::fabs(value) == kLargest ? 3 : value;
    }
    ExpectTablesAgree(Apply(op(), {}, {x}, "y"), {{"x", operands}});
  }
  for (ActivationType type : {ActivationType::kRelu, ActivationType::kSigmoid, ActivationType::kTanh,
                              ActivationType::kSoftRelu, ActivationType::kSoftSign}) {
    ExpectTablesAgree(Activation(x, {.type = type}, "y"), {{"x", values}});
  }
  for (int type = 0; type < 13; ++type) {
    ExpectTablesAgree(Curve(x, {static_cast<CurveType>(type), 0.5, 0.75}, "y"), {{"x", values}});
  }
  const RunOptions reference{.policy = KernelPolicy::kReference};
  EXPECT_TRUE(std::isnan(RunGraph(Apply(Sign.op(), {}, {x}, "y"), {{"x", values}}, reference).outputs[0].At(0)));
}

TEST(SpecialValues, Binary) {
  const auto [left, right] = Pairs();
  for (const OpDef& (*op)() : ElementwiseOps()) {
    if (op().inputs.Count({}) != 2 || !op().gradient) continue;
    ExpectTablesAgree(Apply(op(), {}, {a, b}, "y"), {{"a", left}, {"b", right}});
  }
  ExpectTablesAgree(Apply(AddNOp(), {}, {a, b}, "y"), {{"a", left}, {"b", right}});
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
  for (const OpDef& (*op)() : {LinearRegressionOutputGradOp, MAERegressionOutputGradOp}) {
    ExpectTablesAgree(Apply(op(), LinearRegressionOutputAttrs{}, {a, b}, "dx"), {{"a", dy}, {"b", y}});
  }
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
        ExpectTablesAgree(Sum(x, {.axes = {axis}}, "y"), {{"x", data}}, 6);
      }
      ExpectTablesAgree(Max(x, {}, "y"), {{"x", data}});
    }
  }
}

const std::vector<ActivationType> kActivations = {ActivationType::kNone,     ActivationType::kRelu,
                                                  ActivationType::kSigmoid,  ActivationType::kTanh,
                                                  ActivationType::kSoftRelu, ActivationType::kSoftSign};

// Every form of convolution, alone and with each activation, forward and backward. The last is so large that the
// activation follows by parts.
TEST(SpecialValues, Convolution) {
  struct Form {
    Shape data;
    int64_t filters, groups, stride;
  };
  const std::vector<Form> forms = {{{2, 3, 7, 7}, 8, 1, 1}, {{2, 16, 7, 7}, 8, 1, 1},  {{2, 16, 7, 7}, 32, 1, 2},
                                   {{2, 5, 7, 7}, 6, 1, 1}, {{2, 8, 7, 7}, 8, 8, 1},   {{2, 6, 7, 7}, 12, 3, 1},
                                   {{1, 16, 9}, 16, 1, 1},  {{4, 3, 96, 96}, 16, 1, 1}};
  for (const Form& form : forms) {
    const bool large = form.data.Elements() > 10000;
    const std::vector<int64_t> kernel(form.data.rank() - 2, 3), ones(form.data.rank() - 2, 1),
        stride(form.data.rank() - 2, form.stride);
    ConvolutionAttrs attrs{.kernel = kernel, .stride = stride, .pad = ones};
    attrs.num_filter = form.filters;
    attrs.groups = form.groups;
    Shape weight = form.data.With(0, form.filters).With(1, form.data[1] / form.groups);
    for (int i = 2; i < weight.rank(); ++i) weight.Set(i, 3);
    const std::vector<int64_t> extents(form.data.begin() + 2, form.data.end());
    for (const float value : kUnusual) {
      for (const Layout layout : {Layout::kPlain, Layout::kChannelsLast, Layout::kBlocked8}) {
        if (large && layout != Layout::kPlain) continue;
        const HostTensorMap inputs = {{"x", WithOne(form.data, value, 24)},
                                      {"w", WithOne(weight, 0.5f, 0)},
                                      {"b", WithOne({form.filters}, 0.5f, 0)}};
        for (const ActivationType type : kActivations) {
          attrs.activation = type;
          ExpectSameUnusual(Convolution(x, Variable("w"), Variable("b"), attrs, "y"), inputs, layout, large ? 2 : 1);
        }
        attrs.activation = ActivationType::kNone;
        if (large) continue;
        const HostTensor y = RunGraph(Convolution(x, Variable("w"), Variable("b"), attrs, "y"), inputs, {}).outputs[0];
        HostTensorMap backward = inputs;
        backward["dy"] = WithOne(y.shape(), value, 11);
        const Symbol dy = Variable("dy");
        backward["x"] = WithOne(form.data, 0.5f, 0);
        const std::vector<int64_t> extents(form.data.begin() + 2, form.data.end());
        const ConvolutionGradDataAttrs grad{attrs, extents};
        ExpectSameUnusual(ConvolutionGradData(dy, Variable("w"), grad, "dx"), backward, layout);
        ExpectSameUnusual(Apply(ConvolutionGradWeightOp(), attrs, {dy, x}, "dw"), backward, layout);
      }
    }
  }
}

// Few rows, many, and one: own loops and oneDNN's.
TEST(SpecialValues, FullyConnectedAndDot) {
  for (const auto& [rows, columns, hidden] : {std::array<int64_t, 3>{2, 5, 7}, {1, 40, 33}, {64, 200, 100}}) {
    FullyConnectedAttrs attrs{.num_hidden = hidden};
    const Symbol w = Variable("w"), dy = Variable("dy");
    for (const float value : kUnusual) {
      const HostTensorMap inputs = {{"x", WithOne({rows, columns}, value, 3)},
                                    {"w", WithOne({hidden, columns}, 0.5f, 0)},
                                    {"v", WithOne({columns, hidden}, 0.5f, 0)},
                                    {"b", WithOne({hidden}, 0.5f, 0)},
                                    {"dy", WithOne({rows, hidden}, value, 4)}};
      for (const ActivationType type : kActivations) {
        attrs.activation = type;
        ExpectSameUnusual(FullyConnected(x, w, b, attrs, "y"), inputs, Layout::kPlain, 2);
      }
      attrs.activation = ActivationType::kNone;
      HostTensorMap backward = inputs;
      backward["x"] = WithOne({rows, columns}, 0.5f, 0);
      ExpectSameUnusual(FullyConnectedGradData(dy, w, attrs, "dx"), backward, Layout::kPlain);
      ExpectSameUnusual(Apply(FullyConnectedGradWeightOp(), attrs, {dy, x}, "dw"), backward, Layout::kPlain);
      ExpectSameUnusual(Dot(x, Variable("v"), {}, "y"), inputs, Layout::kPlain);
    }
  }
}

TEST(SpecialValues, BatchNorm) {
  for (const float value : kUnusual) {
    for (const Layout layout : {Layout::kPlain, Layout::kChannelsLast, Layout::kBlocked8}) {
      for (const bool relu : {false, true}) {
        for (const bool running : {false, true}) {
          const BatchNormAttrs attrs{.fix_gamma = false, .use_global_stats = running, .relu = relu};
          const Shape shape = {3, 16, 5, 5}, channel = {16};
          const HostTensorMap inputs = {{"x", WithOne(shape, value, 24)},
                                        {"gamma", WithOne(channel, 0.5f, 0)},
                                        {"beta", WithOne(channel, 0.5f, 0)},
                                        {"m", WithOne(channel, 0.5f, 0)},
                                        {"v", HostTensor::Full(DType::kFloat32, channel, 2)},
                                        {"dy", WithOne(shape, 0.5f, 0)}};
          const Symbol gamma = Variable("gamma"), m = Variable("m"), v = Variable("v");
          const Symbol y = Apply(BatchNormOp(), attrs, {x, gamma, Variable("beta"), m, v}, "y");
          ExpectSameUnusual(y, inputs, layout, 2);
          if (relu) continue;  // the gradient takes a state that each table keeps for itself
          HostTensorMap backward = inputs;
          backward["x"] = inputs.at("dy");
          backward["dy"] = inputs.at("x");
          ExpectSameUnusual(Apply(BatchNormGradOp(), attrs, {Variable("dy"), x, m, v, gamma}, "dx"), backward, layout,
                            2);
        }
      }
    }
  }
}

TEST(SpecialValues, ActivationsBackward) {
  const HostTensorMap inputs = {{"x", WithOne({2, 37}, 0.5f, 0)}};
  for (const ActivationType type : kActivations) {
    if (type != ActivationType::kNone) ExpectSameBackward(Activation(x, {.type = type}, "y"), inputs);
  }
  for (const EnumName& curve : EnumNames(static_cast<CurveType*>(nullptr))) {
    ExpectSameBackward(Curve(x, {static_cast<CurveType>(curve.value), 0.5, 0.75}, "y"), inputs);
  }
}

TEST(SpecialValues, PoolingBackward) {
  for (const int64_t channels : {3, 16, 20}) {
    const HostTensorMap inputs = {{"x", WithOne({2, channels, 7, 6}, 0.5f, 0)}};
    for (const PoolType type : {PoolType::kMax, PoolType::kAvg}) {
      const PoolingAttrs overlapping{.type = type, .kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}};
      const PoolingAttrs global{.type = type, .global = true};
      for (const PoolingAttrs& attrs : {overlapping, global}) ExpectSameBackward(Pooling(x, attrs, "y"), inputs);
    }
  }
}

// Short rows, long ones, and columns.
TEST(SpecialValues, SoftmaxBackward) {
  struct Form {
    Shape data;
    int64_t axis;
  };
  for (const auto& [data, axis] : {Form{{2, 37}, 1}, Form{{2, 150}, 1}, Form{{2, 20, 3, 7}, 1}}) {
    const int64_t classes = data[1];
    HostTensor labels(DType::kFloat32, data.Erase(1));  // the first class, the last, ...
    for (int64_t i = 0; i < labels.elements(); ++i) labels.Set(i, static_cast<double>(i % 2 * (classes - 1)));
    const HostTensorMap inputs = {{"x", WithOne(data, 0.5f, 0)}, {"a", labels}, {"b", WithOne({classes}, 0.5f, 0)}};
    const HostTensorMap labelled = {{"x", inputs.at("x")}, {"a", labels}};
    ExpectSameBackward(Softmax(x, {.axis = axis, .temperature = 2}, "y"), {{"x", inputs.at("x")}});
    ExpectSameBackward(LogSoftmax(x, {.axis = axis}, "y"), {{"x", inputs.at("x")}});
    for (const double smoothing : {0.0, 0.125}) {
      for (const bool ignores : {false, true}) {
        const SoftmaxOutputAttrs output{.use_ignore = ignores,
                                        .ignore_label = 0,
                                        .smooth_alpha = smoothing,
                                        .multi_output = true,
                                        .out_grad = ignores};
        ExpectSameBackward(SoftmaxOutput(x, a, output, "y"), labelled);
        const CrossEntropyAttrs attrs{
            .axis = axis, .use_ignore = ignores, .ignore_label = 0, .label_smoothing = smoothing};
        ExpectSameBackward(SoftmaxCrossEntropy(x, a, attrs, LossReduction::kNone, {}, "y"), labelled);
        ExpectSameBackward(SoftmaxCrossEntropy(x, a, attrs, LossReduction::kNone, b, "y"), inputs);
        ExpectSameBackward(NegativeLogLikelihood(x, a, attrs, LossReduction::kNone, {}, "y"), labelled);
      }
    }
  }
}

// With the batch's statistics all of a channel is lost, with given ones a place.
TEST(SpecialValues, BatchNormBackward) {
  for (const int64_t channels : {3, 16, 20}) {
    const HostTensorMap inputs = {{"x", WithOne({3, channels, 5, 5}, 0.5f, 0)},
                                  {"gamma", WithOne({channels}, 0.5f, 0)},
                                  {"beta", WithOne({channels}, 0.5f, 0)},
                                  {"m", WithOne({channels}, 0.5f, 0)},
                                  {"v", HostTensor::Full(DType::kFloat32, {channels}, 2)}};
    for (const bool relu : {false, true}) {
      for (const bool running : {false, true}) {
        const BatchNormAttrs attrs{.fix_gamma = false, .use_global_stats = running, .relu = relu};
        const Symbol y =
            Apply(BatchNormOp(), attrs, {x, Variable("gamma"), Variable("beta"), Variable("m"), Variable("v")}, "y");
        const std::vector<std::string> wrt = {"x", "gamma", "beta"};
        ExpectSameBackward(y, inputs, wrt, {"x", "beta"});
        // An infinite gamma is joined to other factors: infinity times a sum, or a sum of infinities.
        ExpectSameBackward(y, inputs, wrt, {"gamma"}, {NAN});
      }
    }
  }
}

}  // namespace
}  // namespace bindery
