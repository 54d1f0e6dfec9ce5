// Gradients of the tape against those of a bound symbol, finite differences and numbers worked out by hand.
#include "executor/tape/tape.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <thread>

#include "base/error.h"
#include "executor/executor.h"
#include "symbol/ops.h"
#include "tests/executor/tape/helpers.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

NDArray WithGradient(NDArray array, GradReq request = GradReq::kWrite) {
  array.AttachGradient(request);
  return array;
}

TEST(Tape, ByHand) {
  const NDArray x = WithGradient(Values({3}, {1, 2, 3})), c = Values({3}, {5, 6, 7});
  NDArray y;
  {
    const RecordScope record;
    EXPECT_TRUE(IsRecording());
    y = x * x * 2 + c * x;
  }
  EXPECT_FALSE(IsRecording());
  ExpectNumbers(y, {3}, {7, 20, 39});
  ExpectNumbers(x.gradient(), {3}, {0, 0, 0});
  y.Backward();
  ExpectNumbers(x.gradient(), {3}, {9, 14, 19});  // 4 x + c
  EXPECT_FALSE(c.has_gradient());
}

TEST(Tape, HeadGradients) {
  const NDArray x = WithGradient(Values({2}, {2, 3}));
  std::vector<NDArray> heads;
  {
    const RecordScope record;
    heads = {x * x, x * 10, (x * x).Sum()};
  }
  Backward(heads, {.head_gradients = {Values({2}, {1, 100}), {}, Values({}, {0.5})}, .retain = true});
  ExpectNumbers(x.gradient(), {2}, {4 + 10 + 2, 600 + 10 + 3});
  heads[0].Backward(Values({2}, {0, 1}));
  ExpectNumbers(x.gradient(), {2}, {0, 6});
}

TEST(Tape, Requests) {
  NDArray w = WithGradient(Values({2}, {1, 2})), a = WithGradient(Values({2}, {3, 4}), GradReq::kAdd);
  for (int i = 1; i <= 3; ++i) {
    NDArray y;
    {
      const RecordScope record;
      y = w * a;
    }
    y.Backward();
    ExpectNumbers(w.gradient(), {2}, {3, 4});
    ExpectNumbers(a.gradient(), {2}, {1.0 * i, 2.0 * i});
  }
  a.AttachGradient(GradReq::kNull);
  EXPECT_FALSE(a.has_gradient());
  {
    const RecordScope record;
    (w * a).Backward();  // also while something is recorded
  }
  ExpectNumbers(w.gradient(), {2}, {3, 4});
  // What the heads do not depend on gets zero, or stays.
  NDArray u = WithGradient(Values({2}, {1, 1}));
  {
    const RecordScope record;
    NDArray y = w + Apply(BlockGrad, {u * 2});
    y.Backward();
  }
  ExpectNumbers(u.gradient(), {2}, {0, 0});
  ExpectNumbers(w.gradient(), {2}, {1, 1});
}

TEST(Tape, PauseAndDetach) {
  const NDArray x = WithGradient(Values({2}, {1, 2}));
  NDArray y;
  {
    const RecordScope record;
    const NDArray square = x * x;
    NDArray factor;
    {
      const PauseScope pause;
      EXPECT_FALSE(IsRecording());
      factor = square + 1;
    }
    EXPECT_TRUE(IsRecording());
    y = square * factor + square.Detach() * 100;
  }
  y.Backward();
  ExpectNumbers(x.gradient(), {2}, {4, 20});  // 2 x (x^2 + 1)
}

TEST(Tape, ViewsAreRecorded) {
  const NDArray x = WithGradient(Values({3, 2}, {1, 2, 3, 4, 5, 6}));
  NDArray y;
  {
    const RecordScope record;
    const NDArray flat = x.Slice(1, 3).Reshape({-1});
    y = (flat * flat).Sum() + x.CopyTo(x.device()).As(DType::kFloat64).Mean().As(DType::kFloat32) * 6;
  }
  y.Backward();
  ExpectNumbers(x.gradient(), {3, 2}, {1, 1, 7, 9, 11, 13}, 1e-5);
  // One value in two shapes: as two gradients, and as what is saved of one call.
  const NDArray b = WithGradient(Values({6}, {1, 1, 1, 1, 1, 1})), c = Values({6}, {5, 6, 7, 8, 9, 10});
  for (const bool saved : {false, true}) {
    {
      const RecordScope record;
      y = saved ? Apply([](const Symbol& s) { return Square(Reshape(Sqrt(s), {.shape = {-1}})); }, {x}) * c
                : (x.Reshape({6}) + b) * c;
    }
    y.Backward();
    ExpectNumbers(x.gradient(), {3, 2}, {5, 6, 7, 8, 9, 10}, 1e-4);
  }
  ExpectNumbers(b.gradient(), {6}, {5, 6, 7, 8, 9, 10});
}

