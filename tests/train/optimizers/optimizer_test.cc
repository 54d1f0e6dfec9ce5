#include "train/optimizers/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/philox.h"
#include "engine/kernels/update_kernels.h"
#include "engine/kernels/update_loop.h"
#include "engine/kernels/update_rules.h"
#include "tests/message_of.h"
#include "train/optimizers/multipliers.h"

namespace bindery {
namespace {

template <class T>
std::vector<T> RandomValues(int64_t n, const char* stream) {
  PhiloxStream random(1, stream);
  std::vector<T> values(static_cast<size_t>(n));
  for (T& value : values) value = static_cast<T>(random.Normal());
  return values;
}

// Several steps against the formula in double.
template <class T>
void CheckSgd(const OptimizerOptions& options, double momentum, double tolerance) {
  const Optimizer sgd = Sgd(options, momentum);
  const int64_t n = 1003;
  std::vector<T> weight = RandomValues<T>(n, "weight"), copy(weight.size()), state(weight.size());
  std::vector<double> w(weight.begin(), weight.end()), m(w.size());
  for (int64_t step = 1; step <= 4; ++step) {
    const std::vector<T> a = RandomValues<T>(n, "a"), b = RandomValues<T>(n, "b");
    const UpdateArgs args{
        .step = step, .learning_rate = 0.1 / static_cast<double>(step), .weight_decay = 0.01, .rescale = 0.5};
    const void* grads[] = {a.data(), b.data()};
    void* copies[] = {copy.data()};
    std::vector<void*> states;
    if (momentum != 0) states.push_back(state.data());
    sgd.Update(kDTypeOf<T>, args, grads, weight.data(), states, copies, n);
    for (size_t i = 0; i < w.size(); ++i) {
      double g = (static_cast<double>(a[i]) + static_cast<double>(b[i])) * args.rescale;
      if (options.clip_gradient > 0) g = std::clamp(g, -options.clip_gradient, options.clip_gradient);
      m[i] = momentum * m[i] - args.learning_rate * (g + args.weight_decay * w[i]);
      w[i] += m[i];
      ASSERT_NEAR(weight[i], w[i], tolerance) << step << " " << i;
    }
    ASSERT_EQ(weight, copy);
  }
}

TEST(Sgd, FollowsItsFormula) {
  for (const double momentum : {0.0, 0.9}) {
    for (const double clip : {0.0, 0.3}) {
      CheckSgd<float>({.clip_gradient = clip}, momentum, 1e-6);
      CheckSgd<double>({.clip_gradient = clip}, momentum, 1e-14);
    }
  }
}

TEST(Sgd, RangesTogetherAreTheWhole) {
  const Optimizer sgd = Sgd({}, 0.9);
  const int64_t n = 700;
  const std::vector<float> grad = RandomValues<float>(n, "grad");
  std::vector<float> whole = RandomValues<float>(n, "weight"), parts = whole, state_whole(whole.size(), 0.5f),
                     state_parts = state_whole;
  const auto update = [&](std::vector<float>& weight, std::vector<float>& state, int64_t begin, int64_t end) {
    const void* grads[] = {grad.data() + begin};
    void* states[] = {state.data() + begin};
    sgd.Update(DType::kFloat32, {.learning_rate = 0.3, .weight_decay = 0.1, .rescale = 0.25}, grads,
               weight.data() + begin, states, {}, end - begin);
  };
  update(whole, state_whole, 0, n);
  for (const auto& [begin, end] : {std::pair{0, 16}, {16, 160}, {160, 700}}) update(parts, state_parts, begin, end);
  EXPECT_EQ(whole, parts);
  EXPECT_EQ(state_whole, state_parts);
}

TEST(Sgd, StateAndDTypes) {
  EXPECT_EQ(Sgd().state_count(), 0);
  EXPECT_EQ(Sgd({}, 0.9).state_names(), std::vector<std::string>{"momentum"});
  try {
    Sgd().Update(DType::kBFloat16, {}, {}, nullptr, {}, {}, 0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "Error: sgd updates float32 or float64 parameters, got bfloat16");
  }
}

TEST(MakeOptimizer, ReadsWhatItPrints) {
  for (const char* text :
       {"sgd(lr=0.01)", "sgd(lr=0.1, momentum=0.9, wd=0.0001)", "sgd(lr=0.1, clip_gradient=1, rescale=0.015625)",
        "nag(lr=0.1)", "nag(lr=0.1, momentum=0.5)", "adam(lr=0.001)", "adam(lr=0.001, beta2=0.99, epsilon=0.0001)",
        "adamw(lr=0.001, wd=0.01)", "nadam(lr=0.001, schedule_decay=0.01)", "adamax(lr=0.001)",
        "rmsprop(lr=0.001, momentum=0.9)", "centered_rmsprop(lr=0.001, rho=0.99)", "adagrad(lr=0.1, lr_decay=0.01)",
        "adadelta(lr=1)", "ftrl(lr=0.1, lambda1=0.001)", "signum(lr=0.001, momentum=0, wd_lh=0.1)", "lion(lr=0.0001)",
        "lars(lr=0.1, eta=0.01, wd=0.0001)", "lamb(lr=0.001, upper=10, wd=0.01, clip_norm=1)"}) {
    EXPECT_EQ(MakeOptimizer(text)->Text(), text);
  }
  const auto optimizer = MakeOptimizer("SGD(momentum=0.9,wd=1e-4)");
  EXPECT_EQ(optimizer->Text(), "sgd(lr=0.01, momentum=0.9, wd=0.0001)");
  EXPECT_EQ(optimizer->options().weight_decay, 1e-4);
  EXPECT_EQ(optimizer->options().rescale_gradient, std::nullopt);
  EXPECT_EQ(MakeOptimizer("sgd(rescale=1)")->options().rescale_gradient, 1);
  EXPECT_EQ(MakeOptimizer("adam")->Text(), "adam(lr=0.001)");
  EXPECT_EQ(MakeOptimizer("adadelta")->Text(), "adadelta(lr=1)");
}

TEST(MakeOptimizer, Errors) {
  const auto expect = [](const std::string& message, const std::string& text) {
    try {
      MakeOptimizer(text);
      FAIL() << "no error, expected: " << message;
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), message);
    }
  };
  expect("Error: unknown optimizer \"sdg\"; did you mean \"sgd\"?", "sdg");
  expect("Error: optimizer \"sgd(momentun=1)\": unknown setting \"momentun\"; did you mean \"momentum\"?",
         "sgd(momentun=1)");
  expect("Error: optimizer: momentum must be in [0, 1), got 1", "sgd(momentum=1)");
  expect("Error: optimizer: beta2 must be in [0, 1), got 1", "adam(beta2=1)");
  expect("Error: optimizer \"adam(1, 2, 3, 4, 5, 6, 7, 8, 9)\": adam takes at most 8 settings",
         "adam(1, 2, 3, 4, 5, 6, 7, 8, 9)");
  expect("Error: optimizer: clip_norm must be a number >= 0, got -1", "lamb(clip_norm=-1)");
  expect("Error: optimizer: weight_decay must be a number >= 0, got -1", "sgd(wd=-1)");
}

