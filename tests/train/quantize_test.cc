// Models in integers, calibrated from data.
#include "symbol/ops/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "bindery/bindery.h"
#include "tests/message_of.h"
#include "tests/test_folder.h"

namespace bindery {
namespace {

constexpr int64_t kSamples = 24;

HostTensor Random(const Shape& shape, uint64_t seed, double low = -1, double high = 1) {
  HostTensor tensor(DType::kFloat32, shape);
  PhiloxStream random(seed, "test data");
  for (float& v : tensor.data<float>()) v = static_cast<float>(random.Uniform(low, high));
  return tensor;
}

HostTensor Images() { return Random({kSamples, 3, 8, 8}, 5, -1, 3); }
ArrayIter Data(int64_t batch_size = 10) {
  return ArrayIter(Images(), HostTensor(DType::kFloat32, {kSamples}), {.batch_size = batch_size});
}

// Layers of every kind, a residual sum, and what is left alone: a convolution of groups.
Symbol Net(const Symbol& data = Variable("data")) {
  Symbol x = Convolution(data, {.num_filter = 8, .kernel = {3, 3}, .pad = {1, 1}, .no_bias = true}, "conv1");
  x = Relu(BatchNorm(x, {.fix_gamma = false}, "bn1"));
  Symbol y = Convolution(x, {.num_filter = 8, .kernel = {3, 3}, .pad = {1, 1}}, "conv2");
  x = Relu(BatchNorm(y, {.fix_gamma = false}, "bn2") + x);
  x = Convolution(x, {.num_filter = 8, .kernel = {3, 3}, .groups = 4}, "grouped");
  x = Relu(FullyConnected(x, {.num_hidden = 20}, "fc1"));
  return SoftmaxOutput(FullyConnected(x, {.num_hidden = 5}, "fc2"), Variable("softmax_label"), {}, "softmax");
}

Model Trained(const Symbol& symbol) {
  Model model{.symbol = symbol, .metadata = {{"made by", "a test"}}};
  const Executor executor(symbol, {.inputs = {{"data", {1, 3, 8, 8}}}, .for_training = false});
  for (const std::string& name : executor.param_names()) {
    const Shape shape = executor.ArgumentArray(name).shape();
    model.params[name] = Random(shape, StreamKey(1, name).k0, -0.4, 0.5);
  }
  for (const std::string& name : executor.aux_names()) {
    const bool is_var = name.ends_with("var");
    model.aux[name] = Random(executor.AuxiliaryArray(name).shape(), StreamKey(2, name).k0, is_var ? 0.5 : -0.2, 1.5);
  }
  return model;
}

HostTensor PredictionsOf(const Model& model, CompileSwitches switches = {}) {
  const Predictor predictor(model, {.inputs = {{"data", {kSamples, 3, 8, 8}}}, .switches = switches});
  return predictor.Predict({{"data", Images()}})[0];
}

std::vector<NodePtr> NodesOf(const Model& model, const OpDef& op) {
  std::vector<NodePtr> nodes = Graph::Of(model.symbol).nodes;
  std::erase_if(nodes, [&](const NodePtr& node) { return node->is_variable() || &node->op() != &op; });
  return nodes;
}

int64_t CountOf(const Model& model, const std::string& op) {
  const Plan plan = DataParallelExecutorGroup::MakePlans(
                        model.symbol, {.devices = {Cpu(0)}, .data = {{"data", {2, 3, 8, 8}}}, .for_training = false})[0]
                        .plan;
  return std::ranges::count(plan.calls, op, &PlanCall::op);
}

TEST(Quantized, PredictsAlmostTheSame) {
  const Model model = Trained(Net());
  const HostTensor expected = PredictionsOf(model);
  for (const DType activations : {DType::kUInt8, DType::kInt8}) {
    for (const double percentile : {100.0, 99.99}) {
      ArrayIter data = Data();
      const Model small = Quantized(model, data, {.activations = activations, .percentile = percentile});
      EXPECT_LT(MaxAbsDiff(PredictionsOf(small), expected), 0.03);
      EXPECT_EQ(small.metadata, model.metadata);
      EXPECT_EQ(small.symbol.ListOutputs(), model.symbol.ListOutputs());
      EXPECT_EQ(CountOf(small, "QuantizedConvolution"), 2);
      EXPECT_EQ(CountOf(small, "QuantizedFullyConnected"), 2);
      EXPECT_EQ(CountOf(small, "Convolution"), 1);
      CompileSwitches as_written;
      as_written.fusion = false;
      EXPECT_LT(MaxAbsDiff(PredictionsOf(small, as_written), PredictionsOf(small)), 0.01);
    }
  }
}

TEST(Quantized, WeightsAreInt8ByOutput) {
  const Model model = Trained(Net());
  ArrayIter data = Data();
  const Model small = Quantized(model, data);
  // Nothing is left of the norms.
  EXPECT_EQ(NodesOf(small, BatchNormOp()).size(), 0u);
  EXPECT_TRUE(small.aux.empty());
  EXPECT_FALSE(small.params.contains("bn1_gamma"));
  // That of a layer without a norm: each output's largest is 127 of its steps.
  const HostTensor &w = small.params.at("fc1_weight"), &real = model.params.at("fc1_weight");
  ASSERT_EQ(w.dtype(), DType::kInt8);
  const HostTensor& scales = small.params.at("fc1_weight_scale");
  ASSERT_EQ(scales.shape(), (Shape{20}));
  const int64_t each = w.shape()[1];
  for (int64_t o = 0; o < 20; ++o) {
    double largest = 0;
    for (int64_t k = 0; k < each; ++k) {
      largest = std::max(largest, std::abs(real.At(o * each + k)));
      EXPECT_NEAR(w.At(o * each + k) * scales.At(o), real.At(o * each + k), 0.51 * scales.At(o));
    }
    EXPECT_NEAR(scales.At(o), largest / 127, 1e-7);
  }
  EXPECT_EQ(small.params.at("fc1_bias").dtype(), DType::kInt32);
  // The convolution without a bias has got one from its norm; that of groups is as it was.
  EXPECT_EQ(small.params.at("conv1_bias").dtype(), DType::kInt32);
  EXPECT_EQ(small.params.at("grouped_weight"), model.params.at("grouped_weight"));
}

// What both branches read is quantized once; by the range of all batches, in which 0 is always.
TEST(Quantized, RangesAreThoseOfTheData) {
  const Model model = Trained(Net());
  ArrayIter data = Data();
  const Model small = Quantized(model, data);
  EXPECT_EQ(NodesOf(small, QuantizeLinearOp()).size(), 4u);  // of four layers' data
  const NodePtr first = NodesOf(small, QuantizeLinearOp())[0];
  ASSERT_EQ(first->inputs()[0].node->name(), "data");
  const auto number = [&](size_t input) {
    return first->inputs()[input].node->attrs().get<ConstantAttrs>().value->At(0);
  };
  const HostTensor images = Images();
  const auto [low, high] = std::ranges::minmax(images.data<float>());
  EXPECT_NEAR(number(1), (high - low) / 255, 1e-6);
  EXPECT_EQ(number(2), std::round(-low / number(1)));
  // Of one batch, and without its ends.
  ArrayIter again = Data();
  const Model part = Quantized(model, again, {.percentile = 90, .batches = 1});
  const NodePtr narrower = NodesOf(part, QuantizeLinearOp())[0];
  const double scale = narrower->inputs()[1].node->attrs().get<ConstantAttrs>().value->At(0);
  EXPECT_NEAR(scale, 0.9 * 4 / 255, 0.02 * 4 / 255) << "of uniform numbers from -1 to 3";
}

// Two layers share integers; what something else reads, too, is left alone.
TEST(Quantized, SharedParameters) {
  const Symbol tied = Variable("tied"), read = Variable("read"), bias = Variable("bias");
  Symbol x = Relu(FullyConnected(Variable("data"), tied, bias, {.num_hidden = 192}, "fc1"));
  x = Relu(FullyConnected(x, tied, bias, {.num_hidden = 192}, "fc2"));
  x = FullyConnected(x, read, Variable("fc3_bias"), {.num_hidden = 5}, "fc3") + Sum(read);
  const Model model = Trained(x);
  ArrayIter data = Data();
  const Model small = Quantized(model, data);
  EXPECT_EQ(small.params.at("tied").dtype(), DType::kInt8);
  for (const char* name : {"read", "bias", "fc3_bias"}) EXPECT_EQ(small.params.at(name), model.params.at(name));
  EXPECT_EQ(CountOf(small, "QuantizedFullyConnected"), 2);
  const HostTensor expected = PredictionsOf(model);
  const double largest = MaxAbsDiff(expected, HostTensor(DType::kFloat32, expected.shape()));
  EXPECT_LT(MaxAbsDiff(PredictionsOf(small), expected), 0.03 * largest);
}

Symbol ShapedData() { return Variable("data", {.shape = Shape{kUnknownDim, 3, 8, 8}}); }
// Of rows of 8, by matrices of both orders; the vector that is added stays as it is.
Symbol Products() {
  const Symbol w1 = Variable("w1", {.shape = Shape{8, 20}}), b1 = Variable("b1", {.shape = Shape{20}});
  return MatMul(Relu(MatMul(ShapedData(), w1) + b1), Variable("w2", {.shape = Shape{5, 20}}), {.transpose_b = true});
}

TEST(Quantized, ProductsByMatrices) {
  const Model model = Trained(Products());
  ArrayIter data = Data();
  const Model small = Quantized(model, data);
  const HostTensor &w = small.params.at("w1"), &real = model.params.at("w1");
  ASSERT_EQ(w.dtype(), DType::kInt8);
  ASSERT_EQ(w.shape(), real.shape());
  const HostTensor& scales = small.params.at("w1_scale");
  ASSERT_EQ(scales.shape(), (Shape{20}));
  for (int64_t o = 0; o < 20; ++o) {
    double largest = 0;
    for (int64_t k = 0; k < 8; ++k) {
      largest = std::max(largest, std::abs(real.At(k * 20 + o)));
      EXPECT_NEAR(w.At(k * 20 + o) * scales.At(o), real.At(k * 20 + o), 0.51 * scales.At(o));
    }
    EXPECT_NEAR(scales.At(o), largest / 127, 1e-7);
  }
  EXPECT_EQ(small.params.at("w2_scale").shape(), (Shape{5}));
  EXPECT_EQ(small.params.at("b1"), model.params.at("b1"));
  EXPECT_EQ(CountOf(small, "QuantizedFullyConnected"), 2);
  EXPECT_EQ(CountOf(small, "MatMul") + CountOf(small, "Add"), 0);
  EXPECT_LT(MaxAbsDiff(PredictionsOf(small), PredictionsOf(model)), 0.1);
}

// A matrix that is read both ways has no scales for both; several matrices, a matrix that is data, and what is
// multiplied from the left, are no layers.
TEST(Quantized, OtherProductsStayAsTheyAre) {
  const Symbol data = Variable("data"), tied = Variable("tied", {.shape = Shape{8, 8}});
  Symbol x = MatMul(MatMul(data, tied), tied, {.transpose_b = true});
  x = MatMul(x, Variable("several", {.shape = Shape{3, 8, 8}}));
  x = MatMul(x, Variable("turned", {.shape = Shape{8, 8}}), {.transpose_a = true});
  x = MatMul(Variable("left", {.shape = Shape{8, 8}}), x);
  ArrayIter iter = Data();
  EXPECT_NE(MessageOf<ModelError>([&] { Quantized(Trained(x), iter); }).find("nothing to quantize"), std::string::npos);
  const Model model = Trained(MatMul(x, Variable("w", {.shape = Shape{8, 8}})));
  const Model small = Quantized(model, iter);
  EXPECT_EQ(small.params.at("w").dtype(), DType::kInt8);
  for (const char* name : {"tied", "several", "turned", "left"}) {
    EXPECT_EQ(small.params.at(name), model.params.at(name)) << name;
  }
}

TEST(Quantized, ANameOfScalesMayBeTaken) {
  const Symbol other = Variable("fc_weight_scale", {.shape = Shape{5}});
  const Model model = Trained(FullyConnected(Variable("data"), {.num_hidden = 5}, "fc") * other);
  ArrayIter data = Data();
  const Model small = Quantized(model, data);
  EXPECT_EQ(small.params.at("fc_weight_scale"), model.params.at("fc_weight_scale"));
  EXPECT_EQ(small.params.at("fc_weight_scale_").shape(), (Shape{5}));
  EXPECT_LT(MaxAbsDiff(PredictionsOf(small), PredictionsOf(model)), 0.1);
}

// An output without weights, as norms leave behind: its bias is all that it is.
TEST(Quantized, WithoutWeightsTheBiasIsKept) {
  Model model = Trained(FullyConnected(Variable("data"), {.num_hidden = 5}, "fc"));
  HostTensor& weight = model.params.at("fc_weight");
  for (int64_t k = 0; k < weight.shape()[1]; ++k) weight.Set(k, 0);
  model.params.at("fc_bias").Set(0, 0.0071);
  ArrayIter data = Data();
  const Model small = Quantized(model, data);
  EXPECT_EQ(small.params.at("fc_bias").dtype(), DType::kInt32);
  EXPECT_NEAR(PredictionsOf(small).At(0), 0.0071, 1e-6);
}

TEST(Quantized, ThroughFilesAndOnnx) {
  const TestFolder test_folder;
  const std::string& folder = test_folder.path();
  // Of more than two axes, ONNX has connections along the last one as products by a transposed matrix.
  const FullyConnectedAttrs last{.num_hidden = 5, .flatten = false};
  for (const Symbol& net : {Net(), Products(), FullyConnected(ShapedData(), last, "fc")}) {
    const Model model = Trained(net);
    ArrayIter data = Data();
    const Model small = Quantized(model, data);
    const HostTensor expected = PredictionsOf(small);
    for (const char* ending : {".pb", ".prototxt", ".onnx"}) {
      SaveModel(small, folder + "/small" + ending);
      const Model loaded = LoadModel(folder + "/small" + ending);
      for (const auto& [name, value] : small.params) EXPECT_EQ(loaded.params.at(name), value) << name << ending;
      for (const char* op : {"QuantizedConvolution", "QuantizedFullyConnected", "Add", "Transpose"}) {
        EXPECT_EQ(CountOf(loaded, op), CountOf(small, op)) << op << ending;
      }
      EXPECT_LT(MaxAbsDiff(PredictionsOf(loaded), expected), 1e-6) << ending;
    }
  }
}

TEST(Quantized, AModelsOnlyInputMayBeCalledOtherwise) {
  const Model model = Trained(Net());
  Model other = model;
  other.symbol = model.symbol.Compose({{"data", Variable("pixels")}});
  ArrayIter data = Data(), same = Data();
  const Model small = Quantized(other, data);
  EXPECT_EQ(small.params, Quantized(model, same).params);
  const std::vector<std::string> arguments = small.symbol.ListArguments();
  EXPECT_EQ(std::ranges::count(arguments, "pixels"), 1);
  EXPECT_EQ(std::ranges::count(arguments, "data"), 0);
}

// A mask, which no layer sees.
TEST(Quantized, InputsBehindTheLastLayer) {
  const Model model = Trained(FullyConnected(Variable("data"), {.num_hidden = 5}, "fc"));
  Model masked = model;
  masked.symbol = model.symbol * Variable("mask");
  const ArrayData images{"data", std::make_shared<HostTensor>(Images())},
      mask{"mask", std::make_shared<HostTensor>(Random({kSamples, 5}, 6))};
  ArrayIter data({images, mask}, {}, {.batch_size = 10});
  ArrayIter same = Data();
  EXPECT_EQ(Quantized(masked, data).params, Quantized(model, same).params);
}

TEST(Quantized, SaysWhatIsWrong) {
  const Model model = Trained(Net());
  ArrayIter data = Data();
  EXPECT_NE(MessageOf<Error>([&] { Quantized(model, data, {.activations = DType::kInt16}); }).find("int16"),
            std::string::npos);
  EXPECT_NE(MessageOf<Error>([&] { Quantized(model, data, {.percentile = 50}); }).find("percentile"),
            std::string::npos);
  const Model small = Quantized(model, data);
  EXPECT_NE(MessageOf<ModelError>([&] { Quantized(small, data); }).find("nothing to quantize"), std::string::npos);
  Model diverged = model;
  diverged.params["conv2_bias"].Set(0, std::nan(""));
  EXPECT_NE(MessageOf<NumericError>([&] { Quantized(diverged, data); }).find("is nan"), std::string::npos);
  diverged = model;
  diverged.params["fc2_weight"].Set(7, INFINITY);  // which no layer sees
  EXPECT_NE(MessageOf<NumericError>([&] { Quantized(diverged, data); }).find("\"fc2_weight\" has an element"),
            std::string::npos);
}

}  // namespace
}  // namespace bindery
