#include "train/optimizers/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/error.h"
#include "base/names.h"
#include "base/parse_number.h"
#include "base/split_text.h"
#include "train/call_text.h"

namespace bindery {
namespace {

class Constant final : public Schedule {
 public:
  Constant(double base, const Warmup& warmup) : Schedule(base, warmup) {}

 private:
  double AfterWarmup(int64_t) const override { return base(); }
  CallPrinter Print() const override { return CallPrinter("constant"); }
};

struct SettingCheck {
  const char* schedule;
  template <class T>
  void operator()(bool good, const char* what, const T& got) const {
    if (!good) Throw("schedule \"{}\": {}, got {}", schedule, what, got);
  }
};

class Factor final : public Schedule {
 public:
  Factor(double base, const FactorOptions& options, const Warmup& warmup) : Schedule(base, warmup), options_(options) {
    const SettingCheck check{"factor"};
    check(options.step >= 1, "step must be >= 1", options.step);
    check(options.factor > 0 && options.factor <= 1, "factor must be in (0, 1]", options.factor);
    check(options.floor >= 0, "floor must be >= 0", options.floor);
  }

 private:
  double AfterWarmup(int64_t step) const override {
    const int64_t drops = std::max<int64_t>(step - 1, 0) / options_.step;
    return std::max(std::min(options_.floor, base()), base() * std::pow(options_.factor, static_cast<double>(drops)));
  }
  CallPrinter Print() const override {
    return CallPrinter("factor")
        .Add("step", fmt::format("{}", options_.step))
        .Add("factor", options_.factor)
        .Add("floor", options_.floor);
  }
  const FactorOptions options_;
};

class Steps final : public Schedule {
 public:
  Steps(double base, StepsOptions options, const Warmup& warmup)
      : Schedule(base, warmup), options_(std::move(options)) {
    const SettingCheck check{"steps"};
    if (options_.at.empty()) Throw("schedule \"steps\": `at` is empty");
    for (size_t i = 0; i < options_.at.size(); ++i) {
      check(options_.at[i] >= 1, "steps must be >= 1", options_.at[i]);
      if (i > 0 && options_.at[i] <= options_.at[i - 1]) {
        Throw("schedule \"steps\": steps must increase, got {} after {}", options_.at[i], options_.at[i - 1]);
      }
    }
    check(options_.factor > 0 && options_.factor <= 1, "factor must be in (0, 1]", options_.factor);
  }

 private:
  double AfterWarmup(int64_t step) const override {
    const auto drops = std::lower_bound(options_.at.begin(), options_.at.end(), step) - options_.at.begin();
    return base() * std::pow(options_.factor, static_cast<double>(drops));
  }
  CallPrinter Print() const override {
    std::string at;
    for (const int64_t step : options_.at) at += fmt::format("{}{}", at.empty() ? "" : ";", step);
    return CallPrinter("steps").Add("at", at).Add("factor", options_.factor);
  }
  const StepsOptions options_;
};

// From the base at the end of the warm-up to `final` at step `max`; by epochs, which are long, to `final` behind epoch
// `max`, and not before the first one.
class Decay final : public Schedule {
 public:
  Decay(bool cosine, double base, const DecayOptions& options, const Warmup& warmup)
      : Schedule(base, warmup), cosine_(cosine), options_(options) {
    const char* name = cosine ? "cosine" : "poly";
    if (options.max < 1 || options.max <= warmup.steps) {
      Throw("schedule \"{}\": max must be >= 1 and more than the {} steps of the warm-up, got {}", name, warmup.steps,
            options.max);
    }
    if (!(options.final >= 0 && options.final <= base)) {
      Throw("schedule \"{}\": final must be between 0 and the base {}, got {}", name, base, options.final);
    }
    SettingCheck{name}(options.power > 0, "power must be > 0", options.power);
  }

