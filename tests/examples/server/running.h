// A server of a small model, and rude clients.
#pragma once

#include <gtest/gtest.h>
#include <httplib.h>
#include <sys/socket.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>

#include "examples/server/server.h"
#include "symbol/ops.h"

namespace bindery::server {

using Json = nlohmann::json;
using namespace std::chrono_literals;
constexpr const char *kJson = "application/json", *kOctets = "application/octet-stream";

inline HostTensor Waves(const Shape& shape, double step) {
  HostTensor tensor(DType::kFloat32, shape);
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.Set(i, std::sin(step * static_cast<double>(i + 1)));
  return tensor;
}

// (N, 3) -> (N, 2), and the square of the input.
inline Model TwoHeads() {
  const Symbol x = Variable("x", {.shape = Shape{kUnknownDim, 3}});
  Model model{.symbol = Group({FullyConnected(x, {.num_hidden = 2}, "fc"), Square(x, "square")})};
  model.params.emplace("fc_weight", Waves({2, 3}, 0.7));
  model.params.emplace("fc_bias", Waves({2}, 0.3));
  return model;
}

inline ServerOptions Quick() {
  ServerOptions options{.port = 0, .threads = 1, .connections = 32, .read_seconds = 1};
  options.batcher = {.max_batch = 8, .max_delay = 200us, .queue = 64, .workers = 2};
  return options;
}

class Running {
 public:
  explicit Running(Model model, const ServerOptions& options = Quick())
      : server_(Describe(std::move(model), {}), options), thread_([this] { server_.Run(); }) {}
  ~Running() { Stop(); }
  void Stop() {
    if (!thread_.joinable()) return;
    server_.Stop();
    thread_.join();
  }
  int port() const { return server_.port(); }
  httplib::Client Client() const {
    httplib::Client client("127.0.0.1", port());
    client.set_keep_alive(true);
    client.set_tcp_nodelay(true);
    return client;
  }
  // The status and the error's message.
  std::string Post(const std::string& body, const char* type = kJson) const {
    const httplib::Result answer = Client().Post("/predict", body, type);
    if (!answer) return "no answer";
    const Json message = Json::parse(answer->body, nullptr, false);
    const bool has_error = message.is_object() && message.contains("error");
    return std::to_string(answer->status) + (has_error ? " " + message["error"].get<std::string>() : "");
  }

 private:
  Server server_;
  std::thread thread_;
};

// A connection without a library, to be rude on.
class RawConnection {
 public:
  explicit RawConnection(int port) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit{.tv_sec = 10, .tv_usec = 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    EXPECT_EQ(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~RawConnection() { close(socket_); }
  void Send(const std::string& text) const { EXPECT_GT(send(socket_, text.data(), text.size(), MSG_NOSIGNAL), 0); }
  int get() const { return socket_; }
  // Until the server closes, or says `until`.
  std::string Read(const std::string& until) const {
    std::string text;
    char part[4096];
    while (text.find(until) == std::string::npos) {
      const ssize_t got = recv(socket_, part, sizeof part, 0);
      if (got <= 0) break;
      text.append(part, static_cast<size_t>(got));
    }
    return text;
  }

 private:
  int socket_;
};

}  // namespace bindery::server
