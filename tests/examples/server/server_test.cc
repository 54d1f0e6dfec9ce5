// The server over real sockets: right answers to many, clear ones to those who ask for what is not there, and no request
// lost when it ends.
#include "examples/server/server.h"

#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "executor/predictor.h"
#include "symbol/ops.h"
#include "tests/examples/server/running.h"
#include "tests/message_of.h"

namespace bindery::server {
namespace {

// A + B, of ids and of numbers.
Model TwoInputs() {
  const Symbol a = Variable("a", {.shape = Shape{kUnknownDim, 2}, .dtype = DType::kInt32});
  const Symbol b = Variable("b", {.shape = Shape{kUnknownDim, 2}, .dtype = DType::kInt32});
  return {.symbol = a + b};
}

std::string Octets(const HostTensor& tensor) {
  return {static_cast<const char*>(tensor.raw()), static_cast<size_t>(tensor.bytes())};
}

void ExpectNear(const Json& got, const HostTensor& expected) {
  std::vector<double> flat;
  const Json numbers = got.flatten();
  for (const auto& [path, value] : numbers.items()) flat.push_back(value.get<double>());
  ASSERT_EQ(static_cast<int64_t>(flat.size()), expected.elements());
  for (int64_t i = 0; i < expected.elements(); ++i) EXPECT_NEAR(flat[static_cast<size_t>(i)], expected.At(i), 1e-5);
}

TEST(Server, DescribesTheModel) {
  const Running server(TwoHeads());
  const Json page = Json::parse(server.Client().Get("/")->body);
  EXPECT_EQ(page["inputs"], Json::parse(R"([{"name": "x", "dtype": "float32", "sample_shape": [3]}])"));
  ASSERT_EQ(page["outputs"].size(), 2u);
  EXPECT_EQ(page["outputs"][0]["sample_shape"], Json({2}));
  EXPECT_EQ(page["max_batch"], 8);
  EXPECT_EQ(server.Client().Get("/healthz")->status, 200);
  const httplib::Result absent = server.Client().Get("/absent");
  EXPECT_EQ(absent->status, 404);
  EXPECT_TRUE(Json::parse(absent->body).contains("error"));
}

// As the predictor does.
TEST(Server, LeavesOutLossesOfLabels) {
  const Symbol scores = FullyConnected(Variable("x", {.shape = Shape{kUnknownDim, 3}}), {.num_hidden = 2}, "fc");
  Model model = TwoHeads();
  model.symbol = Group({MakeLoss(SoftmaxCrossEntropy(scores, Variable("label"))), BlockGrad(scores, {}, "scores")});
  const Running server(model);
  const Json page = Json::parse(server.Client().Get("/")->body);
  ASSERT_EQ(page["outputs"].size(), 1u);
  EXPECT_EQ(page["outputs"][0]["name"], "scores_output");
  EXPECT_EQ(page["inputs"].size(), 1u);
  const httplib::Result answer = server.Client().Post("/predict", R"({"data": [[0, 0, 0]]})", kJson);
  ASSERT_EQ(answer->status, 200) << answer->body;
  ExpectNear(Json::parse(answer->body).at("outputs").at("scores_output"), model.params.at("fc_bias"));
}

TEST(Server, AnswersEightClientsRightly) {
  const Running server(TwoHeads());
  const Predictor predictor(TwoHeads(), {.inputs = {{"x", {8, 3}}}});
  std::vector<std::thread> clients;
  std::atomic<int> answered{0};
  for (int c = 0; c < 8; ++c) {
    clients.emplace_back([&, c] {
      httplib::Client client = server.Client();
      for (int i = 0; i < 30; ++i) {
        const HostTensor x = Waves({1 + (c + i) % 8, 3}, 0.01 * (c + 10 * i + 1));
        const std::vector<HostTensor> expected = predictor.Predict({{"x", x}});
        if (i % 2 == 0) {
          const httplib::Result answer = client.Post("/predict", Octets(x), kOctets);
          ASSERT_TRUE(answer) << httplib::to_string(answer.error());
          ASSERT_EQ(answer->status, 200) << answer->body;
          std::vector<float> got(answer->body.size() / sizeof(float));
          std::memcpy(got.data(), answer->body.data(), answer->body.size());
          ASSERT_EQ(static_cast<int64_t>(got.size()), expected[0].elements() + expected[1].elements());
          for (int64_t k = 0; k < expected[0].elements(); ++k) {
            EXPECT_NEAR(got[static_cast<size_t>(k)], expected[0].At(k), 1e-5);
          }
        } else {
          Json rows = Json::array();
          for (int64_t row = 0; row < x.shape()[0]; ++row) {
            rows.push_back({x.At(3 * row), x.At(3 * row + 1), x.At(3 * row + 2)});
          }
          const httplib::Result answer = client.Post("/predict", Json{{"data", rows}}.dump(), kJson);
          ASSERT_TRUE(answer) << httplib::to_string(answer.error());
          ASSERT_EQ(answer->status, 200) << answer->body;
          const Json outputs = Json::parse(answer->body)["outputs"];
          ExpectNear(outputs["fc_output"], expected[0]);
          ExpectNear(outputs["square_output"], expected[1]);
        }
        ++answered;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(answered, 240);
}

TEST(Server, TakesOneSampleAndInputsByName) {
  const Running server(TwoInputs());
  const auto ask = [&](const char* body) { return server.Client().Post("/predict", body, kJson)->body; };
  const Json one = Json::parse(ask(R"({"inputs": {"a": [1, 2], "b": [10, 20]}})"));
  EXPECT_EQ(one["outputs"].begin().value(), Json::parse("[[11, 22]]"));
  const Json two = Json::parse(ask(R"({"inputs": {"a": [[1, 2], [3, 4]], "b": [[0, 1], [2, -7]]}})"));
  EXPECT_EQ(two["outputs"].begin().value(), Json::parse("[[1, 3], [5, -3]]"));
  EXPECT_EQ(server.Post(R"({"data": [1, 2]})"), "400 the model has 2 inputs: give them by name in \"inputs\"");
  EXPECT_EQ(server.Post(R"({"inputs": {"a": [1, 2]}})"), "400 input \"b\" is missing");
  EXPECT_EQ(server.Post(R"({"inputs": {"a": [1, 2], "b": [1, 2], "c": 1}})"), "400 \"c\" is not an input of the model");
  EXPECT_EQ(server.Post(R"({"inputs": {"a": [1, 2], "b": [[1, 2], [3, 4]]}})"),
            "400 input \"b\": 2 samples, \"a\" has 1");
  EXPECT_EQ(server.Post(R"({"inputs": {"a": [1, 2.5], "b": [1, 2]}})"), "400 input \"a\", element 1: 2.5 is no int32");
  EXPECT_EQ(server.Post(R"({"inputs": {"a": [1, 3000000000], "b": [1, 2]}})"),
            "400 input \"a\", element 1: 3000000000 is no int32");
  EXPECT_EQ(server.Post("12345678", kOctets), "400 the model has 2 inputs: octets are for models with one, send JSON");
}

TEST(Server, SaysWhatIsWrong) {
  const Running server(TwoHeads());
  EXPECT_TRUE(server.Post("{\"data\": [1, 2").starts_with("400 the body is no JSON: "));
  EXPECT_TRUE(server.Post("").starts_with("400 the body is no JSON: "));
  EXPECT_TRUE(server.Post("{\"data\": [1, 2, NaN]}").starts_with("400 the body is no JSON: "));
  EXPECT_TRUE(server.Post("{\"data\": [1, 2, 1e999]}").starts_with("400 the body is no JSON: "));
  EXPECT_TRUE(server.Post("{\"\xff\": 1}").starts_with("400 the body is no JSON: "));
  EXPECT_TRUE(server.Post(std::string(4000, '[')).starts_with("400 the body is no JSON: "));
  EXPECT_EQ(server.Post("[1, 2, 3]"), "400 expected an object, got array");
  EXPECT_EQ(server.Post("{}"), "400 expected one of \"data\" and \"inputs\"");
  EXPECT_EQ(server.Post("{\"datum\": 1}"), "400 unknown key \"datum\": expected \"data\" or \"inputs\"");
  EXPECT_EQ(server.Post("{\"data\": [1, 2]}"),
            "400 input \"x\": expected samples of shape (3), one or an array of them, got (2)");
  EXPECT_EQ(server.Post("{\"data\": [[1, 2, 3], [4, 5]]}"),
            "400 input \"x\", at element 3: expected an array of 3 along axis 1, got 2");
  EXPECT_EQ(server.Post("{\"data\": [1, \"two\", 3]}"), "400 input \"x\", element 1: expected a number, got string");
  EXPECT_EQ(server.Post("{\"data\": [1, 2, 1e300]}"), "400 input \"x\", element 2: 1e+300 is no float32");
  EXPECT_EQ(server.Post("{\"data\": []}"),
            "400 input \"x\": expected samples of shape (3), one or an array of them, got (0)");
  Json nine = Json::array();
  for (int i = 0; i < 9; ++i) nine.push_back({1, 2, 3});
  EXPECT_EQ(server.Post(Json{{"data", nine}}.dump()), "400 input \"x\": 9 samples, at most 8 are taken at once");
  EXPECT_EQ(server.Post("12345", kOctets),
            "400 input \"x\": expected a multiple of 12 bytes (float32, samples of shape (3)), got 5");
  EXPECT_EQ(server.Post("", kOctets), "400 input \"x\": no samples");
  HostTensor not_finite = Waves({1, 3}, 1);
  not_finite.Set(1, std::numeric_limits<double>::infinity());
  EXPECT_EQ(server.Post(Octets(not_finite), kOctets), "400 input \"x\", element 1: not a finite number");
  EXPECT_TRUE(server.Post("{}", "text/plain").starts_with("415 Content-Type: expected application/json or "));
  EXPECT_TRUE(server.Post(std::string(1 << 20, ' ')).starts_with("413 the body is larger than "));
  EXPECT_EQ(server.Post("{\"data\": [1, 2, 3]}"), "200");
}

TEST(Server, ResultsThatAreNotFiniteAreNull) {
  const Running server(Model{.symbol = Log(Variable("x", {.shape = Shape{kUnknownDim, 2}}), "log")});
  const httplib::Result answer = server.Client().Post("/predict", "{\"data\": [0, 1]}", kJson);
  EXPECT_EQ(answer->body, "{\"outputs\":{\"log_output\":[[null,0]]}}");
}

TEST(Server, ASlowClientHoldsUpNobody) {
  const Running server(TwoHeads());
  const RawConnection slow(server.port());
  slow.Send("POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{\"da");
  EXPECT_EQ(server.Post("{\"data\": [1, 2, 3]}"), "200");
  EXPECT_TRUE(slow.Read("error").starts_with("HTTP/1.1 400"));  // after read_seconds
}

// A queue for two samples, in which one waits 400 milliseconds.
class Full {
 public:
  explicit Full(std::chrono::milliseconds pause) : server_(TwoHeads(), Options(pause)) {
    waiting_ = std::thread([this] { EXPECT_EQ(server_.Post("{\"data\": [1, 2, 3]}"), "504 no result within 400 ms"); });
    while (server_.Client().Get("/metrics")->body.find("bindery_queue_samples 1\n") == std::string::npos) {
      std::this_thread::sleep_for(1ms);
    }
  }
  ~Full() { waiting_.join(); }
  Running* operator->() { return &server_; }

 private:
  static ServerOptions Options(std::chrono::milliseconds pause) {
    ServerOptions options = Quick();
    options.batcher = {.max_batch = 2, .max_delay = 2s, .queue = 2, .timeout = 400ms, .workers = 1};
    options.overload_pause = pause;
    return options;
  }
  Running server_;
  std::thread waiting_;
};

const char* const kTooMany = "{\"data\": [[1, 2, 3], [4, 5, 6]]}";

TEST(Server, OverloadAnswers503AtOnce) {
  Full server(200ms);
  httplib::Client client = server->Client();
  const auto start = std::chrono::steady_clock::now();
  const httplib::Result answer = client.Post("/predict", kTooMany, kJson);
  const auto answered = std::chrono::steady_clock::now();
  EXPECT_EQ(answer->status, 503) << answer->body;
  EXPECT_EQ(answer->get_header_value("Retry-After"), "1");
  EXPECT_LT(answered - start, 300ms);
  // The next answer on the same connection takes its time, on another it does not.
  EXPECT_EQ(server->Client().Get("/healthz")->status, 200);
  EXPECT_LT(std::chrono::steady_clock::now() - answered, 150ms);
  EXPECT_EQ(client.Get("/healthz")->status, 200);
  EXPECT_GT(std::chrono::steady_clock::now() - answered, 150ms);
}

// Nor is a request lost that came during the pause.
TEST(Server, AnEndEndsThePauses) {
  Full server(std::chrono::minutes(1));
  const RawConnection connection(server->port());
  connection.Send("POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: " +
                  std::to_string(std::strlen(kTooMany)) + "\r\n\r\n" + kTooMany);
  EXPECT_TRUE(connection.Read("}").starts_with("HTTP/1.1 503"));
  connection.Send("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
  server->Stop();
  const std::string answer = connection.Read("}");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 503")) << answer;
  EXPECT_NE(answer.find("Connection: close"), std::string::npos) << answer;
}

void ReadMetrics(const Running& server, std::map<std::string, double>* values) {
  values->clear();
  std::istringstream lines(server.Client().Get("/metrics")->body);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# HELP ") || line.starts_with("# TYPE ")) continue;
    const size_t space = line.rfind(' ');
    ASSERT_NE(space, std::string::npos) << line;
    ASSERT_TRUE(values->emplace(line.substr(0, space), std::stod(line.substr(space + 1))).second) << line;
  }
}

TEST(Server, MetricsCountWhatHappened) {
  const Running server(TwoHeads());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(server.Post("{\"data\": [[1, 2, 3], [4, 5, 6]]}"), "200");
  EXPECT_TRUE(server.Post("{").starts_with("400"));
  server.Client().Get("/some/where");
  // An answer is counted when it is out: whoever asks next, of another thread, may be earlier than that.
  std::map<std::string, double> values;
  const auto counted = [&] {  // of the five above
    double answers = 0;
    for (const auto& [name, value] : values) {
      const bool is_one = name.starts_with("bindery_requests_total") && name.find("\"/metrics\"") == std::string::npos;
      if (is_one) answers += value;
    }
    return answers;
  };
  for (int i = 0; i < 100 && counted() < 5; ++i) {
    if (i > 0) std::this_thread::sleep_for(50ms);
    ASSERT_NO_FATAL_FAILURE(ReadMetrics(server, &values));
  }
  EXPECT_EQ(values["bindery_requests_total{path=\"/predict\",status=\"200\"}"], 3);
  EXPECT_EQ(values["bindery_requests_total{path=\"/predict\",status=\"400\"}"], 1);
  EXPECT_EQ(values["bindery_requests_total{path=\"other\",status=\"404\"}"], 1);
  EXPECT_EQ(values["bindery_samples_total"], 6);
  EXPECT_EQ(values["bindery_queue_samples"], 0);
  EXPECT_EQ(values["bindery_request_seconds_count"], 3);
  EXPECT_EQ(values["bindery_request_seconds_bucket{le=\"+Inf\"}"], 3);
  EXPECT_GT(values["bindery_request_seconds_sum"], 0);
  EXPECT_EQ(values["bindery_batch_samples_bucket{le=\"1\"}"], 0);
  EXPECT_EQ(values["bindery_batch_samples_bucket{le=\"2\"}"], 3);
  EXPECT_EQ(values["bindery_batch_samples_count"], 3);
  EXPECT_EQ(values["bindery_batch_samples_sum"], 6);
}

TEST(Server, ModelsItCannotServeAreErrors) {
  const auto describe = [](const Symbol& symbol) { Describe({.symbol = symbol}, {}); };
  EXPECT_THROW(describe(Square(Variable("x"))), ModelError);  // of what shape?
  const Symbol data = Variable("data", {.shape = Shape{kUnknownDim, 2}});
  EXPECT_EQ(MessageOf<ModelError>([&] { describe(FullyConnected(data, {.num_hidden = 3}, "fc")); }),
            "ModelError: \"fc_weight\" has no value in the model, nor does that say the shape of a sample: if it is a "
            "parameter, give --weights; an input, its shape, as --input fc_weight:1,28,28");
  EXPECT_THROW(describe(Sum(Variable("x", {.shape = Shape{kUnknownDim, 2}}))), ModelError);
  EXPECT_THROW(describe(Square(Variable("x", {.shape = Shape{5, kUnknownDim, 2}, .layout = "TNC"}))), ModelError);
  EXPECT_EQ(Describe({.symbol = Square(Variable("x"))}, {{"x", Shape{4}}}).outputs[0].sample, Shape{4});
  EXPECT_THROW(Describe({.symbol = Square(Variable("x"))}, {{"x", Shape{4}}, {"y", Shape{4}}}), ModelError);
}

TEST(Server, APortIsOneServersOnly) {
  const Running first(TwoHeads());
  ServerOptions options = Quick();
  options.port = first.port();
  EXPECT_THROW(Server(Describe(TwoHeads(), {}), options), DataError);
}

}  // namespace
}  // namespace bindery::server
