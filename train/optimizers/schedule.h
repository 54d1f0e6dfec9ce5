// Schedules: the learning rate as a pure function of the step, so that a resumed run needs nothing but the step number.
//
// Steps are counted as updates: the first update of a run is step 1. (Step 0 is the state before; the formulas hold
// there too.) Text forms, for the command line and checkpoints, by position or by name, all with base=, warmup=,
// warmup_begin= and warmup_mode=linear|constant:
//
//   constant                                     base
//   factor(step, factor, floor)                  base * factor^floor((t - 1) / step), at least `floor`
//   steps(at, factor)                            base * factor^(how many of at = "15;25" are < t)
//   poly(max, power, final)                      final + (base - final) (1 - (t - w) / (max - w))^power
//   cosine(max, final)                           final + (base - final) (1 + cos(pi (t - w) / (max - w))) / 2
//
// with w = warmup; until then, at t < warmup, the rate is warmup_begin, or goes from there to the base in a straight
// line. These are the rules of MXNet's lr_scheduler.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace bindery {

class CallPrinter;

enum class WarmupMode { kLinear, kConstant };
struct Warmup {
  int64_t steps = 0;
  double begin = 0;  // at most the base
  WarmupMode mode = WarmupMode::kLinear;
};

// Immutable; any thread may ask.
class Schedule {
 public:
  virtual ~Schedule() = default;
  double LearningRate(int64_t step) const;  // step >= 0
  double base() const { return base_; }
  // ParseSchedule(Text()) is the same schedule.
  std::string Text() const;

 protected:
  Schedule(double base, const Warmup& warmup);  // throws Error if they make no sense
  virtual double AfterWarmup(int64_t step) const = 0;
  virtual CallPrinter Print() const = 0;  // name and settings of its own
  const Warmup& warmup() const { return warmup_; }

 private:
  double base_;
  Warmup warmup_;
};
using SchedulePtr = std::shared_ptr<const Schedule>;

SchedulePtr ConstantSchedule(double base, const Warmup& warmup = {});

struct FactorOptions {
  int64_t step = 0;   // >= 1
  double factor = 1;  // in (0, 1]
  double floor = 1e-8;
};
SchedulePtr FactorSchedule(double base, const FactorOptions& options, const Warmup& warmup = {});

struct StepsOptions {
  std::vector<int64_t> at = {};  // increasing, >= 1
  double factor = 0.1;
};
SchedulePtr StepsSchedule(double base, const StepsOptions& options, const Warmup& warmup = {});

struct DecayOptions {
  int64_t max = 0;  // the rate is `final` from there on; > warm-up steps
  double final = 0;
  double power = 2;  // of `poly`
};
SchedulePtr PolySchedule(double base, const DecayOptions& options, const Warmup& warmup = {});
SchedulePtr CosineSchedule(double base, const DecayOptions& options, const Warmup& warmup = {});

// `base` is used where the text has none. Throws Error.
SchedulePtr ParseSchedule(std::string_view text, double base = 0.01);

}  // namespace bindery
