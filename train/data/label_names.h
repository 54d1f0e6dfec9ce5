// What the labels of data are called whose labels are numbers (train/data/open.h: label_kind=numbers).
#pragma once

#include <string>
#include <vector>

namespace bindery {

// The text of data that is opened so, if its labels may be numbers and it does not say what they are: "csv:a.csv" ->
// "csv:a.csv?label_kind=numbers".
std::string WithNumbersAsLabels(const std::string& text);

// One for each label: the columns' names of csv:FILE, empty texts where they have none; of other data none. Throws
// DataError.
std::vector<std::string> LabelNames(const std::string& text);

}  // namespace bindery
