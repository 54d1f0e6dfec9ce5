// Each built-in update rule against its formula in double; all sizes, teams and instruction sets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/kernels/update_kernels.h"
#include "engine/kernels/update_rules.h"
#include "tests/engine/flat_helpers.h"

namespace bindery {
namespace {

// One step of a built-in rule on element values in double: the new weight and states.
std::vector<double> ExpectedUpdate(const std::string& rule, const UpdateArgs& a, double g, double w,
                                   std::vector<double> s) {
  const auto& set = a.settings;
  const double lr = a.learning_rate, wd = a.weight_decay, t = static_cast<double>(a.step), decayed = g + wd * w;
  const auto mix = [](double weight, double& average, double value) {
    return average = weight * average + (1 - weight) * value;
  };
  const auto sign = [](double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : 0.0; };
  if (rule == "adam" || rule == "adamw" || rule == "nadam") {
    if (rule == "adamw") w *= 1 - lr * wd;
    if (rule != "adamw") g = decayed;
    mix(set[0], s[0], g);
    mix(set[1], s[1], g * g);
    const double root = std::sqrt(s[1] / (1 - std::pow(set[1], t))) + set[2];
    if (rule == "nadam") {
      const auto mu = [&](double at) { return set[0] * (1 - 0.5 * std::pow(0.96, at * set[3])); };
      double product = 1;
      for (double at = 1; at <= t; ++at) product *= mu(at);
      w -= lr * ((1 - mu(t)) / (1 - product) * g + mu(t + 1) / (1 - product * mu(t + 1)) * s[0]) / root;
    } else {
      w -= lr * s[0] / (1 - std::pow(set[0], t)) / root;
    }
  } else if (rule == "adamax") {
    mix(set[0], s[0], decayed);
    s[1] = std::max(set[1] * s[1], std::fabs(decayed) + set[2]);
    w -= lr / (1 - std::pow(set[0], t)) * s[0] / s[1];
  } else if (rule == "rmsprop") {
    double& square = s.back();
    const double step = lr * decayed / (std::sqrt(mix(set[1], square, decayed * decayed)) + set[2]);
    if (s.size() == 2) s[0] = set[0] * s[0] - step;
    w += s.size() == 2 ? s[0] : -step;
  } else if (rule == "centered_rmsprop") {
    mix(set[1], s[1], decayed * decayed);
    mix(set[1], s[2], decayed);
    w += s[0] = set[0] * s[0] - lr * decayed / (std::sqrt(s[1] - s[2] * s[2]) + set[2]);
  } else if (rule == "adagrad") {
    s[0] += decayed * decayed;
    w -= lr / (1 + (t - 1) * set[0]) * decayed / (std::sqrt(s[0]) + set[1]);
  } else if (rule == "adadelta") {
    mix(set[0], s[0], decayed * decayed);
    const double delta = std::sqrt(s[1] + set[1]) / std::sqrt(s[0] + set[1]) * decayed;
    mix(set[0], s[1], delta * delta);
    w -= lr * delta;
  } else if (rule == "ftrl") {
    // The difference of the roots as a quotient: it loses digits as a difference.
    s[0] += g - g * g / (std::sqrt(s[1] + g * g) + std::sqrt(s[1])) / lr * w;
    s[1] += g * g;
    w = std::fabs(s[0]) <= set[0] ? 0 : (sign(s[0]) * set[0] - s[0]) / ((set[1] + std::sqrt(s[1])) / lr + wd);
  } else if (rule == "signum") {
    const double direction = s.empty() ? decayed : mix(set[0], s[0], decayed);
    w = (1 - lr * set[1]) * w - lr * sign(direction);
  } else if (rule == "lion") {
    w -= lr * (sign(set[0] * s[0] + (1 - set[0]) * g) + wd * w);
    mix(set[1], s[0], g);
  } else if (rule == "lars") {
    const double size = std::sqrt(a.squares.weight), slope = std::sqrt(a.squares.direction);
    s[0] = set[0] * s[0] - lr * set[1] * size / (slope + wd * size + set[2]) * decayed;
    w += s[0];
  } else if (rule == "lamb") {
    const double mean = mix(set[0], s[0], g) / (1 - std::pow(set[0], t));
    const double direction = mean / (std::sqrt(mix(set[1], s[1], g * g) / (1 - std::pow(set[1], t))) + set[2]) + wd * w;
    w -= lr * std::sqrt(a.squares.weight / a.squares.direction) * direction;
  } else if (s.empty()) {  // sgd
    w -= lr * decayed;
  } else {
    s[0] = set[0] * s[0] - lr * decayed;
    w += rule == "nag" ? set[0] * s[0] - lr * decayed : s[0];
  }
  s.insert(s.begin(), w);
  return s;
}

TEST(UpdateTest, PowersAreThoseOfTheLibrary) {
  for (const double base : {0.0, 0.5, 0.9, 0.99, 0.999, 0.9999}) {
    for (const int64_t n : {0, 1, 2, 3, 10, 63, 64, 1000, 12'345, 1'000'000}) {
      const double expected = std::pow(base, static_cast<double>(n));
      EXPECT_NEAR(update_rules::Power(base, n), expected, expected * static_cast<double>(n + 1) * 0x1p-53)
          << base << "^" << n;
    }
  }
}

// Every built-in rule, in place and to arrays of its own.
TEST(UpdateTest, FollowsItsFormula) {
  const std::vector<double> settings = {0.9, 0.99, 1e-3, 0.004, 0};
  const std::vector<UpdateArgs> cases = {
      {.learning_rate = 0.1}, {3, 0.05, 1e-2, 1.0 / 64, 0.02}, {7, 0.05, 1e-2, 0.5, 1}};
  const auto check = [&](const UpdateRule& rule, UpdateKernel kernel, size_t states, DType dtype, int64_t n) {
    const double epsilon = dtype == DType::kFloat32 ? 4e-6 : 1e-14;  // of a handful of roundings
    const HostTensor weight = Random(dtype, n, "weight");
    std::vector<HostTensor> grads, old;
    for (int k = 0; k < 3; ++k) grads.push_back(Random(dtype, n, "grad" + std::to_string(k)));
    for (size_t k = 0; k < states; ++k) {
      old.push_back(Random(dtype, n, "state" + std::to_string(k)));
      for (int64_t i = 0; i < n; ++i) old[k].Set(i, std::abs(old[k].At(i)));  // a variance
    }
    if (rule.name == "centered_rmsprop") {  // one that the mean leaves
      for (int64_t i = 0; i < n; ++i) old[2].Set(i, std::sqrt(old[1].At(i)) / 2);
    }
    for (UpdateArgs args : cases) {
      if (n == kLarge && args.step != cases.back().step) continue;  // its loops are those of all
      args.settings = std::span(settings).first(rule.settings.size());
      args.squares = {9, 4};
      for (size_t count : {1, 2, 3}) {
        for (size_t copy_count : {0, 2}) {
          if (n == kLarge && (count != 2 || copy_count != 2)) continue;
          std::vector<const void*> gradients;
          for (size_t k = 0; k < count; ++k) gradients.push_back(grads[k].raw());
          // The weight, its states and copies, one after the other.
          const auto update = [&](bool in_place) {
            HostTensor w = weight, fresh_w(dtype, {n});
            std::vector<HostTensor> s = old, fresh_s(states, HostTensor(dtype, {n})), copies(copy_count, fresh_w);
            const auto addresses = [](std::vector<HostTensor>& tensors) {
              std::vector<void*> list;
              for (HostTensor& tensor : tensors) list.push_back(tensor.raw());
              return list;
            };
            const std::vector<void*> from = addresses(s), to = addresses(in_place ? s : fresh_s);
            const std::vector<void*> copy_addresses = addresses(copies);
            kernel(dtype, args,
                   {.gradients = gradients,
                    .weight = w.raw(),
                    .new_weight = (in_place ? w : fresh_w).raw(),
                    .states = from,
                    .new_states = to,
                    .copies = copy_addresses,
                    .elements = n});
            if (!in_place) {
              EXPECT_EQ(w, weight);
            }
            std::vector<HostTensor> all = {in_place ? w : fresh_w};
            const std::vector<HostTensor>& changed = in_place ? s : fresh_s;
            all.insert(all.end(), changed.begin(), changed.end());
            all.insert(all.end(), copies.begin(), copies.end());
            return Concatenate(all, 0);
          };
          const HostTensor actual = SameForAllMachines(n, [&] { return update(true); });
          EXPECT_EQ(actual, update(false)) << rule.name;
          std::vector<double> s(states);
          for (int64_t i = 0; i < n; ++i) {
            double g = 0;
            for (size_t k = 0; k < count; ++k) g += grads[k].At(i);
            g *= args.rescale;
            if (args.clip > 0) g = std::clamp(g, -args.clip, args.clip);
            for (size_t k = 0; k < states; ++k) s[k] = old[k].At(i);
            const std::vector<double> moved = ExpectedUpdate(rule.name, args, g, weight.At(i), s);
            for (int64_t at = i, which = 0; at < actual.elements(); at += n, ++which) {  // copies are of the weight
              const double expected = moved[which > static_cast<int64_t>(states) ? 0 : static_cast<size_t>(which)];
              ASSERT_NEAR(actual.At(at), expected, epsilon * (1 + std::fabs(expected)))
                  << rule.name << " element " << at;
            }
          }
        }
      }
    }
  };
  for (const UpdateRule& rule : UpdateRules()) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{17}, int64_t{1025}, kLarge}) {
        check(rule, rule.kernel, rule.states.size(), dtype, n);
        if (rule.without_first) check(rule, rule.without_first, rule.states.size() - 1, dtype, n);
      }
    }
  }
}

