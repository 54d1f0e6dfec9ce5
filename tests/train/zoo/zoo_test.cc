#include "train/zoo.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>

#include "base/error.h"
#include "base/files.h"
#include "symbol/graph.h"
#include "symbol/infer.h"
#include "symbol/model.h"
#include "symbol/print/summary.h"
#include "tests/message_of.h"
#include "train/initializer.h"

namespace bindery {
namespace {

bool IsOfImages(const std::string& name) { return ModelInputShape(name).rank() == 3; }

InferredShapes Infer(const std::string& name, const Symbol& symbol, int64_t batch) {
  return InferShapes(symbol, {{"data", ModelInputShape(name).Insert(0, batch)}});
}

// What the model gives for a sample, and what its label is.
Shape SampleOutput(const std::string& name) {
  const Shape in = ModelInputShape(name);
  if (!IsOfImages(name)) return in.Insert(1, ModelClasses(name));
  return name == "unet" ? in.With(0, ModelClasses(name)) : Shape{ModelClasses(name)};
}
Shape SampleLabel(const std::string& name) {
  const Shape in = ModelInputShape(name);
  if (!IsOfImages(name)) return in;
  return name == "unet" ? in.Erase(0) : Shape{};
}

Shape DeclaredInput(const Symbol& symbol) {
  for (const NodePtr& node : Graph::Of(symbol).nodes) {
    if (node->name() == "data") return node->declared_shape.value_or(Shape{});
  }
  return {};
}

std::map<std::string, Shape> ParameterShapes(const std::string& name, const Symbol& symbol) {
  const InferredShapes shapes = Infer(name, symbol, 2);
  std::map<std::string, Shape> result;
  const std::vector<std::string> names = symbol.ListArguments();
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] != "data" && names[i] != "target" && names[i] != "softmax_label") {
      result.emplace(names[i], *shapes.arguments[i]);
    }
  }
  return result;
}

// At any batch.
int64_t CountParameters(const std::string& name) {
  const Symbol model = ModelByName(name);
  const auto at = [&](int64_t batch) {
    return CountParameters(model, {{"data", DeclaredInput(model).With(0, batch)}}).arguments;
  };
  EXPECT_EQ(at(2), at(3));
  return at(2);
}

const std::vector<std::string> kNames = {"mlp",         "lenet", "resnet20", "resnet18", "resnet34", "resnet50",
                                         "mobilenetv2", "vgg11", "unet",     "gpt",      "lstm",     "transformer"};

TEST(Zoo, InputsAndOutputs) {
  EXPECT_EQ(ModelNames(), kNames);
  for (const std::string& name : ModelNames()) {
    const Symbol symbol = ModelByName(name);
    EXPECT_EQ(symbol.ListOutputs(), std::vector<std::string>{"softmax_output"}) << name;
    EXPECT_EQ(symbol.ListArguments().front(), name == "transformer" ? "target" : "data");
    EXPECT_EQ(symbol.ListArguments().back(), "softmax_label");
    const InferredShapes shapes = Infer(name, symbol, 5);
    EXPECT_EQ(*shapes.outputs[0], SampleOutput(name).Insert(0, 5)) << name;
    EXPECT_EQ(*shapes.arguments.back(), SampleLabel(name).Insert(0, 5)) << name;
  }
}

TEST(Zoo, ModelsSayTheirInputShape) {
  for (const std::string& name : ModelNames()) {
    EXPECT_EQ(DeclaredInput(ModelByName(name)), ModelInputShape(name).Insert(0, kUnknownDim)) << name;
    EXPECT_EQ(DeclaredInput(LoadModel("models/" + name + ".prototxt").symbol), DeclaredInput(ModelByName(name)));
    // Other images or lengths: the same layers on another input.
    const Shape input = IsOfImages(name) ? Shape{2, 64, 48} : Shape{7};
    const Symbol other = ModelByName(name, {.input = input});
    EXPECT_EQ(DeclaredInput(other), input.Insert(0, kUnknownDim));
    EXPECT_EQ(InferShapes(other, {{"data", input.Insert(0, 3)}}).outputs[0]->rank(), SampleOutput(name).rank() + 1);
    EXPECT_THROW(InferShapes(other, {{"data", input.With(-1, input[-1] - 1).Insert(0, 3)}}), ShapeError);
  }
}

TEST(Zoo, ExtentsThatCannotBeHalved) {
  EXPECT_EQ(MessageOf<Error>([] {
              ModelByName("unet", {.input = {1, 64, 60}});
            }),
            "Error: model \"unet\": rows and columns must be multiples of 8, got (1, 64, 60)");
}

