#include "train/optimizers/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace bindery {
namespace {

void ExpectRates(const Schedule& schedule, const std::vector<std::pair<int64_t, double>>& expected) {
  for (const auto& [step, rate] : expected) EXPECT_NEAR(schedule.LearningRate(step), rate, 1e-12) << step;
}

TEST(Schedule, Constant) {
  ExpectRates(*ConstantSchedule(0.1), {{0, 0.1}, {1, 0.1}, {1000000000000, 0.1}});
  ExpectRates(*ConstantSchedule(0.4, {.steps = 4}), {{0, 0}, {1, 0.1}, {3, 0.3}, {4, 0.4}, {5, 0.4}});
}

TEST(Schedule, Factor) {
  const auto schedule = FactorSchedule(1, {.step = 100, .factor = 0.1, .floor = 1e-4},
                                       {.steps = 20, .begin = 0.1, .mode = WarmupMode::kConstant});
  ExpectRates(
      *schedule,
      {{0, 0.1}, {10, 0.1}, {19, 0.1}, {20, 1}, {21, 1}, {100, 1}, {101, 0.1}, {200, 0.1}, {201, 0.01}, {1000, 1e-4}});
}

// What is lower from the beginning is not raised.
TEST(Schedule, TheFloorIsNoRateToBeginWith) {
  ExpectRates(*FactorSchedule(0, {.step = 1, .factor = 0.5}), {{1, 0}, {2, 0}});
  ExpectRates(*FactorSchedule(0.01, {.step = 1, .factor = 0.5, .floor = 0.1}), {{1, 0.01}, {2, 0.01}, {9, 0.01}});
}

TEST(Schedule, Steps) {
  const auto schedule = StepsSchedule(0.1, {.at = {15, 25}, .factor = 0.1}, {.steps = 10, .begin = 0.05});
  ExpectRates(*schedule,
              {{0, 0.05}, {5, 0.075}, {15, 0.1}, {16, 0.01}, {20, 0.01}, {25, 0.01}, {26, 0.001}, {1000, 0.001}});
}

TEST(Schedule, Poly) {
  const auto schedule = PolySchedule(3, {.max = 1000, .power = 2}, {.steps = 100});
  ExpectRates(*schedule, {{0, 0}, {50, 1.5}, {100, 3}, {550, 0.75}, {1000, 0}, {2000, 0}});
  EXPECT_LT(schedule->LearningRate(500), 1.6);
}

TEST(Schedule, Cosine) {
  const auto schedule = CosineSchedule(3, {.max = 1000, .final = 0.1});
  ExpectRates(*schedule, {{0, 3}, {500, 1.55}, {1000, 0.1}, {1001, 0.1}});
}

// The numbers are those of PyTorch 2.15.
TEST(Schedule, OneCycle) {
  const auto cosine = OneCycleSchedule(0.5, {.max = 10});
  ExpectRates(*cosine, {{0, 0.02},
                        {1, 0.02},
                        {2, 0.26},
                        {3, 0.5},
                        {4, 0.47524231600673683},
                        {5, 0.40587282697488153},
                        {6, 0.30563101096814466},
                        {9, 0.024759683993263143},
                        {10, 2e-6},
                        {99, 2e-6}});
  const auto linear =
      OneCycleSchedule(0.5, {.max = 7, .rise = 0.4, .start = 10, .end = 100, .curve = CycleCurve::kLinear});
  ExpectRates(
      *linear,
      {{1, 0.05}, {2, 0.3}, {3, 0.47621428571428576}, {4, 0.35728571428571432}, {6, 0.11942857142857138}, {7, 0.0005}});
}

std::vector<double> Judged(const Schedule& schedule, bool larger_is_better, const std::vector<double>& values) {
  ScheduleState state;
  std::vector<double> rates;
  for (const double value : values) {
    state = schedule.Judge(value, larger_is_better, state);
    rates.push_back(schedule.LearningRate(100, state));
  }
  return rates;
}

// As PyTorch 2.15's ReduceLROnPlateau.
TEST(Schedule, Plateau) {
  const auto expect = [](const std::vector<double>& actual, const std::vector<double>& expected) {
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-15) << i;
  };
  const auto relative = ParseSchedule("plateau(factor=0.5, patience=1, cooldown=2, floor=0.02)", 0.1);
  expect(
      Judged(*relative, false, {1, 0.9, 0.95, 0.94, 0.93, 0.8, 0.79999, 0.81, 0.9, std::nan(""), 0.7, 0.7, 0.7, 0.7}),
      {0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05, 0.025, 0.025, 0.025, 0.025, 0.025, 0.02, 0.02});
  const auto absolute = PlateauSchedule(0.1, {.patience = 2, .threshold = 0.05, .relative = false});
  expect(Judged(*absolute, true, {0.5, 0.54, 0.56, 0.6, 0.62, 0.61, 0.64, 0.65, 0.8}),
         {0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.01, 0.01});
}

