// Tables with words in them through the commands, and labels that models find again.
#include <nlohmann/json.hpp>

#include "symbol/model.h"
#include "tests/tools/program.h"
#include "train/data/open.h"

namespace bindery {
namespace {

class CategoryCommandsTest : public ProgramTest {
 protected:
  // 90 things whose kind is that of their colour, but for large ones.
  CategoryCommandsTest() {
    std::string rows = "size,colour,kind,shop\n";
    for (int i = 0; i < 90; ++i) rows += Row(i, Colour(i)) + "," + Kind(i) + (i % 2 ? ",\"A, B\"\n" : ",C\n");
    Write("things.csv", rows);
  }
  static const char* Colour(int i) {
    constexpr const char* kColours[] = {"red", "green", "blue"};
    return kColours[i % 3];
  }
  static std::string Kind(int i) { return i % 10 == 9 || i % 3 == 1 ? "leaf" : "fruit"; }
  static std::string Row(int i, const std::string& colour) { return std::to_string(i % 10 * 100) + "," + colour; }
  static Words Train(const std::string& data, int epochs, const Words& more = {}, const char* model = "mlp") {
    return Words{"train",   "--model",      model, "--data",    data, "--epochs", std::to_string(epochs),
                 "--quiet", "--batch-size", "16",  "--threads", "1"} +
           more;
  }
  static size_t CountOf(const std::string& text, const std::string& what) {
    size_t count = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
    return count;
  }
  json Predict(const Words& model, const std::string& data) const {
    return Json(Words{"predict", "--json", "--show", "100", "--data", data} + model);
  }
  const std::string kData = "csv:things.csv?label=kind&categories=colour,shop&scale=standard";
};

TEST_F(CategoryCommandsTest, AreColumnsThatGoWithTheModel) {
  Succeeds(Train(kData, 30, {"--save", "m.pb"}));
  EXPECT_GT(Json({"test", "--json", "--test-part", "1"}).at("accuracy"), 0.95);
  const Outcome shown = Succeeds({"inspect", "--model", "m.pb"});
  EXPECT_NE(shown.out.find("\npreprocessing\n  categories colour:blue|green|red,shop:A%2c B|C\n"), std::string::npos)
      << shown;
  Succeeds({"verify", "m.pb"});
  const json of_run = Predict({}, "csv:things.csv");
  ASSERT_EQ(of_run.size(), 90u);
  EXPECT_EQ(Predict({"--model", "m.pb"}, "csv:things.csv"), of_run);
  // The same things with their columns in another order, and without what is to be predicted.
  std::string turned = "shop,size,colour\n", strange = "shop,size,colour\n";
  for (int i = 0; i < 90; ++i) {
    turned += (i % 2 ? "\"A, B\"," : "C,") + Row(i, Colour(i)) + "\n";
    strange += "D," + Row(i, i % 3 ? Colour(i) : "purple") + "\n";
  }
  Write("turned.csv", turned);
  Write("strange.csv", strange);
  const json answers = Predict({}, "csv:turned.csv");
  ASSERT_EQ(answers.size(), 90u);
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i].at("label"), nullptr);
    EXPECT_EQ(answers[i].at("probability"), of_run[i].at("probability")) << i;
  }
  // One warning of each column, whatever the rows are.
  const Outcome warned = Succeeds({"predict", "--data", "csv:strange.csv"});
  EXPECT_EQ(CountOf(warned.err, "is none of the"), 2u) << warned;
  EXPECT_NE(
      warned.err.find("warning: \"strange.csv\", line 2, column \"colour\": \"purple\" is none of the 3 categories of "
                      "the training; such values, of which there are 30, count as none of them"),
      std::string::npos)
      << warned;
}

// A run that is gone on with, a model that is tuned, and weights in a file of their own.
TEST_F(CategoryCommandsTest, AreThoseOfTheTraining) {
  Succeeds(Train(kData, 4, {"--checkpoints", "whole"}));
  Succeeds(Train(kData, 2, {"--checkpoints", "run"}));
  Succeeds({"train", "--resume", "--checkpoints", "run", "--epochs", "4", "--save", "m.pb", "--quiet"});
  EXPECT_EQ(Predict({"--checkpoints", "run"}, "csv:things.csv"), Predict({"--checkpoints", "whole"}, "csv:things.csv"));
  Write("few.csv", "size,colour,kind,shop\n100,red,fruit,C\n200,pink,leaf,C\n300,red,fruit,C\n100,pink,leaf,C\n");
  const std::string few = "csv:few.csv?label=kind";
  const auto tune = [](const std::string& data, const Words& more) {
    return Train(data, 2, Words{"--weights", "m.pb", "--checkpoints="} + more, "mlp(classes=2)");
  };
  const Outcome tuned = Succeeds(tune(few, {"--save", "t.pb", "--test-part", "0.5"}));
  const std::string kept = Preprocessing(LoadModel(PathOf("m.pb")));
  EXPECT_EQ(Preprocessing(LoadModel(PathOf("t.pb"))), kept);
  EXPECT_NE(tuned.err.find("\"pink\" is none of the 3 categories"), std::string::npos) << tuned;
  Fails(5, "\"fc1_weight\" is (128, 6), the model's is (128, 4)",
        tune(few + "&measure=1", {"--test-data", "csv:few.csv"}));
  Succeeds({"convert", "m.pb", "m.safetensors"});
  EXPECT_EQ(Predict({"--model", "t.pb", "--weights", "m.safetensors"}, "csv:things.csv"),
            Predict({"--model", "m.pb"}, "csv:things.csv"));
}

TEST_F(CategoryCommandsTest, Errors) {
  Fails(4,
        "\"things.csv\", line 2, column 2 (\"colour\"): expected a finite number, got \"red\"; \"categories\" names "
        "columns "
        "of words, \"leave_out\" those that are no features",
        Train("csv:things.csv?label=kind", 1));
  Fails(4, "there is no column \"color\" of categories; did you mean \"colour\"?",
        Train("csv:things.csv?label=kind&categories=color,shop", 1));
  Fails(4, "unknown setting \"categorise\"; did you mean \"categories\"?",
        Train("csv:things.csv?label=kind&categorise=shop", 1));
  Write("gap.csv", "size,colour,kind\n100,red,fruit\n200,,leaf\n");
  Fails(4, "\"gap.csv\", line 3, column 2 (\"colour\"): the category is missing, whose place no number takes",
        Train("csv:gap.csv?label=kind&categories=colour&missing=0", 1));
  Succeeds(Train("csv:things.csv?label=kind&leave_out=colour,shop", 1));
  Fails(4, "the categories of column \"size\" are those of the data that a model was trained on, and there are none",
        {"test", "--data", "csv:things.csv?categories=size"});
  Write("new.csv", "size,sort\n1,fruit\n");
  Fails(4, "there is no column \"kind\" for the label, which the model was trained with",
        {"test", "--data", "csv:new.csv"});
}

}  // namespace
}  // namespace bindery
