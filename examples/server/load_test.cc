// Asks a server by many clients at once, and checks each answer against the prediction computed here.
//
//   tools/bazel run -c opt //examples/server:load_test -- --model $PWD/mlp.pb --port 8080 --clients 8 --seconds 5
//
// Prints requests a second, latencies and how often each status came. Exit status: 0 all answers right; 1 a wrong one,
// or a status that was not to be; 2 wrong usage. With --overload, 503 may come, and has to.
#include <httplib.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "examples/server/served_model.h"
#include "examples/server/wire.h"

namespace bindery::server {
namespace {

using Clock = std::chrono::steady_clock;

struct LoadOptions {
  std::string model, weights, host = "127.0.0.1";
  int port = 8080, clients = 8;
  double seconds = 5;
  int64_t samples = 1;  // of a request
  bool overload = false;
};

struct Request {
  std::string body;             // octets
  std::vector<float> expected;  // of all outputs, one after the other
};

struct Counts {
  std::map<int, int64_t> statuses;   // 0: no answer
  std::vector<double> milliseconds;  // of those with 200
  int64_t wrong = 0;
};

// Requests of random samples, with what the model predicts for them.
std::vector<Request> MakeRequests(const ServedModel& model, int64_t samples) {
  const Predictor predictor(model.model, {.inputs = model.Describe(samples), .calls = 1});
  std::vector<Request> requests(16);
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(0, 1);
  for (Request& request : requests) {
    HostTensor input(DType::kFloat32, model.Asked(model.inputs[0]).sample.Insert(0, samples));
    for (float& number : input.data<float>()) number = IsFloat(model.inputs[0].dtype) ? uniform(random) : 0;
    request.body = OctetsOf({input});
    const HostTensorMap asked = model.Prepare({{model.inputs[0].name, input.Cast(model.inputs[0].dtype)}});
    for (const HostTensor& output : predictor.Predict(asked)) {
      for (int64_t i = 0; i < output.elements(); ++i) request.expected.push_back(static_cast<float>(output.At(i)));
    }
  }
  return requests;
}

// Up to what another batch size changes: kernels add in another order.
bool IsRight(const std::string& body, const std::vector<float>& expected) {
  if (body.size() != expected.size() * sizeof(float)) return false;
  std::vector<float> got(expected.size());
  std::copy(body.begin(), body.end(), reinterpret_cast<char*>(got.data()));
  for (size_t i = 0; i < got.size(); ++i) {
    if (!(std::abs(got[i] - expected[i]) <= 1e-5f + 1e-4f * std::abs(expected[i]))) return false;
  }
  return true;
}

Counts Ask(const LoadOptions& options, const std::vector<Request>& requests, size_t first, Clock::time_point end) {
  httplib::Client client(options.host, options.port);
  client.set_keep_alive(true);
  client.set_tcp_nodelay(true);
  client.set_read_timeout(60);
  Counts counts;
  for (size_t i = first; Clock::now() < end; ++i) {
    const Request& request = requests[i % requests.size()];
    const Clock::time_point start = Clock::now();
    const httplib::Result answer = client.Post("/predict", request.body, "application/octet-stream");
    const std::chrono::duration<double, std::milli> took = Clock::now() - start;
    ++counts.statuses[answer ? answer->status : 0];
    if (!answer) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // nobody is there: no need to hurry
    } else if (answer->status == 200) {
      counts.milliseconds.push_back(took.count());
      counts.wrong += !IsRight(answer->body, request.expected);
    }
  }
  return counts;
}

int Report(const LoadOptions& options, Counts total, double seconds) {
  std::vector<double>& times = total.milliseconds;
  std::sort(times.begin(), times.end());
  const auto quantile = [&](double q) { return times[static_cast<size_t>(q * static_cast<double>(times.size() - 1))]; };
  const auto good = static_cast<double>(times.size());
  std::printf("%.0f requests/s, %.0f samples/s\n", good / seconds,
              good * static_cast<double>(options.samples) / seconds);
  if (!times.empty()) std::printf("ms: p50 %.3f p99 %.3f max %.3f\n", quantile(0.5), quantile(0.99), times.back());
  bool as_expected = !times.empty() && total.wrong == 0;
  for (const auto& [status, count] : total.statuses) {
    if (status == 0) {
      std::printf("no answer: %lld; is there a server on %s:%d?\n", static_cast<long long>(count), options.host.c_str(),
                  options.port);
    } else {
      std::printf("status %d: %lld\n", status, static_cast<long long>(count));
    }
    as_expected = as_expected && (status == 200 || (options.overload && status == 503));
  }
  if (options.overload && !total.statuses.contains(503)) {
    std::printf("never overloaded: more --clients, or a smaller --queue of the server\n");
    as_expected = false;
  }
  std::printf("wrong answers: %lld\n", static_cast<long long>(total.wrong));
  return as_expected ? 0 : 1;
}

int Main(int argc, char** argv) {
  CLI::App app("Asks a server by many clients and checks the answers.", "load_test");
  LoadOptions options;
  app.add_option("--model", options.model, "The model that the server has, with one input")->required();
  app.add_option("--weights", options.weights, "The weights that the server has");
  app.add_option("--host", options.host, "Its address")->capture_default_str();
  app.add_option("--port", options.port, "Its port")->check(CLI::Range(1, 65535))->capture_default_str();
  app.add_option("--clients", options.clients, "Connections, kept alive, a request at a time each")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "How long")->check(CLI::Range(0.01, 86400.0))->capture_default_str();
  app.add_option("--samples", options.samples, "Of each request")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  app.add_flag("--overload", options.overload, "Status 503 may come, and has to: right answers go on beside it");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return e.get_exit_code() == 0 ? app.exit(e) : (std::fprintf(stderr, "load_test: %s\n", e.what()), 2);
  }
  const ServedModel model = Describe(LoadWithWeights(options.model, options.weights), {});
  if (model.inputs.size() != 1) Throw("the model has {} inputs: expected one", model.inputs.size());
  const std::vector<Request> requests = MakeRequests(model, options.samples);

  const Clock::time_point start = Clock::now();
  const auto end = start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.seconds));
  std::mutex mutex;
  Counts total;
  {
    std::vector<std::jthread> clients;
    for (int c = 0; c < options.clients; ++c) {
      clients.emplace_back([&, c] {
        const Counts counts = Ask(options, requests, static_cast<size_t>(c), end);
        const std::lock_guard lock(mutex);
        for (const auto& [status, count] : counts.statuses) total.statuses[status] += count;
        total.wrong += counts.wrong;
        total.milliseconds.insert(total.milliseconds.end(), counts.milliseconds.begin(), counts.milliseconds.end());
      });
    }
  }
  const std::chrono::duration<double> took = Clock::now() - start;
  return Report(options, std::move(total), took.count());
}

}  // namespace
}  // namespace bindery::server

int main(int argc, char** argv) {
  try {
    return bindery::server::Main(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "load_test: %s\n", e.what());
    return 1;
  }
}