TEST(Zoo, ParameterCounts) {
  const std::map<std::string, int64_t> counts = {
      {"mlp", 109386},
      {"lenet", 431080},
      {"resnet20", 272474},
      // As torchvision's.
      {"resnet18", 11689512},
      {"resnet34", 21797672},
      {"resnet50", 25557032},
      {"mobilenetv2", 3504872},
      {"vgg11", 132863336},
      {"vgg11(classes=10)", 128807306},
      // As modules of PyTorch's layers: its LSTM without the second bias, its transformer with embeddings and head.
      {"unet", 482466},
      {"gpt", 867072},
      {"lstm", 1181952},
      {"transformer", 1032960},
      {"transformer(width=512, heads=8, layers=6)", 44140544 + 2 * (256 + 32) * 512 + 256 * 513},
      // GPT-2 as published.
      {"gpt(classes=50257, layers=12, width=768, heads=12, context=1024, tied=1)", 124439808},
  };
  for (const std::string& name : kNames) EXPECT_TRUE(counts.contains(name)) << name;
  for (const auto& [name, count] : counts) EXPECT_EQ(CountParameters(name), count) << name;
}

TEST(Zoo, NamesAsInMXNet) {
  EXPECT_EQ(ModelByName("lenet").ListArguments(),
            (std::vector<std::string>{"data", "conv1_weight", "conv1_bias", "conv2_weight", "conv2_bias", "fc1_weight",
                                      "fc1_bias", "fc2_weight", "fc2_bias", "softmax_label"}));
  const auto lenet = ParameterShapes("lenet", ModelByName("lenet"));
  EXPECT_EQ(lenet.at("conv2_weight"), (Shape{50, 20, 5, 5}));
  EXPECT_EQ(lenet.at("fc1_weight"), (Shape{500, 800}));
  EXPECT_EQ(ParameterShapes("mlp", ModelByName("mlp")).at("fc3_weight"), (Shape{10, 64}));
  const auto resnet = ParameterShapes("resnet50", ModelByName("resnet50"));
  EXPECT_EQ(resnet.size(), 161u);  // 53 convolutions with scale and shift each, and the last layer
  EXPECT_EQ(resnet.at("conv0_weight"), (Shape{64, 3, 7, 7}));
  EXPECT_EQ(resnet.at("stage2_unit1_conv2_weight"), (Shape{128, 128, 3, 3}));
  EXPECT_EQ(resnet.at("stage4_unit1_conv1sc_weight"), (Shape{2048, 1024, 1, 1}));
  EXPECT_EQ(resnet.at("stage4_unit3_bn3_gamma"), Shape{2048});
  EXPECT_EQ(ModelByName("resnet50").ListAuxiliaryStates().size(), 106u);
  EXPECT_EQ(ParameterShapes("resnet20", ModelByName("resnet20")).at("stage3_unit1_conv1sc_weight"),
            (Shape{64, 32, 1, 1}));
}

TEST(Zoo, TheStrideIsInTheThreeByThree) {
  const Symbol symbol = ModelByName("resnet50");
  const Symbol internals = symbol.Internals();
  const auto shape = [&](const std::string& output) { return *Infer("resnet50", internals[output], 1).outputs[0]; };
  EXPECT_EQ(shape("pooling0_output"), (Shape{1, 64, 56, 56}));
  EXPECT_EQ(shape("stage2_unit1_conv1_output"), (Shape{1, 128, 56, 56}));
  EXPECT_EQ(shape("stage2_unit1_conv2_output"), (Shape{1, 128, 28, 28}));
  EXPECT_EQ(shape("stage4_unit3_relu3_output"), (Shape{1, 2048, 7, 7}));
}

TEST(Zoo, Options) {
  for (const std::string& name : ModelNames()) {
    const Symbol plain = ModelByName(name, {.num_classes = 7});
    const int classes = name == "unet" ? 1 : -1;
    EXPECT_EQ(*Infer(name, plain, 3).outputs[0], SampleOutput(name).Insert(0, 3).With(classes, 7)) << name;
    EXPECT_EQ(plain.DebugString(), ModelByName(name + "(classes=7)").DebugString());
    EXPECT_EQ(plain.DebugString().find("Dropout"), std::string::npos) << name;
    const Symbol dropout = ModelByName(name, {.dropout = 0.5});
    EXPECT_NE(dropout.DebugString().find("Dropout"), std::string::npos) << name;
    EXPECT_EQ(dropout.ListArguments(), ModelByName(name).ListArguments()) << name;
  }
  const std::string synchronised = SerializeModel(
      {.symbol = ModelByName("resnet20", {.sync_batch_norm = true}), .params = {}, .aux = {}, .metadata = {}}, true);
  const std::string local =
      SerializeModel({.symbol = ModelByName("resnet20"), .params = {}, .aux = {}, .metadata = {}}, true);
  EXPECT_NE(synchronised.find("\"sync\""), std::string::npos);
  EXPECT_EQ(local.find("\"sync\""), std::string::npos);
}

