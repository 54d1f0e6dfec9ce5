// Schedules: the learning rate as a pure function of the step, so that a resumed run needs nothing but the step number;
// but for `plateau`, which goes by a few numbers (ScheduleState) that whoever trains keeps and saves.
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
//   one_cycle(max, rise, start, end, curve)      from base / start up to base in the first part `rise` of `max` steps
//                                                (0.3), then down to base / start / end (25, 1e4), by curve=cosine|
//                                                linear; has no other warm-up. As PyTorch's OneCycleLR
//   plateau(factor, patience, threshold, cooldown, floor, mode)
//                                                base * factor (0.1) each time that the value that is judged has not
//                                                become better for more than `patience` (10) epochs, `cooldown` (0) of
//                                                which after a reduction do not count; at least `floor`. Better: by the
//                                                part `threshold` (1e-4) of the best so far (mode=rel), or by as much
//                                                (mode=abs). As PyTorch's ReduceLROnPlateau
//
// with w = warmup; until then, at t < warmup, the rate is warmup_begin, or goes from there to the base in a straight
// line. The others are the rules of MXNet's lr_scheduler. With unit=epoch all these numbers of steps are numbers of
// epochs, and t is the present one, from 1 on, which whoever trains tells (Updater::NewEpoch); not of one_cycle. The
// first epoch of poly and cosine (with a warm-up, its last) then has the base, and the last one more than `final`, as
// PyTorch's PolynomialLR and CosineAnnealingLR give them: w is at least 1, and max + 1 stands in place of max.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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
  bool by_epoch = false;  // all steps, the schedule's own, too, are epochs
};

// What a schedule goes by besides the step.
struct ScheduleState {
  double factor = 1;                // of the rate
  std::optional<double> best = {};  // value that was judged
  int64_t waited = 0, cooling = 0;  // epochs: without a better one; that do not count yet
  int64_t epoch = 0;                // those completed
  bool operator==(const ScheduleState&) const = default;
};

// Immutable; any thread may ask.
class Schedule {
 public:
  virtual ~Schedule() = default;
  double LearningRate(int64_t step, const ScheduleState& state = {}) const;  // step >= 0
  // What becomes of the state when an epoch's value is judged. Not a number: no better one.
  virtual ScheduleState Judge(double, bool /*larger_is_better*/, const ScheduleState& state) const { return state; }
  double base() const { return base_; }
  // Does it want to be told of epochs, or of what they are judged by?
  virtual bool by_epoch() const { return warmup_.by_epoch; }
  // ParseSchedule(Text()) is the same schedule.
  std::string Text() const;

 protected:
  Schedule(double base, const Warmup& warmup);  // throws Error if they make no sense
  virtual double AfterWarmup(int64_t step) const = 0;
  virtual double After(double rate, const ScheduleState&) const { return rate; }  // what the state makes of it
  virtual CallPrinter Print() const = 0;                                          // name and settings of its own
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
  int64_t max = 0;  // the rate is `final` from there on, by epochs behind it; > warm-up steps
  double final = 0;
  double power = 2;  // of `poly`
};
SchedulePtr PolySchedule(double base, const DecayOptions& options, const Warmup& warmup = {});
SchedulePtr CosineSchedule(double base, const DecayOptions& options, const Warmup& warmup = {});

enum class CycleCurve { kCosine, kLinear };
struct OneCycleOptions {
  int64_t max = 0;               // steps of the whole cycle; the rate is the last one from there on
  double rise = 0.3;             // part of them, in (0, 1); more than one step
  double start = 25, end = 1e4;  // >= 1
  CycleCurve curve = CycleCurve::kCosine;
};
SchedulePtr OneCycleSchedule(double base, const OneCycleOptions& options);

struct PlateauOptions {
  double factor = 0.1;  // in (0, 1)
  int64_t patience = 10, cooldown = 0;
  double threshold = 1e-4, floor = 0;
  bool relative = true;
};
SchedulePtr PlateauSchedule(double base, const PlateauOptions& options = {}, const Warmup& warmup = {});

// `base` is used where the text has none. Throws Error.
SchedulePtr ParseSchedule(std::string_view text, double base = 0.01);

}  // namespace bindery
