// Values of more elements than one thread takes alone (kSerialElements of engine/team.h), so that the parts which
// threads take, and their borders, are checked too. Extents are odd, so that parts are unequal.
#include "engine/team.h"
#include "symbol/ops.h"
#include "symbol/ops/fusions.h"
#include "tests/executor/cases/operator_cases.h"

namespace bindery {
namespace {

const Shape kImages{7, 20, 19, 17};  // 45220 elements, and 20 channels fit no block
const Shape kMatrix{193, 257};       // 49601

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
      Large("large div by a number", Div(a, b, "y"), {{"a", matrix}, {"b", Values({}, {1.5})}}, elements),
      Large("large sum of 2", Apply(AddNOp(), {}, {a, b}, "y"), {{"a", images}, {"b", Uniform(kImages)}}),
      Large("large batch norm", BatchNorm(x, {.fix_gamma = false}, "bn"),
            {{"x", images},
             {"bn_gamma", Uniform({20}, 0.5, 2)},
             {"bn_beta", Uniform({20})},
             {"bn_running_mean", Uniform({20})},
             {"bn_running_var", Uniform({20}, 0.5, 2)}},
            7 * 19 * 17),
      Large("batch norm of large planes", BatchNorm(x, {.fix_gamma = false}, "bn"),
            {{"x", Uniform({2, 3, 67, 71}, -2, 3)},
             {"bn_gamma", Uniform({3}, 0.5, 2)},
             {"bn_beta", Uniform({3})},
             {"bn_running_mean", Uniform({3})},
             {"bn_running_var", Uniform({3}, 0.5, 2)}},
            2 * 67 * 71),
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
      Large("large pooling of 289 taps", Pooling(x, {.kernel = {17, 17}}, "y"), {{"x", Uniform(kImages)}}, 289),
      Large("large average of 289 taps", Pooling(x, {.type = PoolType::kAvg, .kernel = {17, 17}}, "y"), {{"x", images}},
            289),
      Large("large dropout", Dropout(x, {.p = 0.3}, "drop"), {{"x", images}}),
      Large("large dropout of nothing", Dropout(x, {.p = 0}, "drop"), {{"x", images}}),
      Large("large softmax", Softmax(x, {}, "y"), {{"x", matrix}}),
      Large("large softmax of channels", Softmax(x, {.axis = 1}, "y"), {{"x", images}}),
      Large("large softmax of many columns", Softmax(x, {.axis = 1}, "y"), {{"x", Uniform({3, 7, 47, 53}, -3, 3)}}),
      Large("large sum of rows", Sum(x, {.axes = {1}}, "y"), {{"x", matrix}}, 257),
      Large("large sum of columns", Sum(x, {.axes = {0}}, "y"), {{"x", matrix}}, 193),
      Large("large sum of everything", Sum(x, {}, "y"), {{"x", Uniform(kMatrix, 0, 1)}}, elements),
      Large("large mean of everything", Mean(x, {}, "y"), {{"x", matrix}}, elements),
      Large("large mean of channels", Mean(x, {.axes = {0, 2, 3}}, "y"), {{"x", images}}, 7 * 19 * 17),
      Large("large copies", Flatten(Reshape(Identity(x), {.shape = {-1, 193}}), "y"), {{"x", matrix}}),
      Large("large block", BlockGrad(x, "y") + ScaleLoss(x), {{"x", matrix}}),
      Large("large rows repeated", BroadcastTo(x, {.shape = {193, 257}}, "y"), {{"x", Uniform({257})}}, 193),
      Large("large columns repeated", BroadcastTo(x, {.shape = {193, 257}}, "y"), {{"x", Uniform({193, 1})}}, 257),
      Large("large padding", Pad(x, {.begin = {3, 5}, .end = {2, 1}}, "y"), {{"x", matrix}}),
      Large("large transpose", Transpose(x, {}, "y"), {{"x", matrix}}),
      Large("large concatenation", Concat({a, b}, {.axis = 1}, "y"), {{"a", images}, {"b", Uniform({7, 9, 19, 17})}}),
      Large("large slice", Slice(x, {.begin = {3}, .end = {250}, .axes = {1}}, "y"), {{"x", matrix}}),
      Large("large parts", SliceChannel(x, {.num_outputs = 4}, "y"), {{"x", images}}),
      Large("large products of matrices", MatMul(a, b, {}, "y"),
            {{"a", Uniform({5, 3, 67, 71})}, {"b", Uniform({3, 71, 43})}}, 5 * 67),
      Large("large product of matrices", Dot(a, b, {}, "y"), {{"a", matrix}, {"b", Uniform({257, 101})}}, 257),
  };
  // Made by fusion in predictions, so without a gradient.
  OperatorCase& with_addend = cases.emplace_back(
      Large("large convolution and addend",
            Apply(ConvolutionAddOp(), ConvolutionAttrs{.num_filter = 24, .kernel = {3, 3}, .pad = {1, 1}},
                  {x, Variable("conv_weight"), Variable("conv_bias"), a}, "conv"),
            {{"x", images},
             {"conv_weight", Uniform({24, 20, 3, 3}, -0.5, 0.5)},
             {"conv_bias", Uniform({24})},
             {"a", Uniform({7, 24, 19, 17})}},
            20 * 9));
  with_addend.test_dtypes = {DType::kFloat32};
  with_addend.wrt = std::vector<std::string>{};

