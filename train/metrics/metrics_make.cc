// Metrics by name.
#include <fmt/format.h>

#include <limits>
#include <utility>

#include "base/error.h"
#include "base/names.h"
#include "train/call_text.h"
#include "train/metrics/agreement.h"
#include "train/metrics/metrics.h"

namespace bindery {
namespace {

std::unique_ptr<Metric> MakeOne(const std::string& text) {
  CallText call("metric", text);
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
  Throw("unknown metric \"{}\"{}", name, NameHint(name, known));
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
