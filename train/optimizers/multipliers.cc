#include "train/optimizers/multipliers.h"

#include <cmath>

#include "base/error.h"
#include "base/parse_number.h"

namespace bindery {

Multipliers MultipliersOf(const std::string& parameter, const Annotations& annotations) {
  Multipliers result;
  if (!parameter.ends_with("_weight") && !parameter.ends_with("_gamma")) result.wd = 0;
  const auto read = [&](const char* key, double* value) {
    const auto found = annotations.find(key);
    if (found == annotations.end()) return;
    const std::string& text = found->second;
    const std::optional<double> number = ParseNumber<double>(text);
    if (!number || !std::isfinite(*number) || *number < 0) {
      Throw<ModelError>("parameter \"{}\", annotation \"{}\": expected a number >= 0, got \"{}\"", parameter, key,
                        text);
    }
    *value = *number;
  };
  read("lr_mult", &result.lr);
  read("wd_mult", &result.wd);
  return result;
}

}  // namespace bindery
