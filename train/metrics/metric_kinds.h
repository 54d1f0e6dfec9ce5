// The kinds of metrics that go by name: what each is called, its settings, what it needs, and which way is better. Told
// here once; MakeMetric, LargerIsBetter, the command line and docs/choices.md read it.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "train/call_text.h"
#include "train/metrics/metrics.h"

namespace bindery {

// Of the labels that it is about.
enum class MetricNeeds {
  kClasses,  // class numbers, and scores of classes
  kNumbers,  // as many numbers as the output has
  kNothing,  // no label: of outputs alone
};

struct MetricKind {
  std::string_view name;      // "top-k"
  std::string_view settings;  // its own, behind the name: "k=5"; those of classes have four more
  std::string_view doc;
  std::string_view values_begin;  // the names of its values: "top", as in "top-5"
  MetricNeeds needs = MetricNeeds::kNothing;
  bool larger_is_better = false;
  std::unique_ptr<Metric> (*make)(CallText& call) = nullptr;  // declares and reads its settings
};
std::span<const MetricKind> MetricKinds();                // in the order in which they are told of
const MetricKind* FindMetricKind(std::string_view name);  // nullptr: there is none

}  // namespace bindery