TEST(Zoo, SettingsOfSequences) {
  EXPECT_EQ(ModelInputShape("gpt(context=16)"), Shape{16});
  EXPECT_EQ(ModelClasses("lstm(65)"), 65);
  const ZooOptions options{.input = {16}, .num_classes = 65, .layers = 2, .width = 48, .heads = 3, .tied = true};
  const std::string text = "gpt(classes=65, layers=2, width=48, heads=3, context=16, tied=1)";
  EXPECT_EQ(ModelByName(text).DebugString(), ModelByName("gpt", options).DebugString());
  EXPECT_EQ(ModelByName("gpt(layers=9)", {.layers = 1}).DebugString(), ModelByName("gpt", {.layers = 1}).DebugString());
  const auto shapes = ParameterShapes(text, ModelByName(text));
  EXPECT_EQ(shapes.size(), 2u + 2 * 16 + 2);  // a block has two norms, four projections and two inner layers
  EXPECT_EQ(shapes.at("tokens_weight"), (Shape{65, 48}));
  EXPECT_EQ(shapes.at("block1_fc1_weight"), (Shape{192, 48}));
  EXPECT_FALSE(shapes.contains("head_weight"));
  const Symbol lstm = ModelByName("lstm(layers=3, width=8, context=5, time_first=1)");
  const InferredShapes inferred = InferShapes(lstm, {{"data", {5, 2}}});
  EXPECT_EQ(*inferred.outputs[0], (Shape{5, 2, 256}));
  EXPECT_EQ(*inferred.arguments.back(), (Shape{5, 2}));
}

// Numbers in place of classes: the same network behind another head.
TEST(Zoo, HeadsOfRegression) {
  for (const std::string name : {"mlp", "lenet", "resnet20", "resnet18", "mobilenetv2", "vgg11"}) {
    const std::string text = name + "(head=regression, outputs=3)";
    const Symbol model = ModelByName(text), classes = ModelByName(name, {.num_classes = 3});
    EXPECT_EQ(model.ListArguments(), classes.ListArguments()) << name;
    EXPECT_EQ(model.ListOutputs(), std::vector<std::string>{"regression_output"});
    EXPECT_EQ(ParameterShapes(text, model), ParameterShapes(name, classes)) << name;
    EXPECT_EQ(*Infer(text, model, 5).outputs[0], (Shape{5, 3})) << name;
    EXPECT_EQ(model.DebugString().find("SoftmaxOutput"), std::string::npos) << name;
    EXPECT_NE(model.DebugString().find("LinearRegressionOutput"), std::string::npos) << name;
  }
  EXPECT_EQ(ModelClasses("mlp(head=regression)"), 1);
  EXPECT_EQ(ModelByName("mlp(head=softmax)").DebugString(), ModelByName("mlp").DebugString());
  const auto refused = [](const std::string& text) { return MessageOf<Error>([&] { ModelByName(text); }); };
  EXPECT_NE(refused("mlp(head=linear)").find("\"head\" must be softmax or regression, got \"linear\""),
            std::string::npos);
  EXPECT_NE(refused("mlp(outputs=2)").find("\"outputs\" are of head=regression"), std::string::npos);
  EXPECT_NE(refused("mlp(head=regression, classes=2)").find("has \"outputs\", not \"classes\""), std::string::npos);
  EXPECT_NE(refused("mlp(head=regression, outputs=0)").find("\"outputs\" must be from 1"), std::string::npos);
  for (const char* other : {"unet", "gpt", "lstm"}) EXPECT_NE(refused(other + std::string("(head=regression)")), "");
}