  // Along axis 0, where a batch cannot be.
  const std::pair<const char*, Symbol> along_rows[] = {
      {"slice of rows", Slice(x, {.begin = {3}, .end = {190}, .axes = {0}}, "y")},
      {"parts of rows, one used", SliceChannel(Concat({x, x}, {.axis = 0}), {.num_outputs = 2, .axis = 0}, "y")[1]},
      {"softmax of columns", Softmax(x, {.axis = 0}, "y")},
      {"logarithm of softmax of columns", LogSoftmax(x, {.axis = 0}, "y")},
      {"sums along columns", CumSum(x, {.axis = 0}, "y")}};
  for (const auto& [name, y] : along_rows) {
    cases.push_back(Large(fmt::format("large {}", name), y, {{"x", matrix}}, 257));
    cases.back().batch_axes.clear();
  }

  cases.push_back(Large("large maximum of everything", Max(x, {}, "y"), {{"x", Distinct(kMatrix)}}));
  cases.push_back(Large("large maximum of rows", Max(x, {.axes = {1}}, "y"), {{"x", matrix}}));
  cases.push_back(Large("large maximum of columns", Max(x, {.axes = {0}}, "y"), {{"x", matrix}}));

  cases.push_back(
      Large("large resize", Resize(x, {.mode = ResizeMode::kLinear, .scales = {1, 1, 1.5, 2}}, "y"), {{"x", images}}));
  cases.push_back(Large("large sampling", GridSample(x, Variable("grid"), {}, "y"),
                        {{"x", images}, {"grid", Uniform({7, 21, 17, 2}, -1.2, 1.2)}}, 64));
  cases.back().batch_axes["grid"] = 0;
  const PadWithAttrs reflection{.begin = {3}, .end = {5}, .axes = {1}, .mode = PadMode::kReflect};
  cases.push_back(Large("large reflection", PadWith(x, reflection, "y"), {{"x", matrix}}));
  cases.push_back(
      Large("large range", Group({Exp(x), Range({.begin = -1, .end = 20000, .step = 0.5})}), {{"x", matrix}}));
  for (const OpFunction<ReduceAttrs>& f : {Min, L1Norm, L2Norm, SumSquare, LogSumExp}) {
    const HostTensor numbers = &f.op() == &MinOp() ? Distinct(kMatrix) : matrix;
    cases.push_back(Large("large " + f.op().name + " of rows", f(x, {.axes = {1}}, "y"), {{"x", numbers}}, 257));
    cases.push_back(Large("large " + f.op().name + " of columns", f(x, {.axes = {0}}, "y"), {{"x", numbers}}, 193));
    cases.push_back(Large("large " + f.op().name + " of everything", f(x, {}, "y"), {{"x", numbers}}, elements));
  }
  cases.push_back(Large("large product", Prod(x, {.axes = {1}}, "y"), {{"x", AwayFromZero(kMatrix, 0.99, 1.01)}}, 257));

