#include "train/optimizers/multipliers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "base/names.h"
#include "base/parse_number.h"
#include "executor/group/options.h"

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

Multipliers MultipliersOf(const std::string& parameter, const Annotations& annotations, const MultiplierList& list) {
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
  for (auto entry = list.rbegin(); entry != list.rend(); ++entry) {
    if (!FitsPattern(parameter, entry->names)) continue;
    result.lr = entry->lr.value_or(result.lr);
    result.wd = entry->wd.value_or(result.wd);
  }
  return result;
}

void CheckMultipliers(const MultiplierList& list, const std::vector<std::string>& parameters) {
  for (const NamedMultipliers& entry : list) {
    if (std::ranges::none_of(parameters, [&](const auto& name) { return FitsPattern(name, entry.names); })) {
      Throw("multipliers: \"{}\" fits no parameter{}", entry.names, NameHint(entry.names, parameters));
    }
    for (const double factor : {entry.lr.value_or(1), entry.wd.value_or(1)}) {
      if (std::isfinite(factor) && factor >= 0) continue;
      Throw("multipliers of \"{}\": expected a number >= 0, got {}", entry.names, factor);
    }
  }
}

std::string ToText(const MultiplierList& list) {
  std::string text;
  for (const NamedMultipliers& entry : list) {
    text += fmt::format("{}{}:", text.empty() ? "" : ", ", entry.names);
    if (entry.lr) text += fmt::format(" lr={}", *entry.lr);
    if (entry.wd) text += fmt::format(" wd={}", *entry.wd);
  }
  return text;
}

}  // namespace bindery
