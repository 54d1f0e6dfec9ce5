// Columns of words: of each, its categories, which a model sees as so many columns of 0 and 1 ("one hot"). Which there
// are, and in which order, is that of the rows that a model is trained on, and goes with the model. A word that is none
// of them is 0 in all of its columns.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/host_tensor.h"

namespace bindery {

struct ColumnCategories {
  int64_t place = 0;  // of the column, among the features
  std::vector<std::string> values = {};

  static constexpr double kNone = -1;
  double NumberOf(std::string_view value) const;  // its place in `values`, or kNone
  bool operator==(const ColumnCategories&) const = default;
};

inline constexpr int64_t kMostCategories = 1024;  // of a column

// In the order in which they are numbered, names of classes among them: that of the numbers that they are, if all are
// whole ones, else that of their bytes.
void SortNames(std::vector<std::string>* names);

// How many columns rows of so many features become.
int64_t ColumnsWith(std::span<const ColumnCategories> categories, int64_t features);
// Of rows (N, features), which have the number of a category in its place, as NumberOf gives it: rows of that many
// columns, float64. The others are as they are, and in order. Throws DataError for a place that rows do not have.
HostTensor ExpandCategories(std::span<const ColumnCategories> categories, const HostTensor& rows);
// Of each column that these rows have then: is it one of a category?
std::vector<bool> AreOfCategories(std::span<const ColumnCategories> categories, int64_t features);

}  // namespace bindery