  // Without gradients.
  cases.push_back(
      Large("large measures",
            Group({Pick(x, label), RankOf(x, label), ArgMax(x), SumExactly(x), FirstOutside(x, {.high = 2.5})}),
            {{"x", matrix}, {"label", Integers({193}, 0, 256)}}));
  cases.back().dtypes = {{"label", DType::kInt32}};
  cases.back().wrt.emplace();
  cases.push_back(
      Large("large arguments", Group({ArgMin(x), ArgMax(x, {.axis = 0, .select_last_index = true})}), {{"x", matrix}}));
  cases.back().wrt.emplace();

  // indexing.h
  const auto add_indexed = [&](const std::string& name, const Symbol& symbol, HostTensorMap inputs, double terms = 1) {
    cases.push_back(Large("large " + name, symbol, std::move(inputs), terms));
    cases.back().dtypes = {{"label", DType::kInt32}};
  };
  add_indexed("embedding", Embedding(label, {.input_dim = 40, .output_dim = 257}, "e"),
              {{"label", Integers({193}, 0, 39)}, {"e_weight", Uniform({40, 257})}}, 20);
  add_indexed("narrow embedding", Embedding(label, {.input_dim = 40, .output_dim = 3}, "e"),
              {{"label", Integers({193, 101}, 0, 39)}, {"e_weight", Uniform({40, 3})}}, 1000);
  add_indexed("take of columns", Take(x, Variable("i"), {.axis = 1}, "y"),
              {{"x", matrix}, {"i", Integers({301}, -257, 256)}}, 8);
  cases.back().dtypes = {{"i", DType::kInt64}};
  add_indexed("pairs", GatherND(x, label, {.batch_dims = 1}, "y"),
              {{"x", images}, {"label", Integers({7, 101, 2}, 0, 18)}}, 8);
  add_indexed("elements", GatherElements(x, label, {.axis = 1}, "y"),
              {{"x", matrix}, {"label", Integers({193, 211}, 0, 256)}}, 8);
  add_indexed("picks", Pick(x, label, {}, "y"), {{"x", matrix}, {"label", Integers({193}, 0, 256)}});
  add_indexed("scattered rows", ScatterND(b, Variable("i"), a, {.reduction = ScatterReduction::kMax}, "y"),
              {{"b", Uniform({301, 257})}, {"i", Integers({193, 1}, 0, 300)}, {"a", Distinct(kMatrix)}});
  cases.back().dtypes = {{"i", DType::kInt32}};
  cases.back().batch_axes.clear();
  add_indexed("scattered elements", ScatterElements(b, Variable("i"), a, {.reduction = ScatterReduction::kAdd}, "y"),
              {{"b", Uniform({301, 257})}, {"i", Integers(kMatrix, 0, 300)}, {"a", matrix}}, 8);
  cases.back().dtypes = {{"i", DType::kInt32}};
  cases.back().batch_axes.clear();
  add_indexed("one hot", OneHot(label, {.depth = 257}, "y"), {{"label", Integers({193}, -1, 257)}});
  add_indexed("row numbers", RowNumbers(label, {.extent = 257}, "y"), {{"label", Integers({193, 211}, -257, 256)}});

