#include "train/optimizers/schedule.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/error.h"
#include "base/names.h"
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

class Factor final : public Schedule {
 public:
  Factor(double base, const FactorOptions& options, const Warmup& warmup) : Schedule(base, warmup), options_(options) {
    if (options.step < 1) Throw("schedule \"factor\": step must be >= 1, got {}", options.step);
    if (!(options.factor > 0 && options.factor <= 1))
      Throw("schedule \"factor\": factor must be in (0, 1], got {}", options.factor);
    if (!(options.floor >= 0)) Throw("schedule \"factor\": floor must be >= 0, got {}", options.floor);
  }

 private:
  double AfterWarmup(int64_t step) const override {
    const int64_t drops = std::max<int64_t>(step - 1, 0) / options_.step;
    return std::max(options_.floor, base() * std::pow(options_.factor, static_cast<double>(drops)));
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
    if (options_.at.empty()) Throw("schedule \"steps\": `at` is empty");
    for (size_t i = 0; i < options_.at.size(); ++i) {
      if (options_.at[i] < 1) Throw("schedule \"steps\": steps must be >= 1, got {}", options_.at[i]);
      if (i > 0 && options_.at[i] <= options_.at[i - 1]) {
        Throw("schedule \"steps\": steps must increase, got {} after {}", options_.at[i], options_.at[i - 1]);
      }
    }
    if (!(options_.factor > 0 && options_.factor <= 1))
      Throw("schedule \"steps\": factor must be in (0, 1], got {}", options_.factor);
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

// From the base at the end of the warm-up to `final` at step `max`.
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
    if (!(options.power > 0)) Throw("schedule \"{}\": power must be > 0, got {}", name, options.power);
  }

 private:
  double AfterWarmup(int64_t step) const override {
    const double range = static_cast<double>(options_.max - warmup().steps);
    const double done = static_cast<double>(std::min(step, options_.max) - warmup().steps) / range;
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

std::vector<int64_t> ParseSteps(const CallText& call, const std::string& text) {
  std::vector<int64_t> steps;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(';', begin), text.size());
    int64_t step = 0;
    const auto [rest, error] = std::from_chars(text.data() + begin, text.data() + end, step);
    if (error != std::errc() || rest != text.data() + end) {
      call.Fail(fmt::format("\"at\" must be whole numbers like 15;25, got \"{}\"", text));
    }
    steps.push_back(step);
    begin = end + 1;
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

double Schedule::LearningRate(int64_t step) const {
  if (step >= warmup_.steps) return AfterWarmup(step);
  if (warmup_.mode == WarmupMode::kConstant) return warmup_.begin;
  return warmup_.begin + (base_ - warmup_.begin) * static_cast<double>(step) / static_cast<double>(warmup_.steps);
}

std::string Schedule::Text() const {
  CallPrinter printer = Print();
  printer.Add("base", base_);
  if (warmup_.steps > 0) {
    printer.Add("warmup", fmt::format("{}", warmup_.steps)).Add("warmup_begin", warmup_.begin);
    printer.Add("warmup_mode", warmup_.mode == WarmupMode::kLinear ? "linear" : "constant");
  }
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

SchedulePtr ParseSchedule(std::string_view text, double base) {
  CallText call("schedule", text);
  const auto declare = [&](std::vector<std::string> names) {
    for (const char* name : {"base", "warmup", "warmup_begin", "warmup_mode"}) names.emplace_back(name);
    call.Declare(std::move(names));
    base = call.Number("base").value_or(base);
    Warmup warmup{.steps = call.Integer("warmup").value_or(0), .begin = call.Number("warmup_begin").value_or(0)};
    const std::string mode = call.Word("warmup_mode").value_or("linear");
    if (mode != "linear" && mode != "constant")
      call.Fail(fmt::format("warmup_mode must be linear or constant, got \"{}\"", mode));
    if (mode == "constant") warmup.mode = WarmupMode::kConstant;
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
  const std::vector<std::string> known = {"constant", "factor", "steps", "poly", "cosine"};
  Throw("unknown schedule \"{}\"{}", name, NameHint(name, known));
}

}  // namespace bindery