// A small convolutional network, once as a symbol, once step by step.
struct Net {
  HostTensorMap params;
  HostTensor data, label;
  Net() {
    const auto random = [](const Shape& shape) { return NDArray::Normal(shape, 0.5).ToHost(); };
    SeedArrays(3);
    params = {{"conv_weight", random({4, 1, 3, 3})}, {"conv_bias", random({4})},
              {"norm_gamma", random({4})},           {"norm_beta", random({4})},
              {"fc_weight", random({3, 36})},        {"fc_bias", random({3})}};
    data = random({5, 1, 8, 8});
    label = HostTensor::From({5}, {0, 2, 1, 1, 0});
  }

  static Symbol Loss(const Symbol& scores, const Symbol& label) { return SoftmaxCrossEntropy(scores, label); }
  static Symbol Whole() {
    Symbol x = Convolution(Variable("data"), {.num_filter = 4, .kernel = {3, 3}}, "conv");
    x = Tanh(BatchNorm(x, {.fix_gamma = false}, "norm"));
    x = Pooling(x, {.type = PoolType::kMax, .kernel = {2, 2}, .stride = {2, 2}});
    return Loss(FullyConnected(x, {.num_hidden = 3}, "fc"), Variable("label"));
  }
};

TEST(Tape, GradientsOfASymbol) {
  const Net net;
  Executor executor(Net::Whole(), {.device = TestDevice(), .inputs = {{"data", {5, 1, 8, 8}}, {"label", {5}}}});
  executor.SetParams(net.params, {{"norm_running_mean", HostTensor(DType::kFloat32, {4})},
                                  {"norm_running_var", HostTensor::Full(DType::kFloat32, {4}, 1)}});
  executor.Forward({{"data", net.data}, {"label", net.label}});
  executor.Backward(HostTensor::Full(DType::kFloat32, {5}, 1));

  std::map<std::string, NDArray> p;
  for (const auto& [name, value] : net.params) p[name] = WithGradient(NDArray(value, TestDevice()));
  NDArray mean = NDArray::Zeros({4}, TestDevice()), var = NDArray::Full({4}, 1, TestDevice());
  const NDArray data(net.data, TestDevice()), label(net.label, TestDevice());
  for (int round = 0; round < 2; ++round) {
    NDArray loss;
    const TapeStatistics before = ArrayStatistics();
    {
      const RecordScope record;
      NDArray x = Apply(Convolution, {data, p["conv_weight"], p["conv_bias"]}, {.num_filter = 4, .kernel = {3, 3}});
      x = Apply(BatchNorm, {x, p["norm_gamma"], p["norm_beta"], mean, var}, {.fix_gamma = false});
      x = Apply(Pooling, {Apply(Tanh, {x})}, {.type = PoolType::kMax, .kernel = {2, 2}, .stride = {2, 2}});
      x = Apply(FullyConnected, {x, p["fc_weight"], p["fc_bias"]}, {.num_hidden = 3});
      loss = Apply(Net::Loss, {x, label});
    }
    if (round == 0) {
      EXPECT_LT(MaxAbsDiff(loss.ToHost(), executor.Output(0)), 1e-5);
      EXPECT_LT(MaxAbsDiff(mean.ToHost(), executor.AuxiliaryArray("norm_running_mean").ToHost()), 1e-6);
      EXPECT_LT(MaxAbsDiff(var.ToHost(), executor.AuxiliaryArray("norm_running_var").ToHost()), 1e-6);
    }
    loss.Backward();
    for (const auto& [name, param] : p) {
      EXPECT_LT(MaxAbsDiff(param.gradient().ToHost(), executor.Gradient(name)), 1e-4) << name;
    }
    if (round > 0) {
      EXPECT_EQ(ArrayStatistics().compiled, before.compiled);
    }
  }
}

// d(sum f)/dx against differences, in double precision.
void CheckDifferences(const std::function<NDArray(const NDArray&)>& f, const Shape& shape, bool positive = false) {
  NDArray x = NDArray::Normal(shape, 1, TestDevice()).As(DType::kFloat64);
  if (positive) x = x * x + 0.5;
  x.AttachGradient();
  NDArray y;
  {
    const RecordScope record;
    y = f(x);
  }
  y.Backward();
  const HostTensor gradient = x.gradient().ToHost(), at = x.ToHost();
  for (int64_t i = 0; i < at.elements(); ++i) {
    double sums[2];
    for (int side = 0; side < 2; ++side) {
      HostTensor moved = at;
      moved.Set(i, at.At(i) + (side == 0 ? -1e-5 : 1e-5));
      sums[side] = f(NDArray(moved, TestDevice())).Sum().Scalar();
    }
    EXPECT_NEAR(gradient.At(i), (sums[1] - sums[0]) / 2e-5, 1e-6) << "element " << i;
  }
}

