#include "train/loop/trigger.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/files.h"
#include "train/metrics/metric_kinds.h"

namespace bindery {
namespace {

void CheckPeriod(double period) {
  if (!(period > 0)) Throw("a trigger's period: expected more than 0, got {}", period);
}

// Whole periods in `passed`. A position in the data is a quotient: 3 / 10 is three times 0.1, whatever the last bit
// says.
double Periods(double passed, double period) { return std::floor(passed / period + 1e-9); }

template <class T>
bool PassesOne(const std::vector<T>& points, T previous, T now) {
  return std::ranges::any_of(points, [&](T point) { return previous < point && point <= now; });
}

// Forgets what a rule remembers of another value: a resumed run may judge by this one now.
void ForgetOthers(const std::string& name, const Trigger::Memory& memory) {
  // A number that tells names apart, and is the same as a double.
  const auto hash = static_cast<uint32_t>(Checksum(name.data(), std::ssize(name)));
  double& known = memory["value"];
  if (known != 0 && known != hash) {
    for (const char* of_it : {"sum", "weight", "last", "any", "known", "has best", "best", "waited"}) memory[of_it] = 0;
  }
  known = hash;
}

[[noreturn]] void RefuseUnknown(const std::string& name, const Observation& observation) {
  std::vector<std::string> names;
  for (const auto& [reported, value] : observation.values()) names.push_back(reported);
  // All of them: Keras's "val/accuracy" is nearer to "train/accuracy" than to "validation/accuracy".
  Throw("a trigger waits for \"{}\", which nothing has reported by the end of an epoch; known: {}", name,
        fmt::join(names, ", "));
}

// Adds what is reported to a mean in the memory, and takes it when the check is due: no value until then.
std::optional<double> MeanAtCheck(const std::string& name, const Trigger::Rule& check, const Moment& moment,
                                  const Observation& observation, const Trigger::Memory& memory) {
  const Observation::Value* const value = observation.Find(name);
  double &sum = memory["sum"], &weight = memory["weight"], &last = memory["last"], &any = memory["any"];
  double& known = memory["known"];
  if (value) {
    any = known = 1;
    sum += value->value * value->weight;
    weight += value->weight;
    last = value->value;
  }
  if (!check(moment, observation, memory.In("check"))) return std::nullopt;
  if (any == 0) {
    if (moment.is_new_epoch && known == 0) RefuseUnknown(name, observation);
    return std::nullopt;
  }
  const double mean = weight > 0 ? sum / weight : last;
  sum = weight = last = any = 0;
  return mean;
}

// Is it the best so far? Then it is kept.
bool KeepIfBest(double value, bool larger, const Trigger::Memory& memory) {
  double &has_best = memory["has best"], &best = memory["best"];
  if (!IsBetter(value, has_best != 0 ? std::optional(best) : std::nullopt, larger)) return false;
  has_best = 1;
  best = value;
  return true;
}

Trigger AtBest(const std::string& value, Trigger check, bool larger) {
  return Trigger([=](const Moment& moment, const Observation& observation, const Trigger::Memory& memory) {
    ForgetOthers(value, memory);
    const std::optional<double> mean = MeanAtCheck(value, check.rule(), moment, observation, memory);
    return mean && KeepIfBest(*mean, larger, memory);
  });
}

}  // namespace

bool IsBetter(double value, std::optional<double> best, bool larger) {
  return std::isfinite(value) && !(best && (larger ? *best >= value : *best <= value));
}

bool LargerIsBetter(const std::string& metric, Better better) {
  if (better != Better::kAuto) return better == Better::kLarger;
  const std::string name = metric.substr(metric.rfind('/') + 1);
  return std::ranges::any_of(MetricKinds(), [&](const MetricKind& kind) {
    return kind.larger_is_better && name.starts_with(kind.values_begin);
  });
}

Trigger EveryIterations(int64_t period) {
  CheckPeriod(static_cast<double>(period));
  return Trigger([=](const Moment& moment, const Observation&, const Trigger::Memory&) {
    return moment.iteration / period > moment.previous_iteration / period;
  });
}

Trigger EveryEpochs(double period) {
  CheckPeriod(period);
  return Trigger([=](const Moment& moment, const Observation&, const Trigger::Memory&) {
    return Periods(moment.epoch_detail, period) > Periods(moment.previous_epoch_detail, period);
  });
}

Trigger EverySeconds(double period) {
  CheckPeriod(period);
  return Trigger([=](const Moment& moment, const Observation&, const Trigger::Memory& memory) {
    double& periods = memory["periods"];
    const double passed = Periods(moment.seconds, period);
    const bool due = passed > periods;
    periods = passed;
    return due;
  });
}

Trigger AtIterations(std::vector<int64_t> points) {
  return Trigger([=](const Moment& moment, const Observation&, const Trigger::Memory&) {
    return PassesOne(points, moment.previous_iteration, moment.iteration);
  });
}

Trigger AtEpochs(std::vector<double> points) {
  return Trigger([=](const Moment& moment, const Observation&, const Trigger::Memory&) {
    return PassesOne(points, moment.previous_epoch_detail, moment.epoch_detail);
  });
}

Trigger Always() {
  return Trigger([](const Moment&, const Observation&, const Trigger::Memory&) { return true; });
}

Trigger Never() {
  return Trigger([](const Moment&, const Observation&, const Trigger::Memory&) { return false; });
}

Trigger Once(Trigger trigger) {
  return Trigger([=](const Moment& moment, const Observation& observation, const Trigger::Memory& memory) {
    if (memory["done"] != 0 || !trigger.rule()(moment, observation, memory.In("once"))) return false;
    memory["done"] = 1;
    return true;
  });
}

Trigger Either(Trigger a, Trigger b) {
  return Trigger([=](const Moment& moment, const Observation& observation, const Trigger::Memory& memory) {
    const bool first = a.rule()(moment, observation, memory.In("a"));
    return b.rule()(moment, observation, memory.In("b")) || first;
  });
}

Trigger AtMaximum(const std::string& value, Trigger check) { return AtBest(value, std::move(check), true); }
Trigger AtMinimum(const std::string& value, Trigger check) { return AtBest(value, std::move(check), false); }

Trigger EarlyStopping(EarlyStoppingOptions options) {
  if (options.patience < 1) Throw("early stopping: expected a patience of at least 1, got {}", options.patience);
  const bool larger = LargerIsBetter(options.value, options.better);
  return Trigger([=](const Moment& moment, const Observation& observation, const Trigger::Memory& memory) {
    ForgetOthers(options.value, memory);
    double& waited = memory["waited"];
    const auto patience = static_cast<double>(options.patience);
    if (waited >= patience) return true;
    const std::optional<double> mean = MeanAtCheck(options.value, options.check.rule(), moment, observation, memory);
    if (!mean) return false;
    waited = KeepIfBest(*mean, larger, memory) ? 0 : waited + 1;
    return waited >= patience;
  });
}

}  // namespace bindery