// The step is of no account then; the epoch that runs is one more than those completed.
TEST(Schedule, GoesByEpochs) {
  const SchedulePtr schedule = ParseSchedule("steps(at=2;3, factor=0.5, warmup=1, base=1, unit=epoch)");
  std::vector<double> rates;
  for (int64_t epoch = 0; epoch < 4; ++epoch) rates.push_back(schedule->LearningRate(1000, {.epoch = epoch}));
  EXPECT_EQ(rates, (std::vector<double>{1, 1, 0.5, 0.25}));
}

// The rates of PyTorch's CosineAnnealingLR and PolynomialLR: the base in the first epoch, `final` behind the last.
TEST(Schedule, DecaysByEpochs) {
  const auto expect = [](const char* text, const std::vector<double>& rates) {
    const SchedulePtr schedule = ParseSchedule(text, 0.5);
    for (size_t i = 0; i < rates.size(); ++i) {
      EXPECT_NEAR(schedule->LearningRate(7, {.epoch = static_cast<int64_t>(i)}), rates[i], 1e-15) << text << " " << i;
    }
  };
  expect("cosine(4, unit=epoch)", {0.5, 0.42677669529663687, 0.25, 0.073223304703363118, 0, 0});
  expect("poly(4, power=2, final=0.1, unit=epoch)", {0.5, 0.325, 0.2, 0.125, 0.1, 0.1});
  expect("cosine(5, warmup=2, warmup_begin=0.1, unit=epoch)",
         {0.3, 0.5, 0.42677669529663687, 0.25, 0.073223304703363118, 0});
  expect("cosine(1, unit=epoch)", {0.5, 0});
}

TEST(Schedule, ReadsWhatItPrints) {
  for (const char* text :
       {"constant(base=0.1)", "constant(base=0.01, warmup=5, warmup_begin=0.001, warmup_mode=linear)",
        "factor(step=1000, factor=0.9, floor=1e-08, base=0.01)", "steps(at=15;25, factor=0.1, base=0.3333333333333333)",
        "poly(max=1000, power=2, final=0.001, base=1)",
        "one_cycle(max=100, rise=0.3, start=25, end=10000, curve=linear, base=0.5)",
        "plateau(factor=0.1, patience=10, threshold=0.0001, cooldown=0, floor=0, mode=abs, base=0.5)",
        "steps(at=2;3, factor=0.5, base=1, unit=epoch)",
        "cosine(max=1000, final=0, base=0.5, warmup=10, warmup_begin=0, warmup_mode=constant)"}) {
    EXPECT_EQ(ParseSchedule(text)->Text(), text);
  }
  EXPECT_EQ(ParseSchedule("factor(1000,0.9)", 0.25)->Text(), "factor(step=1000, factor=0.9, floor=1e-08, base=0.25)");
  EXPECT_EQ(ParseSchedule(" Constant ( 0.1 ) ")->Text(), "constant(base=0.1)");
  EXPECT_EQ(ParseSchedule("constant")->base(), 0.01);
  EXPECT_EQ(ParseSchedule("steps(7, base=2, factor=0.5)", 1)->LearningRate(8), 1);
}