// Its sign alone, with the momentum in front.
struct OwnSign {
  static constexpr int kStates = 1;
  static UpdateNumbers Prepare(const UpdateArgs& a) { return {a.learning_rate, a.weight_decay, a.settings[0]}; }
  template <class T>
  [[gnu::always_inline]] static void Step(const T* c, T g, T& w, T* s) {
    s[0] = c[2] * s[0] + (1 - c[2]) * (g + c[1] * w);
    w -= s[0] > 0 ? c[0] : -c[0];
  }
};

// As the padding of weights in blocks is.
TEST(MakeOptimizer, WithoutEpsilonWhatIsZeroStaysZero) {
  for (const char* text : {"adam(epsilon=0)", "adamw(epsilon=1e-50)", "nadam(epsilon=0)", "adamax(epsilon=0)",
                           "rmsprop(epsilon=0)", "rmsprop(momentum=0.9, epsilon=0)", "centered_rmsprop(epsilon=0)",
                           "adagrad(epsilon=0)", "adadelta(epsilon=0)", "lamb(epsilon=0)", "lars(epsilon=0)"}) {
    const auto optimizer = MakeOptimizer(text);
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      double weight[5] = {}, states[kMaxUpdateStates][5] = {};
      const double gradient[5] = {};
      const void* grads[] = {gradient};
      std::vector<void*> addresses;
      for (int i = 0; i < optimizer->state_count(); ++i) addresses.push_back(states[i]);
      for (int64_t step = 1; step <= 2; ++step) {
        optimizer->Update(dtype, {.step = step, .learning_rate = 0.1, .weight_decay = 0.1}, grads, weight, addresses,
                          {}, 5);
      }
      for (const double w : weight) EXPECT_EQ(w, 0) << text << ", " << SizeOf(dtype);
    }
  }
}