  // random.h and quantize.h
  for (const Symbol& y :
       {RandomUniformLike(x, {}, "y"), RandomNormalLike(x, {}, "y"), RandomIntLike(x, {{}, 0, 99}, "y"),
        Bernoulli(x, {}, "y"), Multinomial(x, {.sample_size = 301}, "y")}) {
    cases.push_back(Large(fmt::format("large draw {}", cases.size()), y, {{"x", Uniform(kMatrix, 0, 1)}}));
  }
  const Symbol zero = Variable("i");
  cases.push_back(Large("large quantization", DequantizeLinear(QuantizeLinear(x, b, zero, {}, "q"), b, zero, {}, "y"),
                        {{"x", images}, {"b", Uniform({20}, 0.1, 2)}, {"i", Integers({20}, 0, 255)}}, 7 * 19 * 17));
  cases.back().dtypes = {{"i", DType::kUInt8}};
  cases.back().magnitude = 256;

  // order.h and sequence.h
  cases.push_back(Large("large top", TopK(x, {.k = 9}, "y"), {{"x", Distinct(kMatrix)}}));
  cases.push_back(Large("large sort of columns", Sort(x, {.axis = 0}, "y"), {{"x", Distinct(kMatrix)}}));
  cases.push_back(Large("large sums of columns", CumSum(x, {.axis = 2}, "y"), {{"x", images}}, 19));
  cases.push_back(Large("large sums of rows", CumSum(x, {.axis = 1}, "y"), {{"x", matrix}}, 257));
  cases.push_back(Large("large products", CumProd(x, {.axis = 2}, "y"), {{"x", AwayFromZero(kImages, 0.9, 1.1)}}, 19));
  cases.push_back(Large("large triangle", Trilu(x, {.k = 3}, "y"), {{"x", images}}));
  const SequenceAttrs steps{.axis = 1, .batch_axis = 0};
  const std::pair<Symbol, double> sequences[] = {{SequenceMask(x, label, {steps, 0.5}, "y"), 0},
                                                 {SequenceReverse(x, label, steps, "y"), 0},
                                                 {SequenceLast(x, label, steps, "y"), 1}};
  for (const auto& [symbol, least] : sequences) {
    add_indexed(fmt::format("sequences, {}", cases.size()), symbol,
                {{"x", images}, {"label", Values({7}, {least, 1, 20, 7, 19, 3, 12})}});
  }

