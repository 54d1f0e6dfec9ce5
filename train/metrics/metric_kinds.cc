#include "train/metrics/metric_kinds.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/metrics/agreement.h"

namespace bindery {
namespace {

// Besides, all have a name of their own.
void DeclareSettings(std::vector<std::string> own, CallText& call) {
  own.emplace_back("name");
  call.Declare(std::move(own));
}

MetricTarget TargetOf(const CallText& call) {
  return {.output = call.Word("output").value_or(""), .label = call.Word("label").value_or("")};
}

std::optional<int> SmallNumber(const char* name, const CallText& call) {
  const std::optional<int64_t> value = call.Integer(name);
  if (!value) return std::nullopt;
  if (*value < -1 || *value > std::numeric_limits<int>::max())
    call.Fail(fmt::format("\"{}\" is out of range: {}", name, *value));
  return static_cast<int>(*value);
}

ClassMetricOptions ClassOptions(std::vector<std::string> own, CallText& call) {
  for (const char* name : {"axis", "ignore", "output", "label"}) own.emplace_back(name);
  DeclareSettings(std::move(own), call);
  const bool none = call.Word("axis") == "none";
  return {.target = TargetOf(call),
          .axis = none ? std::optional(kNoAxis) : SmallNumber("axis", call),
          .ignore_label = call.Number("ignore")};
}

Average AverageOf(const CallText& call) {
  const std::string word = call.Word("average").value_or("micro");
  if (word != "micro" && word != "macro") {
    call.Fail(fmt::format("\"average\" must be micro or macro, got \"{}\"", word));
  }
  return word == "macro" ? Average::kMacro : Average::kMicro;
}

template <class T>
std::unique_ptr<Metric> MakeOfClasses(CallText& call) {
  return std::make_unique<T>(ClassOptions({}, call));
}

template <class T>
std::unique_ptr<Metric> MakeLikelihood(CallText& call) {
  ClassMetricOptions options = ClassOptions({"eps"}, call);
  return std::make_unique<T>(call.Number("eps").value_or(1e-12), std::move(options));
}

template <class T>
std::unique_ptr<Metric> MakeAgreement(CallText& call) {
  ClassMetricOptions options = ClassOptions({"average"}, call);
  return std::make_unique<T>(AverageOf(call), std::move(options));
}

template <RegressionKind kKind>
std::unique_ptr<Metric> MakeRegression(CallText& call) {
  DeclareSettings({"output", "label"}, call);
  return std::make_unique<RegressionMetric>(kKind, TargetOf(call));
}

std::unique_ptr<Metric> MakeTopK(CallText& call) {
  ClassMetricOptions options = ClassOptions({"k"}, call);
  return std::make_unique<TopKAccuracy>(SmallNumber("k", call).value_or(5), std::move(options));
}

std::unique_ptr<Metric> MakePcc(CallText& call) {
  ClassMetricOptions options = ClassOptions({"classes"}, call);
  return std::make_unique<Pcc>(SmallNumber("classes", call).value_or(2), std::move(options));
}

std::unique_ptr<Metric> MakePearson(CallText& call) {
  DeclareSettings({"average", "output", "label"}, call);
  return std::make_unique<Pearson>(AverageOf(call), TargetOf(call));
}

std::unique_ptr<Metric> MakeLossMetric(CallText& call) {
  DeclareSettings({"output"}, call);
  return std::make_unique<Loss>(TargetOf(call).output);
}

using enum MetricNeeds;

// Name, settings, what it is; what its values' names begin with, what it needs, whether larger is better.
constexpr MetricKind kKinds[] = {
    {"accuracy", "", "the share of samples whose largest score is that of their label",  //
     "accuracy", kClasses, true, MakeOfClasses<Accuracy>},
    {"top-k", "k=5", "the share of samples whose label is among the k largest scores",  //
     "top", kClasses, true, MakeTopK},
    {"cross-entropy", "eps=1e-12", "the mean of -log(p + eps), p the probability of the label",  //
     "cross-entropy", kClasses, false, MakeLikelihood<CrossEntropy>},
    {"nll", "eps=1e-12", "the same by another name",  //
     "nll", kClasses, false, MakeLikelihood<NegativeLogLikelihoodMetric>},
    {"perplexity", "", "e to the mean of -log p",  //
     "perplexity", kClasses, false, MakeOfClasses<Perplexity>},
    {"f1", "average=micro",
     "of two classes: 2 tp / (2 tp + fp + fn) of class 1; of all that was counted, or by average=macro the mean of "
     "batches",
     "f1", kClasses, true, MakeAgreement<F1>},
    {"mcc", "average=micro", "of two classes: Matthews' correlation",  //
     "mcc", kClasses, true, MakeAgreement<Mcc>},
    {"pcc", "classes=2", "the same of so many classes",  //
     "pcc", kClasses, true, MakePcc},
    {"mse", "[output], [label]", "of numbers: the mean of (output - label)^2",  //
     "mse", kNumbers, false, MakeRegression<RegressionKind::kMse>},
    {"rmse", "[output], [label]", "its root",  //
     "rmse", kNumbers, false, MakeRegression<RegressionKind::kRmse>},
    {"mae", "[output], [label]", "of numbers: the mean of |output - label|",  //
     "mae", kNumbers, false, MakeRegression<RegressionKind::kMae>},
    {"pearson", "average=micro, [output], [label]", "of numbers: Pearson's correlation",  //
     "pearson", kNumbers, true, MakePearson},
    {"loss", "[output]", "the mean of an output, or of all, as of a MakeLoss",  //
     "loss", kNothing, false, MakeLossMetric},
};

}  // namespace

std::span<const MetricKind> MetricKinds() { return kKinds; }

const MetricKind* FindMetricKind(std::string_view name) {
  const auto found = std::ranges::find(kKinds, name, &MetricKind::name);
  return found == std::end(kKinds) ? nullptr : &*found;
}

}  // namespace bindery
