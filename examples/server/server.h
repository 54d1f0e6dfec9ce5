// InferenceServer: a model behind HTTP.
//
//   POST /predict    samples in, outputs back: JSON, or the bytes of float32 numbers (docs/serving.md)
//   GET  /           the model's inputs and outputs, as JSON
//   GET  /healthz    200 while requests are taken
//   GET  /metrics    counters and histograms, as Prometheus reads them
//
// Requests of all connections are computed together (batcher.h), on one set of weights. What is wrong with a request is
// 400 and says so, a full queue 503 at once, a time limit that has passed 504.
//
// Thread safety: Serve runs in one thread, Stop may be called from any.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "examples/server/batcher.h"
#include "executor/predictor.h"
#include "symbol/model.h"

namespace bindery::server {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8080;                             // 0: any that is free
  BatcherOptions batches = {};                 // `workers`: as many batches are computed at once
  std::chrono::milliseconds time_limit{1000};  // of a request
  int connections = 128;                       // that are served at once; more wait
  int64_t body_bytes = int64_t{64} << 20;      // of a request
  Device device = Cpu(0);
  int threads = 0;                            // of a CPU, for each worker; 0: the cores shared out
  std::map<std::string, Shape> samples = {};  // of inputs whose shape the model does not say
};

class InferenceServer {
 public:
  // Binds the network and the port. Throws ModelError for a model with an input whose shape is unknown, or that does not
  // compute samples one by one along axis 0; DataError for a port that cannot be had.
  InferenceServer(const Model& model, const ServerOptions& options);
  ~InferenceServer();

  int port() const;
  // Answers until it is stopped, and then until all requests that have come are answered.
  void Serve();
  // Waits until Serve has begun, if it has not yet.
  void Stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bindery::server