// The deviation of each parameter's values; 0: all zero, or all one.
TEST(Zoo, InitialValuesArePublishedOnes) {
  const auto deviation = [](const std::string& model, const std::string& parameter) {
    const Symbol symbol = ModelByName(model);
    const Shape shape = ParameterShapes(model, symbol).at(parameter);
    const HostTensorMap values =
        InitialValues(symbol, {{parameter, {.dtype = DType::kFloat32, .shape = shape}}}, Initializer("zero"), 1);
    double sum = 0, squares = 0;
    for (const float value : values.at(parameter).data<float>()) {
      sum += value;
      squares += value * value;
    }
    const auto n = static_cast<double>(shape.Elements());
    return std::sqrt(std::max(0.0, squares / n - sum / n * sum / n));
  };
  const auto expect = [&](const std::string& model, const std::string& parameter, double expected) {
    EXPECT_NEAR(deviation(model, parameter), expected, 0.05 * expected) << model << ", " << parameter;
  };
  const double uniform = 1 / std::sqrt(3.0);  // of U(-1, 1)
  for (const char* resnet : {"resnet18", "resnet34"}) {
    expect(resnet, "conv0_weight", std::sqrt(2.0 / (64 * 49)));
    expect(resnet, "stage2_unit1_conv1_weight", std::sqrt(2.0 / (128 * 9)));
    expect(resnet, "fc1_weight", uniform / std::sqrt(512.0));
    expect(resnet, "fc1_bias", 0);
  }
  expect("mobilenetv2", "unit2_depthwise_conv_weight", std::sqrt(2.0 / (96 * 9)));
  expect("mobilenetv2", "fc1_weight", 0.01);
  expect("vgg11", "conv2_1_weight", std::sqrt(2.0 / (128 * 9)));
  expect("vgg11", "fc8_weight", 0.01);
  expect("unet", "middle_conv1_weight", std::sqrt(2.0 / (64 * 9)));
  expect("gpt", "tokens_weight", 0.02);
  expect("gpt", "positions_weight", 0.02);
  expect("gpt", "block3_attention_query_weight", 0.02);
  expect("gpt", "block3_attention_output_weight", 0.02 / std::sqrt(8.0));
  expect("gpt", "block0_fc2_weight", 0.02 / std::sqrt(8.0));
  expect("gpt", "block0_fc2_bias", 0);
  expect("lstm", "lstm_l1_weight", uniform / 16);
  expect("lstm", "lstm_l0_input_bias", uniform / 16);
  expect("lstm", "tokens_weight", 1);
  expect("transformer", "decoder0_cross_key_weight", uniform * std::sqrt(3.0 / 128));
}

TEST(Zoo, Errors) {
  const auto expect = [](const std::string& message, auto f) {
    try {
      f();
      FAIL() << "no error, expected: " << message;
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), message);
    }
  };
  const auto make = [](const std::string& text, const ZooOptions& options = {}) {
    return [=] { ModelByName(text, options); };
  };
  expect("Error: unknown model \"lennet\"; did you mean \"lenet\"?", make("lennet"));
  expect(
      "Error: unknown model \"inception\"; known: mlp, lenet, resnet20, resnet18, resnet34, resnet50, mobilenetv2, "
      "vgg11, unet, gpt, lstm, transformer",
      [] { ModelInputShape("inception"); });
  expect("Error: model \"mlp\": dropout must be in [0, 1), got 1", make("mlp", {.dropout = 1}));
  expect("Error: model \"mlp\": expected an input shape (channels, rows, columns), got (28, 28)",
         make("mlp", {.input = {28, 28}}));
  expect("Error: model \"gpt\": expected an input shape (characters), got (1, 28, 28)",
         make("gpt", {.input = {1, 28, 28}}));
  expect("Error: model \"mlp\": num_classes must be >= 1, got -3", make("mlp", {.num_classes = -3}));
  expect("Error: model \"gpt\": width must be a multiple of heads, got 128 and 3", make("gpt", {.heads = 3}));
  expect("Error: model \"gpt\": layers must be from 1 to 1000, got 1001", make("gpt", {.layers = 1001}));
  expect("Error: model \"lstm\" has no heads", make("lstm", {.heads = 2}));
  expect("Error: model \"gpt\" cannot be time_first", make("gpt", {.time_first = true}));
  expect("Error: model \"gpt(layrs=2)\": unknown setting \"layrs\"; did you mean \"layers\"?", make("gpt(layrs=2)"));
  expect("Error: model \"resnet18(layers=2)\": unknown setting \"layers\"; known: classes, head, outputs",
         make("resnet18(layers=2)"));
  expect("Error: model \"gpt(width=0)\": \"width\" must be from 1 to 1048576, got 0", make("gpt(width=0)"));
  expect("Error: model \"gpt(tied=2)\": \"tied\" must be 0 or 1, got 2", make("gpt(tied=2)"));
  expect("Error: model \"gpt(2\": the closing parenthesis is missing", make("gpt(2"));
}

// models/*.prototxt are these symbols. After a change: bazel build //tests/train/zoo:zoo_test, and in the repository's root
//   BINDERY_TEST_WRITE_MODELS=models bazel-bin/tests/train/zoo/zoo_test
TEST(Zoo, FilesAreTheModels) {
  const char* folder = std::getenv("BINDERY_TEST_WRITE_MODELS");
  for (const std::string& name : ModelNames()) {
    const Symbol symbol = ModelByName(name);
    const std::string text = SerializeModel({.symbol = symbol, .params = {}, .aux = {}, .metadata = {}}, true);
    if (folder) WriteFileAtomically(fmt::format("{}/{}.prototxt", folder, name), text);
    const std::string path = fmt::format("{}/{}.prototxt", folder ? folder : "models", name);
    EXPECT_EQ(ReadFile(path), text) << path << " is not ModelByName(\"" << name << "\")";
    EXPECT_EQ(LoadModel(path).symbol.DebugString(), symbol.DebugString());
  }
}

}  // namespace
}  // namespace bindery
