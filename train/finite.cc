#include "train/finite.h"

#include <fmt/format.h>

#include <cmath>

#include "engine/kernels/flat.h"

namespace bindery {

std::string FirstNotFinite(const HostTensorMap& values) {
  for (const auto& [name, tensor] : values) {
    if (flat::AllFinite(tensor.dtype(), tensor.raw(), tensor.elements())) continue;
    int64_t i = 0;
    while (std::isfinite(tensor.At(i))) ++i;
    return fmt::format("\"{}\", element {}, is {}", name, i, tensor.At(i));
  }
  return "";
}

void CheckFinite(const Checkpoint& checkpoint) {
  for (const HostTensorMap* values : {&checkpoint.model.params, &checkpoint.model.aux, &checkpoint.optimizer_state}) {
    const std::string bad = FirstNotFinite(*values);
    if (bad.empty()) continue;
    Throw<NumericError>(
        "after step {}, {}: training has diverged, nothing is saved; lower the learning rate or look at "
        "the data",
        checkpoint.step, bad);
  }
}

}  // namespace bindery