  for (const OpDef& (*op)() : ElementwiseOps()) {
    if (op().inputs.Count({}) > 2 || !op().gradient) continue;
    const bool unary = op().inputs.Count({}) == 1;
    const double low = op().name == "Acosh" ? 1.2 : 0.3, high = op().name.starts_with("A") && low < 1 ? 0.9 : 3;
    HostTensorMap inputs = {{"x", Uniform(kMatrix, low, high)}};
    if (!unary) inputs = {{"a", Uniform(kImages, low, high)}, {"b", Uniform(kImages, 0.5, 2)}};
    cases.push_back(
        Large("large " + op().name, Apply(op(), {}, unary ? std::vector{x} : std::vector{a, b}, "y"), inputs));
    cases.back().wrt.emplace();  // gradients are made of these
  }
  for (const char* name : {"BitNot", "BitAnd", "BitOr", "BitXor", "ShiftLeft", "ShiftRight"}) {
    const OpDef& op = FindOp(name);
    const size_t count = static_cast<size_t>(op.inputs.Count({}));
    cases.push_back(Large(fmt::format("large {}", name),
                          Apply(op, {}, {count == 1 ? std::vector{a} : std::vector{a, b}}, "y"),
                          {{"a", Integers(kImages, -99, 99)}}));
    cases.back().dtypes = {{"a", DType::kInt32}};
    if (count == 2) cases.back().inputs["b"] = Integers(kImages, 0, 9);
    if (count == 2) cases.back().dtypes["b"] = DType::kInt32;
  }
  const HostTensorMap of_columns = {{"x", matrix}, {"ln_gamma", Uniform({257}, 0.5, 2)}, {"ln_beta", Uniform({257})}};
  cases.push_back(Large("large layer norm", LayerNorm(x, -1, 1e-5, "ln"), of_columns, 257));
  cases.push_back(Large("large group norm", GroupNorm(x, 5, 1e-5, "gn"),
                        {{"x", images}, {"gn_gamma", Uniform({20}, 0.5, 2)}, {"gn_beta", Uniform({20})}}, 4 * 19 * 17));
  cases.push_back(Large("large length", L2Normalization(x, L2Mode::kInstance, 1e-10, "y"), {{"x", matrix}}, 257));
  cases.push_back(Large("large LRN", LRN(x, {.alpha = 0.5}, "y"), {{"x", images}}, 5));
  for (const auto& [name, value, of_labels] :
       {std::tuple{"rows", matrix, Shape{193}}, std::tuple{"channels", images, Shape{7, 19, 17}}}) {
    const int64_t axis = 1, classes = value.shape()[1];
    cases.push_back(Large(fmt::format("large logarithm of softmax, {}", name), LogSoftmax(x, {.axis = axis}, "y"),
                          {{"x", value}}, 257));
    cases.push_back(Large(fmt::format("large hardmax, {}", name), Hardmax(x, {.axis = axis}, "y"), {{"x", value}}));
    cases.push_back(Large(fmt::format("large cross entropy, {}", name),
                          SoftmaxCrossEntropy(x, label, {.axis = axis, .use_ignore = true, .ignore_label = 2}),
                          {{"x", value}, {"label", Integers(of_labels, 0, classes - 1)}}));
    cases.back().dtypes = {{"label", DType::kInt64}};
  }
  cases.push_back(Large("large gelu", Gelu(x, "y"), {{"x", images}}));
  cases.push_back(Large("large elu", Elu(x, 1.5, "y"), {{"x", matrix}}));
  for (const BinaryFunction& f : {Sub, Div}) {
    cases.push_back(Large(fmt::format("large {} with a number", f.of), f(x, -1.25), {{"x", matrix}}));
    cases.push_back(Large(fmt::format("large {} of a number", f.of), f(-1.25, x), {{"x", matrix}}));
  }
  const std::vector<Symbol> recurrent = {x, Variable("w")};
  cases.push_back(Large("large LSTM", Recurrent(recurrent, {.hidden = 70, .layout = SequenceLayout::kNtc}, "y"),
                        {{"x", Uniform({67, 5, 280})}, {"w", Uniform({280, 70}, -0.2, 0.2)}}, 67 * 5 * 4));
  cases.push_back(
      Large("large attention", Attention(x, a, b, {.causal = true}, "y"),
            {{"x", Uniform({3, 4, 70, 24})}, {"a", Uniform({3, 2, 70, 24})}, {"b", Uniform({3, 2, 70, 10})}}, 70 * 24));
  cases.back().batch_axes["b"] = 0;
  cases.push_back(
      Large("large AddReluGrad", Apply(AddReluGradOp(), {}, {a, b, a}, "y"), {{"a", images}, {"b", Uniform(kImages)}}));
  cases.back().wrt.emplace();

  cases.push_back(Large("large choice", Where(Variable("c"), a, b, "y"),
                        {{"c", Integers(kImages, 0, 1)}, {"a", images}, {"b", Uniform(kImages)}}));
  cases.back().dtypes = {{"c", DType::kBool}};
  cases.push_back(Large("large choice of a number", Where(Less(a, 0.0), 0.5, a, "y"), {{"a", images}}));

  // Sums of more than two, each with a gradient of its own.
  OperatorCase sum = Large("large sum of 3", Apply(AddNOp(), {}, {a, b, x}, "y"), {{"b", Uniform(kImages)}}, 3);
  sum.inputs["a"] = sum.inputs["x"] = images;
  sum.batch_axes = {{"a", 0}, {"b", 0}, {"x", 0}};
  cases.push_back(sum);

