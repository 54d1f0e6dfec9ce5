// Numbers learned from a table by the command line: a model by name with a head of regression.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "symbol/model.h"
#include "symbol/ops.h"
#include "tests/tools/program.h"

namespace bindery {
namespace {

class RegressionCommandsTest : public ProgramTest {
 protected:
  // price = 2 x - y and weight = x + y + 1, of points on a grid.
  RegressionCommandsTest() {
    std::string rows = "x,price,y,\"weight, kg\"\n";
    for (int i = 0; i < 144; ++i) {
      const double x = i % 12 / 12.0, y = i / 12 / 12.0;
      rows += std::to_string(x) + "," + std::to_string(2 * x - y) + "," + std::to_string(y) + "," +
              std::to_string(x + y + 1) + "\n";
    }
    Write("goods.csv", rows);
  }
  static Words Train(const std::string& model, const std::string& data, const Words& more = {}) {
    return Words{"train", "--model", model, "--data", data, "--batch-size", "16", "--epochs", "40", "--threads", "1"} +
           more;
  }
  static double NumberIn(const json& object, const char* name) { return object.at(name).get<double>(); }
};

TEST_F(RegressionCommandsTest, OneNumber) {
  const Outcome trained =
      Succeeds(Train("mlp(head=regression)", "csv:goods.csv?label=price", {"--save", "net.onnx", "--best", "best.pb"}));
  EXPECT_NE(trained.out.find("test rmse"), std::string::npos) << trained;
  EXPECT_EQ(trained.out.find("accuracy"), std::string::npos) << trained;
  const json tested = Json({"test", "--json"});
  // "weight, kg" is a column of the data here; 0.1 of all prices' deviation would be 0.07.
  EXPECT_LT(NumberIn(tested, "rmse"), 0.07) << tested;
  EXPECT_LE(NumberIn(tested, "mae"), NumberIn(tested, "rmse"));
  EXPECT_NEAR(NumberIn(Json({"test", "--json", "--metrics", "mse"}), "mse"), std::pow(NumberIn(tested, "rmse"), 2),
              1e-6);
  EXPECT_NE(Succeeds({"test"}).out.find("samples: rmse 0."), std::string::npos);

  const json predicted = Json({"predict", "--json", "--show", "3"});
  ASSERT_EQ(predicted.size(), 3u);
  for (const json& one : predicted) {
    EXPECT_NEAR(one.at("values").at("price").get<double>(), one.at("labels").at("price").get<double>(), 0.3) << one;
  }
  EXPECT_TRUE(Succeeds({"predict"}).out.starts_with("sample         price         label\n"));
  // Saved, and as a model of others, it is the same one.
  for (const std::string file : {"best.pb", "net.onnx"}) {
    const json of_file =
        Json({"predict", "--json", "--weights", file, "--data", "csv:goods.csv?label=price", "--show", "2"});
    EXPECT_EQ(of_file.at(0).at("values").size(), 1u) << of_file;
    EXPECT_TRUE(of_file.at(0).at("values").contains("price")) << of_file;
  }
}

TEST_F(RegressionCommandsTest, SeveralNumbers) {
  Succeeds(Train("mlp(head=regression, outputs=2)", "csv:goods.csv?label=3,price", {"--metrics", "mse"}));
  EXPECT_LT(NumberIn(Json({"test", "--json", "--metrics", "rmse"}), "rmse"), 0.1);
  Succeeds({"predict", "--output", "answers.csv", "--test-part", "1"});
  std::istringstream lines(Read("answers.csv"));
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "sample,\"weight, kg\",price,\"label weight, kg\",label price,record");
  int rows = 0;
  for (; std::getline(lines, line); ++rows) {
    std::istringstream fields(line);
    std::vector<double> values;
    for (std::string field; std::getline(fields, field, ',') && !field.empty();) values.push_back(std::stod(field));
    ASSERT_EQ(values.size(), 5u) << line;
    const double x = rows % 12 / 12.0, y = rows / 12 / 12.0;
    EXPECT_EQ(values[0], rows);
    EXPECT_NEAR(values[3], x + y + 1, 1e-6);
    EXPECT_NEAR(values[4], 2 * x - y, 1e-6);
    EXPECT_NEAR(values[1], values[3], 0.5);
  }
  EXPECT_EQ(rows, 144);
  // Which number a lone label belongs to nobody knows.
  Write("lone.csv", "0.5,0.25,0.75\n0.1,0.9,0.3\n");
  Fails(4, "samples have 1 as labels, but the newest checkpoint in \"bindery-checkpoints\" gives 2 numbers",
        {"predict", "--data", "csv:lone.csv"});
  // Without labels, and without names.
  Write("new.csv", "0.5,0.25\n0.1,0.9\n");
  const json predicted = Json({"predict", "--json", "--data", "csv:new.csv?label=none"});
  ASSERT_EQ(predicted.size(), 2u);
  EXPECT_EQ(predicted.at(0).at("labels"), nullptr);
  EXPECT_NEAR(predicted.at(0).at("values").at("price").get<double>(), 0.75, 0.3);
  Succeeds(Train("mlp(head=regression)", "csv:new.csv?label=1", {"--overwrite", "--test-part", "0.5", "--quiet"}));
  EXPECT_NE(Succeeds({"predict", "--quiet"}).out.find("value"), std::string::npos);
  // And its run goes on.
  Succeeds({"train", "--resume", "--epochs", "42"});
}

// Numbers far from 1 are learned as they are about 1, and everybody hears of them as they are.
TEST_F(RegressionCommandsTest, LabelsThatAreScaled) {
  std::string rows = "x,y,price,tax\n", near = rows;
  for (int i = 0; i < 144; ++i) {
    const double x = i % 12 / 12.0, y = i / 12 / 12.0;
    const std::string point = std::to_string(x) + "," + std::to_string(y) + ",";
    rows += point + fmt::format("{},{}\n", 300000 + 80000 * (2 * x - y), 0.002 * (x + y));
    near += point + fmt::format("{},{}\n", 2 * x - y, x + y);
  }
  Write("far.csv", rows);
  Write("near.csv", near);
  const std::string model = "mlp(head=regression)", two = "mlp(head=regression, outputs=2)";
  const std::string data = "csv:far.csv?label=price,tax&label_scale=standard";
  const Outcome trained = Succeeds(Train(two, data, {"--json", "--save", "far.pb", "--best", "far.onnx"}));
  Succeeds(Train(two, "csv:near.csv?label=price,tax&label_scale=standard", {"--checkpoints", "near"}));
  const auto predict = [&](const Words& more) {
    return Json(Words{"predict", "--json", "--show", "200", "--test-part", "1"} + more);
  };
  // In the prices' own unit, as if they had been small; validated, tested and predicted.
  const json far = predict({}), small = predict({"--checkpoints", "near"});
  double squares = 0;
  for (size_t i = 0; i < far.size(); ++i) {
    const json &values = far[i].at("values"), &labels = far[i].at("labels"), &others = small[i].at("values");
    EXPECT_NEAR(NumberIn(values, "price"), 300000 + 80000 * NumberIn(others, "price"), 80) << i;
    EXPECT_NEAR(NumberIn(values, "tax"), 0.002 * NumberIn(others, "tax"), 2e-6) << i;
    EXPECT_NEAR(NumberIn(values, "price"), NumberIn(labels, "price"), 30000) << i;
    squares += std::pow(NumberIn(values, "price") - NumberIn(labels, "price"), 2) +
               std::pow(NumberIn(values, "tax") - NumberIn(labels, "tax"), 2);
  }
  const json tested = Json({"test", "--json", "--test-part", "1"});
  EXPECT_NEAR(NumberIn(tested, "rmse"), std::sqrt(squares / 288), 1e-3 * NumberIn(tested, "rmse"));
  const json part = Json({"test", "--json"});
  const std::string last = trained.out.substr(trained.out.rfind("{\"checkpoint\""));
  EXPECT_NEAR(NumberIn(json::parse(last).at("test"), "rmse"), NumberIn(part, "rmse"), 1e-3 * NumberIn(part, "rmse"));
  // Wherever the graph and the values come from.
  Succeeds({"convert", "far.pb", "far.safetensors"});
  for (const Words& words : {Words{"--model", "far.pb"},
                             {"--model", two},
                             {"--model", "near.pb", "--weights", "far.pb"},
                             {"--model", "near.pb", "--weights", "far.safetensors"}}) {
    if (words[1] == "near.pb") Succeeds({"convert", "near/" + Files("near").back(), "near.pb"});
    EXPECT_EQ(predict(words + Words{"--data", "csv:far.csv"}), far) << words[1];
  }
  const json of_onnx = predict({"--model", "far.onnx", "--data", "csv:far.csv"});
  EXPECT_NEAR(NumberIn(of_onnx.at(5).at("values"), "price"), NumberIn(far.at(5).at("labels"), "price"), 60000);
  const std::string kept = Succeeds({"inspect", "--model", "far.pb"}).out;
  EXPECT_NE(kept.find("  label       price,tax\n  label_mean  "), std::string::npos) << kept;
  // A run goes on; a model that is tuned has its numbers, or those of its own rows, or none.
  Succeeds({"train", "--resume", "--epochs", "42", "--quiet"});
  const auto tuned = [&](const std::string& settings, const std::string& from = "far.pb") {
    Words tune = Train(from, "csv:near.csv?label=price,tax" + settings, {"--checkpoints=", "--save", "t.pb"});
    tune[8] = "1";
    Succeeds(tune + Words{"--quiet", "--optimizer", "sgd(lr=1e-4)"});
    return LoadModel(PathOf("t.pb")).metadata.at("bindery.preprocessing");
  };
  EXPECT_NE(tuned("").find("label_mean=3"), std::string::npos);
  const std::string graph = LoadModel(PathOf("t.pb")).symbol.DebugString();
  EXPECT_EQ(graph, LoadModel(PathOf("far.pb")).symbol.DebugString());
  EXPECT_NE(tuned("", "far.onnx").find("label_mean=3"), std::string::npos);
  EXPECT_NE(LoadModel(PathOf("t.pb")).symbol.DebugString().find("BlockGrad"), std::string::npos);
  EXPECT_NE(tuned("&measure=1").find("label_mean=0.4"), std::string::npos);
  EXPECT_EQ(tuned("&label_scale=none").find("label_mean"), std::string::npos);
  Fails(4, "\"label_scale\" has numbers for 2 labels, but a sample has 1; measure=1 takes numbers of these",
        Train("mlp(head=regression)", "csv:near.csv?label=price", {"--weights", "far.pb", "--checkpoints="}));
  Fails(4, "\"label_scale\": expected standard, range or none, got \"log\"",
        Train(model, "csv:far.csv?label=price&label_scale=log"));
  Fails(4, "\"label_scale\" is for labels that are numbers (label_kind=numbers)",
        Train("mlp", "csv:near.csv?label=price&label_scale=range"));
}

TEST_F(RegressionCommandsTest, ColumnsOfOneName) {
  Write("twice.csv", "price,x,price\n1,2,3\n2,3,5\n4,1,3\n");
  Succeeds(Train("mlp(head=regression)", "csv:twice.csv?label=0,2", {"--test-part", "0.4", "--quiet"}));
  const json predicted = Json({"predict", "--json", "--test-part", "1"});
  ASSERT_EQ(predicted.size(), 3u);
  EXPECT_EQ(predicted.at(0).at("labels"), json({{"price", 1}, {"price_2", 3}}));
  EXPECT_EQ(predicted.at(0).at("values").size(), 2u);
}

// Graphs of others: a sigmoid tells two classes apart, and a loss of one's own has the shape of its labels.
TEST_F(RegressionCommandsTest, GraphsThatTellClassesApart) {
  Write("kinds.csv", "x,y,kind\n0,1,rose\n1,0,iris\n0,2,rose\n2,0,iris\n1,3,rose\n3,1,iris\n0,3,rose\n3,0,iris\n");
  const Symbol data = Variable("data", {.shape = Shape{kUnknownDim, 2}}), label = Variable("softmax_label");
  const auto trained = [&](const std::string& name, const Symbol& symbol) {
    SaveModel({.symbol = symbol}, PathOf(name + ".pb"));
    Succeeds(Train(name + ".pb", "csv:kinds.csv", {"--metrics", "loss", "--test-part", "0.25", "--checkpoints", name}));
    return Json({"test", "--checkpoints", name, "--metrics", "loss", "--json"});
  };
  const Symbol scores = FullyConnected(data, {.num_hidden = 2}, "fc");
  const Symbol own = MakeLoss(-Log(Pick(Softmax(scores), label)), {}, "own");
  EXPECT_EQ(trained("own", own).at("samples"), 2);
  const Symbol score = FullyConnected(data, {.num_hidden = 1}, "fc");
  EXPECT_EQ(trained("sigmoid", LogisticRegressionOutput(score, label, {}, "sigmoid")).at("samples"), 2);
  Succeeds({"train", "--model", "sigmoid.pb", "--data", "csv:kinds.csv?label_kind=classes", "--metrics", "mse",
            "--epochs", "1", "--checkpoints="});
}

// A classifier that was tuned from it has no numbers any more.
TEST_F(RegressionCommandsTest, TunedToTellClassesApart) {
  Succeeds(Train("mlp(head=regression)", "csv:goods.csv?label=price,3", {"--save", "numbers.pb", "--quiet"}));
  EXPECT_TRUE(LoadModel(PathOf("numbers.pb")).metadata.contains("bindery.outputs"));
  Write("kinds.csv", "x,y,kind\n0,1,rose\n1,0,iris\n0,2,rose\n2,0,iris\n");
  Succeeds(Train("mlp(classes=2)", "csv:kinds.csv",
                 {"--weights", "numbers.pb", "--checkpoints=", "--save", "classes.onnx", "--test-part", "0.5"}));
  EXPECT_FALSE(LoadModel(PathOf("classes.onnx")).metadata.contains("bindery.outputs"));
  const json predicted = Json({"predict", "--model", "classes.onnx", "--data", "csv:kinds.csv", "--json"});
  EXPECT_TRUE(predicted.at(0).contains("class")) << predicted;
}

TEST_F(RegressionCommandsTest, WhatIsOfClassesIsRefused) {
  const std::string data = "csv:goods.csv?label=price";
  Fails(2, "--metrics: accuracy is of classes, but the model gives numbers: take mse, rmse, mae or pearson",
        Train("mlp(head=regression)", data, {"--metrics", "mse,accuracy"}));
  Fails(2, "gives 3 numbers, but a sample has 1 as labels", Train("mlp(head=regression, outputs=3)", data));
  Fails(2, "a regression has \"outputs\", not \"classes\"", Train("mlp(head=regression, classes=3)", data));
  Fails(2, "\"outputs\" are of head=regression", Train("mlp(outputs=3)", data));
  Fails(2, "\"head\" must be softmax or regression, got \"linear\"", Train("mlp(head=linear)", data));
  Fails(2, "but the labels are classes", Train("mlp(head=regression)", data + "&label_kind=classes"));
  Fails(2, "but these images have classes", Train("mlp(head=regression)", "digits"));
  Fails(2, "with the setting head=regression", Train("mlp", data + "&label_kind=numbers"));
  Fails(4, "there is no column \"prise\" for the label; did you mean \"price\"?",
        Train("mlp(head=regression)", "csv:goods.csv?label=prise,x"));
  Fails(4, "column \"price\" is a label twice", Train("mlp(head=regression)", "csv:goods.csv?label=price,1"));
  Succeeds(Train("mlp(head=regression)", data, {"--quiet"}));
  Fails(2, "--metrics: accuracy is of classes", {"test", "--metrics", "accuracy"});
  for (const Words& words : {Words{"test", "--confusion"},
                             {"test", "--report", "a.html"},
                             {"test", "--min-accuracy", "1"},
                             {"predict", "--top", "2"}}) {
    Fails(2, words[1] + " is about classes, but the newest checkpoint in \"bindery-checkpoints\" gives numbers", words);
  }
}

}  // namespace
}  // namespace bindery
