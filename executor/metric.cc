#include "executor/metric.h"

#include <atomic>

#include "base/error.h"

namespace bindery {
namespace {

std::atomic<uint64_t> metrics_made{0};

}  // namespace

Metric::Metric() : id_(++metrics_made) {}

void Metric::AddBatch(std::span<const double> batch, std::span<double> total) const {
  for (size_t i = 0; i < batch.size(); ++i) total[i] += batch[i];
}

void Metric::Merge(std::span<const std::vector<double>> partials) {
  batch_.assign(static_cast<size_t>(partial_size()), 0);
  for (const std::vector<double>& partial : partials) {
    CheckPartial(partial);
    for (size_t i = 0; i < partial.size(); ++i) batch_[i] += partial[i];
  }
  Merge(std::span<const double>(batch_));
}

void Metric::Merge(std::span<const double> batch) {
  CheckPartial(batch);
  total_.resize(static_cast<size_t>(total_size()));
  AddBatch(batch, total_);
}

void Metric::CheckPartial(std::span<const double> partial) const {
  if (partial.size() == static_cast<size_t>(partial_size())) return;
  Throw("metric \"{}\": a partial has {} numbers, got {}", name(), partial_size(), partial.size());
}

void Metric::Reset() { total_.clear(); }

NamedValues Metric::Get() const {
  if (total_.empty()) return Values(std::vector<double>(static_cast<size_t>(total_size())));
  return Values(total_);
}

void Metric::SetTotal(std::vector<double> total) {
  if (!total.empty() && total.size() != static_cast<size_t>(total_size())) {
    Throw("metric \"{}\": a total has {} numbers, got {}", name(), total_size(), total.size());
  }
  total_ = std::move(total);
}

MetricGraph HostMetric::AsGraph(const MetricArrays&) const {
  Throw("metric \"{}\" is host code and cannot be part of another: measure it by itself", name());
}

}  // namespace bindery