// A step with a rate of 1 where nothing was measured goes just there.
TEST(UpdateTest, MeasuresWeightsAndDirections) {
  const UpdateRule& lamb = *std::ranges::find(UpdateRules(), "lamb", &UpdateRule::name);
  const double settings[] = {0.9, 0.99, 1e-3, 0, 0};
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (const int64_t n : {int64_t{0}, int64_t{17}, int64_t{1025}, int64_t{20'000}}) {
      const HostTensor gradients[] = {Random(dtype, n, "a"), Random(dtype, n, "b")};
      const void* const addresses[] = {gradients[0].raw(), gradients[1].raw()};
      HostTensor weight = Random(dtype, n, "w"), mean = Random(dtype, n, "m"),
                 variance = HostTensor::Full(dtype, {n}, 2), moved = weight;
      void* const states[] = {mean.raw(), variance.raw()};
      const UpdateArgs args{
          .step = 3, .learning_rate = 1, .weight_decay = 0.1, .rescale = 0.5, .clip = 1, .settings = settings};
      const UpdateArrays arrays{.gradients = addresses,
                                .weight = weight.raw(),
                                .new_weight = moved.raw(),
                                .states = states,
                                .new_states = states,
                                .elements = n};
      const UpdateSquares squares = lamb.measure(dtype, args, arrays);
      const UpdateSquares again = lamb.measure(dtype, args, arrays);  // nothing was written
      EXPECT_EQ(again.direction, squares.direction);
      lamb.kernel(dtype, args, arrays);
      double weights = 0, directions = 0;
      for (int64_t i = 0; i < n; ++i) {
        weights += weight.At(i) * weight.At(i);
        directions += std::pow(weight.At(i) - moved.At(i), 2);
      }
      EXPECT_NEAR(squares.weight, weights, 1e-12 * weights);
      EXPECT_NEAR(squares.direction, directions, (dtype == DType::kFloat32 ? 1e-5 : 1e-12) * directions);
    }
  }
}

TEST(UpdateTest, ClipsToANorm) {
  EXPECT_EQ(flat::ClipFactor(9, 1, 4), 1);
  EXPECT_EQ(flat::ClipFactor(9, -2, 3), 0.5);
  EXPECT_EQ(flat::ClipFactor(0, 1, 3), 1);
}

TEST(UpdateTest, KeepsNaNThroughClipping) {
  float grad = std::numeric_limits<float>::quiet_NaN(), weight = 1;
  const void* const grads[] = {&grad};
  BuiltInKernelOf<update_rules::Sgd>()(DType::kFloat32, {.clip = 1},
                                       {.gradients = grads, .weight = &weight, .new_weight = &weight, .elements = 1});
  EXPECT_TRUE(std::isnan(weight));
}

// Momenta whose gradient is zero from now on do not come to rest at numbers with which processors are slow; what a rule
// divides by stays, also without an epsilon, and what it takes the sign of.
TEST(UpdateTest, MomentaFadeToZero) {
  const std::set<std::string> fading = {
      "sgd", "nag", "adam", "adamw", "nadam", "adamax", "rmsprop", "centered_rmsprop", "lars", "lamb"};
  for (const UpdateRule& rule : UpdateRules()) {
    if (rule.states.empty()) continue;
    std::vector<double> settings;
    for (const UpdateSetting& setting : rule.settings)
      settings.push_back(setting.name == "epsilon" ? 0 : setting.value);
    if (rule.settings[0].name == "momentum") settings[0] = 0.9;
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      const double smallest = dtype == DType::kFloat32 ? FLT_MIN : DBL_MIN;
      constexpr int64_t kElements = 20;
      const HostTensor gradient(dtype, {kElements});
      HostTensor weight(dtype, {kElements});
      const void* const gradients[] = {gradient.raw()};
      std::vector<HostTensor> states;
      std::vector<void*> arrays;
      for (size_t k = 0; k < rule.states.size(); ++k) states.push_back(HostTensor::Full(dtype, {kElements}, smallest));
      states[0].Set(1, -smallest);
      states[0].Set(2, NAN);
      states[0].Set(3, 2 * smallest);
      for (HostTensor& state : states) arrays.push_back(state.raw());
      rule.kernel(dtype, {.settings = settings, .squares = {1, 1}},
                  {.gradients = gradients,
                   .weight = weight.raw(),
                   .new_weight = weight.raw(),
                   .states = arrays,
                   .new_states = arrays,
                   .elements = kElements});
      SCOPED_TRACE(rule.name + " " + std::string(ToString(dtype)));
      const bool fades = fading.contains(rule.name);
      EXPECT_EQ(states[0].At(0) == 0, fades);
      EXPECT_EQ(states[0].At(kElements - 1) == 0, fades);
      if (fades) {
        EXPECT_EQ(states[0].At(1), 0);
        EXPECT_TRUE(std::isnan(states[0].At(2)));
        EXPECT_GT(states[0].At(3), smallest);
      }
      for (size_t k = 1; k < states.size(); ++k) EXPECT_NE(states[k].At(0), 0) << k;
      EXPECT_TRUE(std::isfinite(weight.At(0)));
    }
  }
}

TEST(UpdateTest, RejectsWhatItCannotDo) {
  float value[2] = {};
  const void* const grads[] = {value};
  const UpdateArrays arrays{.gradients = grads, .weight = value, .new_weight = value, .elements = 1};
  EXPECT_THROW(BuiltInKernelOf<update_rules::Sgd>()(DType::kFloat16, {}, arrays), Error);
  EXPECT_THROW(BuiltInKernelOf<update_rules::Sgd>()(DType::kFloat32, {}, {.weight = value, .new_weight = value}),
               Error);
  EXPECT_THROW(BuiltInKernelOf<update_rules::Momentum>()(DType::kFloat32, {}, arrays), Error);
}

}  // namespace
}  // namespace bindery
