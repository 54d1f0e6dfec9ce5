// A model behind HTTP: what clients get, right and wrong, over real connections.
#include "examples/server/server.h"

#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "examples/server/tensor_json.h"
#include "symbol/ops.h"
#include "tests/message_of.h"
#include "tests/tools/program.h"

namespace bindery::server {
namespace {

using nlohmann::json;

// y = w x + b of samples of 3, and of integers their row of a table.
Model LinearModel() {
  Model model;
  const Symbol x = Variable("data", {.shape = Shape{-1, 3}});
  model.symbol = FullyConnected(x, Variable("w"), Variable("b"), {.num_hidden = 2}, "y");
  model.params["w"] = HostTensor::From({2, 3}, {1, 2, 3, 4, 5, 6});
  model.params["b"] = HostTensor::From({2}, {0.5, -0.5});
  return model;
}

class ServerTest : public testing::Test {
 protected:
  void Start(const Model& model, ServerOptions options = {}) {
    options.port = 0;
    server_ = std::make_unique<InferenceServer>(model, options);
    thread_ = std::thread([this] { server_->Serve(); });
  }
  ~ServerTest() override { End(); }
  void End() {
    if (!thread_.joinable()) return;
    server_->Stop();
    thread_.join();
  }
  httplib::Client Client() const { return httplib::Client("127.0.0.1", server_->port()); }
  // The answer to JSON; its status is `status`.
  json Ask(const std::string& body, int status = 200) const {
    const httplib::Result answer = Client().Post("/predict", body, "application/json");
    EXPECT_TRUE(answer) << body;
    if (!answer) return nullptr;
    EXPECT_EQ(answer->status, status) << body << "\n" << answer->body;
    return json::parse(answer->body);
  }
  void Refuses(const std::string& body, const std::string& message, int status = 400) const {
    const std::string error = Ask(body, status).at("error");
    EXPECT_NE(error.find(message), std::string::npos) << body << "\nexpected: " << message << "\n" << error;
  }

