// Metrics: what a server counts, as Prometheus reads it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace bindery::server {

// Counts of values up to each of some limits. Not thread safe.
class Histogram {
 public:
  explicit Histogram(std::vector<double> limits);  // ascending
  void Add(double value);
  // The lines of the metric `name`: a bucket for each limit and one for all (cumulative), sum and count.
  std::string Print(const std::string& name, const std::string& help) const;

 private:
  std::vector<double> limits_;
  std::vector<int64_t> counts_;  // values above the limit before and not above this; the last: above all
  double sum_ = 0;
};

// Thread safe.
class Metrics {
 public:
  explicit Metrics(int64_t max_batch);
  // An answer to a request for `path`. Paths that the server does not have count as "other": clients cannot make
  // metrics without end.
  void Answered(const std::string& path, int status);
  void Predicted(int64_t samples, double seconds);  // a request that was answered with 200
  void Ran(int64_t samples);                        // a batch
  // Text format 0.0.4, see https://prometheus.io/docs/instrumenting/exposition_formats/.
  std::string Print(int64_t queued) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, int64_t> answers_;
  int64_t samples_ = 0;
  Histogram latency_, batches_;
};

}  // namespace bindery::server
