// An HTTP inference server:
//
//   tools/bazel run //examples/server:serve -- --model mlp.pb
//   curl localhost:8080/predict -d '{"data": [[...]]}'
//
// SIGTERM and SIGINT end it when all requests that have come are answered. docs/serving.md
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/parse_number.h"
#include "examples/server/server.h"
#include "symbol/model.h"
#include "train/checkpoint/checkpoint.h"

namespace bindery::server {
namespace {

struct Arguments {
  std::string model, weights, device = "cpu:0";
  std::vector<std::string> inputs;
  int64_t delay_us = 0, limit_ms = 1000;
  ServerOptions options;
};

Model Load(const Arguments& arguments) {
  const auto load = [](const std::string& path) {
    return path.ends_with(".ckpt") ? LoadCheckpoint(path).model : LoadModel(path);
  };
  Model model = load(arguments.model);
  if (arguments.weights.empty()) return model;
  Model weights = load(arguments.weights);
  model.params = std::move(weights.params);
  model.aux = std::move(weights.aux);
  return model;
}

// "data=1,28,28"
std::map<std::string, Shape> Samples(const std::vector<std::string>& texts) {
  std::map<std::string, Shape> samples;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    std::vector<int64_t> extents;
    for (size_t at = equals; at != std::string::npos && at + 1 < text.size();) {
      const size_t comma = text.find(',', at + 1);
      const auto extent = ParseNumber<int64_t>(std::string_view(text).substr(at + 1, comma - at - 1));
      if (!extent || *extent < 1) throw CLI::ValidationError("--input", "expected NAME=1,28,28, got \"" + text + "\"");
      extents.push_back(*extent);
      at = comma;
    }
    if (equals == std::string::npos)
      throw CLI::ValidationError("--input", "expected NAME=1,28,28, got \"" + text + "\"");
    samples[text.substr(0, equals)] = Shape(std::span<const int64_t>(extents));
  }
  return samples;
}

void AddOptions(CLI::App* app, Arguments* a) {
  ServerOptions& o = a->options;
  app->add_option("--model", a->model, "a model file: .pb, .prototxt, .onnx, or a checkpoint")->required();
  app->add_option("--weights", a->weights, "a file whose parameters are used in the place of the model's");
  app->add_option("--input", a->inputs,
                  "NAME=1,28,28: of a sample, where the model does not say it; several may be given");
  app->add_option("--host", o.host, "the address to listen on; 0.0.0.0 for all")->capture_default_str();
  app->add_option("--port", o.port, "0: any that is free")->check(CLI::Range(0, 65535))->capture_default_str();
  app->add_option("--max-batch", o.batches.max_batch, "samples that are computed together")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  app->add_option("--max-delay", a->delay_us, "microseconds that a sample waits for others while a worker is free")
      ->check(CLI::Range(0, 10'000'000))
      ->capture_default_str();
  app->add_option("--max-queued", o.batches.max_queued, "samples that wait; behind them 503 is answered")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app->add_option("--time-limit", a->limit_ms, "milliseconds; behind them 504 is answered")
      ->check(CLI::Range(1, 3'600'000))
      ->capture_default_str();
  app->add_option("--workers", o.batches.workers, "batches that are computed at once")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app->add_option("--threads", o.threads, "of a CPU, for each worker; 0: the cores shared out")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app->add_option("--connections", o.connections, "that are served at once")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app->add_option("--max-body", o.body_bytes, "bytes of a request")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 34))
      ->capture_default_str();
  app->add_option("--device", a->device, "e.g. cpu:0")->capture_default_str();
}

int Main(int argc, char** argv) {
  CLI::App app("Serves a model by HTTP: POST /predict, GET /, /healthz, /metrics.", "serve");
  Arguments arguments;
  AddOptions(&app, &arguments);
  try {
    app.parse(argc, argv);
    arguments.options.samples = Samples(arguments.inputs);
    if (arguments.options.batches.max_queued < arguments.options.batches.max_batch) {
      throw CLI::ValidationError("--max-queued", "takes at least one batch");
    }
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  // Before any thread is there, so that all have it: signals are waited for below.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  try {
    arguments.options.device = ParseDevice(arguments.device);
    arguments.options.batches.max_delay = std::chrono::microseconds(arguments.delay_us);
    arguments.options.time_limit = std::chrono::milliseconds(arguments.limit_ms);
    InferenceServer server(Load(arguments), arguments.options);
    fmt::print("listening on http://{}:{}\n", arguments.options.host, server.port());
    std::fflush(stdout);
    std::thread serving([&] { server.Serve(); });
    int signal = 0;
    sigwait(&signals, &signal);
    fmt::print(stderr, "serve: stopping, when what has come is answered\n");
    server.Stop();
    serving.join();
    return 0;
  } catch (const ModelError& e) {
    fmt::print(stderr, "serve: {}\n", e.what());
    return 3;
  } catch (const DataError& e) {
    fmt::print(stderr, "serve: {}\n", e.what());
    return 4;
  } catch (const CheckpointError& e) {
    fmt::print(stderr, "serve: {}\n", e.what());
    return 5;
  } catch (const DeviceError& e) {
    fmt::print(stderr, "serve: {}\n", e.what());
    return 6;
  } catch (const std::exception& e) {
    fmt::print(stderr, "serve: {}\n", e.what());
    return 1;
  }
}

}  // namespace
}  // namespace bindery::server

int main(int argc, char** argv) { return bindery::server::Main(argc, argv); }
