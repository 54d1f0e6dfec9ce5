// docs/choices.md is what the program prints, and true: names, settings, their order and what they are by default are
// those of the code that reads them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "base/files.h"
#include "base/split_text.h"
#include "executor/executor.h"
#include "tests/message_of.h"
#include "tests/tools/program.h"
#include "train/initializer.h"
#include "train/loss_scale.h"
#include "train/metrics/metrics.h"
#include "train/optimizers/averaging.h"
#include "train/optimizers/optimizer.h"
#include "train/optimizers/schedule.h"

namespace bindery {
namespace {

using ChoicesTest = ProgramTest;

struct Setting {
  std::string name, value;  // by default; empty: none
  bool required = false;
};
struct Call {
  std::string name;
  std::vector<Setting> settings;
  // With these values in place of required ones, and, if asked, with what the others are by default.
  std::string Text(const std::map<std::string, std::string>& required, bool all) const {
    std::string text;
    for (const auto& [setting, value, is_required] : settings) {
      if (!is_required && (!all || value.empty())) continue;
      text += (text.empty() ? "" : ", ") + setting + "=" + (is_required ? required.at(setting) : value);
    }
    return name + "(" + text + ")";
  }
};

// What a page lists, by its headings.
std::map<std::string, std::vector<Call>> CallsOf(const std::string& page) {
  static const std::regex kEntry(R"(\* `([a-z0-9_-]+)(?:\(([^`]*)\))?`:)"), kHeading(R"(^## (.*))");
  std::map<std::string, std::vector<Call>> calls;
  std::istringstream lines(page);
  std::string heading, entry;
  const auto take = [&] {
    std::smatch match;
    if (!std::regex_search(entry, match, kEntry)) return;
    Call& call = calls[heading].emplace_back(Call{.name = match[1], .settings = {}});
    const std::string settings = match[2];
    for (const std::string_view part : SplitText(settings, ',')) {
      std::string setting(Trim(part));
      if (setting.empty()) continue;
      const bool optional = setting.front() == '[';
      if (optional) setting = setting.substr(1, setting.size() - 2);
      const size_t equals = setting.find('=');
      call.settings.push_back({.name = setting.substr(0, equals),
                               .value = equals == std::string::npos ? "" : setting.substr(equals + 1),
                               .required = equals == std::string::npos && !optional});
    }
  };
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (line.starts_with("  ")) {
      entry += line.substr(1);
      continue;
    }
    take();
    entry = line;
    if (std::regex_match(line, match, kHeading)) heading = match[1];
  }
  take();
  return calls;
}

// The values of a metric over two batches of samples that are drawn.
std::string Measured(const std::string& text) {
  const auto metric = MakeMetric(text);
  const bool numbers = std::regex_search(text, std::regex("^(mse|rmse|mae|pearson|loss)"));
  const int64_t n = 6, classes = numbers ? 1 : std::regex_search(text, std::regex("^(f1|mcc|pcc)")) ? 2 : 8;
  const Shape shape = {n, classes}, labels = numbers ? shape : Shape{n};
  MetricArrays arrays{.outputs = {{.name = "output", .symbol = Variable("output"), .shape = shape}},
                      .labels = {{.name = "label", .symbol = Variable("label"), .shape = labels}},
                      .samples = n};
  const Symbol partial = metric->AsGraph(arrays).partial;
  PhiloxStream random(1, "metric");
  for (int batch = 0; batch < 2; ++batch) {
    HostTensor output(DType::kFloat32, shape), label(DType::kFloat32, labels);
    for (int64_t i = 0; i < output.elements(); ++i) output.Set(i, random.Uniform(0, 1e-3));
    for (int64_t i = 0; i < n; ++i) label.Set(i, numbers ? random.Uniform(0, 1) : (i + batch) % (i % 2 + 2) % classes);
    std::vector<DataDesc> inputs = {{"output", shape}};
    HostTensorMap values = {{"output", output}};
    for (const std::string& name : partial.ListArguments()) {
      if (name == "label") {
        inputs.push_back({"label", labels});
        values["label"] = label;
      }
    }
    Executor executor(partial, {.inputs = inputs, .for_training = false});
    executor.Forward(values);
    const HostTensor sums = executor.Output(0);
    metric->Merge(sums.data<double>());
  }
  std::string measured;
  for (const auto& [name, value] : metric->Get()) measured += fmt::format("{} {}\n", name, value);
  return measured;
}

std::string Drawn(const std::string& text) {
  const Shape shape = text.starts_with("lstm") ? Shape{8} : Shape{8, 4, 3, 3};
  const HostTensor values = Initializer(text).Make("w", shape, DType::kFloat32, 1);
  std::string all;
  for (int64_t i = 0; i < values.elements(); ++i) all += fmt::format("{} ", values.At(i));
  return all;
}

struct Kind {
  std::string heading;
  std::function<std::string(const std::string&)> read;  // what a text means
  std::map<std::string, std::string> required = {};     // values for settings that have to be given
  Words common = {};                                    // settings that all have, behind their own
};

std::vector<Kind> Kinds() {
  return {{"Optimizers",
           [](const std::string& text) { return MakeOptimizer(text)->Text(); },
           {},
           {"wd", "clip_gradient", "rescale", "clip_norm"}},
          {"Schedules",
           [](const std::string& text) { return ParseSchedule(text, 0.5)->Text(); },
           {{"step", "10"}, {"factor", "0.5"}, {"at", "3;5"}, {"max", "100"}},
           {"base", "warmup", "warmup_begin", "warmup_mode", "unit"}},
          {"Metrics", Measured},
          {"Initializers", Drawn, {{"value", "0.25"}}},
          {"Averages", [](const std::string& text) { return ParseAveraging(text)->text; }, {{"start", "5"}}},
          {"Loss scales", [](const std::string& text) { return ParseLossScaling(text)->Text(); }, {{"scale", "8"}}}};
}

// What a message lists behind "known: ".
std::string Known(const std::string& message) {
  const size_t at = message.find("; known: ");
  return at == std::string::npos ? message.ends_with("; there are none") ? "" : message : message.substr(at + 9);
}

constexpr const char* kNobody = "qqqqqqqqqqqqqqqq";

TEST_F(ChoicesTest, ThePageIsWhatIsPrinted) {
  const std::string root = std::string(std::getenv("TEST_SRCDIR")) + "/" + std::getenv("TEST_WORKSPACE");
  EXPECT_EQ(Succeeds({"choices"}).out, ReadFile(root + "/docs/choices.md"))
      << "to write it anew: bazel run //tools:bindery -- choices > docs/choices.md";
  EXPECT_TRUE(Succeeds({"choices", "--only", "schedules"}).out.starts_with("\n## Schedules\n"));
  Fails(2, "--only: there are no \"metric\"; did you mean \"metrics\"?", {"choices", "--only", "metric"});
}

TEST_F(ChoicesTest, NamesSettingsAndDefaultsAreThoseOfTheCode) {
  std::map<std::string, std::vector<Call>> listed = CallsOf(Succeeds({"choices"}).out);
  EXPECT_EQ(listed.size(), Kinds().size());
  for (const Kind& kind : Kinds()) {
    SCOPED_TRACE(kind.heading);
    Words names;
    for (const Call& call : listed[kind.heading]) {
      SCOPED_TRACE(call.name);
      names.push_back(call.name);
      Words settings;
      for (const Setting& setting : call.settings) settings.push_back(setting.name);
      settings.insert(settings.end(), kind.common.begin(), kind.common.end());
      const bool of_classes = kind.heading == "Metrics" && call.name != "loss" &&
                              (settings.empty() || (settings.back() != "output" && settings.back() != "label"));
      if (of_classes) settings.insert(settings.end(), {"axis", "ignore", "output", "label"});
      if (kind.heading == "Metrics") settings.emplace_back("name");
      const std::string unknown = call.name + "(" + kNobody + "=1)";
      EXPECT_EQ(Known(MessageOf([&] { kind.read(unknown); })), fmt::format("{}", fmt::join(settings, ", ")));
      EXPECT_EQ(kind.read(call.Text(kind.required, true)), kind.read(call.Text(kind.required, false)));
    }
    // Names alone: "zero, constant(value)".
    static const std::regex kName(R"(([\w-]+)(\([^)]*\))?(, |$))");
    const std::string message = MessageOf([&] { kind.read(kNobody); });
    const size_t at = message.find("the forms are ");
    const std::string list = at == std::string::npos ? Known(message) : message.substr(at + 14);
    std::set<std::string> known;
    for (std::sregex_iterator one(list.begin(), list.end(), kName); one != std::sregex_iterator(); ++one) {
      known.insert((*one)[1]);
    }
    EXPECT_EQ(known, std::set<std::string>(names.begin(), names.end()));
  }
}

}  // namespace
}  // namespace bindery
