#include "train/loss_scale.h"

#include <algorithm>

#include "base/error.h"
#include "base/names.h"
#include "train/call_text.h"

namespace bindery {
namespace {

const char* ToString(OnOverflow choice) { return choice == OnOverflow::kSkip ? "skip" : "retry"; }

void CheckScaling(const CallText& call, const LossScaling& s) {
  const auto check = [&](bool good, const char* what) {
    if (!good) call.Fail(what);
  };
  check(s.start > 0, "the scale must be > 0");
  check(s.start <= 0x1p53 && s.max <= 0x1p53, "a scale is at most 2^53");
  if (!s.dynamic) return;
  check(s.growth >= 1, "growth must be >= 1");
  check(s.backoff > 0 && s.backoff < 1, "backoff must be in (0, 1)");
  check(s.interval >= 1, "interval must be >= 1");
  check(s.min > 0 && s.min <= s.start && s.start <= s.max, "expected 0 < min <= start <= max");
  check(s.limit >= 0, "limit must be >= 0");
}

}  // namespace

std::string LossScaling::Text() const {
  if (!dynamic) return CallPrinter("static").Add("scale", start).Text();
  return CallPrinter("dynamic")
      .Add("start", start)
      .Add("growth", growth)
      .Add("backoff", backoff)
      .Add("interval", fmt::format("{}", interval))
      .Add("min", min)
      .Add("max", max)
      .Add("on_overflow", ToString(on_overflow))
      .Add("limit", fmt::format("{}", limit))
      .Text();
}

std::optional<LossScaling> ParseLossScaling(std::string_view text) {
  if (text.empty()) return std::nullopt;
  CallText call("loss scale", text);
  LossScaling scaling;
  if (call.name() == "static") {
    call.Declare({"scale"});
    const std::optional<double> scale = call.Number("scale");
    if (!scale) call.Fail("\"scale\" is missing");
    scaling.dynamic = false;
    scaling.start = *scale;
  } else if (call.name() == "dynamic") {
    call.Declare({"start", "growth", "backoff", "interval", "min", "max", "on_overflow", "limit"});
    scaling.start = call.Number("start").value_or(scaling.start);
    scaling.growth = call.Number("growth").value_or(scaling.growth);
    scaling.backoff = call.Number("backoff").value_or(scaling.backoff);
    scaling.interval = call.Integer("interval").value_or(scaling.interval);
    scaling.min = call.Number("min").value_or(std::min(scaling.min, scaling.start));
    scaling.max = call.Number("max").value_or(std::max(scaling.max, scaling.start));
    const std::string choice = call.Word("on_overflow").value_or(ToString(scaling.on_overflow));
    if (choice != "skip" && choice != "retry") {
      call.Fail(fmt::format("on_overflow must be skip or retry, got \"{}\"", choice));
    }
    if (choice == "retry") scaling.on_overflow = OnOverflow::kRetry;
    scaling.limit = call.Integer("limit").value_or(scaling.limit);
  } else {
    const std::vector<std::string> known = {"static", "dynamic"};
    Throw("unknown loss scale \"{}\"{}", call.name(), NameHint(call.name(), known));
  }
  CheckScaling(call, scaling);
  return scaling;
}

LossScaleState FirstState(const LossScaling& scaling) { return {.scale = scaling.start}; }

LossScaleState AfterCommit(const LossScaling& scaling, LossScaleState state) {
  state.overflows = 0;
  if (scaling.dynamic && ++state.good >= scaling.interval) {
    state.scale = std::min(state.scale * scaling.growth, scaling.max);
    state.good = 0;
  }
  return state;
}

LossScaleState AfterOverflow(const LossScaling& scaling, LossScaleState state) {
  if (++state.overflows > scaling.limit) {
    Throw<NumericError>("gradients were not finite in {} steps in a row, down to a loss scale of {}", state.overflows,
                        state.scale);
  }
  state.scale = std::max(state.scale * scaling.backoff, scaling.min);
  state.good = 0;
  return state;
}

}  // namespace bindery
