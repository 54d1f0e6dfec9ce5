// Models of tables whose columns were scaled: the server is asked about rows as they are in a file.
#include <gtest/gtest.h>
#include <httplib.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "examples/server/server.h"
#include "examples/server/wire.h"
#include "symbol/ops.h"
#include "tests/message_of.h"
#include "train/data/open.h"

namespace bindery::server {
namespace {

// The square of each column, (N, 1, 3) -> (N, 1, 3).
Model Squares(const std::string& preprocessing) {
  Model model{.symbol = Square(Variable("data", {.shape = Shape{kUnknownDim, 1, 3}}), "square")};
  SetPreprocessing(preprocessing, &model);
  return model;
}

TEST(ServedColumns, AreScaledByTheModelsNumbers) {
  ServerOptions options{.port = 0, .threads = 1};
  Server server(Describe(Squares("leave_out=id&mean=1000,0.5,7&scale=standard&std=10,0.25,0"), {}), options);
  std::thread thread([&] { server.Run(); });
  httplib::Client client("127.0.0.1", server.port());
  const httplib::Result answer =
      client.Post("/predict", R"({"data": [[[1020, 1, 7]], [[970, 0.5, 3]]]})", "application/json");
  server.Stop();
  thread.join();
  ASSERT_TRUE(answer) << httplib::to_string(answer.error());
  const nlohmann::json outputs = nlohmann::json::parse(answer->body).at("outputs");
  EXPECT_EQ(outputs.at("square_output"), nlohmann::json::parse("[[[4, 4, 0]], [[9, 0, 0]]]"));  // a constant is 0
}

// What is missing takes its place behind the scaling, and numbers are rounded behind it.
TEST(ServedColumns, GapsAreFilledInAsInTraining) {
  const auto prepared = [](const std::string& preprocessing, const std::string& body) {
    const ServedModel served = Describe(Squares(preprocessing), {});
    return served.Prepare(InputsOfJson(served, body, 4)).at("data");
  };
  const std::string scaled = "mean=1700000075,5,6&scale=standard&std=50,2,3";
  EXPECT_EQ(prepared(scaled + "&missing=-1", R"({"data": [[[1700000100, null, 9]], [[null, 9, 6]]]})"),
            HostTensor::From({2, 1, 3}, {0.5, -1, 1, -1, 2, 0}));
  EXPECT_EQ(prepared("missing=7", R"({"data": [[1, null, 3]]})"), HostTensor::From({1, 1, 3}, {1, 7, 3}));
  for (const std::string& none : {scaled, std::string()}) {
    EXPECT_EQ(
        MessageOf<DataError>([&] { prepared(none, R"({"data": [[1, null, 3]]})"); }),
        "DataError: input \"data\", element 1: expected a number, got null; the model's preprocessing says nothing "
        "(missing=) to take its place");
  }
  // Octets have NaN for it.
  const float row[] = {1, std::numeric_limits<float>::quiet_NaN(), 3};
  const std::string_view octets(reinterpret_cast<const char*>(row), sizeof row);
  const ServedModel filled = Describe(Squares("missing=7"), {}), plain = Describe(Squares(""), {});
  EXPECT_EQ(filled.Prepare(InputsOfOctets(filled, octets, 4)).at("data"), HostTensor::From({1, 1, 3}, {1, 7, 3}));
  EXPECT_EQ(MessageOf<DataError>([&] { InputsOfOctets(plain, octets, 4); }),
            "DataError: input \"data\", element 1: not a finite number");
  EXPECT_NE(MessageOf<DataError>([] { Describe(Squares("missing=x"), {}); }), "");
}

// Of features that are categories, the words; they become columns, and the others are scaled.
TEST(ServedColumns, WordsAreCategories) {
  const ServedModel served =
      Describe(Squares("categories=colour:blue|5&features=colour,size&mean=0,0,10&scale=standard&std=1,1,2"), {});
  const auto prepared = [&](const std::string& body) {
    return served.Prepare(InputsOfJson(served, body, 4)).at("data");
  };
  EXPECT_EQ(prepared(R"({"data": ["blue", 14]})"), HostTensor::From({1, 1, 3}, {1, 0, 2}));
  EXPECT_EQ(prepared(R"({"data": [["5", 10], [5, 8], ["green", 12]]})"),
            HostTensor::From({3, 1, 3}, {0, 1, 0, 0, 1, -1, 0, 0, 1}));
  const auto refused = [&](const std::string& body) { return MessageOf<DataError>([&] { prepared(body); }); };
  EXPECT_EQ(refused(R"({"data": [[null, 1]]})"), "DataError: input \"data\", element 0: expected a category, got null");
  EXPECT_EQ(refused(R"({"data": [["blue", 1], [[], 1]]})"),
            "DataError: input \"data\", element 2: expected a category, got array");
  EXPECT_EQ(refused(R"({"data": [["blue", "big"]]})"),
            "DataError: input \"data\", element 1: expected a number, got string");
  EXPECT_EQ(refused(R"({"data": [["blue", 1, 2]]})"),
            "DataError: input \"data\": expected samples of shape (1, 2), one or an array of them, got (1, 3)");
  // In octets, their numbers.
  const float rows[] = {1, 10, -1, 12};
  const std::string_view octets(reinterpret_cast<const char*>(rows), sizeof rows);
  EXPECT_EQ(served.Prepare(InputsOfOctets(served, octets, 4)).at("data"),
            HostTensor::From({2, 1, 3}, {0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(nlohmann::json::parse(JsonOfModel(served, 4)).at("inputs"), nlohmann::json::parse(R"([{
    "name": "data", "dtype": "float32", "sample_shape": [1, 2], "categories": {"0": ["blue", "5"]}}])"));
  EXPECT_EQ(MessageOf<ModelError>([] { Describe(Squares("categories=c:a|b|c|d&features=c"), {}); }),
            "ModelError: the model's preprocessing has categories that its samples of (1, 3) do not have room for");
}

// The network of one model with the values of another, whose labels had another unit.
TEST(ServedColumns, LabelsAreInTheUnitOfTheWeights) {
  const auto save = [](const char* name, const std::string& mean, const std::string& deviation) {
    const Symbol x = FullyConnected(Variable("data", {.shape = Shape{kUnknownDim, 1}}), {.num_hidden = 1}, "fc");
    Model model{.symbol = LinearRegressionOutput(x, Variable("softmax_label"), {}, "out"),
                .params = {{"fc_weight", HostTensor::From({1, 1}, {1})}, {"fc_bias", HostTensor::From({1}, {0})}}};
    SetPreprocessing("label_mean=" + mean + "&label_scale=standard&label_std=" + deviation, &model);
    ScaleLabelsAsKept(&model);
    SaveModel(model, testing::TempDir() + "/" + name);
    return testing::TempDir() + "/" + name;
  };
  const std::string first = save("first.pb", "100", "10"), second = save("second.pb", "-5", "2");
  for (const auto& [weights, expected] : {std::pair(std::string(), 120), {second, -1}}) {
    const ServedModel served = Describe(LoadWithWeights(first, weights), {});
    const Predictor predictor(served.model, {.inputs = served.Describe(1)});
    EXPECT_EQ(predictor.Predict({{"data", HostTensor::From({1, 1}, {2})}})[0].At(0), expected) << weights;
  }
}

// A sample may lack the leading extents of 1 that the model gives it.
TEST(ServedColumns, RowsComeAsTheyAreInTheFile) {
  const ServedModel served = Describe(Squares(""), {});
  const auto given = [&](const std::string& rows) {
    return InputsOfJson(served, "{\"data\": " + rows + "}", 4).at("data");
  };
  for (const char* row : {"[1, 2, 3]", "[[1, 2, 3]]", "[[[1, 2, 3]]]"}) {
    EXPECT_EQ(given(row), HostTensor::From({1, 1, 3}, {1, 2, 3})) << row;
  }
  for (const char* rows : {"[[1, 2, 3], [4, 5, 6]]", "[[[1, 2, 3]], [[4, 5, 6]]]"}) {
    EXPECT_EQ(given(rows), HostTensor::From({2, 1, 3}, {1, 2, 3, 4, 5, 6})) << rows;
  }
  for (const char* other : {"1", "[]", "[1, 2]", "[[[[1, 2, 3]]]]", "[[[1, 2, 3], [4, 5, 6]]]"}) {
    EXPECT_NE(MessageOf<DataError>([&] { given(other); }).find("expected samples of shape (1, 3)"), std::string::npos)
        << MessageOf<DataError>([&] { given(other); });
  }
  EXPECT_EQ(MessageOf<DataError>([&] { given("[[1, 2, 3], [4, 5]]"); }),
            "DataError: input \"data\", at element 3: expected an array of 3 along axis 1, got 2");
  const ServedModel scalars = Describe({.symbol = Square(Variable("data", {.shape = Shape{kUnknownDim, 1}}))}, {});
  EXPECT_EQ(InputsOfJson(scalars, R"({"data": [[1], [2]]})", 4).at("data"), HostTensor::From({2, 1}, {1, 2}));
}

TEST(ServedColumns, OtherModelsTakeWhatIsAsked) {
  const HostTensorMap asked = {{"data", HostTensor::From({1, 1, 3}, {1, 2, 3})}};
  for (const char* other : {"", "mean=0.5&rows=3&std=0.1", "scale=2"}) {
    EXPECT_EQ(Describe(Squares(other), {}).Prepare(asked).at("data"), asked.at("data")) << other;
  }
  EXPECT_EQ(Describe(Squares("max=2,4,9&min=1,0,9&scale=range"), {}).Prepare(asked).at("data"),
            HostTensor::From({1, 1, 3}, {0, 0.5, 0}));
}

// Numbers go with the values that were trained on columns scaled by them.
TEST(ServedColumns, AreThoseOfTheWeights) {
  const auto save = [](const char* name, const std::string& preprocessing) {
    const std::string path = testing::TempDir() + "/" + name;
    SaveModel(Squares(preprocessing), path);
    return path;
  };
  const std::string graph = save("graph.pb", "mean=1,2,3&scale=standard&std=1,1,1");
  const std::string other = save("other.pb", "mean=4,5,6&scale=standard&std=1,1,1"), none = save("none.pb", "");
  const auto first = [&](const std::string& weights) {
    return Describe(LoadWithWeights(graph, weights), {}).columns.first;
  };
  EXPECT_EQ(first(""), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(first(other), (std::vector<double>{4, 5, 6}));
  EXPECT_EQ(first(none), std::vector<double>());
}

TEST(ServedColumns, DamagedNumbersAreRefused) {
  EXPECT_EQ(MessageOf<ModelError>([] { Describe(Squares("mean=1,2&scale=standard&std=1,1"), {}); }),
            "ModelError: the model's preprocessing scales 2 columns, but its samples have 3 numbers");
  EXPECT_NE(MessageOf<DataError>([] { Describe(Squares("mean=1,2,nan&scale=standard&std=1,1,1"), {}); }), "");
  const ServedModel served = Describe(Squares("mean=1,2,3&scale=standard&std=1e-30,1,1"), {});
  EXPECT_EQ(MessageOf<DataError>([&] {
              served.Prepare({{"data", HostTensor::Full(DType::kFloat64, {1, 1, 3}, 1e30)}});
            }),
            "DataError: row 0, column 0: 1e+30 is too far from the values that scale is computed of");
}

}  // namespace
}  // namespace bindery::server
