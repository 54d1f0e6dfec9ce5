// Values of more elements than one thread takes alone (kSerialElements of engine/team.h), so that the parts which
// threads take, and their borders, are checked too. Extents are odd, so that parts are unequal.
#include "engine/team.h"
#include "symbol/ops.h"
#include "tests/executor/operator_cases.h"

namespace bindery {
namespace {

const Shape kImages{7, 20, 19, 17};     // 45220 elements, and 20 channels fit no block
const Shape kMatrix{193, 257};          // 49601

OperatorCase Large(const std::string& name, const Symbol& symbol, HostTensorMap inputs, double terms = 1) {
  OperatorCase c{.name = name,
                 .symbol = symbol,
                 .inputs = std::move(inputs),
                 .test_dtypes = {DType::kFloat32, DType::kBFloat16},
                 .terms = terms,
                 .tolerance = 2,
                 .magnitude = 1,
                 .large = true};
  for (const auto& [name, value] : c.inputs) {
    if (name == "x" || name == "a" || name == "label") c.batch_axes[name] = 0;
  }
  return c;
}

}  // namespace

std::vector<OperatorCase> LargeCases() {
  static_assert(7 * 20 * 19 * 17 > kSerialElements && 193 * 257 > kSerialElements);
  const Symbol x = Variable("x"), a = Variable("a"), b = Variable("b"), label = Variable("label");
  const HostTensor images = AwayFromZero(kImages, 0.1, 3), matrix = AwayFromZero(kMatrix, 0.1, 3);
  const double elements = static_cast<double>(kMatrix.Elements());

  std::vector<OperatorCase> cases = {
      Large("large relu", Relu(x, "y"), {{"x", images}}),
      Large("large tanh", Tanh(x, "y"), {{"x", images}}),
      Large("large softrelu", SoftRelu(x, "y"), {{"x", matrix}}),
      Large("large exp", Exp(x, "y"), {{"x", matrix}}),
      Large("large scalars", x * 3.0 + 1.0, {{"x", images}}),
      Large("large add", Add(a, b, "y"), {{"a", images}, {"b", Uniform(kImages)}}),
      Large("large div", Div(a, b, "y"), {{"a", matrix}, {"b", AwayFromZero(kMatrix, 0.5, 2)}}),
      Large("large add of channels", Add(a, b, "y"), {{"a", images}, {"b", Uniform({1, 20, 1, 1})}}, 7 * 19 * 17),
      Large("large mul of columns", Mul(a, b, "y"), {{"a", matrix}, {"b", Uniform({257})}}, 193),
      Large("large mul of rows", Mul(a, b, "y"), {{"a", matrix}, {"b", Uniform({193, 1})}}, 257),
      Large("large mul of a number", Mul(a, b, "y"), {{"a", matrix}, {"b", Values({1}, {1.5})}}, elements),
      Large("large sum of 2", Apply(AddNOp(), {}, {a, b}, "y"), {{"a", images}, {"b", Uniform(kImages)}}),
      Large("large AddRelu", Apply(AddReluOp(), {}, {a, b}, "y"),
            {{"a", images}, {"b", Uniform(kImages, -0.05, 0.05)}}),
      Large("large batch norm", BatchNorm(x, {.fix_gamma = false}, "bn"),
            {{"x", images},
             {"bn_gamma", Uniform({20}, 0.5, 2)},
             {"bn_beta", Uniform({20})},
             {"bn_running_mean", Uniform({20})},
             {"bn_running_var", Uniform({20}, 0.5, 2)}},
            7 * 19 * 17),
      Large("large batch norm with relu", BatchNorm(x, {.fix_gamma = false, .relu = true}, "bn"),
            {{"x", images},
             {"bn_gamma", Uniform({20}, 0.5, 2)},
             {"bn_beta", Uniform({20})},
             {"bn_running_mean", Uniform({20})},
             {"bn_running_var", Uniform({20}, 0.5, 2)}},
            7 * 19 * 17),
      Large("large batch norm, sync", BatchNorm(x, {.fix_gamma = false, .sync = true}, "bn"),
            {{"x", images},
             {"bn_gamma", Uniform({20}, 0.5, 2)},
             {"bn_beta", Uniform({20})},
             {"bn_running_mean", Uniform({20})},
             {"bn_running_var", Uniform({20}, 0.5, 2)}},
            7 * 19 * 17),
      Large("large convolution", Convolution(x, {.num_filter = 24, .kernel = {3, 3}, .pad = {1, 1}}, "conv"),
            {{"x", images}, {"conv_weight", Uniform({24, 20, 3, 3}, -0.5, 0.5)}, {"conv_bias", Uniform({24})}},
            7 * 19 * 17),
      Large("large convolution of 16 channels",
            Convolution(x, {.num_filter = 32, .kernel = {3, 3}, .stride = {2, 2}}, "conv"),
            {{"x", Uniform({5, 16, 19, 17})},
             {"conv_weight", Uniform({32, 16, 3, 3}, -0.5, 0.5)},
             {"conv_bias", Uniform({32})}},
            1000),
      Large("large full connection", FullyConnected(x, {.num_hidden = 131}, "fc"),
            {{"x", matrix}, {"fc_weight", Uniform({131, 257}, -0.5, 0.5)}, {"fc_bias", Uniform({131})}}, 257),
      Large("large maximum pooling", Pooling(x, {.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}}, "y"),
            {{"x", Uniform(kImages)}}, 9),
      Large("large average pooling", Pooling(x, {.type = PoolType::kAvg, .kernel = {2, 2}, .stride = {2, 2}}, "y"),
            {{"x", images}}, 4),
      Large("large dropout", Dropout(x, {.p = 0.3}, "drop"), {{"x", images}}),
      Large("large softmax", Softmax(x, {}, "y"), {{"x", matrix}}),
      Large("large softmax of channels", Softmax(x, {.axis = 1}, "y"), {{"x", images}}),
      Large("large sum of rows", Sum(x, {.axes = {1}}, "y"), {{"x", matrix}}, 257),
      Large("large sum of columns", Sum(x, {.axes = {0}}, "y"), {{"x", matrix}}, 193),
      Large("large mean of everything", Mean(x, {}, "y"), {{"x", matrix}}, elements),
      Large("large maximum of rows", Max(x, {.axes = {1}}, "y"), {{"x", matrix}}),
      Large("large transpose", Transpose(x, {}, "y"), {{"x", matrix}}),
      Large("large concatenation", Concat({a, b}, {.axis = 1}, "y"), {{"a", images}, {"b", Uniform({7, 9, 19, 17})}}),
      Large("large slice", Slice(x, {.begin = {3}, .end = {250}, .axes = {1}}, "y"), {{"x", matrix}}),
      Large("large parts", SliceChannel(x, {.num_outputs = 4}, "y"), {{"x", images}}),
      Large("large product of matrices", Dot(a, b, {}, "y"), {{"a", matrix}, {"b", Uniform({257, 101})}}, 257),
  };

  OperatorCase head = Large("large softmax head", SoftmaxOutput(x, label, {}, "y"),
                            {{"x", matrix}, {"label", Integers({193}, 0, 256)}});
  head.dtypes = {{"label", DType::kInt32}};
  head.wrt = std::vector<std::string>{"x"};
  cases.push_back(head);
  OperatorCase regression = Large("large regression head", LinearRegressionOutput(x, label, {}, "y"),
                                  {{"x", matrix}, {"label", Uniform(kMatrix)}});
  regression.wrt = std::vector<std::string>{"x"};
  cases.push_back(regression);
  return cases;
}

}  // namespace bindery
