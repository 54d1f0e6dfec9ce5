#include "engine/kernels/update.h"

#include <algorithm>

#include "engine/kernels/flat.h"

namespace bindery::flat {

bool AllGood(StepStatuses statuses) {
  return std::ranges::all_of(statuses, [](const StepStatus* status) { return status->kind == StepStatus::kGood; });
}

void CheckFinite(DType dtype, const void* in, int64_t n, int64_t place, int64_t first, StepStatus* status) {
  if (status->kind != StepStatus::kGood || AllFinite(dtype, in, n)) return;
  const int64_t width = SizeOf(dtype);
  const auto at = [&](int64_t i) { return static_cast<const char*>(in) + i * width; };
  int64_t begin = 0;  // the first is in begin..begin+n-1
  while (n > 1) {
    const int64_t half = n / 2;
    if (AllFinite(dtype, at(begin), half)) {
      begin += half;
      n -= half;
    } else {
      n = half;
    }
  }
  double value = 0;
  Cast(dtype, at(begin), DType::kFloat64, &value, 1);
  *status = {.kind = StepStatus::kNotFinite, .place = place, .element = first + begin, .value = value};
}

void Update(const DeviceUpdate& update, const StepRates& rates, int64_t committed) {
  UpdateArgs args = update.args;
  args.step = rates.step;
  args.learning_rate *= rates.learning_rate;
  args.rescale *= rates.rescale;
  const size_t count = static_cast<size_t>(update.num_states);
  const auto& from = update.states[committed % 2];
  const auto& to = update.states[1 - committed % 2];
  update.kernel(update.dtype, args,
                {.gradients = {&update.gradient, 1},
                 .weight = update.weight,
                 .new_weight = update.new_weight,
                 .states = {from.data(), count},
                 .new_states = {to.data(), count},
                 .elements = update.elements});
}

}  // namespace bindery::flat