TEST(Tape, FiniteDifferences) {
  SeedArrays(11);
  CheckDifferences([](const NDArray& x) { return 1 / (x * x + 1) - x / 3; }, {4});
  CheckDifferences([](const NDArray& x) { return Apply(Log, {x}) * Apply(Sqrt, {x}); }, {2, 3}, true);
  CheckDifferences([](const NDArray& x) { return (x.Mean({0}) - x) * x.Sum(); }, {3, 2});
  CheckDifferences(
      [](const NDArray& x) {
        return Apply(Softmax, {x.Reshape({2, 3})}) * x.Slice(0, 1).Reshape({1, 3});
      },
      {2, 3});
  CheckDifferences([](const NDArray& x) { return Apply(Dot, {x, Apply(Tanh, {x})}) - -x; }, {3, 3});
  CheckDifferences([](const NDArray& x) { return Apply(MatMul, {x, x}, {.transpose_b = true}); }, {2, 3});
  CheckDifferences(
      [](const NDArray& x) { return Apply([](const Symbol& s) { return Tile(Exp(s) * s, {.repeats = {2}}); }, {x}); },
      {3});
  CheckDifferences(
      [](const NDArray& x) {
        const std::vector<NDArray> parts = ApplyAll(SliceChannel, {x}, {.num_outputs = 2});
        return parts[0] * parts[1] * parts[1];
      },
      {2, 2});
}

// The mask of the forward pass is that of the backward pass, also inside a call of several operators, and in a value
// that a kernel keeps to itself.
TEST(Tape, DropoutDropsTheSame) {
  const NDArray x = WithGradient(NDArray::Full({100}, 1, TestDevice()));
  for (int round = 0; round < 2; ++round) {
    HostTensor last;
    for (int i = 0; i < 3; ++i) {
      NDArray y;
      {
        const RecordScope record;
        y = round == 0 ? Apply(Dropout, {x}, {.p = 0.5})
                       : Apply(
                             [](const Symbol& s) {
                               return Pooling(Reshape(Dropout(s * 1.0), {.shape = {1, 1, 100, 1}}),
                                              {.type = PoolType::kMax, .kernel = {1, 1}});
                             },
                             {x})
                             .Reshape({100});
      }
      const HostTensor values = y.ToHost();
      y.Backward();
      EXPECT_EQ(x.gradient().ToHost(), values);
      EXPECT_NEAR(y.Detach().Mean().Scalar(), 1, 0.5);
      if (i > 0) {
        EXPECT_GT(MaxAbsDiff(values, last), 1);
      }
      last = values;
    }
  }
  EXPECT_EQ(Apply(Dropout, {x}).Sum().Scalar(), 100);
  {
    const RecordScope record;
    Apply(Dropout, {x}, {.p = 0}).Backward();
  }
  EXPECT_EQ(x.gradient().Sum().Scalar(), 100);
  const RecordScope record(Mode::kPredict);
  const NDArray y = Apply(Dropout, {x}) * 3;
  EXPECT_EQ(y.Detach().Sum().Scalar(), 300);
  y.Backward();
  ExpectNumbers(x.gradient().Slice(0, 2), {2}, {3, 3});
}

TEST(Tape, ModesOfBatchNorm) {
  const NDArray x = WithGradient(Values({2, 1}, {1, 3})), one = Values({1}, {1}), zero = Values({1}, {0});
  NDArray mean = Values({1}, {0}), var = Values({1}, {4});
  const NDArray head = Values({2, 1}, {1, 0});
  const auto gradient = [&](Mode mode) {
    NDArray y;
    {
      const RecordScope record(mode);
      y = Apply(BatchNorm, {x, one, zero, mean, var}, {.eps = 1e-9});
    }
    y.Backward(head);
  };
  gradient(Mode::kPredict);
  ExpectNumbers(x.gradient(), {2, 1}, {0.5, 0});
  gradient(Mode::kTrain);
  ExpectNumbers(x.gradient(), {2, 1}, {0, 0}, 1e-5);  // of two values the normalised ones are -1 and 1
}

