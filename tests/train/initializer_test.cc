#include "train/initializer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "base/error.h"
#include "executor/data_parallel_executor_group.h"
#include "symbol/model.h"
#include "symbol/ops.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

struct Moments {
  double mean = 0, deviation = 0, low = 0, high = 0;
};

Moments MomentsOf(const HostTensor& tensor) {
  Moments moments{0, 0, tensor.At(0), tensor.At(0)};
  const auto count = static_cast<double>(tensor.elements());
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const double value = tensor.At(i);
    moments.mean += value / count;
    moments.deviation += value * value / count;
    moments.low = std::min(moments.low, value);
    moments.high = std::max(moments.high, value);
  }
  moments.deviation = std::sqrt(moments.deviation - moments.mean * moments.mean);
  return moments;
}

HostTensor Make(const char* text, const Shape& shape, const std::string& name = "w_weight", uint64_t seed = 1) {
  return Initializer(text).Make(name, shape, DType::kFloat32, seed);
}

// Bounds hold for every draw; moments of 200,000 draws to four standard errors.
void ExpectUniform(const HostTensor& tensor, double low, double high) {
  const Moments moments = MomentsOf(tensor);
  const double range = high - low, error = range / std::sqrt(12.0 * static_cast<double>(tensor.elements()));
  EXPECT_GE(moments.low, low);
  EXPECT_LE(moments.high, high * (1 + 1e-6));
  EXPECT_NEAR(moments.low, low, range / 1000);
  EXPECT_NEAR(moments.high, high, range / 1000);
  EXPECT_NEAR(moments.mean, (low + high) / 2, 4 * error);
}

void ExpectNormal(const HostTensor& tensor, double sigma) {
  const Moments moments = MomentsOf(tensor);
  const double count = static_cast<double>(tensor.elements());
  EXPECT_NEAR(moments.mean, 0, 4 * sigma / std::sqrt(count));
  EXPECT_NEAR(moments.deviation, sigma, 4 * sigma / std::sqrt(2 * count));
  EXPECT_GT(moments.high, 3 * sigma);  // it has tails
  EXPECT_LT(moments.low, -3 * sigma);
}

TEST(Initializer, FillsWithConstants) {
  EXPECT_EQ(Make("zero", {3}), HostTensor::Full(DType::kFloat32, {3}, 0));
  EXPECT_EQ(Make("One", {2, 2}), HostTensor::Full(DType::kFloat32, {2, 2}, 1));
  EXPECT_EQ(Make(" constant( -2.5 ) ", {2}), HostTensor::Full(DType::kFloat32, {2}, -2.5));
}

