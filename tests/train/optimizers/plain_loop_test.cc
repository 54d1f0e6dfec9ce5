// Training with fixed parameters, weight decay and multipliers, value by value against a plain loop in double.
#include <gtest/gtest.h>

#include <cmath>

#include "symbol/ops.h"
#include "tests/host_tensors.h"
#include "tests/log_lines.h"
#include "tests/test_device.h"
#include "train/data/array_iter.h"
#include "train/trainer.h"

namespace bindery {
namespace {

constexpr int64_t kSamples = 12, kBatch = 6, kIn = 4, kHidden = 3;

HostTensor Waves(const Shape& shape, double pace) {
  return Filled(shape, [=](int64_t i) { return std::sin(pace * static_cast<double>(i + 1)); });
}

std::vector<double> ToDoubles(const HostTensor& tensor) {
  std::vector<double> values;
  for (int64_t i = 0; i < tensor.elements(); ++i) values.push_back(tensor.At(i));
  return values;
}

struct Parameter {
  std::vector<double> value, momentum, gradient;
  double lr = 1, wd = 0;  // multipliers
};

// y = (x W1^T + b1) W2^T + b2, one number per sample; the loss is half the squared error.
class PlainLoop {
 public:
  explicit PlainLoop(const HostTensorMap& params) {
    for (const auto& [name, value] : params) {
      parameters[name] = {.value = ToDoubles(value),
                          .momentum = std::vector<double>(static_cast<size_t>(value.elements()), 0.0),
                          .gradient = std::vector<double>(static_cast<size_t>(value.elements()), 0.0),
                          .wd = name.ends_with("_weight") ? 1.0 : 0.0};
    }
  }

  void Step(const double* x, const double* t, double lr, double momentum, double decay) {
    Parameter &w1 = parameters.at("fc1_weight"), &b1 = parameters.at("fc1_bias"), &w2 = parameters.at("fc2_weight"),
              &b2 = parameters.at("fc2_bias");
    for (auto& [name, p] : parameters) p.gradient.assign(p.gradient.size(), 0.0);
    for (int64_t n = 0; n < kBatch; ++n) {
      double h[kHidden], y = b2.value[0];
      for (int64_t k = 0; k < kHidden; ++k) {
        h[k] = b1.value[k];
        for (int64_t i = 0; i < kIn; ++i) h[k] += x[n * kIn + i] * w1.value[k * kIn + i];
        y += h[k] * w2.value[k];
      }
      const double dy = y - t[n];
      b2.gradient[0] += dy;
      for (int64_t k = 0; k < kHidden; ++k) {
        w2.gradient[k] += dy * h[k];
        b1.gradient[k] += dy * w2.value[k];
        for (int64_t i = 0; i < kIn; ++i) w1.gradient[k * kIn + i] += dy * w2.value[k] * x[n * kIn + i];
      }
    }
    for (auto& [name, p] : parameters) {
      if (fixed.contains(name)) continue;
      for (size_t i = 0; i < p.value.size(); ++i) {
        const double g = p.gradient[i] / kBatch + decay * p.wd * p.value[i];
        p.momentum[i] = momentum * p.momentum[i] - lr * p.lr * g;
        p.value[i] += p.momentum[i];
      }
    }
  }

