// Metrics by name.
#include <fmt/format.h>

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/names.h"
#include "train/call_text.h"
#include "train/loop/trigger.h"
#include "train/metrics/metric_kinds.h"
#include "train/metrics/metrics.h"

namespace bindery {
namespace {

// Another by a name of its own, where reports would not tell several apart.
class Renamed final : public Metric {
 public:
  Renamed(std::unique_ptr<const Metric> metric, std::string name)
      : metric_(std::move(metric)), name_(std::move(name)) {}
  std::string name() const override { return name_; }
  int partial_size() const override { return metric_->partial_size(); }
  MetricGraph AsGraph(const MetricArrays& share) const override { return metric_->AsGraph(share); }
  NamedValues Values(std::span<const double> total) const override {
    NamedValues values = metric_->Values(total);
    for (auto& [name, value] : values) name = name_;
    return values;
  }
  int total_size() const override { return metric_->total_size(); }
  void AddBatch(std::span<const double> batch, std::span<double> total) const override {
    metric_->AddBatch(batch, total);
  }

 private:
  const std::unique_ptr<const Metric> metric_;
  const std::string name_;
};

// Throws Error where what goes by names would take a worse value for a better one.
std::unique_ptr<Metric> WithName(std::unique_ptr<Metric> metric, const std::string& name, const CallText& call) {
  const bool larger = LargerIsBetter(metric->name());
  if (name.empty()) call.Fail("\"name\" is empty");
  if (larger != LargerIsBetter(name)) {
    call.Fail(larger ? fmt::format("larger is better, which its name is to say: let it begin with {}, name={}_{}",
                                   metric->name(), metric->name(), name)
                     : fmt::format("smaller is better, but \"{}\" sounds as if larger were: call it otherwise", name));
  }
  return std::make_unique<Renamed>(std::move(metric), name);
}

const MetricKind& KindOf(const std::string& name) {
  if (const MetricKind* const kind = FindMetricKind(name)) return *kind;
  std::vector<std::string> known;
  for (const MetricKind& kind : MetricKinds()) known.emplace_back(kind.name);
  if (name == "acc") Throw("unknown metric \"acc\"; did you mean \"accuracy\"?");
  if (name == "auc") Throw("unknown metric \"auc\"; known: {}", fmt::join(known, ", "));  // of no other name
  Throw("unknown metric \"{}\"{}", name, NameHint(name, known));
}

std::unique_ptr<Metric> MakeOne(const std::string& text) {
  CallText call("metric", text);
  std::unique_ptr<Metric> metric = KindOf(call.name()).make(call);
  const std::optional<std::string> name = call.Word("name");
  return name ? WithName(std::move(metric), *name, call) : std::move(metric);
}

}  // namespace

std::unique_ptr<Metric> MakeMetric(std::string_view text) {
  std::vector<std::shared_ptr<const Metric>> metrics;
  const std::vector<std::string> parts = SplitCalls(text);
  if (parts.size() == 1) return MakeOne(parts[0]);
  for (const std::string& part : parts) metrics.push_back(MakeOne(part));
  return std::make_unique<CompositeMetric>(std::move(metrics));
}

}  // namespace bindery
