// Weights by the names of a model.
#include <gtest/gtest.h>

#include "symbol/ops.h"
#include "tests/message_of.h"
#include "train/weights/weights.h"

namespace bindery {
namespace {

HostTensor Of(const Shape& shape) { return HostTensor::Full(DType::kFloat32, shape, 1); }

std::vector<std::string> Names(const Weights& weights) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : weights.tensors) names.push_back(name);
  return names;
}

// backbone.0.weight ... as another system calls them.
Weights Theirs() {
  return {.tensors = {{"backbone.0.weight", Of({4, 3})},
                      {"backbone.0.bias", Of({4})},
                      {"head.weight", Of({7, 4})},
                      {"norm.mean", Of({4})}},
          .metadata = {{"format", "pt"}}};
}

TEST(WeightNamesTest, RulesRename) {
  const Weights mapped = MapNames(Theirs(), {R"(backbone\.(\d)\.(.*)=fc\1_\2)", "head.*=", R"((.*)\.mean=bn_\1\0)"});
  EXPECT_EQ(Names(mapped), (std::vector<std::string>{"bn_norm\\0", "fc0_bias", "fc0_weight"}));
  EXPECT_EQ(mapped.metadata.at("format"), "pt");
  EXPECT_EQ(mapped.tensors.at("fc0_weight").shape(), Shape({4, 3}));
  // The first that matches counts, and only whole names do.
  EXPECT_EQ(Names(MapNames(Theirs(), {"head.weight=a", "head.*|norm.*=b"})),
            (std::vector<std::string>{"a", "b", "backbone.0.bias", "backbone.0.weight"}));
  EXPECT_EQ(Names(MapNames(Theirs(), {})).size(), 4u);
}

TEST(WeightNamesTest, PatternsChoose) {
  const std::vector<std::string> names = {"conv1_weight", "conv1_bias", "fc_weight", "fc_bias"};
  EXPECT_EQ(ChooseNames(names, "conv*"), (std::vector<std::string>{"conv1_weight", "conv1_bias"}));
  EXPECT_EQ(ChooseNames(names, "fc_bias,conv?_weight"), (std::vector<std::string>{"conv1_weight", "fc_bias"}));
  EXPECT_EQ(ChooseNames(names, "*"), names);
  const std::vector<std::string> in_brackets = {"layers[0].weight", "layers0.weight"};
  EXPECT_EQ(ChooseNames(in_brackets, "layers[0].weight"), in_brackets);  // a name fits itself
  EXPECT_EQ(MessageOf([&] { ChooseNames(names, "conv*,fc_wieght"); }),
            "Error: no parameter is \"fc_wieght\"; did you mean \"fc_weight\"?");
  EXPECT_EQ(MessageOf([&] { ChooseNames(names, ""); }).find("Error: no parameter is \"\""), 0u);
}

TEST(WeightNamesTest, RulesThatAreWrong) {
  const auto complaint = [](const std::vector<std::string>& rules) {
    return MessageOf([&] { MapNames(Theirs(), rules); });
  };
  EXPECT_EQ(complaint({"head=x"}), "CheckpointError: the rule \"head=x\" renames nothing: no name matches it");
  EXPECT_EQ(complaint({".*=x"}).find("CheckpointError: \"backbone.0.bias\" and \"backbone.0.weight\" would both"), 0u);
  EXPECT_EQ(complaint({"norm.mean=head.weight"}),
            "CheckpointError: \"head.weight\" and \"norm.mean\" would both be called \"head.weight\"");
  EXPECT_EQ(complaint({"head"}).find("Error: a rule for names: expected EXPRESSION=NAME"), 0u);
  EXPECT_EQ(complaint({"(=x"}).find("Error: a rule for names: \"(\" is no regular expression"), 0u);
  EXPECT_EQ(
      complaint({"head\\.(.*)=fc_\\2"}),
      "Error: a rule for names: there is no \\2 in \"head\\.(.*)=fc_\\2\", whose expression has brackets 1 times");
}

TEST(WeightNamesTest, AModelTakesWhatFits) {
  Symbol net = FullyConnected(Variable("data", {.shape = Shape{kUnknownDim, 3}}), {.num_hidden = 4}, "fc");
  net = BatchNorm(net, {}, "bn");
  Weights weights{.tensors = {{"fc_weight", Of({4, 3})}, {"bn_running_mean", Of({4})}}, .metadata = {{"a", "b"}}};
  const std::vector<std::string> auxiliary = net.ListAuxiliaryStates();
  ASSERT_EQ(auxiliary.size(), 2u);
  weights.tensors.erase("bn_running_mean");
  weights.tensors[auxiliary[0]] = Of({4});
  const Model model = ModelOf(net, weights, "\"file\"");
  EXPECT_EQ(model.params.size(), 1u);
  EXPECT_EQ(model.aux.count(auxiliary[0]), 1u);
  EXPECT_EQ(model.metadata.at("a"), "b");
  EXPECT_EQ(WeightsOf(model).tensors, weights.tensors);

  CheckShapes(model, "\"file\"");
  Model other = model;
  other.params["fc_weight"] = Of({5, 3});
  other.aux[auxiliary[0]] = Of({4, 1});
  EXPECT_EQ(MessageOf<CheckpointError>([&] { CheckShapes(other, "\"file\""); }),
            "CheckpointError: \"file\": 2 of its tensors do not fit the model; rules for names can leave them out:\n  "
            "\"fc_weight\" is (5, 3), the model's "
            "is (4, 3)\n  \"" +
                auxiliary[0] + "\" is (4, 1), the model's is (4)");
  weights.tensors["fc_biass"] = Of({4});
  weights.tensors["zzz"] = Of({1});
  EXPECT_EQ(
      MessageOf<CheckpointError>([&] { ModelOf(net, weights, "\"file\""); }),
      "CheckpointError: \"file\": 2 of its 4 tensors are not in the model; rules for names can rename them or leave "
      "them out:\n  \"fc_biass\"; did you mean \"fc_bias\"?\n  \"zzz\"");
  for (int i = 0; i < 10; ++i) weights.tensors["more" + std::to_string(i)] = Of({1});
  EXPECT_NE(MessageOf<CheckpointError>([&] { ModelOf(net, weights, "\"file\""); }).find("\n  and 4 more"),
            std::string::npos);
}

}  // namespace
}  // namespace bindery
