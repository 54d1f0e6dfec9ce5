#include "train/optimizers/multipliers.h"

#include <charconv>
#include <cmath>

#include "base/error.h"

namespace bindery {

Multipliers MultipliersOf(const std::string& parameter, const Annotations& annotations) {
  Multipliers result;
  if (!parameter.ends_with("_weight") && !parameter.ends_with("_gamma")) result.wd = 0;
  const auto read = [&](const char* key, double* value) {
    const auto found = annotations.find(key);
    if (found == annotations.end()) return;
    const std::string& text = found->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
    if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(*value) || *value < 0) {
      Throw<ModelError>("parameter \"{}\", annotation \"{}\": expected a number >= 0, got \"{}\"", parameter, key,
                        text);
    }
  };
  read("lr_mult", &result.lr);
  read("wd_mult", &result.wd);
  return result;
}

}  // namespace bindery
