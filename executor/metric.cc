#include "executor/metric.h"

#include <atomic>

#include "base/error.h"

namespace bindery {
namespace {

std::atomic<uint64_t> metrics_made{0};

}  // namespace

Metric::Metric() : id_(++metrics_made) {}

void Metric::Merge(std::span<const double> partial) {
  if (partial.size() != static_cast<size_t>(partial_size())) {
    Throw("metric \"{}\": a partial has {} numbers, got {}", name(), partial_size(), partial.size());
  }
  total_.resize(partial.size());
  for (size_t i = 0; i < partial.size(); ++i) total_[i] += partial[i];
}

void Metric::Reset() { total_.clear(); }

NamedValues Metric::Get() const {
  if (total_.empty()) return Values(std::vector<double>(static_cast<size_t>(partial_size())));
  return Values(total_);
}

void Metric::SetTotal(std::vector<double> total) {
  if (!total.empty() && total.size() != static_cast<size_t>(partial_size())) {
    Throw("metric \"{}\": a total has {} numbers, got {}", name(), partial_size(), total.size());
  }
  total_ = std::move(total);
}

MetricGraph HostMetric::AsGraph(const MetricArrays&) const {
  Throw("metric \"{}\" is host code and cannot be part of another: measure it by itself", name());
}

}  // namespace bindery
