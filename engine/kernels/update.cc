#include "engine/kernels/update.h"

#include <algorithm>

#include "engine/kernels/flat.h"
#include "engine/kernels/refuse.h"

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

void Refuse(const Refusal* refusals, int64_t n, StepStatus* status) { RefuseFirst(refusals, n, status); }

namespace {

UpdateArgs ArgsOf(const DeviceUpdate& update, const StepRates& rates) {
  UpdateArgs args = update.args;
  args.step = rates.step;
  args.learning_rate *= rates.learning_rate;
  args.rescale *= rates.rescale * (update.clip_factor ? *update.clip_factor : 1);
  if (update.squares) args.squares = *update.squares;
  return args;
}

UpdateArrays ArraysOf(const DeviceUpdate& update, int64_t committed) {
  const size_t count = static_cast<size_t>(update.num_states);
  return {.gradients = {&update.gradient, 1},
          .weight = update.weight,
          .new_weight = update.new_weight,
          .states = {update.states[committed % 2].data(), count},
          .new_states = {update.states[1 - committed % 2].data(), count},
          .elements = update.elements};
}

}  // namespace

void Update(const DeviceUpdate& update, const StepRates& rates, int64_t committed) {
  update.kernel(update.dtype, ArgsOf(update, rates), ArraysOf(update, committed));
}

UpdateSquares Measure(const DeviceUpdate& update, const StepRates& rates, int64_t committed) {
  return update.measure(update.dtype, ArgsOf(update, rates), ArraysOf(update, committed));
}

}  // namespace bindery::flat
