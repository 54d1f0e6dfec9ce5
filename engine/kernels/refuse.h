// What a step's refusals make of its status: on the host, and in a kernel of one thread (engine/cuda/step_body.h).
#pragma once

#include <cstdint>

#include "engine/kernels/update.h"

namespace bindery::flat {

// Unless none of `n` refusals is one or the status is of one already, it becomes that of the first: also where numbers
// were not finite, which may be what a kernel wrote in place of what it refused.
constexpr void RefuseFirst(const Refusal* refusals, int64_t n, StepStatus* status) {
  for (int64_t i = 0; i < n && status->kind != StepStatus::kRefused; ++i) {
    const auto [place, value] = refusals[i];
    if (!(place >= 0)) continue;
    *status = {.kind = StepStatus::kRefused, .place = i, .element = static_cast<int64_t>(place), .value = value};
  }
}

}  // namespace bindery::flat