 private:
  double AfterWarmup(int64_t step) const override {
    const int64_t begin = warmup().by_epoch ? std::max<int64_t>(warmup().steps, 1) : warmup().steps;
    const int64_t end = options_.max + (warmup().by_epoch ? 1 : 0);
    const double done = static_cast<double>(std::min(step, end) - begin) / static_cast<double>(end - begin);
    const double rest = cosine_ ? (1 + std::cos(std::numbers::pi * done)) / 2 : std::pow(1 - done, options_.power);
    return options_.final + (base() - options_.final) * rest;
  }
  CallPrinter Print() const override {
    CallPrinter printer(cosine_ ? "cosine" : "poly");
    printer.Add("max", fmt::format("{}", options_.max));
    if (!cosine_) printer.Add("power", options_.power);
    return printer.Add("final", options_.final);
  }
  const bool cosine_;
  const DecayOptions options_;
};

// Up to the base and down again.
class OneCycle final : public Schedule {
 public:
  OneCycle(double base, const OneCycleOptions& options) : Schedule(base, {}), options_(options) {
    const SettingCheck check{"one_cycle"};
    check(options.rise > 0 && options.rise < 1, "rise must be in (0, 1)", options.rise);
    check(options.rise * static_cast<double>(options.max) > 1, "max must be so many steps that more than one rises",
          options.max);
    check(options.start >= 1 && std::isfinite(options.start), "start must be >= 1", options.start);
    check(options.end >= 1 && std::isfinite(options.end), "end must be >= 1", options.end);
  }

 private:
  double AfterWarmup(int64_t step) const override {
    const double first = base() / options_.start, max = static_cast<double>(options_.max);
    const double top = options_.rise * max - 1, at = std::clamp(static_cast<double>(step) - 1, 0.0, max - 1);
    return at <= top ? Between(first, base(), at / top)
                     : Between(base(), first / options_.end, (at - top) / (max - 1 - top));
  }
  double Between(double from, double to, double part) const {
    if (options_.curve == CycleCurve::kLinear) return from + (to - from) * part;
    return to + (from - to) / 2 * (1 + std::cos(std::numbers::pi * part));
  }
  CallPrinter Print() const override {
    return CallPrinter("one_cycle")
        .Add("max", fmt::format("{}", options_.max))
        .Add("rise", options_.rise)
        .Add("start", options_.start)
        .Add("end", options_.end)
        .Add("curve", options_.curve == CycleCurve::kCosine ? "cosine" : "linear");
  }
  const OneCycleOptions options_;
};

class Plateau final : public Schedule {
 public:
  Plateau(double base, const PlateauOptions& options, const Warmup& warmup)
      : Schedule(base, warmup), options_(options) {
    const SettingCheck check{"plateau"};
    check(options.factor > 0 && options.factor < 1, "factor must be in (0, 1)", options.factor);
    check(options.patience >= 0, "patience must be >= 0", options.patience);
    check(options.cooldown >= 0, "cooldown must be >= 0", options.cooldown);
    check(options.threshold >= 0 && std::isfinite(options.threshold), "threshold must be >= 0", options.threshold);
    check(options.floor >= 0 && options.floor <= base, "floor must be between 0 and the base", options.floor);
  }

  bool by_epoch() const override { return true; }
  ScheduleState Judge(double value, bool larger_is_better, const ScheduleState& before) const override {
    ScheduleState state = before;
    if (IsBetter(value, larger_is_better, state.best)) {
      state.best = value;
      state.waited = 0;
    } else {
      ++state.waited;
    }
    if (state.cooling > 0) {
      --state.cooling;
      state.waited = 0;
    }
    if (state.waited > options_.patience) {
      state.factor *= options_.factor;
      state.cooling = options_.cooldown;
      state.waited = 0;
    }
    return state;
  }