  std::map<std::string, Parameter> parameters;
  std::set<std::string> fixed;
};

TEST(PlainLoop, FixedParametersDecayAndMultipliers) {
  const Symbol hidden = FullyConnected(Variable("data"), Variable("fc1_weight", {.lr_mult = 0.5}),
                                       Variable("fc1_bias", {.wd_mult = 3.0}), {.num_hidden = kHidden}, "fc1");
  const Symbol net =
      LinearRegressionOutput(FullyConnected(hidden, {.num_hidden = 1}, "fc2"), Variable("softmax_label"), {}, "out");
  const HostTensorMap initial = {{"fc1_weight", Waves({kHidden, kIn}, 0.7)},
                                 {"fc1_bias", Waves({kHidden}, 1.3)},
                                 {"fc2_weight", Waves({1, kHidden}, 2.1)},
                                 {"fc2_bias", Waves({1}, 0.4)}};
  const HostTensor x = Waves({kSamples, kIn}, 0.37), t = Waves({kSamples, 1}, 0.9);
  const std::vector<double> xs = ToDoubles(x), ts = ToDoubles(t);
  for (const std::set<std::string>& fixed :
       {std::set<std::string>{}, {"fc1_weight"}, {"fc2_weight", "fc1_bias"}, {"fc1_weight", "fc1_bias"}}) {
    const bool both = fixed.contains("fc1_weight") && fixed.contains("fc1_bias");  // of one layer
    for (const std::vector<double>& workload : {std::vector<double>{1}, {2, 1}}) {
      std::vector<Device> devices;
      for (size_t d = 0; d < workload.size(); ++d) devices.push_back(TestDevice(static_cast<int>(d)));
      Model model{.symbol = net, .params = initial, .aux = {}, .metadata = {}};
      Trainer trainer(model, {.devices = devices,
                              .workload = workload,
                              .optimizer = "sgd(lr=0.1, momentum=0.9, wd=0.2)",
                              .metrics = "loss",
                              .fixed_params = both ? std::vector<std::string>{"fc1_*"}
                                                   : std::vector<std::string>(fixed.begin(), fixed.end()),
                              .multipliers = {{.names = "fc2*", .lr = 0.25}, {.names = "fc2_bias", .wd = 2}}});
      ArrayIter data(x, t, {.batch_size = kBatch});
      trainer.Fit(data, {.epochs = 3});
      PlainLoop loop(initial);
      loop.fixed = fixed;
      loop.parameters.at("fc1_weight").lr = 0.5;
      loop.parameters.at("fc1_bias").wd = 3;
      loop.parameters.at("fc2_weight").lr = loop.parameters.at("fc2_bias").lr = 0.25;
      loop.parameters.at("fc2_bias").wd = 2;
      for (int64_t step = 0; step < 6; ++step) {
        const int64_t first = step * kBatch % kSamples;
        loop.Step(xs.data() + first * kIn, ts.data() + first, 0.1, 0.9, 0.2);
      }
      for (const auto& [name, value] : trainer.ToModel().params) {
        for (int64_t i = 0; i < value.elements(); ++i) {
          EXPECT_NEAR(value.At(i), loop.parameters.at(name).value[static_cast<size_t>(i)], 2e-5)
              << name << " " << i << ", " << fixed.size() << " fixed, " << devices.size() << " devices";
        }
        if (fixed.contains(name)) {
          EXPECT_EQ(value, initial.at(name));
        }
      }
    }
  }
}

// gamma that counts as 1 is neither trained nor shrunk; one that something else reads is.
TEST(PlainLoop, AGammaThatTheGraphFixesDoesNotDecay) {
  const Symbol gamma = Variable("bn_gamma");
  for (const bool is_read : {false, true}) {
    Symbol x = Apply(BatchNormOp(), BatchNormAttrs{.fix_gamma = true}, {Variable("data"), gamma}, "bn");
    if (is_read) x = Apply(BatchNormOp(), BatchNormAttrs{.fix_gamma = false}, {x, gamma}, "bn2");
    const Symbol net = SoftmaxOutput(FullyConnected(x, {.num_hidden = 3}, "fc1"), {}, "softmax");
    Trainer trainer(net, {.devices = {TestDevice(0), TestDevice(1)}, .optimizer = "sgd(lr=0.1, momentum=0.9, wd=0.5)"});
    ArrayIter data(Waves({kSamples, kIn}, 0.37), ClassesInTurn(kSamples, 3), {.batch_size = kBatch});
    trainer.Fit(data, {.epochs = 3});
    const HostTensorMap params = trainer.ToModel().params, state = trainer.updater()->State();
    const HostTensor ones = HostTensor::Full(DType::kFloat32, {kIn}, 1);
    EXPECT_EQ(params.at("bn_gamma") == ones, !is_read);
    EXPECT_EQ(state.contains("bn_gamma:momentum"), is_read);
    EXPECT_TRUE(state.contains("fc1_weight:momentum"));
  }
}

// Names that say nothing about weights: nothing would decay, without a word.
TEST(PlainLoop, WhereNothingDecaysThatIsSaid) {
  const auto lines_of = [](const std::string& name, const std::string& optimizer) {
    const LogLines log;
    const Symbol weight = Variable(name, {.shape = Shape{3, kIn}, .init = "zero"});
    const Symbol x = FullyConnected(Variable("data"), weight, Symbol(), {.num_hidden = 3, .no_bias = true}, "fc");
    Trainer trainer(SoftmaxOutput(x, {}, "softmax"), {.devices = {TestDevice(0)}, .optimizer = optimizer});
    ArrayIter data(Waves({kSamples, kIn}, 0.37), HostTensor(DType::kFloat32, {kSamples}), {.batch_size = kBatch});
    trainer.Prepare(data);
    return log.text();
  };
  for (const char* optimizer : {"sgd(wd=0.1)", "lamb", "sgd"}) {
    EXPECT_EQ(lines_of("onnx::MatMul_7", optimizer).find("none of the parameters is a weight") != std::string::npos,
              optimizer != std::string("sgd"));
    EXPECT_EQ(lines_of("fc.weight", optimizer).find("none of the parameters is a weight"), std::string::npos);
  }
}

}  // namespace
}  // namespace bindery
