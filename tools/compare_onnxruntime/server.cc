// The server of examples/server, but ONNX Runtime computes: the same HTTP library, protocol, queue and batches.
// tools/compare_onnxruntime/compare.sh starts it.
#include "examples/server/server.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

#include "tools/compare_onnxruntime/ort_session.h"

namespace bindery::compare {
namespace {

int Serve(int argc, char** argv) {
  CLI::App app("Serves an ONNX model over HTTP, computed by ONNX Runtime.", "compare_onnxruntime");
  std::string library, model;
  server::ServerOptions options;
  int64_t delay = 1000;
  app.add_option("--library", library, "libonnxruntime.so")->required();
  app.add_option("--model", model, "an .onnx file with one input of float32")->required();
  app.add_option("--port", options.port, "the port; 0: any free one. It is printed");
  app.add_option("--max-batch", options.batcher.max_batch, "samples computed at once");
  app.add_option("--max-delay", delay, "microseconds that a request waits for others");
  app.add_option("--workers", options.batcher.workers, "batches computed at once");
  app.add_option("--threads", options.threads, "of an operator");
  CLI11_PARSE(app, argc, argv);
  options.batcher.max_delay = std::chrono::microseconds(delay);

  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const server::ServedModel served = server::Describe(server::LoadWithWeights(model, ""), {});
  if (served.inputs.size() != 1 || served.inputs[0].dtype != DType::kFloat32) {
    Throw("\"{}\": expected one input of float32", model);
  }
  const OrtSession session(library, model, options.threads);
  options.run = [&](const HostTensorMap& batch) { return session.Run(batch.begin()->second); };
  server::Server server(served, options);
  std::printf("ONNX Runtime %s listening on http://%s:%d\n", session.version().c_str(), options.host.c_str(),
              server.port());
  std::fflush(stdout);
  std::jthread serving([&] { server.Run(); });
  int number = 0;
  sigwait(&signals, &number);
  server.Stop();
  return 0;
}

}  // namespace
}  // namespace bindery::compare

int main(int argc, char** argv) {
  try {
    return bindery::compare::Serve(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "compare_onnxruntime: %s\n", e.what());
    return 1;
  }
}