 private:
  bool IsBetter(double value, bool larger_is_better, const std::optional<double>& best) const {
    if (!best) return !std::isnan(value);
    const double sign = larger_is_better ? 1 : -1;
    const double limit =
        options_.relative ? *best * (1 + sign * options_.threshold) : *best + sign * options_.threshold;
    return larger_is_better ? value > limit : value < limit;
  }
  double AfterWarmup(int64_t) const override { return base(); }
  double After(double rate, const ScheduleState& state) const override {
    return std::max(rate * state.factor, std::min(rate, options_.floor));
  }
  CallPrinter Print() const override {
    return CallPrinter("plateau")
        .Add("factor", options_.factor)
        .Add("patience", fmt::format("{}", options_.patience))
        .Add("threshold", options_.threshold)
        .Add("cooldown", fmt::format("{}", options_.cooldown))
        .Add("floor", options_.floor)
        .Add("mode", options_.relative ? "rel" : "abs");
  }
  const PlateauOptions options_;
};

std::vector<int64_t> ParseSteps(const CallText& call, const std::string& text) {
  std::vector<int64_t> steps;
  for (const std::string_view part : SplitText(text, ';')) {
    const auto step = ParseNumber<int64_t>(part);
    if (!step) call.Fail(fmt::format("\"at\" must be whole numbers like 15;25, got \"{}\"", text));
    steps.push_back(*step);
  }
  return steps;
}

}  // namespace

Schedule::Schedule(double base, const Warmup& warmup) : base_(base), warmup_(warmup) {
  if (!(base >= 0) || !std::isfinite(base)) Throw("a learning rate must be >= 0, got {}", base);
  if (warmup.steps < 0) Throw("a warm-up must have >= 0 steps, got {}", warmup.steps);
  if (!(warmup.begin >= 0 && warmup.begin <= base)) {
    Throw("a warm-up must begin between 0 and the base {}, got {}", base, warmup.begin);
  }
}

double Schedule::LearningRate(int64_t step, const ScheduleState& state) const {
  if (warmup_.by_epoch) step = state.epoch + 1;
  double rate = warmup_.begin;
  if (step >= warmup_.steps) {
    rate = AfterWarmup(step);
  } else if (warmup_.mode == WarmupMode::kLinear) {
    rate += (base_ - warmup_.begin) * static_cast<double>(step) / static_cast<double>(warmup_.steps);
  }
  return After(rate, state);
}

std::string Schedule::Text() const {
  CallPrinter printer = Print();
  printer.Add("base", base_);
  if (warmup_.steps > 0) {
    printer.Add("warmup", fmt::format("{}", warmup_.steps)).Add("warmup_begin", warmup_.begin);
    printer.Add("warmup_mode", warmup_.mode == WarmupMode::kLinear ? "linear" : "constant");
  }
  if (warmup_.by_epoch) printer.Add("unit", "epoch");
  return printer.Text();
}

SchedulePtr ConstantSchedule(double base, const Warmup& warmup) { return std::make_shared<Constant>(base, warmup); }
SchedulePtr FactorSchedule(double base, const FactorOptions& options, const Warmup& warmup) {
  return std::make_shared<Factor>(base, options, warmup);
}
SchedulePtr StepsSchedule(double base, const StepsOptions& options, const Warmup& warmup) {
  return std::make_shared<Steps>(base, options, warmup);
}
SchedulePtr PolySchedule(double base, const DecayOptions& options, const Warmup& warmup) {
  return std::make_shared<Decay>(false, base, options, warmup);
}
SchedulePtr CosineSchedule(double base, const DecayOptions& options, const Warmup& warmup) {
  return std::make_shared<Decay>(true, base, options, warmup);
}

SchedulePtr OneCycleSchedule(double base, const OneCycleOptions& options) {
  return std::make_shared<OneCycle>(base, options);
}
SchedulePtr PlateauSchedule(double base, const PlateauOptions& options, const Warmup& warmup) {
  return std::make_shared<Plateau>(base, options, warmup);
}

SchedulePtr ParseSchedule(std::string_view text, double base) {
  CallText call("schedule", text);
  // Which of two words? The first where none is given.
  const auto is_second = [&](const char* name, const char* first, const char* second) {
    const std::string word = call.Word(name).value_or(first);
    if (word != first && word != second) {
      call.Fail(fmt::format("{} must be {} or {}, got \"{}\"", name, first, second, word));
    }
    return word == second;
  };
  const auto declare = [&](std::vector<std::string> names) {
    for (const char* name : {"base", "warmup", "warmup_begin", "warmup_mode", "unit"}) names.emplace_back(name);
    call.Declare(std::move(names));
    base = call.Number("base").value_or(base);
    Warmup warmup{.steps = call.Integer("warmup").value_or(0), .begin = call.Number("warmup_begin").value_or(0)};
    if (is_second("warmup_mode", "linear", "constant")) warmup.mode = WarmupMode::kConstant;
    warmup.by_epoch = is_second("unit", "step", "epoch");
    return warmup;
  };
  const auto need = [&]<class T>(const char* name, std::optional<T> value) {
    if (!value) call.Fail(fmt::format("\"{}\" is missing", name));
    return *value;
  };
  const std::string& name = call.name();
  if (name == "constant") {
    const Warmup warmup = declare({});
    return ConstantSchedule(base, warmup);
  }
  if (name == "factor") {
    const Warmup warmup = declare({"step", "factor", "floor"});
    FactorOptions options{.step = need("step", call.Integer("step")), .factor = need("factor", call.Number("factor"))};
    options.floor = call.Number("floor").value_or(options.floor);
    return FactorSchedule(base, options, warmup);
  }
  if (name == "steps") {
    const Warmup warmup = declare({"at", "factor"});
    StepsOptions options{.at = ParseSteps(call, need("at", call.Word("at")))};
    options.factor = call.Number("factor").value_or(options.factor);
    return StepsSchedule(base, options, warmup);
  }
  if (name == "poly" || name == "cosine") {
    const bool cosine = name == "cosine";
    const Warmup warmup = cosine ? declare({"max", "final"}) : declare({"max", "power", "final"});
    DecayOptions options{.max = need("max", call.Integer("max"))};
    options.power = call.Number("power").value_or(options.power);
    options.final = call.Number("final").value_or(options.final);
    return cosine ? CosineSchedule(base, options, warmup) : PolySchedule(base, options, warmup);
  }
  if (name == "one_cycle") {
    const Warmup warmup = declare({"max", "rise", "start", "end", "curve"});
    if (warmup.steps != 0) call.Fail("it has its own warm-up, the part `rise`");
    if (warmup.by_epoch) call.Fail("it goes by steps");
    OneCycleOptions options{.max = need("max", call.Integer("max"))};
    options.rise = call.Number("rise").value_or(options.rise);
    options.start = call.Number("start").value_or(options.start);
    options.end = call.Number("end").value_or(options.end);
    if (is_second("curve", "cosine", "linear")) options.curve = CycleCurve::kLinear;
    return OneCycleSchedule(base, options);
  }
  if (name == "plateau") {
    const Warmup warmup = declare({"factor", "patience", "threshold", "cooldown", "floor", "mode"});
    PlateauOptions options;
    options.factor = call.Number("factor").value_or(options.factor);
    options.patience = call.Integer("patience").value_or(options.patience);
    options.threshold = call.Number("threshold").value_or(options.threshold);
    options.cooldown = call.Integer("cooldown").value_or(options.cooldown);
    options.floor = call.Number("floor").value_or(options.floor);
    options.relative = !is_second("mode", "rel", "abs");
    return PlateauSchedule(base, options, warmup);
  }
  const std::vector<std::string> known = {"constant", "factor", "steps", "poly", "cosine", "one_cycle", "plateau"};
  Throw("unknown schedule \"{}\"{}", name, NameHint(name, known));
}

}  // namespace bindery
