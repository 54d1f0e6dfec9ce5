#include "tools/bench/client_bench.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/philox.h"
#include "executor/predictor.h"
#include "symbol/infer.h"
#include "tools/bench/allocations.h"
#include "train/initializer.h"
#include "train/zoo.h"

namespace bindery::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

HostTensor DrawData(const std::string& model, const Shape& shape) {
  HostTensor data(DType::kFloat32, shape);
  PhiloxStream random(1, "clients");
  const auto classes = static_cast<uint64_t>(ModelClasses(model));
  for (float& v : data.data<float>()) {  // of sequences class numbers
    v = shape.rank() == 2 ? static_cast<float>(random.Below(classes)) : random.Uniform(-1, 1);
  }
  return data;
}

struct Round {
  int64_t requests = 0, different = 0;
  double seconds = 0;  // from the first request to the end of the last
  double slowest = 0;  // of all requests, in seconds

  double per_second() const { return static_cast<double>(requests) / seconds; }
};

// `clients` threads ask until the time is over, each its next request when the one before is answered.
Round Ask(const Predictor& predictor, const HostTensorMap& data, const HostTensor& expected, int clients,
          double seconds) {
  std::atomic<int> ready{0};
  std::atomic<bool> go{false}, stop{false};
  std::vector<Round> rounds(static_cast<size_t>(clients));
  std::vector<std::thread> threads;
  for (Round& shared : rounds) {
    threads.emplace_back([&] {
      Round round;  // here, so that clients do not write to one cache line
      ++ready;
      while (!go) std::this_thread::yield();
      while (!stop) {
        const Clock::time_point start = Clock::now();
        const std::vector<HostTensor> outputs = predictor.Predict(data);
        round.slowest = std::max(round.slowest, Seconds(Clock::now() - start).count());
        ++round.requests;
        if (outputs[0] != expected) ++round.different;
      }
      shared = round;
    });
  }
  while (ready < clients) std::this_thread::yield();
  const Clock::time_point start = Clock::now();
  go = true;
  std::this_thread::sleep_for(Seconds(seconds));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  Round all{.seconds = Seconds(Clock::now() - start).count()};
  for (const Round& round : rounds) {
    all.requests += round.requests;
    all.different += round.different;
    all.slowest = std::max(all.slowest, round.slowest);
  }
  return all;
}

}  // namespace

ClientBenchResult RunClientBench(const ClientBenchOptions& o) {
  if (o.clients < 1) Throw("--clients: expected 1 or more, got {}", o.clients);
  const Shape shape = ModelInputShape(o.model).Insert(0, o.batch_size);
  ShapeMap shapes = {{"data", shape}};
  const Symbol symbol = ModelByName(o.model);
  const std::vector<std::string> arguments = symbol.ListArguments();
  if (std::ranges::find(arguments, "target") != arguments.end()) shapes["target"] = shape;  // transformer's
  PredictorOptions options{.device = o.device, .calls = o.clients, .threads = o.threads};
  HostTensorMap data;
  for (const auto& [name, of_name] : shapes) {
    options.inputs.push_back({.name = name, .shape = of_name});
    data[name] = DrawData(o.model, of_name);
  }
  shapes["softmax_label"] = *InferShapes(symbol, shapes).arguments.back();
  const Predictor predictor(InitialModel(symbol, shapes, Initializer("xavier"), /*seed=*/1), options);
  const HostTensor expected = predictor.Predict(data)[0];
  Ask(predictor, data, expected, o.clients, o.seconds);  // makes all that they need
  ClientBenchResult result;
  std::vector<double> one, all, ratios, slowest;
  for (int i = 0; i < o.rounds; ++i) {
    const Round of_one = Ask(predictor, data, expected, 1, o.seconds);
    const Round of_all = Ask(predictor, data, expected, o.clients, o.seconds);
    result.different += of_one.different + of_all.different;
    one.push_back(of_one.per_second());
    all.push_back(of_all.per_second());
    ratios.push_back(all.back() / one.back());
    slowest.push_back(of_all.slowest * all.back() / o.clients);
  }
  // In a round of their own: whoever counts writes to memory that all clients share.
  const int64_t before = CountAllocations().ours;
  SetCounting(true);
  const Round counted = Ask(predictor, data, expected, o.clients, o.seconds);
  SetCounting(false);
  result.allocations_ours =
      static_cast<double>(CountAllocations().ours - before) / static_cast<double>(counted.requests);
  result.one_per_second = Median(one);
  result.all_per_second = Median(all);
  result.ratio = Median(ratios);
  result.slowest_over_mean = Median(slowest);
  return result;
}

}  // namespace bindery::bench
