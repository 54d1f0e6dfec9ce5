#include "train/metrics/default_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "symbol/op_def.h"
#include "symbol/ops/heads.h"
#include "symbol/ops/loss.h"
#include "train/call_text.h"

namespace bindery {
namespace {

// As a setting's value.
std::string Quoted(const std::string& name) {
  return name.find_first_of(",()\"") == std::string::npos ? name : QuotedWord(name);
}

// Of a head: what its metrics are told in brackets, those of classes and all.
struct HeadSettings {
  std::vector<std::string> of_classes, of_all;
};

HeadSettings SettingsOf(const Symbol& symbol, size_t head) {
  const Node& node = *symbol.entries()[head].node;
  HeadSettings settings;
  if (&node.attrs().type() == &AttrsOf<SoftmaxOutputAttrs>()) {
    const auto& attrs = node.attrs().get<SoftmaxOutputAttrs>();
    if (attrs.multi_output || attrs.preserve_shape) {
      settings.of_classes.push_back(fmt::format("axis={}", attrs.multi_output ? 1 : -1));
    }
    if (attrs.use_ignore) settings.of_classes.push_back(fmt::format("ignore={}", attrs.ignore_label));
  }
  if (symbol.size() == 1) return settings;  // the only one: metrics need not be told
  settings.of_all.push_back("output=" + Quoted(symbol.ListOutputs()[head]));
  const std::vector<std::string> names = InputNames(node);
  const auto label = std::ranges::find(names, "label");
  if (label == names.end()) return settings;
  const Node& input = *node.inputs()[static_cast<size_t>(label - names.begin())].node;
  if (input.is_variable()) settings.of_all.push_back("label=" + Quoted(input.name()));
  return settings;
}

}  // namespace

std::string DefaultMetrics(const Symbol& symbol) {
  std::vector<std::string> metrics;
  const auto add = [&](const std::string& name, const std::vector<std::string>& settings) {
    metrics.push_back(settings.empty() ? name : fmt::format("{}({})", name, fmt::join(settings, ", ")));
  };
  for (size_t head = 0; head < symbol.entries().size(); ++head) {
    const HeadKind kind = HeadKindOf(*symbol.entries()[head].node);
    if (kind == HeadKind::kNoLoss) continue;
    const auto [of_classes, of_all] = SettingsOf(symbol, head);
    std::vector<std::string> both = of_classes;
    both.insert(both.end(), of_all.begin(), of_all.end());
    switch (kind) {
      case HeadKind::kNoLoss: break;
      case HeadKind::kClasses:
        add("accuracy", both);
        add("cross-entropy", both);
        break;
      case HeadKind::kScores: add("accuracy", both); break;
      case HeadKind::kTruths:
        both.insert(both.begin(), "axis=none");  // each truth by itself: several in a row are no scores of classes
        add("accuracy", both);
        add("rmse", of_all);
        break;
      case HeadKind::kNumbers:
        add("rmse", of_all);
        add("mae", of_all);
        break;
      case HeadKind::kLoss:
        add("loss", symbol.size() == 1 ? std::vector<std::string>() : std::vector{of_all[0]});
        break;
    }
  }
  return metrics.empty() ? "accuracy,cross-entropy" : fmt::format("{}", fmt::join(metrics, ","));
}

}  // namespace bindery
