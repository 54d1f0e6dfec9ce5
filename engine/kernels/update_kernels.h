// The kernels of the built-in update rules for host memory. Here for all that want them: they take long to compile.
#pragma once

#include <cstddef>
#include <span>
#include <tuple>
#include <type_traits>

#include "engine/kernels/update.h"
#include "engine/kernels/update_rules.h"

namespace bindery {

// In the order of update_rules::All; null: the rule needs no norms.
std::span<const UpdateKernel> UpdateKernels();
std::span<const MeasureKernel> MeasureKernels();

template <class Rule>
UpdateKernel BuiltInKernelOf() {
  constexpr size_t kPlace = []<class... Rules>(std::type_identity<std::tuple<Rules...>>) {
    size_t place = 0;
    (void)((std::is_same_v<Rules, Rule> || (++place, false)) || ...);
    return place;
  }(std::type_identity<update_rules::All>());
  static_assert(kPlace < std::tuple_size_v<update_rules::All>, "a rule of update_rules::All");
  return UpdateKernels()[kPlace];
}

}  // namespace bindery
