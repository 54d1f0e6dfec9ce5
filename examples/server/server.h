// Server: a model that answers over HTTP.
//
//   POST /predict   samples -> predictions (wire.h); errors are JSON, {"error": "..."}
//   GET  /          the model's inputs and outputs
//   GET  /healthz   200 while it takes requests, 503 when it is about to end
//   GET  /metrics   counters for Prometheus
//
// Status of a prediction: 200; 400 the request is wrong, and the message says where; 411 it does not say how long its
// body is; 413 that is too long; 415 its type or encoding is none of ours; 500 the model failed; 503, with Retry-After,
// there is no room in the queue, or the server ends; 504 no result in time. The connection ends behind a request that
// was not read to its end. A Range is ignored.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "examples/server/batcher.h"
#include "examples/server/metrics.h"
#include "examples/server/served_model.h"

namespace httplib {
class Server;
struct Request;
struct Response;
}  // namespace httplib

namespace bindery::server {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8080;  // 0: any that is free
  BatcherOptions batcher = {};
  Device device = Cpu(0);
  int threads = 0;        // of a CPU, for each worker; 0: the cores shared out
  int connections = 256;  // served at once, a thread each; more wait to be accepted by one of them
  Batcher::Run run = {};  // what computes, if that is no Predictor: to compare with others
  int read_seconds = 5;   // that a client may keep silent within a request, or a connection idle between two
  // From a 503 until the same connection is read again. Clients that ask again at once would take the processor's time
  // from the requests that have a place in the queue.
  std::chrono::milliseconds overload_pause = std::chrono::milliseconds(100);
};

class Server {
 public:
  // Binds the model for each worker and the port. Throws what a Predictor and a Batcher throw; DataError for a port
  // that is not to be had.
  Server(ServedModel model, const ServerOptions& options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const { return port_; }
  // Serves until Stop; then all that was read is answered.
  void Run();
  // From any thread, once Run was called: asks Run to end. Answers from now on say "Connection: close".
  void Stop();

 private:
  void AddRoutes();
  void Predict(const httplib::Request& request, httplib::Response* response);
  void PauseAfter(const httplib::Response& response);

  const ServedModel model_;
  const ServerOptions options_;
  Metrics metrics_;
  std::unique_ptr<Predictor> predictor_;
  std::unique_ptr<Batcher> batcher_;
  std::unique_ptr<httplib::Server> http_;
  int port_ = 0, socket_ = -1;
  std::atomic<bool> stopping_{false}, ended_{false};
  std::mutex pause_;
  std::condition_variable pause_ends_;  // early: stopping_
};

}  // namespace bindery::server
