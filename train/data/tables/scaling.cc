#include "train/data/tables/scaling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.h"

namespace bindery {
namespace {

// In float64, of `table` itself or of what it becomes in `kept`.
std::span<const double> ValuesOf(const HostTensor& table, HostTensor* kept) {
  if (table.dtype() == DType::kFloat64) return table.data<double>();
  *kept = table.Cast(DType::kFloat64);
  return std::as_const(*kept).data<double>();
}

// The mean and the deviation, by two passes: what the mean was rounded by is far below the values' differences.
struct Moments {
  double mean = 0, deviation = 0;
};

Moments MomentsOf(std::span<const double> values) {
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  const double mean = sum / static_cast<double>(values.size());
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, std::sqrt(squares / static_cast<double>(values.size()))};
}

}  // namespace

ColumnScaling MeasureColumns(const HostTensor& table, ColumnScale scale, std::span<const int64_t> rows) {
  ColumnScaling scaling{.scale = scale};
  if (scale == ColumnScale::kNone) return scaling;
  if (rows.empty()) Throw<DataError>("there is no row to train on, of which columns could be scaled");
  const int64_t columns = table.shape()[1];
  HostTensor kept;
  const std::span<const double> all = ValuesOf(table, &kept);
  std::vector<double> values;  // of a column, those that are there
  for (int64_t column = 0; column < columns; ++column) {
    values.clear();
    for (const int64_t row : rows) {
      const double value = all[static_cast<size_t>(row * columns + column)];
      if (!std::isnan(value)) values.push_back(value);
    }
    if (values.empty()) values.push_back(0);
    const auto [smallest, largest] = std::ranges::minmax(values);
    if (scale == ColumnScale::kRange) {
      scaling.first.push_back(smallest);
      scaling.second.push_back(largest);
      continue;
    }
    // A mean that is rounded would give a constant column some deviation.
    const Moments moments = smallest == largest ? Moments{smallest, 0} : MomentsOf(values);
    scaling.first.push_back(moments.mean);
    scaling.second.push_back(moments.deviation);
  }
  return scaling;
}

void CheckScaling(const ColumnScaling& scaling) {
  const bool standard = scaling.scale == ColumnScale::kStandard;
  const char *const first = standard ? "mean" : "min", *const second = standard ? "std" : "max";
  if (scaling.first.size() != scaling.second.size()) {
    Throw<DataError>("\"{}\" and \"{}\": expected a number in each for every column, got {} and {}", first, second,
                     scaling.first.size(), scaling.second.size());
  }
  for (size_t i = 0; i < scaling.first.size(); ++i) {
    const double from = scaling.first[i], to = scaling.second[i];
    const bool fits = standard ? to >= 0 : std::isfinite(to - from) && to >= from;
    if (std::isfinite(from) && std::isfinite(to) && fits) continue;
    Throw<DataError>("\"{}\" and \"{}\": column {} has {} and {}; expected {}", first, second, i, from, to,
                     standard ? "finite numbers, no deviation below 0" : "finite numbers in order, not too far apart");
  }
}

HostTensor ScaleColumns(const ColumnScaling& scaling, const HostTensor& table, std::optional<float> missing) {
  const bool scales = scaling.scale != ColumnScale::kNone;
  const Shape& shape = table.shape();
  if (scales) CheckScaling(scaling);
  if (scales && (shape.rank() != 2 || shape[1] != std::ssize(scaling.first))) {
    Throw<DataError>(
        "columns are scaled by numbers for {}, but there are {} of rows {}: other columns than those that "
        "the model was trained on, or damaged numbers; in a training, measure=1 takes numbers of these",
        scaling.first.size(), shape.rank() == 2 ? shape[1] : 0, shape);
  }
  HostTensor kept, result(DType::kFloat32, shape);
  const std::span<const double> values = ValuesOf(table, &kept);
  const std::span<float> scaled = result.data<float>();
  const size_t columns = std::max<size_t>(1, scaling.first.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) {
      scaled[i] = missing.value_or(std::numeric_limits<float>::quiet_NaN());
      continue;
    }
    double value = values[i];
    if (scales) {
      const double from = scaling.first[i % columns], to = scaling.second[i % columns];
      const double unit = scaling.scale == ColumnScale::kRange ? to - from : to;
      value = unit > 0 ? (value - from) / unit : 0;
    }
    scaled[i] = static_cast<float>(value);
    if (std::isfinite(scaled[i])) continue;
    if (!scales) Throw<DataError>("element {}: {} is no finite float32", i, values[i]);
    Throw<DataError>("row {}, column {}: {} is too far from the values that scale is computed of", i / columns,
                     i % columns, values[i]);
  }
  return result;
}

}  // namespace bindery