TEST(Initializer, DrawsFromRangesAndBells) {
  ExpectUniform(Make("uniform", {200'000}), -0.07, 0.07);
  ExpectUniform(Make("uniform(0.5)", {200'000}), -0.5, 0.5);
  ExpectUniform(Make("uniform(1, 3)", {200'000}), 1, 3);
  ExpectNormal(Make("normal", {200'000}), 0.01);
  ExpectNormal(Make("normal(2)", {200'000}), 2);
}

TEST(Initializer, ScalesByFans) {
  const Shape conv{100, 50, 5, 8};  // fans: in 50 * 40 = 2000, out 100 * 40 = 4000
  const double average = std::sqrt(3 / 3000.0);
  ExpectUniform(Make("xavier", conv), -average, average);
  ExpectUniform(Make("xavier()", conv), -average, average);
  ExpectUniform(Make("xavier(uniform, in)", conv), -std::sqrt(3 / 2000.0), std::sqrt(3 / 2000.0));
  ExpectUniform(Make("xavier(uniform, out, 6)", conv), -std::sqrt(6 / 4000.0), std::sqrt(6 / 4000.0));
  ExpectNormal(Make("xavier(gaussian,in,2)", conv), std::sqrt(2 / 2000.0));
  ExpectNormal(Make("he", conv), std::sqrt(2 / 2000.0));
  EXPECT_EQ(Make("he", conv), Make("xavier(gaussian, in, 2)", conv));
  EXPECT_EQ(Make("xavier(magnitude=6, fan=out)", conv), Make("xavier(uniform, out, 6)", conv));
  ExpectNormal(Make("msra", conv), std::sqrt(2 / (1 + 0.0625) / 3000.0));
  ExpectNormal(Make("msra(in, 0)", conv), std::sqrt(2 / 2000.0));
  const Shape dense{400, 500};
  ExpectUniform(Make("xavier", dense), -std::sqrt(3 / 450.0), std::sqrt(3 / 450.0));
}

TEST(Initializer, MakesRowsOrColumnsOrthogonal) {
  for (const Shape& shape : {Shape{6, 40}, Shape{40, 6}, Shape{8, 2, 2, 2}}) {
    const HostTensor values = Make("orthogonal(2)", shape);
    const int64_t out = shape[0], in = shape.CountFrom(1), count = std::min(out, in), length = std::max(out, in);
    const auto at = [&](int64_t row, int64_t i) { return values.At(out <= in ? row * in + i : i * in + row); };
    for (int64_t a = 0; a < count; ++a) {
      for (int64_t b = 0; b <= a; ++b) {
        double product = 0;
        for (int64_t i = 0; i < length; ++i) product += at(a, i) * at(b, i);
        EXPECT_NEAR(product, a == b ? 4 : 0, 1e-5) << ToString(shape);
      }
    }
  }
  EXPECT_EQ(Make("orthogonal", {3, 3}), Make("orthogonal(1.414)", {3, 3}));
}

TEST(Initializer, InterpolatesAndOpensGates) {
  const HostTensor values = Make("bilinear", {2, 1, 4, 4});  // the outer product of these
  const double line[] = {0.25, 0.75, 0.75, 0.25};
  for (int64_t i = 0; i < 32; ++i) EXPECT_EQ(values.At(i), line[i % 4] * line[i / 4 % 4]) << i;
  EXPECT_EQ(Make("bilinear", {3, 3}).At(4), 0.5625);  // as MXNet's
  EXPECT_EQ(Make("lstm_bias", {8}), HostTensor::From({8}, {0, 0, 1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(Make("lstm_bias(2.5)", {4}), HostTensor::From({4}, {0, 2.5, 0, 0}));
  EXPECT_EQ(MessageOf<ShapeError>([] { Make("lstm_bias", {6}, "b_bias"); }),
            "ShapeError: parameter \"b_bias\", initializer \"lstm_bias\": a bias of four gates is needed, got (6)");
}

TEST(Initializer, GoesByPatterns) {
  const Initializer by("*_l?_input_bias: lstm_bias, embed*: constant(3), *: one, xavier");
  const auto value = [&](const char* name, const Shape& shape) {
    return InitialValue(name, shape, DType::kFloat32, by, 1);
  };
  EXPECT_EQ(value("rnn_l0_input_bias", {4}), HostTensor::From({4}, {0, 1, 0, 0}));
  EXPECT_EQ(value("rnn_l10_input_bias", {4}), HostTensor::Full(DType::kFloat32, {4}, 1));  // ? is one character
  EXPECT_EQ(value("embed_weight", {2, 2}), HostTensor::Full(DType::kFloat32, {2, 2}, 3));
  EXPECT_EQ(value("state", {2}), HostTensor::Full(DType::kFloat32, {2}, 1));  // names of any ending
  const Initializer some("a*_weight: one, normal"), only("a*_weight: one");
  EXPECT_EQ(InitialValue("b_weight", {3}, DType::kFloat32, some, 1), Make("normal", {3}, "b_weight"));
  EXPECT_EQ(InitialValue("b_bias", {3}, DType::kFloat32, some, 1), HostTensor(DType::kFloat32, {3}));
  EXPECT_EQ(MessageOf<ModelError>([&] { InitialValue("b_weight", {3}, DType::kFloat32, only, 1); }),
            "ModelError: parameter \"b_weight\", initializer \"a*_weight: one\": no pattern fits the name");
}

TEST(Initializer, DependsOnSeedNameAndShapeAlone) {
  const HostTensor values = Make("xavier", {8, 4});
  EXPECT_EQ(Make("xavier", {8, 4}), values);
  EXPECT_NE(Make("xavier", {8, 4}, "v_weight"), values);
  EXPECT_NE(Make("xavier", {8, 4}, "w_weight", 2), values);
  EXPECT_EQ(Initializer("xavier").Make("w_weight", {8, 4}, DType::kBFloat16, 1), values.Cast(DType::kBFloat16));
  EXPECT_EQ(Initializer("xavier").Make("w_weight", {8, 4}, DType::kFloat64, 1), values.Cast(DType::kFloat64));
}

TEST(Initializer, SaysWhatItTakes) {
  const std::string forms =
      "unknown name; the forms are zero, one, constant(value), uniform(s), uniform(low, high), normal(sigma), "
      "xavier(uniform|gaussian, avg|in|out, magnitude), msra(avg|in|out, slope), he, orthogonal(scale), bilinear, "
      "lstm_bias(forget)";
  const std::map<std::string, std::string> expected = {
      {"glorot", forms},
      {"xaver", "unknown name; did you mean \"xavier\"?"},
      {"", "expected a name, or name(setting, name=setting)"},
      {"normal(0.1", "the closing parenthesis is missing"},
      {"normal(a)", "\"sigma\" must be a number, got \"a\""},
      {"normal(nan)", "\"sigma\" must be a number, got \"nan\""},
      {"normal(0.1, 2)", "normal takes at most 1 settings"},
      {"normal(-1)", "\"sigma\" must be at least 0, got -1"},
      {"uniform(3, 1)", "its range is empty"},
      {"constant", "it needs a value, constant(0.25)"},
      {"xavier(in, gaussian)", "\"distribution\" must be one of uniform, gaussian, got \"in\""},
      {"msra(fan=both)", "\"fan\" must be one of avg, in, out, got \"both\""},
      {"xavier(magnitud=1)", "unknown setting \"magnitud\"; did you mean \"magnitude\"?"},
      {"zero(1)", "zero takes at most 0 settings"},
      {"orthogonal(-1)", "\"scale\" must be at least 0, got -1"},
      {"one, zero", "\"one\" needs a pattern, \"*_bias: one\": only the last may be without"},
      {": one", "\": one\" needs a pattern, \"*_bias: one\": only the last may be without"},
  };
  for (const auto& [text, why] : expected) {
    EXPECT_EQ(MessageOf<Error>([&] { Initializer{text}; }), "Error: initializer \"" + text + "\": " + why);
  }
  EXPECT_EQ(
      MessageOf<ShapeError>([] { Make("xavier", {10}, "fc_weight"); }),
      "ShapeError: parameter \"fc_weight\", initializer \"xavier\": an initializer by fan needs a shape (out, in, "
      "kernel...), got (10)");
}

TEST(InitialValue, FollowsTheEndingOfTheName) {
  const Initializer weights("normal");
  const auto value = [&](const char* name, std::string_view own = "") {
    return InitialValue(name, {2, 3}, DType::kFloat32, weights, 5, own);
  };
  EXPECT_EQ(value("fc1_weight"), weights.Make("fc1_weight", {2, 3}, DType::kFloat32, 5));
  for (const char* name : {"fc1_bias", "bn_beta", "bn_running_mean", "bn_moving_mean", "bn_moving_inv_var", "x_min"}) {
    EXPECT_EQ(value(name), HostTensor::Full(DType::kFloat32, {2, 3}, 0)) << name;
  }
  for (const char* name : {"bn_gamma", "bn_running_var", "bn_moving_var", "x_max"}) {
    EXPECT_EQ(value(name), HostTensor::Full(DType::kFloat32, {2, 3}, 1)) << name;
  }
  EXPECT_EQ(value("prelu_gamma", "constant(0.25)"), HostTensor::Full(DType::kFloat32, {2, 3}, 0.25));
  EXPECT_EQ(value("anything", "one"), HostTensor::Full(DType::kFloat32, {2, 3}, 1));
  EXPECT_EQ(MessageOf<Error>([&] { value("state"); }),
            "ModelError: parameter \"state\": no initial value follows from its name, which ends in none of weight, "
            "bias, gamma, "
            "beta, running_mean, running_var; give the variable its own initializer, Variable(\"state\", {.init = "
            "\"zero\"}), or its value");
  EXPECT_TRUE(MessageOf<ModelError>([&] {
                value("anything", "glorot");
              }).starts_with("ModelError: parameter \"anything\", annotation \"init\": initializer \"glorot\": "));
}

TEST(InitialValues, AVariablesOwnInitializerWins) {
  const Symbol net =
      Group({Variable("a_weight"), Variable("b_weight", {.init = "constant(7)"}), Variable("h", {.init = "one"})});
  const HostTensorMap values = InitialValues(
      net,
      {{"a_weight", {DType::kFloat32, {4, 4}}}, {"b_weight", {DType::kFloat64, {2}}}, {"h", {DType::kFloat16, {3}}}},
      Initializer("uniform(1)"), 9);
  ASSERT_EQ(values.size(), 3u);
  EXPECT_EQ(values.at("a_weight"), Initializer("uniform(1)").Make("a_weight", {4, 4}, DType::kFloat32, 9));
  EXPECT_EQ(values.at("b_weight"), HostTensor::Full(DType::kFloat64, {2}, 7));
  EXPECT_EQ(values.at("h"), HostTensor::Full(DType::kFloat16, {3}, 1));
}

TEST(InitialModel, HasAllButItsInputs) {
  const Symbol x = BatchNorm(FullyConnected(Variable("data"), {.num_hidden = 2, .no_bias = true}, "fc"), {}, "bn");
  const Symbol scale = Variable("scale", {.shape = Shape{3}, .dtype = DType::kFloat64, .init = "constant(7)"});
  const Symbol net = Group({SoftmaxOutput(x, {}, "softmax"), scale});
  const Model model =
      InitialModel(net, {{"data", {4, 5}}, {"softmax_label", {4}}}, Initializer("uniform(1)"), /*seed=*/9);
  EXPECT_EQ(model.symbol.ListOutputs(), net.ListOutputs());
  const auto full = [](double value) { return HostTensor::Full(DType::kFloat32, {2}, value); };
  EXPECT_EQ(model.params,
            (HostTensorMap{{"fc_weight", Initializer("uniform(1)").Make("fc_weight", {2, 5}, DType::kFloat32, 9)},
                           {"bn_gamma", full(1)},
                           {"bn_beta", full(0)},
                           {"scale", HostTensor::Full(DType::kFloat64, {3}, 7)}}));
  EXPECT_EQ(model.aux, (HostTensorMap{{"bn_running_mean", full(0)}, {"bn_running_var", full(1)}}));
  EXPECT_THROW(InitialModel(net, {{"softmax_label", {4}}}, Initializer("zero"), 1), ShapeError);
}

TEST(InitialParams, FillWhatAModelLacks) {
  const Symbol net = FullyConnected(Variable("data"), {.num_hidden = 2}, "fc");
  DataParallelExecutorGroup group(net, {.devices = {Cpu(0)}, .data = {{"data", {1, 3}}}, .for_training = false});
  const HostTensor bias = HostTensor::From({2}, {5, 6});
  SetInitialParams(&group, Model{.symbol = net, .params = {{"fc_bias", bias}}}, Initializer("constant(4)"), 1);
  HostTensorMap params;
  group.GetParams(&params, nullptr);
  EXPECT_EQ(params, (HostTensorMap{{"fc_bias", bias}, {"fc_weight", HostTensor::Full(DType::kFloat32, {2, 3}, 4)}}));
}

}  // namespace
}  // namespace bindery
