// --class-weights: how much labels of each class count in a training.
#pragma once

#include <string>
#include <vector>

#include "tools/cli/data.h"

namespace bindery::cli {

// Of what the option says: a number for each of so many classes; none for "none". `names` are those of the classes,
// where they have any. Throws UsageError; DataError for labels that cannot be counted.
std::vector<double> ParseClassWeights(const std::string& text, int64_t classes, const std::vector<std::string>& names,
                                      const LabelCounter& count);

}  // namespace bindery::cli
