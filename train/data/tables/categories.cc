#include "train/data/tables/categories.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "train/data/tables/csv_field.h"

namespace bindery {

double ColumnCategories::NumberOf(std::string_view value) const {
  const auto found = std::ranges::find(values, value);
  return found == values.end() ? kNone : static_cast<double>(found - values.begin());
}

void SortNames(std::vector<std::string>* names) {
  std::ranges::sort(*names);
  const auto whole = [](const std::string& text) { return csv::Parse<int64_t>(text); };
  if (!std::ranges::all_of(*names, [&](const std::string& name) { return whole(name).has_value(); })) return;
  std::ranges::stable_sort(*names, {}, [&](const std::string& name) { return *whole(name); });
}

int64_t ColumnsWith(std::span<const ColumnCategories> categories, int64_t features) {
  for (const ColumnCategories& one : categories) features += std::ssize(one.values) - 1;
  return features;
}

HostTensor ExpandCategories(std::span<const ColumnCategories> categories, const HostTensor& rows) {
  const Shape& shape = rows.shape();
  if (shape.rank() != 2) Throw<DataError>("expected rows of features, got {}", shape);
  const int64_t features = shape[1];
  std::vector<const ColumnCategories*> at(static_cast<size_t>(features));
  for (const ColumnCategories& one : categories) {
    if (one.place < 0 || one.place >= features) {
      Throw<DataError>("there are categories of feature {}, from 0, but rows are {}", one.place, shape);
    }
    at[static_cast<size_t>(one.place)] = &one;
  }
  const HostTensor from = rows.Cast(DType::kFloat64);
  HostTensor to(DType::kFloat64, {shape[0], ColumnsWith(categories, features)});  // zeros
  const std::span<const double> values = from.data<double>();
  const std::span<double> expanded = to.data<double>();
  size_t next = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const ColumnCategories* const one = at[i % at.size()];
    if (one == nullptr) {
      expanded[next++] = values[i];
      continue;
    }
    const auto count = static_cast<double>(one->values.size());
    if (values[i] >= 0 && values[i] < count && std::floor(values[i]) == values[i]) {
      expanded[next + static_cast<size_t>(values[i])] = 1;
    }
    next += one->values.size();
  }
  return to;
}

std::vector<bool> AreOfCategories(std::span<const ColumnCategories> categories, int64_t features) {
  std::vector<bool> are;
  for (int64_t place = 0; place < features; ++place) {
    const auto found = std::ranges::find(categories, place, &ColumnCategories::place);
    if (found == categories.end())
      are.push_back(false);
    else
      are.insert(are.end(), found->values.size(), true);
  }
  return are;
}

}  // namespace bindery