TEST(AddOptimizer, AUsersRuleIsLikeTheOthers) {
  AddOptimizer({.name = "own_sign",
                .rate = 0.25,
                .states = {"momentum"},
                .settings = {{"momentum", 0.9, 1}},
                .kernel = UpdateKernelOf<OwnSign>});
  const auto signum = MakeOptimizer("own_sign(lr=0.5, momentum=0.5)");
  EXPECT_EQ(signum->Text(), "own_sign(lr=0.5, momentum=0.5)");
  EXPECT_EQ(signum->state_names(), std::vector<std::string>{"momentum"});
  EXPECT_EQ(MakeOptimizer("own_sign")->Text(), "own_sign(lr=0.25)");
  double weight[] = {1, 1}, state[] = {0, -1};
  const double gradient[] = {3, 0.5};
  const void* const gradients[] = {gradient};
  void* const states[] = {state};
  signum->Update(DType::kFloat64, {.learning_rate = 0.5}, gradients, weight, states, {}, 2);
  EXPECT_EQ(weight[0], 0.5);
  EXPECT_EQ(weight[1], 1.5);
  EXPECT_EQ(state[1], -0.25);

  const auto message = [](const UpdateRule& rule) { return MessageOf<Error>([&] { AddOptimizer(rule); }); };
  EXPECT_EQ(message({.name = "sgd", .kernel = BuiltInKernelOf<update_rules::Sgd>()}),
            "Error: AddOptimizer: there is an optimizer \"sgd\"");
  EXPECT_EQ(message({.name = "Sign"}),
            "Error: AddOptimizer: a name has lower-case letters, digits and \"_\", got \"Sign\"");
  EXPECT_EQ(message({.name = "sign"}), "Error: AddOptimizer: \"sign\" has no kernel");
  EXPECT_EQ(message({.name = "sign", .settings = {{"lr"}}, .kernel = BuiltInKernelOf<update_rules::Sgd>()}),
            "Error: AddOptimizer: \"sign\": every optimizer has the setting \"lr\"");
  for (const char* state : {"average", "a:b"}) {
    EXPECT_EQ(message({.name = "sign", .states = {state}, .kernel = BuiltInKernelOf<update_rules::Momentum>()}),
              fmt::format("Error: AddOptimizer: \"sign\": a state cannot be called \"{}\"", state));
  }
}

