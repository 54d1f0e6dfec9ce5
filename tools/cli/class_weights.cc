#include "tools/cli/class_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/names.h"
#include "base/parse_number.h"
#include "base/split_text.h"
#include "tools/cli/arguments.h"

namespace bindery::cli {
namespace {

constexpr const char* kClassWeights = "--class-weights";
constexpr double kHighest = 1e6;

// So that all classes count alike, however many samples they have, and samples 1 on average; 1 for one without any.
std::vector<double> Balanced(int64_t classes, const LabelCounter& count) {
  if (!count) throw UsageError(fmt::format("{} balanced: the characters of a text are not counted", kClassWeights));
  const LabelCounts counts = count();
  const auto of_class = [&](int64_t number) {
    const auto found = counts.find(static_cast<double>(number));
    return found == counts.end() ? 0.0 : static_cast<double>(found->second);
  };
  double labels = 0, seen = 0;
  for (int64_t i = 0; i < classes; ++i) {
    labels += of_class(i);
    seen += of_class(i) > 0;
  }
  if (labels == 0) throw UsageError(fmt::format("{} balanced: no label is the number of a class", kClassWeights));
  std::vector<double> weights;
  for (int64_t i = 0; i < classes; ++i) weights.push_back(of_class(i) > 0 ? labels / (seen * of_class(i)) : 1);
  return weights;
}

// NAME=WEIGHT,...; classes without a name are called by their numbers.
std::vector<double> OfNames(const std::string& text, int64_t classes, const std::vector<std::string>& names) {
  std::vector<double> weights(static_cast<size_t>(classes), 1.0);
  std::vector<bool> said(weights.size());
  for (const std::string_view part : SplitText(text, ',')) {
    const size_t equals = part.rfind('=');
    if (equals == std::string_view::npos) {
      throw UsageError(fmt::format("{}: expected CLASS=NUMBER, got \"{}\"", kClassWeights, part));
    }
    const std::string name(Trim(part.substr(0, equals)));
    const auto found = std::ranges::find(names, name);
    int64_t number = found - names.begin();
    if (found == names.end()) {
      number = names.empty() ? bindery::ParseNumber<int64_t>(name).value_or(-1) : -1;
      if (number < 0 || number >= classes) {
        throw UsageError(
            fmt::format("{}: there is no class \"{}\"{}", kClassWeights, name,
                        names.empty() ? fmt::format("; they are called 0 to {}", classes - 1) : NameHint(name, names)));
      }
    }
    const auto at = static_cast<size_t>(number);
    if (said[at]) throw UsageError(fmt::format("{}: class \"{}\" is there twice", kClassWeights, name));
    said[at] = true;
    weights[at] = ParseNumber<double>(kClassWeights, Trim(part.substr(equals + 1)), 0, kHighest);
  }
  return weights;
}

}  // namespace

std::vector<double> ParseClassWeights(const std::string& text, int64_t classes, const std::vector<std::string>& names,
                                      const LabelCounter& count) {
  if (text == "none") return {};
  if (text == "balanced") return Balanced(classes, count);
  const bool named = text.find('=') != std::string::npos;
  std::vector<double> weights =
      named ? OfNames(text, classes, names) : ParseNumbers<double>(kClassWeights, text, 0, kHighest);
  if (std::ssize(weights) != classes) {
    throw UsageError(fmt::format("{}: {} numbers for {} classes{}", kClassWeights, weights.size(), classes,
                                 names.empty() ? "" : fmt::format(", which are {}", fmt::join(names, ", "))));
  }
  if (std::ranges::all_of(weights, [](double weight) { return weight == 0; })) {
    throw UsageError(fmt::format("{}: all are 0: nothing would be learned", kClassWeights));
  }
  return weights;
}

}  // namespace bindery::cli
