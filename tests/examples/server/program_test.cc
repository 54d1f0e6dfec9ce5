// The programs `server` and `load_test`: command lines, exit statuses, and an end that loses no request.
#include "tests/tools/program.h"

#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "symbol/model.h"
#include "symbol/ops.h"

namespace bindery {
namespace {

using namespace std::chrono_literals;

std::string Program(const std::string& name) {
  return std::string(std::getenv("TEST_SRCDIR")) + "/" + std::getenv("TEST_WORKSPACE") + "/examples/server/" + name;
}

// In a folder of its own: a model (N, 4) -> (N, 4) as mlp.pb, and its port once a server was started there.
class ServerProgram : public ProgramTest {
 protected:
  ServerProgram() {
    const Symbol x = Variable("data", {.shape = Shape{kUnknownDim, 4}});
    Model model{.symbol = Tanh(FullyConnected(x, {.num_hidden = 4}, "fc"), "tanh")};
    model.params.emplace("fc_weight", HostTensor::Full(DType::kFloat32, {4, 4}, 0.25));
    model.params.emplace("fc_bias", HostTensor::Full(DType::kFloat32, {4}, 0.5));
    SaveModel(model, PathOf("mlp.pb"));
  }

  // Through a shell, so that its standard output can be read while it runs.
  std::unique_ptr<Process> Start(const std::string& options) {
    std::filesystem::remove(PathOf("said"));
    auto server = std::make_unique<Process>(
        std::vector<std::string>{"/bin/sh", "-c",
                                 "echo $$ > pid; exec " + Program("server") + " --port 0 " + options + " > said"},
        folder());
    for (int i = 0; i < 1000 && server->Running(); ++i) {
      std::ifstream file(PathOf("said"));
      std::string line;
      if (std::getline(file, line) && !file.eof()) {
        port_ = std::stoi(line.substr(line.rfind(':') + 1));
        return server;
      }
      std::this_thread::sleep_for(20ms);
    }
    ADD_FAILURE() << "does not listen: " << server->Err();
    return server;
  }
  // Of the server that was started last: threads of the operating system.
  int64_t Threads() const {
    const std::string pid = Read("pid");
    return std::distance(std::filesystem::directory_iterator("/proc/" + pid.substr(0, pid.find('\n')) + "/task"), {});
  }
  Outcome Run(const std::string& program, const std::vector<std::string>& arguments) {
    return Process(std::vector<std::string>{Program(program)} + arguments, folder()).Wait();
  }

