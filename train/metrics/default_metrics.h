// The metrics that fit a network's heads, where nobody says others.
#pragma once

#include <string>

#include "symbol/symbol.h"

namespace bindery {

inline constexpr const char* kMetricsOfHeads = "default";  // a text of metrics that stands for those

// Of each head, as MakeMetric reads them: "accuracy,cross-entropy" of classes, along the head's axis and without the
// labels that it ignores; "accuracy" of scores; "accuracy(axis=none),rmse" of truths; "rmse,mae" of numbers; "loss" of
// a loss of one's own. "accuracy,cross-entropy" where there is no loss.
std::string DefaultMetrics(const Symbol& symbol);

}  // namespace bindery
