// An HTTP inference server for any model that Bindery reads; docs/serving.md describes it.
//
//   tools/bazel run -c opt //examples/server:server -- --model $PWD/mlp.pb --port 8080
//   curl -d '{"data": [...]}' -H 'Content-Type: application/json' localhost:8080/predict
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <map>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "examples/server/server.h"

namespace bindery::server {
namespace {

constexpr const char* kHelp =
    "Exit status: 0 ended by SIGTERM or SIGINT, with all requests answered, 1 failed, 2 wrong usage, 3 invalid model,\n"
    "4 unusable file or port, 5 damaged checkpoint, 6 device or memory.";

// "data:1,28,28" as a name and the shape of a sample; "data:" is a number.
std::pair<std::string, Shape> ParseInput(const std::string& text) {
  const size_t colon = text.rfind(':');
  std::vector<int64_t> extents;
  bool good = colon != std::string::npos && colon > 0;
  for (size_t at = colon + 1; good && at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string number = text.substr(at, end - at);
    good = !number.empty() && number.size() < 10 && number.find_first_not_of("0123456789") == std::string::npos &&
           (end == text.size() || end + 1 < text.size()) && extents.size() + 1 < Shape::kMaxRank;
    if (good) extents.push_back(std::stoll(number));
    at = end + 1;
  }
  if (!good) throw CLI::ValidationError("--input " + text + ": expected a name and extents, as data:1,28,28");
  return {text.substr(0, colon), Shape(extents)};
}

int Serve(int argc, char** argv) {
  CLI::App app("Serves a model over HTTP: POST /predict, GET /, /healthz, /metrics.", "server");
  app.footer(kHelp);
  ServerOptions options;
  BatcherOptions& batcher = options.batcher;
  std::string model, weights, device = "cpu:0";
  std::vector<std::string> inputs;
  int64_t delay = batcher.max_delay.count(), timeout = 10'000, pause = options.overload_pause.count();
  const int64_t most = 1 << 20;
  app.add_option("--model", model, "The model: .pb, .prototxt, .onnx, a checkpoint or a folder of such")->required();
  app.add_option("--weights", weights, "A file like it, whose values are used in place of the model's");
  app.add_option("--input", inputs,
                 "NAME:1,28,28, the shape of a sample, for an input whose shape the model leaves open");
  app.add_option("--host", options.host, "The address to listen on; 0.0.0.0: all")->capture_default_str();
  app.add_option("--port", options.port, "The port; 0: any free one. It is printed")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  app.add_option("--max-batch", batcher.max_batch, "Samples computed at once, and the most of one request")
      ->check(CLI::Range(int64_t{1}, most))
      ->capture_default_str();
  app.add_option("--max-delay", delay, "Microseconds that a request waits for others, to be computed with them")
      ->check(CLI::Range(int64_t{0}, int64_t{60'000'000}))
      ->capture_default_str();
  app.add_option("--queue", batcher.queue, "Samples that may wait; what comes on top gets 503 at once")
      ->check(CLI::Range(int64_t{1}, most))
      ->capture_default_str();
  app.add_option("--overload-pause", pause, "Milliseconds from a 503 until the same connection is read again")
      ->check(CLI::Range(int64_t{0}, int64_t{60'000}))
      ->capture_default_str();
  app.add_option("--timeout", timeout, "Milliseconds until a request without a result gets 504")
      ->check(CLI::Range(int64_t{1}, int64_t{3'600'000}))
      ->capture_default_str();
  app.add_option("--workers", batcher.workers, "Batches computed at once; all read the same weights")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "Threads of a CPU for each worker; 0: the cores shared out")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--connections", options.connections, "Connections served at once, a thread each; more wait")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app.add_option("--device", device, "The device that computes")->capture_default_str();
  std::map<std::string, Shape> samples;
  try {
    app.parse(argc, argv);
    for (const std::string& input : inputs) samples.insert(ParseInput(input));
    if (batcher.queue < batcher.max_batch) throw CLI::ValidationError("--queue is less than --max-batch");
    if (delay >= timeout * 1000) throw CLI::ValidationError("--max-delay is not less than --timeout");
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    std::fprintf(stderr, "server: %s\n", e.what());
    return 2;
  }
  batcher.max_delay = std::chrono::microseconds(delay);
  batcher.timeout = std::chrono::milliseconds(timeout);
  options.overload_pause = std::chrono::milliseconds(pause);
  options.device = ParseDevice(device);

  // Before there are other threads, which inherit it: the signals come to the thread that waits for them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // a client that has gone is no reason to end

  Server server(Describe(LoadWithWeights(model, weights), samples), options);
  std::printf("listening on http://%s:%d\n", options.host.c_str(), server.port());
  std::fflush(stdout);
  std::exception_ptr failure;
  std::jthread serving([&] {
    try {
      server.Run();
    } catch (...) {
      failure = std::current_exception();
      kill(getpid(), SIGTERM);  // wakes the thread that waits
    }
  });
  int number = 0;
  sigwait(&signals, &number);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);  // the next one ends the program at once
  server.Stop();
  serving.join();
  if (failure) std::rethrow_exception(failure);
  return 0;
}

int Fail(int status, const std::exception& e) {
  std::fprintf(stderr, "server: %s\n", e.what());
  return status;
}

int Main(int argc, char** argv) {
  try {
    return Serve(argc, argv);
  } catch (const ModelError& e) {
    return Fail(3, e);
  } catch (const ShapeError& e) {
    return Fail(3, e);
  } catch (const DataError& e) {
    return Fail(4, e);
  } catch (const CheckpointError& e) {
    return Fail(5, e);
  } catch (const DeviceError& e) {
    return Fail(6, e);
  } catch (const std::bad_alloc& e) {
    return Fail(6, e);
  } catch (const std::exception& e) {
    return Fail(1, e);
  }
}

}  // namespace
}  // namespace bindery::server

int main(int argc, char** argv) { return bindery::server::Main(argc, argv); }