  int port_ = 0;
};

TEST_F(ServerProgram, TellsWhatIsWrongByItsExitStatus) {
  EXPECT_EQ(Run("server", {"--help"}).status, 0);
  EXPECT_EQ(Run("server", {}).status, 2);
  EXPECT_EQ(Run("server", {"--model", "mlp.pb", "--max-batch", "0"}).status, 2);
  EXPECT_EQ(Run("server", {"--model", "mlp.pb", "--max-batch", "64", "--queue", "32"}).status, 2);
  EXPECT_EQ(Run("server", {"--model", "mlp.pb", "--max-delay", "50000", "--timeout", "50"}).status, 2);
  EXPECT_EQ(Run("server", {"--model", "mlp.pb", "--overload-pause", "-1"}).status, 2);
  EXPECT_EQ(Run("server", {"--model", "mlp.pb", "--input", "data"}).status, 2);
  EXPECT_EQ(Run("server", {"--model", "absent.pb"}).status, 4);
  EXPECT_EQ(Run("server", {"--model", "mlp.pb", "--host", "256.0.0.1"}).status, 4);
  EXPECT_EQ(Run("server", {"--model", "mlp.pb", "--input", "other:4"}).status, 3);
  EXPECT_EQ(Run("server", {"--model", "mlp.pb", "--input", "data:5"}).status, 3);
  EXPECT_EQ(Run("server", {"--model", "mlp.pb", "--device", "toaster"}).status, 6);
  Write("broken.pb", "no model");
  EXPECT_EQ(Run("server", {"--model", "broken.pb"}).status, 3);
}

TEST_F(ServerProgram, TheLoadTestFindsAllAnswersRight) {
  const auto server = Start("--model mlp.pb --workers 2 --max-delay 200");
  const std::string port = std::to_string(port_);
  const Outcome right = Run("load_test", {"--model", "mlp.pb", "--port", port, "--seconds", "0.5", "--samples", "3"});
  EXPECT_EQ(right.status, 0) << right;
  EXPECT_NE(right.out.find("wrong answers: 0"), std::string::npos) << right;
  // It would see a wrong one: weights that the server does not have.
  Model other = LoadModel(PathOf("mlp.pb"));
  other.params.at("fc_bias").Set(0, -0.5);
  SaveModel(other, PathOf("other.pb"));
  EXPECT_EQ(Run("load_test", {"--model", "mlp.pb", "--weights", "other.pb", "--port", port, "--seconds", "0.1"}).status,
            1);
  const Outcome taken = Run("server", {"--model", "mlp.pb", "--port", port});
  EXPECT_EQ(taken.status, 4) << taken;
  EXPECT_NE(taken.err.find(":" + port + ": Address already in use"), std::string::npos) << taken;
  server->Signal(SIGTERM);
  EXPECT_EQ(server->Wait().status, 0);
  const Outcome nobody = Run("load_test", {"--model", "mlp.pb", "--port", port, "--seconds", "0.1"});
  EXPECT_EQ(nobody.status, 1) << nobody;
  EXPECT_NE(nobody.out.find("; is there a server on 127.0.0.1:" + port + "?"), std::string::npos) << nobody;
}

TEST_F(ServerProgram, OverloadIsRefusedAndTheRestIsRight) {
  const auto server = Start("--model mlp.pb --max-batch 4 --queue 4 --max-delay 20000 --overload-pause 50");
  const Outcome outcome = Run("load_test", {"--model", "mlp.pb", "--port", std::to_string(port_), "--seconds", "0.5",
                                            "--clients", "16", "--samples", "3", "--overload"});
  EXPECT_EQ(outcome.status, 0) << outcome;
  EXPECT_NE(outcome.out.find("status 503: "), std::string::npos) << outcome;
}

TEST_F(ServerProgram, ListensComputesAndConnectsAsItIsTold) {
  const Symbol x = Variable("data", {.shape = Shape{kUnknownDim, 512}});
  Model wide{.symbol = FullyConnected(x, {.num_hidden = 512}, "fc")};
  wide.params.emplace("fc_weight", HostTensor::Full(DType::kFloat32, {512, 512}, 0.25));
  wide.params.emplace("fc_bias", HostTensor::Full(DType::kFloat32, {512}, 0.5));
  SaveModel(wide, PathOf("wide.pb"));
  const std::string samples(4 * 512 * sizeof(float), '\0');
  std::vector<int64_t> threads;
  for (const char* number : {"1", "3"}) {
    const auto server =
        Start("--model wide.pb --max-batch 4 --host 127.0.0.2 --device cpu:0 --connections 2 --threads " +
              std::string(number));
    EXPECT_NE(Read("said").find("http://127.0.0.2:"), std::string::npos) << Read("said");
    EXPECT_FALSE(httplib::Client("127.0.0.1", port_).Get("/healthz"));
    auto first = std::make_unique<httplib::Client>("127.0.0.2", port_);
    httplib::Client second("127.0.0.2", port_), third("127.0.0.2", port_);
    for (httplib::Client* client : {first.get(), &second, &third}) client->set_keep_alive(true);
    const httplib::Result answer = first->Post("/predict", samples, "application/octet-stream");
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status, 200) << answer->body;
    EXPECT_EQ(answer->body.size(), samples.size());
    threads.push_back(Threads());
    // Two connections are served, although they ask nothing now; the third waits for one of them.
    EXPECT_TRUE(second.Get("/healthz"));
    third.set_read_timeout(300ms);
    EXPECT_FALSE(third.Get("/healthz"));
    first.reset();
    third.set_read_timeout(10s);
    EXPECT_TRUE(third.Get("/healthz"));
    server->Signal(SIGTERM);
    EXPECT_EQ(server->Wait().status, 0);
  }
#if !defined(__SANITIZE_THREAD__)  // where others compute
  EXPECT_EQ(threads[1], threads[0] + 2);
#endif
}

TEST_F(ServerProgram, GivesUpWhatTakesTooLong) {
  Symbol net = Variable("data", {.shape = Shape{kUnknownDim, 100'000}});
  for (int layer = 0; layer < 200; ++layer) net = Tanh(net);
  SaveModel({.symbol = net}, PathOf("slow.pb"));
  const auto server = Start("--model slow.pb --max-delay 0 --timeout 1");
  const auto begin = std::chrono::steady_clock::now();
  const httplib::Result answer =
      httplib::Client("127.0.0.1", port_).Post("/predict", std::string(400'000, '\0'), "application/octet-stream");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 504) << answer->body;
  EXPECT_NE(answer->body.find("no result within 1 ms"), std::string::npos) << answer->body;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 15s);
}

// Clients that keep asking on connections that stay open: every request that was sent gets its answer, and the program
// ends by itself, with status 0.
TEST_F(ServerProgram, ATerminationLosesNoRequest) {
  for (int signal : {SIGTERM, SIGINT}) {
    const auto server = Start("--model mlp.pb --max-delay 20000 --max-batch 64");
    std::atomic<int> answered{0}, lost{0}, wrong{0};
    std::vector<std::thread> clients;
    for (int c = 0; c < 8; ++c) {
      clients.emplace_back([&] {
        httplib::Client client("127.0.0.1", port_);
        client.set_keep_alive(true);
        while (true) {
          const httplib::Result answer = client.Post("/predict", "{\"data\": [1, 2, 3, 4]}", "application/json");
          if (!answer) {
            lost += answer.error() != httplib::Error::Connection;  // nobody listens: then nothing was sent
            return;
          }
          wrong += answer->status != 200 || answer->body.find("\"tanh_output\":[[0.9") == std::string::npos;
          ++answered;
          if (answer->get_header_value("Connection") == "close") return;
        }
      });
    }
    for (int i = 0; i < 10'000 && answered < 40; ++i) std::this_thread::sleep_for(1ms);
    EXPECT_GE(answered, 40);
    server->Signal(signal);
    for (std::thread& client : clients) client.join();
    const Outcome outcome = server->Wait();
    EXPECT_EQ(outcome.status, 0) << outcome;
    EXPECT_EQ(lost, 0);
    EXPECT_EQ(wrong, 0);
  }
}

}  // namespace
}  // namespace bindery
