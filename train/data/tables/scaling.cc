#include "train/data/tables/scaling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace bindery {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The mean and the deviation, by the plain two passes: sums of float32 values in float64 hold what they need.
struct Moments {
  double mean = 0, deviation = 0;
};

Moments MomentsOf(std::span<const float> values) {
  double sum = 0, squares = 0;
  for (const float value : values) sum += value;
  const double mean = sum / static_cast<double>(values.size());
  for (const float value : values) squares += (value - mean) * (value - mean);
  return {mean, std::sqrt(squares / static_cast<double>(values.size()))};
}

}  // namespace

ColumnScaling MeasureColumns(const HostTensor& table, ColumnScale scale, std::span<const int64_t> rows) {
  ColumnScaling scaling{.scale = scale};
  if (scale == ColumnScale::kNone) return scaling;
  if (rows.empty()) Throw<DataError>("there is no row to train on, of which columns could be scaled");
  const int64_t columns = table.shape()[1];
  const std::span<const float> all = table.data<float>();
  std::vector<float> values;  // of a column, those that are there
  for (int64_t column = 0; column < columns; ++column) {
    values.clear();
    for (const int64_t row : rows) {
      const float value = all[static_cast<size_t>(row * columns + column)];
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
    const double low = standard ? 0 : scaling.first[i];
    if (std::isfinite(scaling.first[i]) && scaling.second[i] >= low && scaling.second[i] < kInfinity) continue;
    Throw<DataError>("\"{}\" and \"{}\": column {} has {} and {}; expected {}", first, second, i, scaling.first[i],
                     scaling.second[i], standard ? "finite numbers, no deviation below 0" : "finite numbers in order");
  }
}

void ScaleColumns(const ColumnScaling& scaling, HostTensor* table) {
  if (scaling.scale == ColumnScale::kNone) return;
  CheckScaling(scaling);
  const Shape& shape = table->shape();
  if (shape.rank() != 2 || shape[1] != std::ssize(scaling.first)) {
    Throw<DataError>(
        "columns are scaled by numbers for {}, but there are {} of rows {}: other columns than those that "
        "the model was trained on, or damaged numbers",
        scaling.first.size(), shape.rank() == 2 ? shape[1] : 0, shape);
  }
  const auto columns = static_cast<size_t>(shape[1]);
  const std::span<float> values = table->data<float>();
  for (size_t i = 0; i < values.size(); ++i) {
    const double from = scaling.first[i % columns], to = scaling.second[i % columns];
    const double unit = scaling.scale == ColumnScale::kRange ? to - from : to;
    const float value = values[i];
    if (std::isnan(value)) continue;
    values[i] = unit > 0 ? static_cast<float>((value - from) / unit) : 0;
    if (std::isfinite(values[i])) continue;
    Throw<DataError>("row {}, column {}: {} is too far from the values that scale is computed of", i / columns,
                     i % columns, value);
  }
}

}  // namespace bindery
