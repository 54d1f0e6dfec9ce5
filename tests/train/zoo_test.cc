#include "train/zoo.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "base/error.h"
#include "base/files.h"
#include "symbol/graph.h"
#include "symbol/infer.h"
#include "symbol/model.h"

namespace bindery {
namespace {

InferredShapes Infer(const std::string& name, const Symbol& symbol, int64_t batch) {
  return InferShapes(symbol, {{"data", ModelInputShape(name).Insert(0, batch)}});
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
    if (names[i] != "data" && names[i] != "softmax_label") result.emplace(names[i], *shapes.arguments[i]);
  }
  return result;
}

int64_t CountParameters(const std::string& name) {
  int64_t count = 0;
  for (const auto& [parameter, shape] : ParameterShapes(name, ModelByName(name))) count += shape.Elements();
  return count;
}

TEST(Zoo, InputsAndOutputs) {
  EXPECT_EQ(ModelNames(), (std::vector<std::string>{"mlp", "lenet", "resnet20", "resnet50"}));
  for (const std::string& name : ModelNames()) {
    const Symbol symbol = ModelByName(name);
    EXPECT_EQ(symbol.ListOutputs(), std::vector<std::string>{"softmax_output"}) << name;
    EXPECT_EQ(symbol.ListArguments().front(), "data");
    EXPECT_EQ(symbol.ListArguments().back(), "softmax_label");
    const InferredShapes shapes = Infer(name, symbol, 5);
    EXPECT_EQ(*shapes.outputs[0], (Shape{5, ModelClasses(name)})) << name;
    EXPECT_EQ(*shapes.arguments.back(), Shape{5}) << name;
  }
}

TEST(Zoo, ModelsSayTheirInputShape) {
  for (const std::string& name : ModelNames()) {
    EXPECT_EQ(DeclaredInput(ModelByName(name)), ModelInputShape(name).Insert(0, kUnknownDim)) << name;
    EXPECT_EQ(DeclaredInput(LoadModel("models/" + name + ".prototxt").symbol), DeclaredInput(ModelByName(name)));
    // Other images: the same layers on another input.
    const Symbol other = ModelByName(name, {.input = {2, 64, 48}});
    EXPECT_EQ(DeclaredInput(other), (Shape{kUnknownDim, 2, 64, 48}));
    EXPECT_EQ(*InferShapes(other, {{"data", {3, 2, 64, 48}}}).outputs[0], (Shape{3, ModelClasses(name)})) << name;
    EXPECT_THROW(InferShapes(other, {{"data", {3, 2, 64, 47}}}), ShapeError);
  }
}

TEST(Zoo, ParameterCounts) {
  EXPECT_EQ(CountParameters("mlp"), 109386);
  EXPECT_EQ(CountParameters("lenet"), 431080);
  EXPECT_EQ(CountParameters("resnet20"), 272474);
  EXPECT_EQ(CountParameters("resnet50"), 25557032);  // as torchvision's resnet50
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
    EXPECT_EQ(*Infer(name, plain, 3).outputs[0], (Shape{3, 7})) << name;
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

TEST(Zoo, Errors) {
  const auto expect = [](const std::string& message, auto f) {
    try {
      f();
      FAIL() << "no error, expected: " << message;
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), message);
    }
  };
  expect("Error: unknown model \"lennet\"; did you mean \"lenet\"?", [] { ModelByName("lennet"); });
  expect("Error: unknown model \"vgg16\"; known: mlp, lenet, resnet20, resnet50", [] { ModelInputShape("vgg16"); });
  expect("Error: model \"mlp\": dropout must be in [0, 1), got 1", [] { ModelByName("mlp", {.dropout = 1}); });
  expect("Error: model \"mlp\": expected an input shape (channels, rows, columns), got (28, 28)", [] {
    ModelByName("mlp", {.input = {28, 28}});
  });
  expect("Error: model \"mlp\": num_classes must be >= 1, got -3", [] { ModelByName("mlp", {.num_classes = -3}); });
}

// models/*.prototxt are these symbols. After a change: bazel build //tests/train:zoo_test, and in the repository's root
//   BINDERY_WRITE_MODELS=models bazel-bin/tests/train/zoo_test
TEST(Zoo, FilesAreTheModels) {
  const char* folder = std::getenv("BINDERY_WRITE_MODELS");
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
