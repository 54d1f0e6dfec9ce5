#include "train/data/tables/class_labels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace bindery {

int64_t CheckClasses(const HostTensor& labels, int64_t known, const std::string& name) {
  int64_t classes = 0;
  for (int64_t i = 0; i < labels.elements(); ++i) {
    const double label = labels.At(i);
    const int64_t most = known > 0 ? known : kMostClasses;
    if (!(label >= 0 && label < static_cast<double>(most)) || std::floor(label) != label) {
      Throw<DataError>(
          "{}: label {} is {}, expected a class, a whole number from 0 to {}; label_kind=numbers takes others", name, i,
          label, most - 1);
    }
    classes = std::max(classes, static_cast<int64_t>(label) + 1);
  }
  return known > 0 ? known : classes;
}

std::optional<HostTensor> FromOneHot(const HostTensor& labels) {
  const Shape& shape = labels.shape();
  if (shape.rank() != 2 || shape[1] < 2) return std::nullopt;
  HostTensor numbers(DType::kFloat32, {shape[0]});
  for (int64_t i = 0; i < shape[0]; ++i) {
    int64_t ones = 0;
    for (int64_t k = 0; k < shape[1]; ++k) {
      const double value = labels.At(i * shape[1] + k);
      if (value == 0) continue;
      if (value != 1 || ++ones > 1) return std::nullopt;
      numbers.Set(i, static_cast<double>(k));
    }
    if (ones == 0) return std::nullopt;
  }
  return numbers;
}

}  // namespace bindery
