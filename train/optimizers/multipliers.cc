#include "train/optimizers/multipliers.h"

#include <cmath>
#include <string_view>

#include "base/error.h"
#include "base/parse_number.h"

namespace bindery {

namespace {

// "fc1_weight", "bn1_gamma"; PyTorch's "fc.weight", "weight", "lstm.weight_ih_l0"; Keras's "dense/kernel:0".
bool IsWeight(std::string_view name) {
  if (name.ends_with(":0")) name.remove_suffix(2);
  name.remove_prefix(name.find_last_of("./") + 1);  // npos + 1 is 0
  if (name.starts_with("weight_")) return true;
  name.remove_prefix(name.rfind('_') + 1);
  return name == "weight" || name == "gamma" || name == "kernel";
}

}  // namespace

Multipliers MultipliersOf(const std::string& parameter, const Annotations& annotations) {
  Multipliers result;
  if (!IsWeight(parameter)) result.wd = 0;
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
