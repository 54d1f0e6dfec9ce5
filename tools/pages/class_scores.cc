#include "tools/pages/class_scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "tools/pages/html.h"
#include "train/quoted_text.h"

namespace bindery {
namespace {

constexpr const char* kAverage = "macro average";

std::optional<double> Quotient(int64_t part, int64_t whole) {
  if (whole == 0) return std::nullopt;
  return static_cast<double>(part) / static_cast<double>(whole);
}

// Each is a sum over all classes.
std::vector<ClassScores> ScoresOfAll(const Confusion& confusion) {
  std::vector<ClassScores> scores;
  for (int64_t label = 0; label < confusion.classes(); ++label) scores.push_back(ScoresOfClass(confusion, label));
  return scores;
}

std::string Cell(const std::optional<double>& value) { return value ? fmt::format("{:.4f}", *value) : "-"; }

}  // namespace

ClassScores ScoresOfClass(const Confusion& confusion, int64_t label) {
  const int64_t right = confusion.count(label, label), samples = confusion.OfLabel(label),
                answers = confusion.OfAnswer(label);
  return {.precision = Quotient(right, answers),
          .recall = Quotient(right, samples),
          .f1 = Quotient(2 * right, samples + answers)};
}

ClassScores MacroAverage(const Confusion& confusion) {
  const std::vector<ClassScores> scores = ScoresOfAll(confusion);
  ClassScores average;
  for (const auto value : {&ClassScores::precision, &ClassScores::recall, &ClassScores::f1}) {
    double sum = 0;
    int64_t count = 0;
    for (const ClassScores& one : scores) {
      sum += (one.*value).value_or(0);
      count += (one.*value).has_value();
    }
    if (count > 0) average.*value = sum / static_cast<double>(count);
  }
  return average;
}

std::string ScoresToText(const Confusion& confusion, const std::vector<std::string>& names) {
  constexpr int64_t kShown = 20;
  constexpr size_t kLongest = 24;  // characters of a name
  std::vector<int64_t> shown(static_cast<size_t>(confusion.classes()));
  std::iota(shown.begin(), shown.end(), int64_t{0});
  std::string text;
  if (confusion.classes() > kShown) {
    const std::vector<ClassScores> scores = ScoresOfAll(confusion);
    std::ranges::stable_sort(shown, std::less(), [&](int64_t label) {
      return scores[static_cast<size_t>(label)].f1.value_or(2);  // no value: last
    });
    shown.resize(kShown);
    text = "the classes with the lowest F1:\n";
  }
  std::vector<std::string> heads;
  size_t width = std::string_view(kAverage).size();
  for (const int64_t label : shown) {
    heads.push_back(ValidUtf8(NameOf(label, names).substr(0, kLongest)));
    width = std::max(width, heads.back().size());
  }
  const auto line = [&](const std::string& head, const ClassScores& scores, int64_t samples) {
    text += fmt::format("{:<{}}  {:>9}  {:>6}  {:>6}  {:>7}\n", head, width, Cell(scores.precision),
                        Cell(scores.recall), Cell(scores.f1), samples);
  };
  text += fmt::format("{:<{}}  precision  recall      F1  samples\n", "class", width);
  for (size_t i = 0; i < shown.size(); ++i) {
    line(heads[i], ScoresOfClass(confusion, shown[i]), confusion.OfLabel(shown[i]));
  }
  line(kAverage, MacroAverage(confusion), confusion.samples());
  return text;
}

std::string ScoresToHtml(const Confusion& confusion, const std::vector<std::string>& names) {
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const std::string& name, const ClassScores& scores, int64_t samples) {
    rows.push_back({name, Cell(scores.precision), Cell(scores.recall), Cell(scores.f1), Thousands(samples)});
  };
  for (int64_t label = 0; label < confusion.classes(); ++label) {
    add(NameOf(label, names), ScoresOfClass(confusion, label), confusion.OfLabel(label));
  }
  add(kAverage, MacroAverage(confusion), confusion.samples());
  return HtmlTable({"class", "precision", "recall", "F1", "samples"}, {false, true, true, true, true}, rows);
}

}  // namespace bindery