// In one call a max-pooling's winners are computed again, and with them the batch-norm before; its state moves once.
TEST(Tape, StatesMoveOnceThoughComputedAgain) {
  const NDArray x = WithGradient(NDArray::Normal({3, 2, 4, 4}, 1, TestDevice())),
                gamma = WithGradient(NDArray::Full({2}, 2, TestDevice())), beta = NDArray::Zeros({2}, TestDevice());
  const BatchNormAttrs norm = {.momentum = 0.5, .fix_gamma = false};
  const PoolingAttrs pool = {.type = PoolType::kMax, .kernel = {2, 2}, .stride = {2, 2}};
  HostTensor results[2][4];
  for (const bool together : {false, true}) {
    NDArray mean = NDArray::Zeros({2}, TestDevice()), var = NDArray::Full({2}, 1, TestDevice()), y;
    {
      const RecordScope record;
      if (together) {
        y = Apply(
            [&](const std::vector<Symbol>& in) {
              return Pooling(Apply(BatchNormOp(), norm, {in[0], in[1], in[2], in[3], in[4]}), pool);
            },
            {x, gamma, beta, mean, var});
      } else {
        y = Apply(Pooling, {Apply(BatchNorm, {x, gamma, beta, mean, var}, norm)}, pool);
      }
      y = y * y;
    }
    y.Backward();
    HostTensor* const all = results[together];
    all[0] = x.gradient().ToHost(), all[1] = gamma.gradient().ToHost(), all[2] = mean.ToHost(), all[3] = var.ToHost();
  }
  for (int i = 0; i < 4; ++i) EXPECT_LT(MaxAbsDiff(results[0][i], results[1][i]), 1e-5) << i;
  EXPECT_GT(MaxAbsDiff(results[0][0], HostTensor(DType::kFloat32, {3, 2, 4, 4})), 0.01);
}

TEST(Tape, AnyEngine) {
  const std::shared_ptr<Engine> before = DefaultEngine();
  SetDefaultEngine(MakeInlineEngine());
  ExpectNumbers(NDArray::Full({2}, 3, TestDevice()) + 1, {2}, {4, 4});
  const NDArray x = WithGradient(Values({2}, {1, 2}));
  {
    const RecordScope record;
    (x * x).Backward();
  }
  ExpectNumbers(x.gradient(), {2}, {2, 4});
  SetDefaultEngine(before);
  EXPECT_NE(MessageOf([&] {
              x + Values({2}, {1, 2});
            }).find("Add: input 1 belongs to another engine"),
            std::string::npos);
}

TEST(Tape, ThreadsHaveTapesOfTheirOwn) {
  const NDArray shared = Values({2}, {1, 2});
  std::vector<std::thread> threads;
  std::vector<HostTensor> gradients(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const NDArray x = WithGradient(Values({2}, {1.0f * t, 3}));
      for (int i = 0; i < 20; ++i) {
        EXPECT_FALSE(IsRecording());
        const RecordScope record;
        (x * x * shared + x * (i % 3)).Backward();
      }
      gradients[t] = x.gradient().ToHost();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < 4; ++t) EXPECT_EQ(gradients[t], HostTensor::From({2}, {2.0f * t + 1, 13}));
}

TEST(Tape, Losses) {
  const NDArray x = WithGradient(Values({2, 2}, {0, 0, 0, 0})), label = Values({2}, {0, 1});
  const auto gradient = [&](Normalization by, int64_t batch_size) {
    NDArray p;
    {
      const RecordScope record;
      p = Apply(SoftmaxOutput, {x, label}, {.normalization = by});
    }
    Backward({p}, {.batch_size = batch_size});
  };
  gradient(Normalization::kNull, 0);
  ExpectNumbers(x.gradient(), {2, 2}, {-0.5, 0.5, 0.5, -0.5});
  gradient(Normalization::kBatch, 0);
  ExpectNumbers(x.gradient(), {2, 2}, {-0.25, 0.25, 0.25, -0.25});
  gradient(Normalization::kBatch, 10);
  ExpectNumbers(x.gradient(), {2, 2}, {-0.05, 0.05, 0.05, -0.05});
}

TEST(Tape, SeveralDevicesEachATape) {
  std::vector<NDArray> xs, ys;
  for (int d = 0; d < 3; ++d) xs.push_back(WithGradient(Values({2}, {1.0f + d, 2}, d)));
  {
    const RecordScope record;
    for (const NDArray& x : xs) ys.push_back((x * x).Sum());
  }
  for (const NDArray& y : ys) y.Backward();
  for (int d = 0; d < 3; ++d) ExpectNumbers(xs[d].gradient(), {2}, {2.0 + 2 * d, 4});
  {
    const RecordScope record;
    ys = {xs[0] * 2, xs[1] * 2};
    EXPECT_NE(MessageOf([&] { xs[0] + xs[1]; }).find("Add: arrays of different devices"), std::string::npos);
    EXPECT_NE(MessageOf([&] { ys[0].CopyTo(TestDevice(1)); }).find("CopyTo: the tape lies on"), std::string::npos);
  }
  EXPECT_NE(MessageOf([&] { Backward(ys); }).find("Backward: heads of different devices"), std::string::npos);
}

}  // namespace
}  // namespace bindery