TEST(Multipliers, DefaultsAndAnnotations) {
  EXPECT_EQ(MultipliersOf("fc1_weight", {}), (Multipliers{1, 1}));
  EXPECT_EQ(MultipliersOf("bn1_gamma", {}), (Multipliers{1, 1}));
  for (const char* name : {"weight", "fc.weight", "layer1.0.bn1.weight", "in_proj_weight", "lstm.weight_ih_l0",
                           "weight_hh_l1_reverse", "dense/kernel", "model/dense/kernel:0", "norm.gamma"})
    EXPECT_EQ(MultipliersOf(name, {}), (Multipliers{1, 1})) << name;
  for (const char* name : {"fc1_bias", "fc1.bias", "bn1_beta", "embedding", "fc.weight.bias", "no_weights_here",
                           "lightweight", "dense/bias:0", "lstm.bias_ih_l0", ""})
    EXPECT_EQ(MultipliersOf(name, {}), (Multipliers{1, 0})) << name;
  EXPECT_EQ(MultipliersOf("fc1_bias", {{"wd_mult", "1"}, {"other", "x"}}), (Multipliers{1, 1}));
  EXPECT_EQ(MultipliersOf("fc2_weight", {{"wd_mult", "0.5"}, {"lr_mult", "0"}}), (Multipliers{0, 0.5}));
  for (const char* text : {"", "x", "1x", "-1", "inf"}) {
    try {
      MultipliersOf("fc1_weight", {{"lr_mult", text}});
      FAIL() << text;
    } catch (const ModelError& error) {
      EXPECT_EQ(error.what(),
                fmt::format(
                    "ModelError: parameter \"fc1_weight\", annotation \"lr_mult\": expected a number >= 0, got \"{}\"",
                    text));
    }
  }
}

TEST(Multipliers, ByPatternsOfNames) {
  const MultiplierList list = {{"conv1*", 0.1}, {.names = "conv?_weight", .lr = 0.5, .wd = 0}, {.names = "*", .wd = 3}};
  const auto of = [&](const std::string& name) { return MultipliersOf(name, {{"lr_mult", "7"}}, list); };
  EXPECT_EQ(of("conv1_weight"), (Multipliers{0.1, 0}));
  EXPECT_EQ(of("conv2_weight"), (Multipliers{0.5, 0}));
  EXPECT_EQ(of("conv1_bias"), (Multipliers{0.1, 3}));
  EXPECT_EQ(of("fc_weight"), (Multipliers{7, 3}));
  EXPECT_EQ(ToText(list), "conv1*: lr=0.1, conv?_weight: lr=0.5 wd=0, *: wd=3");
  const auto refused = [](const NamedMultipliers& one) {
    return MessageOf<Error>([&] { CheckMultipliers({one}, {"fc1_weight", "fc1_bias"}); });
  };
  EXPECT_EQ(refused({"fc1_wieght", 1}),
            "Error: multipliers: \"fc1_wieght\" fits no parameter; did you mean \"fc1_weight\"?");
  EXPECT_EQ(refused({"fc1*", -1}), "Error: multipliers of \"fc1*\": expected a number >= 0, got -1");
  EXPECT_EQ(refused({.names = "*", .wd = INFINITY}), "Error: multipliers of \"*\": expected a number >= 0, got inf");
}

// Learning rate multiplier 0 keeps a weight; a bias without weight decay changes by its gradient only; half the weight
// decay.
TEST(Multipliers, InAnUpdate) {
  const Optimizer sgd = Sgd({.learning_rate = 0.1, .weight_decay = 1});
  const auto update = [&](const std::string& name, const Annotations& annotations) {
    const Multipliers multipliers = MultipliersOf(name, annotations);
    float weight = 2;
    const float grad = 1;
    const void* grads[] = {&grad};
    sgd.Update(DType::kFloat32, {.learning_rate = 0.1 * multipliers.lr, .weight_decay = 1 * multipliers.wd}, grads,
               &weight, {}, {}, 1);
    return weight;
  };
  EXPECT_EQ(update("fc1_weight", {{"lr_mult", "0"}}), 2);
  EXPECT_FLOAT_EQ(update("fc1_bias", {{"lr_mult", "1"}}), 1.9f);
  EXPECT_FLOAT_EQ(update("fc2_weight", {{"wd_mult", "0.5"}}), 1.8f);
}

}  // namespace
}  // namespace bindery
