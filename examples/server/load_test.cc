// Asks an inference server from many connections at once, and checks every answer:
//
//   tools/bazel run //examples/server:load_test -- --port 8080 --clients 8 --seconds 10
//
// Before it begins, each of some requests, of numbers that are drawn, is asked alone; under load the same request must
// have the same answer, up to the rounding of a batch of another size. Exit status 1: one was wrong, or had another
// status than 200 (and 503, with --overload).
#include <fmt/format.h>
#include <httplib.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string host = "127.0.0.1";
  int port = 8080, clients = 8, requests = 16, samples = 1;
  double seconds = 5, pause_ms = 0;
  bool overload = false;
};

struct Request {
  std::string body;
  std::vector<float> answer = {};
};

// What one client has seen.
struct Seen {
  std::map<int, int64_t> statuses;  // 0: no answer
  std::vector<double> seconds;      // of those with 200
  int64_t wrong = 0;
};

std::vector<float> Floats(const std::string& bytes) {
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), floats.size() * sizeof(float));
  return floats;
}

bool AreEqual(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(a, b, [](float x, float y) {
    return std::abs(x - y) <= 1e-5f * std::max({1.0f, std::abs(x), std::abs(y)});
  });
}

std::unique_ptr<httplib::Client> Connect(const Options& o) {
  auto client = std::make_unique<httplib::Client>(o.host, o.port);
  client->set_keep_alive(true);
  client->set_tcp_nodelay(true);
  client->set_read_timeout(60);
  return client;
}

httplib::Result Ask(httplib::Client* client, const std::string& body) {
  return client->Post("/predict", body, "application/octet-stream");
}

std::vector<Request> MakeRequests(const Options& o) {
  const auto client = Connect(o);
  const httplib::Result description = client->Get("/");
  if (!description || description->status != 200) {
    throw std::runtime_error(fmt::format("no server at {}:{}", o.host, o.port));
  }
  const auto inputs = nlohmann::json::parse(description->body).at("inputs");
  if (inputs.size() != 1) throw std::runtime_error("the model has several inputs");
  size_t elements = static_cast<size_t>(o.samples);
  for (const auto& extent : inputs.begin()->at("sample")) elements *= extent.get<size_t>();
  std::mt19937 random(1);
  std::vector<Request> requests;
  for (int i = 0; i < o.requests; ++i) {
    std::vector<float> numbers(elements);
    for (float& number : numbers) number = static_cast<float>(random() % 1000) / 1000;
    Request request{.body = std::string(reinterpret_cast<const char*>(numbers.data()), elements * sizeof(float))};
    const httplib::Result answer = Ask(client.get(), request.body);
    if (!answer || answer->status != 200) {
      throw std::runtime_error(answer ? answer->body : "the server does not answer");
    }
    request.answer = Floats(answer->body);
    requests.push_back(std::move(request));
  }
  return requests;
}

Seen Run(const Options& o, const std::vector<Request>& requests, int number, Clock::time_point end) {
  Seen seen;
  const auto client = Connect(o);
  for (size_t i = static_cast<size_t>(number); Clock::now() < end; ++i) {
    const Request& request = requests[i % requests.size()];
    const auto begun = Clock::now();
    const httplib::Result answer = Ask(client.get(), request.body);
    ++seen.statuses[answer ? answer->status : 0];
    if (answer && answer->status == 200) {
      seen.seconds.push_back(std::chrono::duration<double>(Clock::now() - begun).count());
      if (!AreEqual(Floats(answer->body), request.answer)) ++seen.wrong;
    }
    if (o.pause_ms > 0) std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(o.pause_ms));
  }
  return seen;
}

int Main(const Options& o) {
  const std::vector<Request> requests = MakeRequests(o);
  std::vector<Seen> all(static_cast<size_t>(o.clients));
  std::vector<std::thread> threads;
  const auto begun = Clock::now();
  const auto end = begun + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(o.seconds));
  for (int c = 0; c < o.clients; ++c) {
    threads.emplace_back([&, c] { all[static_cast<size_t>(c)] = Run(o, requests, c, end); });
  }
  for (std::thread& thread : threads) thread.join();
  const double took = std::chrono::duration<double>(Clock::now() - begun).count();

  Seen sum;
  for (const Seen& seen : all) {
    for (const auto& [status, count] : seen.statuses) sum.statuses[status] += count;
    sum.seconds.insert(sum.seconds.end(), seen.seconds.begin(), seen.seconds.end());
    sum.wrong += seen.wrong;
  }
  std::ranges::sort(sum.seconds);
  const auto quantile = [&](double part) {
    if (sum.seconds.empty()) return NAN;
    const auto at = static_cast<size_t>(part * static_cast<double>(sum.seconds.size()));
    return static_cast<float>(1e3 * sum.seconds[std::min(at, sum.seconds.size() - 1)]);
  };
  fmt::print("{} clients of {} samples: {:.0f} requests/s, p50 {:.2f} ms, p99 {:.2f} ms, longest {:.2f} ms\n",
             o.clients, o.samples, static_cast<double>(sum.seconds.size()) / took, quantile(0.5), quantile(0.99),
             quantile(1));
  bool good = sum.wrong == 0;
  for (const auto& [status, count] : sum.statuses) {
    good &= status == 200 || (o.overload && status == 503);
    if (status != 200)
      fmt::print("  {} {}\n", count, status == 0 ? "without an answer" : fmt::format("with {}", status));
  }
  if (sum.wrong > 0) fmt::print("  {} WRONG\n", sum.wrong);
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Asks an inference server from many connections at once, and checks every answer.", "load_test");
  Options o;
  app.add_option("--host", o.host)->capture_default_str();
  app.add_option("--port", o.port)->capture_default_str();
  app.add_option("--clients", o.clients, "connections")->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--seconds", o.seconds)->check(CLI::Range(0.0, 86400.0))->capture_default_str();
  app.add_option("--samples", o.samples, "of each request")->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--requests", o.requests, "that are different")->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--pause", o.pause_ms, "milliseconds of a client between two requests")->capture_default_str();
  app.add_flag("--overload", o.overload, "answers of 503 are right, too");
  CLI11_PARSE(app, argc, argv);
  try {
    return Main(o);
  } catch (const std::exception& e) {
    fmt::print(stderr, "load_test: {}\n", e.what());
    return 1;
  }
}