  std::unique_ptr<InferenceServer> server_;
  std::thread thread_;
};

TEST_F(ServerTest, AnswersInJsonAndInBytes) {
  Start(LinearModel());
  const json expected = {{"outputs", {{"y_output", {{14.5, 31.5}, {1.5, 3.5}}}}}};
  EXPECT_EQ(Ask(R"({"data": [[1, 2, 3], [1, 0, 0]]})"), expected);
  EXPECT_EQ(Ask(R"({"inputs": {"data": [[1, 2, 3], [1e0, 0.0, -0]]}})"), expected);
  EXPECT_EQ(Ask(R"({"data": [1, 2, 3]})").at("outputs").at("y_output"), json({{14.5, 31.5}}));  // one sample alone
  EXPECT_EQ(Ask(R"({"data": [1e38, 1e38, 1e38]})").at("outputs").at("y_output"), json({{nullptr, nullptr}}));

  const float numbers[] = {1, 2, 3, 1, 0, 0};
  const httplib::Result bytes = Client().Post(
      "/predict", std::string(reinterpret_cast<const char*>(numbers), sizeof numbers), "application/octet-stream");
  ASSERT_TRUE(bytes && bytes->status == 200);
  ASSERT_EQ(bytes->body.size(), 4 * sizeof(float));
  float answers[4];
  std::memcpy(answers, bytes->body.data(), sizeof answers);
  EXPECT_EQ(std::vector<float>(answers, answers + 4), (std::vector<float>{14.5, 31.5, 1.5, 3.5}));

  const json about = json::parse(Client().Get("/")->body);
  EXPECT_EQ(about.at("inputs"), (json{{"data", {{"dtype", "float32"}, {"sample", {3}}}}}));
  EXPECT_EQ(about.at("outputs"), (json{{"y_output", {{"dtype", "float32"}, {"sample", {2}}}}}));
  EXPECT_EQ(Client().Get("/healthz")->body, "ok\n");
}

TEST_F(ServerTest, SaysWhatIsWrongWithARequest) {
  Start(LinearModel(), {.batches = {.max_batch = 4}, .body_bytes = 1 << 16});
  Refuses("", "no JSON");
  Refuses("{", "no JSON");
  Refuses("[1, 2, 3]", "expected an object");
  Refuses(R"({"inputs": 3})", "\"inputs\": expected an object");
  Refuses(R"({"dta": [1, 2, 3]})", "the input \"data\" is missing");
  Refuses(R"({"data": [1, 2, 3], "dat": 1})", "there is no input \"dat\"; did you mean \"data\"?");
  Refuses(R"({"data": [[1, 2, 3], [1, 2]]})", "rows of unequal length: expected an array of 3, got one of 2");
  Refuses(R"({"data": [[1, 2, 3], 4]})", "expected an array of 3, got number");
  Refuses(R"({"data": [[1, 2, [3]]]})", "expected a number, got array");
  Refuses(R"({"data": [[1, 2, "3"]]})", "expected a number, got string");
  Refuses(R"({"data": [[1, 2, null]]})", "expected a number, got null");
  Refuses(R"({"data": [[1, 2]]})", "expected samples of (3), got an array of (1, 2)");
  Refuses(R"({"data": 1})", "expected samples of (3)");
  Refuses(R"({"data": []})", "expected samples of (3), got an array of (0)");
  Refuses(R"({"data": [[]]})", "expected samples of (3)");
  Refuses(R"({"data": [[1,2,3],[1,2,3],[1,2,3],[1,2,3],[1,2,3]]})", "5 samples are more than the 4 of a batch");
  Refuses("{\"data\": " + std::string(5000, '[') + "1" + std::string(5000, ']') + "}", "more than 8 axes");
  Refuses("{\"data\": \"\xff\"}", "no JSON");
  EXPECT_EQ(Client().Post("/predict", std::string(1 << 17, '1'), "application/json")->status, 413);
  const httplib::Result odd = Client().Post("/predict", "12345", "application/octet-stream");
  EXPECT_EQ(odd->status, 400);
  EXPECT_NE(odd->body.find("expected samples of 12 bytes each (float32, (3)), got 5 bytes"), std::string::npos)
      << odd->body;
  EXPECT_EQ(Client().Post("/predict", "", "application/octet-stream")->status, 400);
  EXPECT_EQ(Client().Post("/predict", {{"Content-Encoding", "gzip"}}, "xx", "application/json")->status, 415);
  EXPECT_EQ(Client().Get("/predict")->status, 404);
  EXPECT_EQ(Client().Get("/x")->status, 404);
  Ask(R"({"data": [1, 2, 3]})");  // all is well still
}

TEST_F(ServerTest, ManyClientsGetTheirOwn) {
  Start(LinearModel(), {.batches = {.workers = 2}, .connections = 16});
  std::vector<std::thread> clients;
  std::atomic<int> right = 0;
  for (int c = 0; c < 8; ++c) {
    clients.emplace_back([&, c] {
      httplib::Client client = Client();
      client.set_keep_alive(true);
      for (int i = 0; i < 50; ++i) {
        const httplib::Result answer =
            client.Post("/predict", json({{"data", {{c, 0, 0}, {0, i, 0}}}}).dump(), "application/json");
        right += answer && answer->status == 200 &&
                 json::parse(answer->body).at("outputs").at("y_output") ==
                     json({{c + 0.5, 4 * c - 0.5}, {2 * i + 0.5, 5 * i - 0.5}});
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(right, 8 * 50);
  const std::string metrics = Client().Get("/metrics")->body;
  for (const char* line : {"bindery_requests_total{code=\"200\"} 400\n", "bindery_samples_total 800\n",
                           "bindery_request_seconds_count 400\n", "bindery_queued_samples 0\n"}) {
    EXPECT_NE(metrics.find(line), std::string::npos) << line << "\n" << metrics;
  }
}

TEST_F(ServerTest, OverloadIsAnsweredAtOnce) {
  // Some milliseconds of work, of which one batch is computed and one waits.
  Model slow;
  Symbol x = Variable("data", {.shape = Shape{-1, 3}});
  for (int i = 0; i < 4; ++i) {
    const std::string w = "w" + std::to_string(i);
    x = FullyConnected(x, Variable(w), {}, {.num_hidden = 1024, .no_bias = true});
    slow.params[w] = HostTensor(DType::kFloat32, {1024, i == 0 ? 3 : 1024});
  }
  slow.symbol = x;
  Start(slow, {.batches = {.max_batch = 4, .max_queued = 4, .workers = 1}, .time_limit = std::chrono::minutes(1)});
  const std::string samples(4 * 3 * sizeof(float), '\0');
  std::atomic<int> busy = 0, others = 0;
  for (int round = 0; busy == 0 && round < 100; ++round) {
    std::vector<std::thread> clients;
    std::atomic<int> done = 0;
    for (int c = 0; c < 8; ++c) {
      clients.emplace_back([&] {
        const httplib::Result answer = Client().Post("/predict", samples, "application/octet-stream");
        done += answer && answer->status == 200;
        busy += answer && answer->status == 503 && answer->get_header_value("Retry-After") == "1";
        others += !answer || (answer->status != 200 && answer->status != 503);
      });
    }
    for (std::thread& client : clients) client.join();
    EXPECT_GE(done, 1);
  }
  EXPECT_GE(busy, 1);
  EXPECT_EQ(others, 0);
}

TEST_F(ServerTest, ModelsThatCannotBeServed) {
  const auto message = [](const Model& model, const ServerOptions& options) {
    return MessageOf<ModelError>([&] { InferenceServer server(model, options); });
  };
  Model unknown = LinearModel();
  unknown.symbol = FullyConnected(Variable("data"), Variable("w"), Variable("b"), {.num_hidden = 2}, "y");
  EXPECT_NE(message(unknown, {.port = 0}).find("does not say the shape of \"data\""), std::string::npos);
  InferenceServer(unknown, {.port = 0, .samples = {{"data", {3}}}});
  EXPECT_NE(message(LinearModel(), {.port = 0, .samples = {{"dta", {3}}}}).find("no input \"dta\"; did you mean"),
            std::string::npos);
  Model sum = LinearModel();
  sum.symbol = Sum({sum.symbol}, {.axes = {0}}, "sum");
  EXPECT_NE(message(sum, {.port = 0}).find("it has no row for each of them"), std::string::npos);
  Start(LinearModel());
  EXPECT_THROW(InferenceServer(LinearModel(), {.port = server_->port()}), DataError);
}

TEST(TensorJson, KeepsNumbers) {
  const json nested = json::parse("[[[0.1, -3], [1e-30, 16777217]]]");
  const HostTensor doubles = TensorFromJson(nested, DType::kFloat64, "x");
  EXPECT_EQ(doubles.shape(), (Shape{1, 2, 2}));
  std::string text;
  AppendJson(doubles, &text);
  EXPECT_EQ(json::parse(text), nested);
  text.clear();
  AppendJson(HostTensor::From({2}, {0.1f, NAN}), &text);
  EXPECT_EQ(text, "[0.1,null]");
  text.clear();
  AppendJson(HostTensor::Full(DType::kInt64, {1}, 3), &text);
  EXPECT_EQ(text, "[3]");
}

// The program itself: its command line, and its end.
class ServeTest : public ProgramTest {
 protected:
  static std::vector<std::string> Serve(const std::vector<std::string>& arguments) {
    const std::string root = std::string(std::getenv("TEST_SRCDIR")) + "/" + std::getenv("TEST_WORKSPACE");
    return std::vector<std::string>{root + "/examples/server/serve"} + arguments;
  }
};

TEST_F(ServeTest, ASignalEndsItWhenAllIsAnswered) {
  SaveModel(LinearModel(), PathOf("linear.pb"));
  for (const int signal : {SIGTERM, SIGINT}) {
    Process process({"/bin/sh", "-c", "exec \"$@\" > out", "sh", Serve({})[0], "--model", "linear.pb", "--port", "0",
                     "--max-delay", "10000000", "--max-batch", "8", "--time-limit", "60000"},
                    folder());
    std::string out;
    while (process.Running() && !out.ends_with("\n")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      try {
        out = Read("out");
      } catch (const std::exception&) {  // not there yet
      }
    }
    ASSERT_NE(out.find("listening on http://127.0.0.1:"), std::string::npos) << out << process.Err();
    const int port = std::stoi(out.substr(out.rfind(':') + 1));
    std::atomic<int> answered = 0;
    std::vector<std::thread> clients;
    for (int c = 0; c < 4; ++c) {
      clients.emplace_back([&] {
        httplib::Client client("127.0.0.1", port);
        const httplib::Result answer = client.Post("/predict", R"({"data": [1, 2, 3]})", "application/json");
        answered += answer && answer->status == 200;
      });
    }
    // All four wait for a batch that does not become full.
    for (std::string metrics; metrics.find("bindery_open_requests 4\n") == std::string::npos;) {
      metrics = httplib::Client("127.0.0.1", port).Get("/metrics")->body;
    }
    process.Signal(signal);
    const Outcome outcome = process.Wait();
    for (std::thread& client : clients) client.join();
    EXPECT_EQ(outcome.status, 0) << outcome;
    EXPECT_EQ(answered, 4);
    std::filesystem::remove(PathOf("out"));
  }
}

TEST_F(ServeTest, WrongCommandLines) {
  const auto fails = [&](int status, const std::string& message, const std::vector<std::string>& arguments) {
    const Outcome outcome = Process(Serve(arguments), folder()).Wait();
    EXPECT_EQ(outcome.status, status) << outcome;
    EXPECT_NE((outcome.out + outcome.err).find(message), std::string::npos) << outcome;
  };
  SaveModel(LinearModel(), PathOf("linear.pb"));
  fails(0, "--max-batch", {"--help"});
  fails(2, "--model", {});
  fails(2, "--port", {"--model", "linear.pb", "--port", "70000"});
  fails(2, "--input", {"--model", "linear.pb", "--input", "data=1,x"});
  fails(2, "--max-queued", {"--model", "linear.pb", "--max-queued", "3"});
  fails(3, "no input \"x\"", {"--model", "linear.pb", "--port", "0", "--input", "x=3"});
  fails(4, "none.pb", {"--model", "none.pb"});
  fails(6, "gpu", {"--model", "linear.pb", "--device", "gpu"});
}

}  // namespace
}  // namespace bindery::server
