// Each built-in update rule against its formula in double; all sizes, teams and instruction sets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "engine/kernels/update_loop.h"
#include "engine/kernels/update_rules.h"
#include "tests/engine/flat_helpers.h"

namespace bindery {
namespace {

// One step of a built-in rule on element values in double: the new weight and states.
std::vector<double> ExpectedUpdate(const std::string& rule, const UpdateArgs& a, double g, double w,
                                   std::vector<double> s) {
  g += a.weight_decay * w;
  const auto& set = a.settings;
  if (rule == "adam") {
    s[0] = set[0] * s[0] + (1 - set[0]) * g;
    s[1] = set[1] * s[1] + (1 - set[1]) * g * g;
    const double t = static_cast<double>(a.step), mean = s[0] / (1 - std::pow(set[0], t));
    w -= a.learning_rate * mean / (std::sqrt(s[1] / (1 - std::pow(set[1], t))) + set[2]);
  } else if (s.empty()) {
    w -= a.learning_rate * g;
  } else {
    s[0] = set[0] * s[0] - a.learning_rate * g;
    w += rule == "nag" ? set[0] * s[0] - a.learning_rate * g : s[0];
  }
  s.insert(s.begin(), w);
  return s;
}

// Every built-in rule, in place and to arrays of its own.
TEST(UpdateTest, FollowsItsFormula) {
  const std::vector<double> settings = {0.9, 0.99, 1e-3};
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
    for (UpdateArgs args : cases) {
      args.settings = std::span(settings).first(rule.settings.size());
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
          for (int64_t at = 0; at < actual.elements(); ++at) {
            const int64_t i = at % n;
            double g = 0;
            for (size_t k = 0; k < count; ++k) g += grads[k].At(i);
            g *= args.rescale;
            if (args.clip > 0) g = std::clamp(g, -args.clip, args.clip);
            std::vector<double> s;
            for (const HostTensor& state : old) s.push_back(state.At(i));
            const size_t which = static_cast<size_t>(at / n);
            const double expected = ExpectedUpdate(rule.name, args, g, weight.At(i), s)[which > states ? 0 : which];
            ASSERT_NEAR(actual.At(at), expected, epsilon * (1 + std::fabs(expected))) << rule.name << " element " << at;
          }
        }
      }
    }
  };
  for (const UpdateRule& rule : UpdateRules()) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{17}, int64_t{1025}, kLarge}) {
        check(rule, rule.kernel, rule.states.size(), dtype, n);
        if (rule.stateless) check(rule, rule.stateless, 0, dtype, n);
      }
    }
  }
}

TEST(UpdateTest, KeepsNaNThroughClipping) {
  float grad = std::numeric_limits<float>::quiet_NaN(), weight = 1;
  const void* const grads[] = {&grad};
  UpdateKernelOf<update_rules::Sgd>(DType::kFloat32, {.clip = 1},
                                    {.gradients = grads, .weight = &weight, .new_weight = &weight, .elements = 1});
  EXPECT_TRUE(std::isnan(weight));
}

TEST(UpdateTest, RejectsWhatItCannotDo) {
  float value[2] = {};
  const void* const grads[] = {value};
  const UpdateArrays arrays{.gradients = grads, .weight = value, .new_weight = value, .elements = 1};
  EXPECT_THROW(UpdateKernelOf<update_rules::Sgd>(DType::kFloat16, {}, arrays), Error);
  EXPECT_THROW(UpdateKernelOf<update_rules::Sgd>(DType::kFloat32, {}, {.weight = value, .new_weight = value}), Error);
  EXPECT_THROW(UpdateKernelOf<update_rules::Momentum>(DType::kFloat32, {}, arrays), Error);
}

}  // namespace
}  // namespace bindery
