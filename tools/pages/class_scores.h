// How good answers are, class by class: precision, recall and F1.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/pages/confusion.h"

namespace bindery {

// No value: there is nothing to divide by, which is neither good nor bad.
struct ClassScores {
  std::optional<double> precision;  // right ones of the answers with this class; none: it was never answered
  std::optional<double> recall;     // right ones of the samples of this class; none: there was no such sample
  std::optional<double> f1;         // the harmonic mean of both; none: neither a sample nor an answer
};

ClassScores ScoresOfClass(const Confusion& confusion, int64_t label);
// The mean over the classes that have a value, each class counting the same.
ClassScores MacroAverage(const Confusion& confusion);

// A line for each class and one for the average; dashes where there is no value. Of more than 20 classes, those with the
// lowest F1. `names`: of the classes, as far as there are any.
std::string ScoresToText(const Confusion& confusion, const std::vector<std::string>& names);
// The same as HTML, of all classes.
std::string ScoresToHtml(const Confusion& confusion, const std::vector<std::string>& names);

}  // namespace bindery