TEST(Schedule, OneCycleGoesByStepsOnly) { EXPECT_THROW(ParseSchedule("one_cycle(max=100, unit=epoch)"), Error); }

TEST(Schedule, Errors) {
  const auto expect = [](const std::string& message, const std::string& text) {
    try {
      ParseSchedule(text);
      FAIL() << "no error, expected: " << message;
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), message);
    }
  };
  expect("Error: unknown schedule \"factr\"; did you mean \"factor\"?", "factr(1,2)");
  expect("Error: schedule \"factor(1000)\": \"factor\" is missing", "factor(1000)");
  expect("Error: schedule \"factor(1.5,0.9)\": \"step\" must be a whole number, got \"1.5\"", "factor(1.5,0.9)");
  expect("Error: schedule \"factor(10,ten)\": \"factor\" must be a number, got \"ten\"", "factor(10,ten)");
  expect("Error: schedule \"factor(10,nan)\": \"factor\" must be a number, got \"nan\"", "factor(10,nan)");
  expect("Error: schedule \"factor(10,1,flor=2)\": unknown setting \"flor\"; did you mean \"floor\"?",
         "factor(10,1,flor=2)");
  expect("Error: schedule \"factor(10,1,step=2)\": \"step\" is given twice", "factor(10,1,step=2)");
  expect("Error: schedule \"factor(step=1,2)\": \"2\" follows a setting with a name and needs one too",
         "factor(step=1,2)");
  expect("Error: schedule \"factor(10,1\": the closing parenthesis is missing", "factor(10,1");
  expect("Error: schedule \"\": expected a name, or name(setting, name=setting)", "");
  expect("Error: schedule \"constant(1,2,3,linear,step,5)\": constant takes at most 5 settings",
         "constant(1,2,3,linear,step,5)");
  expect("Error: schedule \"constant(warmup_mode=cubic)\": warmup_mode must be linear or constant, got \"cubic\"",
         "constant(warmup_mode=cubic)");
  expect("Error: schedule \"factor\": step must be >= 1, got 0", "factor(0,0.9)");
  expect("Error: schedule \"factor\": factor must be in (0, 1], got 1.5", "factor(10,1.5)");
  expect("Error: a warm-up must begin between 0 and the base 0.01, got 1", "constant(warmup=5,warmup_begin=1)");
  expect("Error: a learning rate must be >= 0, got -1", "constant(-1)");
  expect("Error: schedule \"steps\": steps must increase, got 5 after 5", "steps(5;5)");
  expect("Error: schedule \"steps(5;x)\": \"at\" must be whole numbers like 15;25, got \"5;x\"", "steps(5;x)");
  expect("Error: schedule \"cosine\": max must be >= 1 and more than the 9 steps of the warm-up, got 9",
         "cosine(9,warmup=9)");
  expect("Error: schedule \"one_cycle\": max must be so many steps that more than one rises, got 3", "one_cycle(3)");
  expect("Error: schedule \"one_cycle\": rise must be in (0, 1), got 1", "one_cycle(10, 1)");
  expect("Error: schedule \"one_cycle(10, warmup=2)\": it has its own warm-up, the part `rise`",
         "one_cycle(10, warmup=2)");
  expect("Error: schedule \"plateau\": factor must be in (0, 1), got 1", "plateau(1)");
  expect("Error: schedule \"plateau(mode=max)\": mode must be rel or abs, got \"max\"", "plateau(mode=max)");
  expect("Error: schedule \"poly\": final must be between 0 and the base 0.01, got 1", "poly(9,final=1)");
}

}  // namespace
}  // namespace bindery
