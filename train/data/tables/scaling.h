// Columns of numbers brought to one scale, so that none counts for more because its unit is small. The numbers that it
// takes are those of the rows that a model is trained on, and go with the model: all others are scaled by the same.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/host_tensor.h"

namespace bindery {

enum class ColumnScale {
  kNone,
  kStandard,  // less the mean, over the standard deviation (of n values, not of n - 1)
  kRange,     // from the smallest value, 0, to the largest, 1; values of other rows may lie outside
};

struct ColumnScaling {
  ColumnScale scale = ColumnScale::kNone;
  // One number for each column. Of kStandard its mean and its deviation, of kRange its smallest and its largest value.
  // A deviation of 0, or a smallest value that is the largest, is that of a column that is scaled to 0 everywhere.
  std::vector<double> first = {}, second = {};
  bool IsMeasured() const { return !first.empty() || !second.empty(); }
  bool operator==(const ColumnScaling&) const = default;
};

// Of those rows of `table`, (rows, columns) of any dtype, and of their values that are no NaN; a column that has none
// counts as constant. Throws DataError if there are no rows.
ColumnScaling MeasureColumns(const HostTensor& table, ColumnScale scale, std::span<const int64_t> rows);

// Throws DataError unless the numbers, and how far they are apart, are finite, in order and as many of one kind as of
// the other.
void CheckScaling(const ColumnScaling& scaling);

// The rows as a model takes them, float32 (rows, columns), of such rows of any dtype: float64 ones are scaled before
// they are rounded, so seconds since 1970 still differ. NaN becomes `missing`, without one it stays. Throws DataError
// as CheckScaling, for other numbers of columns, and for values that are no finite numbers when they are scaled.
HostTensor ScaleColumns(const ColumnScaling& scaling, const HostTensor& table, std::optional<float> missing = {});

}  // namespace bindery
