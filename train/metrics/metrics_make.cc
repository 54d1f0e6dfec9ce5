// Metrics by name.
#include <fmt/format.h>

#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/names.h"
#include "train/call_text.h"
#include "train/loop/trigger.h"
#include "train/metrics/agreement.h"
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

// With the setting "name" behind a metric's own.
class MetricText : public CallText {
 public:
  using CallText::CallText;
  void Declare(std::vector<std::string> settings) {
    settings.emplace_back("name");
    CallText::Declare(std::move(settings));
  }
};

std::unique_ptr<Metric> MakeCalled(MetricText& call) {
  const auto target = [&] {
    return MetricTarget{.output = call.Word("output").value_or(""), .label = call.Word("label").value_or("")};
  };
  const auto small = [&](const char* name) -> std::optional<int> {
    const std::optional<int64_t> value = call.Integer(name);
    if (!value) return std::nullopt;
    if (*value < -1 || *value > std::numeric_limits<int>::max())
      call.Fail(fmt::format("\"{}\" is out of range: {}", name, *value));
    return static_cast<int>(*value);
  };
  const auto class_options = [&](std::vector<std::string> own) {
    for (const char* name : {"axis", "ignore", "output", "label"}) own.emplace_back(name);
    call.Declare(std::move(own));
    const bool none = call.Word("axis") == "none";
    return ClassMetricOptions{.target = target(),
                              .axis = none ? std::optional(kNoAxis) : small("axis"),
                              .ignore_label = call.Number("ignore")};
  };
  const std::string& name = call.name();
  if (name == "accuracy") return std::make_unique<Accuracy>(class_options({}));
  if (name == "top-k") {
    ClassMetricOptions options = class_options({"k"});
    return std::make_unique<TopKAccuracy>(small("k").value_or(5), std::move(options));
  }
  if (name == "cross-entropy") {
    ClassMetricOptions options = class_options({"eps"});
    return std::make_unique<CrossEntropy>(call.Number("eps").value_or(1e-12), std::move(options));
  }
  if (name == "nll") {
    ClassMetricOptions options = class_options({"eps"});
    return std::make_unique<NegativeLogLikelihoodMetric>(call.Number("eps").value_or(1e-12), std::move(options));
  }
  if (name == "perplexity") return std::make_unique<Perplexity>(class_options({}));
  const auto average = [&] {
    const std::string word = call.Word("average").value_or("micro");
    if (word != "micro" && word != "macro") {
      call.Fail(fmt::format("\"average\" must be micro or macro, got \"{}\"", word));
    }
    return word == "macro" ? Average::kMacro : Average::kMicro;
  };
  if (name == "f1" || name == "mcc") {
    ClassMetricOptions options = class_options({"average"});
    if (name == "f1") return std::make_unique<F1>(average(), std::move(options));
    return std::make_unique<Mcc>(average(), std::move(options));
  }
  if (name == "pcc") {
    ClassMetricOptions options = class_options({"classes"});
    return std::make_unique<Pcc>(small("classes").value_or(2), std::move(options));
  }
  if (name == "pearson") {
    call.Declare({"average", "output", "label"});
    return std::make_unique<Pearson>(average(), target());
  }
  for (const auto kind : {RegressionKind::kMse, RegressionKind::kRmse, RegressionKind::kMae}) {
    if (name != RegressionMetric(kind).name()) continue;
    call.Declare({"output", "label"});
    return std::make_unique<RegressionMetric>(kind, target());
  }
  if (name == "loss") {
    call.Declare({"output"});
    return std::make_unique<Loss>(target().output);
  }
  const std::vector<std::string> known = {"accuracy", "top-k", "cross-entropy", "nll",  "perplexity",
                                          "mse",      "rmse",  "mae",           "loss", "f1",
                                          "mcc",      "pcc",   "pearson"};
  if (name == "acc") Throw("unknown metric \"acc\"; did you mean \"accuracy\"?");
  if (name == "auc") Throw("unknown metric \"auc\"; known: {}", fmt::join(known, ", "));  // of no other name
  Throw("unknown metric \"{}\"{}", name, NameHint(name, known));
}

std::unique_ptr<Metric> MakeOne(const std::string& text) {
  MetricText call("metric", text);
  std::unique_ptr<Metric> metric = MakeCalled(call);
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
