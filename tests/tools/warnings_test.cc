// What commands warn of, or refuse, before their numbers mislead: a part of data that may be new, one class alone, more
// classes than there are, nothing learned, data that do not fit a model's values. And that inspect says what classes
// are called.
#include <nlohmann/json.hpp>

#include "symbol/model.h"
#include "symbol/ops.h"
#include "tests/tools/program.h"

namespace bindery {
namespace {

class WarningsTest : public ProgramTest {
 protected:
  WarningsTest() {
    std::string rows = "length,width,species\n";
    const char* kSpecies[] = {"iris", "rose", "tulip"};
    for (int i = 0; i < 60; ++i) {
      rows += std::to_string(i % 3 * 2) + "," + std::to_string(i % 5) + "," + kSpecies[i % 3] + "\n";
    }
    Write("flowers.csv", rows);
  }
  static Words Train(const std::string& data, const Words& more) {
    return Words{"train", "--model", "mlp", "--data", data, "--epochs", "1"} + more;
  }
};

// A model's file does not say which samples of the data it was trained on.
TEST_F(WarningsTest, OfTestingAPartOfWhatMayBeNew) {
  Succeeds(Train("csv:flowers.csv", {"--save", "m.pb"}));
  const auto warns = [&](const Words& more) {
    return Succeeds(Words{"test"} + more).err.find("of new data, --test-part 1 takes all") != std::string::npos;
  };
  EXPECT_TRUE(warns({"--model", "m.pb", "--data", "csv:flowers.csv"}));
  EXPECT_FALSE(warns({"--model", "m.pb", "--data", "csv:flowers.csv", "--test-part", "0.1"}));
  EXPECT_FALSE(warns({"--model", "m.pb", "--test-data", "csv:flowers.csv"}));
  EXPECT_FALSE(warns({"--data", "csv:flowers.csv"}));  // its checkpoint does
}

TEST_F(WarningsTest, OfOneClass) {
  Write("roses.csv", "1,rose\n2,rose\n3,rose\n");
  Fails(0, "\"roses.csv\": all samples are of one class, \"rose\": there is nothing to learn from them",
        Train("csv:roses.csv", {"--test-part", "0.34"}));
}

// A model by name that has as many classes as its weights keeps its head, as one from a file does.
TEST_F(WarningsTest, OfMoreClassesThanTheDataHave) {
  const auto write = [&](const std::string& name, const std::string& tree, int classes) {
    std::string rows = "length,width,species\n";
    for (int i = 0; i < 40; ++i) rows += std::to_string(i) + ",1," + tree + std::to_string(i % classes) + "\n";
    Write(name, rows);
  };
  write("ten.csv", "oak", 10);
  write("two.csv", "elm", 2);
  Succeeds(Train("csv:ten.csv", {"--save", "m.pb", "--checkpoints="}));
  const auto train = [&](const std::string& model) {
    return Words{"train", "--data", "csv:two.csv", "--weights", "m.pb", "--checkpoints=", "--epochs", "1", "--model"} +
           Words{model};
  };
  Fails(0, "model \"mlp\" tells 10 classes apart, but the data have 2: its head stays as it is", train("mlp"));
  EXPECT_EQ(Succeeds(train("mlp(classes=10)")).err.find("classes apart"), std::string::npos) << "it was said";
}

// Of data that are read sample by sample, too.
TEST_F(WarningsTest, OfNothingLearned) {
  const std::string warning = "the model has learned nothing: its training ";
  const auto trained = [&](const Words& more) {
    return Succeeds(Words{"train", "--model", "mlp", "--data", "csv:flowers.csv", "--checkpoints="} + more).err;
  };
  const Words nothing = {"--optimizer", "sgd(lr=0)", "--initializer", "zero", "--epochs"};
  EXPECT_NE(trained(nothing + Words{"60"}).find(warning), std::string::npos);
  EXPECT_EQ(trained(nothing + Words{"1"}).find(warning), std::string::npos) << "after one step";
  // That it answers more often with a rare class is what was asked for.
  EXPECT_EQ(trained(nothing + Words{"60", "--class-weights", "balanced"}).find(warning), std::string::npos);
  const std::string good = trained({"--optimizer", "adam(lr=0.01)", "--epochs", "60"});
  EXPECT_EQ(good.find(warning), std::string::npos) << good;
}

TEST_F(WarningsTest, InspectShowsClassesAndComparesShapes) {
  Succeeds(Train("csv:flowers.csv", {"--save", "m.pb"}));
  const Outcome shown = Succeeds({"inspect", "--model", "m.pb"});
  EXPECT_NE(shown.out.find("\nclasses\n  0          iris\n  1          rose\n"), std::string::npos) << shown;
  EXPECT_EQ(Json({"inspect", "--model", "m.pb", "--json"}).at("classes").size(), 3u);
  // Where the model does not declare what its data are, its values tell.
  SaveModel({.symbol = SoftmaxOutput(FullyConnected(Variable("data"), {.num_hidden = 3}, "fc"), {}, "softmax"),
             .params = {{"fc_weight", HostTensor(DType::kFloat32, {3, 2})}}},
            PathOf("plain.pb"));
  Succeeds({"inspect", "--model", "plain.pb", "--shape", "4,2"});
  Fails(3, "data of (4, 5) do not fit the model: its \"fc_weight\" is (3, 2), they make it (3, 5)",
        {"inspect", "--model", "plain.pb", "--shape", "4,5"});
}

}  // namespace
}  // namespace bindery