  const auto add_head = [&](const std::string& name, const HostTensor& data, const HostTensor& labels, DType dtype,
                            const SoftmaxOutputAttrs& attrs) {
    cases.push_back(Large("large softmax head, " + name, SoftmaxOutput(x, label, attrs, "y"),
                          {{"x", data}, {"label", labels.Cast(dtype).Cast(DType::kFloat64)}}));
    cases.back().dtypes = {{"label", dtype}};
    cases.back().wrt = std::vector<std::string>{"x"};
  };
  const HostTensor classes = Integers({193}, 0, 256), map = Integers({7, 19, 17}, 0, 19);
  add_head("float32 labels", matrix, classes, DType::kFloat32, {});
  add_head("int32 labels", matrix, classes, DType::kInt32, {.use_ignore = true, .ignore_label = 3});
  add_head("int64 labels", matrix, classes, DType::kInt64, {.normalization = Normalization::kValid});
  add_head("smoothing", matrix, classes, DType::kFloat32, {.smooth_alpha = 0.1});
  add_head("probabilities", matrix, Uniform(kMatrix, 0, 1), DType::kFloat32, {});
  add_head("head gradient", matrix, classes, DType::kFloat32, {.out_grad = true});
  add_head("map", images, map, DType::kFloat32, {.multi_output = true});
  add_head("map of one sample", Uniform({1, 20, 37, 71}), Integers({1, 37, 71}, 0, 19), DType::kInt32,
           {.multi_output = true});

  for (DType dtype : {DType::kFloat32, DType::kInt32}) {
    cases.push_back(Large(fmt::format("large regression head, {} labels", ToString(dtype)),
                          LinearRegressionOutput(x, label, {}, "y"),
                          {{"x", matrix}, {"label", Integers(kMatrix, -2, 2)}}));
    cases.back().dtypes = {{"label", dtype}};
    cases.back().wrt = std::vector<std::string>{"x"};
  }
  for (const auto& head : {LogisticRegressionOutput, MAERegressionOutput}) {
    cases.push_back(Large(fmt::format("large {}", head.op().name), head(x, label, {}, "y"),
                          {{"x", matrix}, {"label", Uniform(kMatrix, 0, 1)}}));
    cases.back().wrt = std::vector<std::string>{"x"};
  }
  cases.push_back(Large("large CTC", CTCLoss(x, label, {}, "y"),
                        {{"x", Uniform({31, 37, 23}, -2, 2)}, {"label", Integers({37, 9}, 1, 22)}}, 31));
  cases.back().dtypes = {{"label", DType::kInt32}};
  cases.back().batch_axes = {{"x", 1}, {"label", 0}};
  cases.push_back(Large("large SVM head", SVMOutput(x, label, {}, "y"), {{"x", matrix}, {"label", classes}}));
  cases.back().dtypes = {{"label", DType::kInt32}};
  cases.push_back(Large("large loss", MakeLoss(x, {.normalization = Normalization::kValid}, "y"), {{"x", matrix}}));

  // Operators of certain types.
  const auto add_float = [&](const std::string& name, const Symbol& symbol, HostTensorMap inputs) {
    cases.push_back(Large(name, symbol, std::move(inputs)));
    cases.back().dtypes = {{"x", DType::kFloat32}};
    cases.back().test_dtypes = {DType::kFloat32};
    cases.back().wrt = std::vector<std::string>{};
  };
  add_float("large constant", x + Constant(matrix.Cast(DType::kFloat32), "c"), {{"x", matrix}});
  for (DType dtype : {DType::kBFloat16, DType::kFloat64}) {
    add_float(fmt::format("large cast to {}", ToString(dtype)), Cast(x, {.dtype = dtype}, "y"), {{"x", matrix}});
  }
  for (const OperatorCase& c : LargeQuantizedCases()) cases.push_back(c);
  return cases;
}

}  // namespace bindery
