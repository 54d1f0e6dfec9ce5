#include "examples/server/metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace bindery::server {
namespace {

std::vector<double> PowersOfTwo(int64_t most) {
  std::vector<double> limits;
  for (int64_t limit = 1; limit < most; limit *= 2) limits.push_back(static_cast<double>(limit));
  limits.push_back(static_cast<double>(most));
  return limits;
}

std::string Head(const std::string& name, const char* type, const std::string& help) {
  return fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
}

}  // namespace

Histogram::Histogram(std::vector<double> limits) : limits_(std::move(limits)), counts_(limits_.size() + 1) {}

void Histogram::Add(double value) {
  const auto bucket = std::lower_bound(limits_.begin(), limits_.end(), value) - limits_.begin();
  ++counts_[static_cast<size_t>(bucket)];
  sum_ += value;
}

std::string Histogram::Print(const std::string& name, const std::string& help) const {
  std::string text = Head(name, "histogram", help);
  int64_t total = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    total += counts_[i];
    const std::string limit = i < limits_.size() ? fmt::format("{:g}", limits_[i]) : "+Inf";
    text += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, limit, total);
  }
  return text + fmt::format("{0}_sum {1}\n{0}_count {2}\n", name, sum_, total);
}

Metrics::Metrics(int64_t max_batch)
    : latency_({0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}),
      batches_(PowersOfTwo(max_batch)) {}

void Metrics::Answered(const std::string& path, int status) {
  static constexpr std::array<const char*, 4> kPaths = {"/", "/healthz", "/metrics", "/predict"};
  const bool known = std::find(kPaths.begin(), kPaths.end(), path) != kPaths.end();
  const std::lock_guard lock(mutex_);
  ++answers_[{known ? path : "other", status}];
}

void Metrics::Predicted(int64_t samples, double seconds) {
  const std::lock_guard lock(mutex_);
  samples_ += samples;
  latency_.Add(seconds);
}

void Metrics::Ran(int64_t samples) {
  const std::lock_guard lock(mutex_);
  batches_.Add(static_cast<double>(samples));
}

std::string Metrics::Print(int64_t queued) const {
  const std::lock_guard lock(mutex_);
  std::string text = Head("bindery_requests_total", "counter", "Answers by path and status.");
  for (const auto& [key, count] : answers_) {
    text += fmt::format("bindery_requests_total{{path=\"{}\",status=\"{}\"}} {}\n", key.first, key.second, count);
  }
  text += Head("bindery_samples_total", "counter", "Samples in requests answered with 200.");
  text += fmt::format("bindery_samples_total {}\n", samples_);
  text += Head("bindery_queue_samples", "gauge", "Samples that wait for a worker.");
  text += fmt::format("bindery_queue_samples {}\n", queued);
  text += latency_.Print("bindery_request_seconds", "From a prediction's request, read, to its answer, made.");
  text += batches_.Print("bindery_batch_samples", "Samples of the batches that were run, without filling.");
  return text;
}

}  // namespace bindery::server
