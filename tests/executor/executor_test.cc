// One device's executor: published expectations.
#include "executor/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>

#include "symbol/ops.h"
#include "tests/executor/group_helpers.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

using BinaryFn = std::function<Symbol(const Symbol&, const Symbol&, const std::string&)>;
const std::map<std::string, GradReq> kBoth = {{"a", GradReq::kWrite}, {"b", GradReq::kWrite}};

// What a binary operator gives, and its gradients where 1 flows back.
struct Binary {
  std::string name;
  BinaryFn symbol;
  double (*value)(double, double);
  double (*left)(double, double);
  double (*right)(double, double);
};
const std::vector<Binary> kBinaries = {
    {"add", Add, [](double x, double y) { return x + y; }, [](double, double) { return 1.0; },
     [](double, double) { return 1.0; }},
    {"sub", Sub, [](double x, double y) { return x - y; }, [](double, double) { return 1.0; },
     [](double, double) { return -1.0; }},
    {"mul", Mul, [](double x, double y) { return x * y; }, [](double, double y) { return y; },
     [](double x, double) { return x; }},
    {"div", Div, [](double x, double y) { return x / y; }, [](double, double y) { return 1 / y; },
     [](double x, double y) { return -x / (y * y); }},
    {"max", Maximum, [](double x, double y) { return x >= y ? x : y; },
     [](double x, double y) { return x >= y ? 1.0 : 0; }, [](double x, double y) { return x >= y ? 0.0 : 1; }},
    {"min", Minimum, [](double x, double y) { return x <= y ? x : y; },
     [](double x, double y) { return x <= y ? 1.0 : 0; }, [](double x, double y) { return x <= y ? 0.0 : 1; }},
};

// E22: bound in several ways, run by either engine, with and without passes and fusion.
TEST(Executor, GradientsOfArithmetic) {
  PhiloxStream random(1, "shapes");
  for (int rank = 1; rank <= 3; ++rank) {
    Shape shape(std::vector<int64_t>(rank, 1));
    for (int axis = 0; axis < rank; ++axis) shape.Set(axis, 1 + static_cast<int64_t>(random.Below(7)));
    const HostTensor x = RandomTensor(shape, 1), ones = HostTensor::Full(DType::kFloat32, shape, 1);
    HostTensor y = RandomTensor(shape, 2);
    for (int64_t i = 0; i < y.elements(); ++i) y.Set(i, y.At(i) + (y.At(i) < 0 ? -1 : 1));  // away from 0
    y.Set(0, x.At(0));                                                                      // a tie
    const DataDesc a{"a", shape}, b{"b", shape};
    const std::vector<GradReq> list = {GradReq::kWrite, GradReq::kWrite};
    const std::shared_ptr<Engine> at_once = MakeInlineEngine();
    const std::vector<ExecutorOptions> ways = {
        {.inputs = {a, b}, .grad_req = kBoth},
        {.inputs = {b, a}, .grad_req = kBoth, .engine = at_once},
        {.inputs = {a, b}, .grad_req = list, .engine = at_once},
        {.inputs = {a, b},
         .grad_req = kBoth,
         .engine = at_once,
         .switches = {.passes = false, .fusion = false, .inplace = false}},
        {.inputs = {a, b}, .grad_req = kBoth, .engine = at_once, .switches = {.policy = KernelPolicy::kReference}},
        {.inputs = {a, b}, .for_training = false, .engine = at_once},
    };
    for (const Binary& f : kBinaries) {
      for (size_t way = 0; way < ways.size(); ++way) {
        Executor e(f.symbol(Variable("a"), Variable("b"), "out"), ways[way]);
        e.Forward({{"a", x}, {"b", y}});
        const HostTensor out = e.Output(0);
        for (int64_t i = 0; i < x.elements(); ++i)
          EXPECT_NEAR(out.At(i), f.value(x.At(i), y.At(i)), 1e-6) << f.name << ", " << way;
        if (!ways[way].for_training) continue;
        e.Backward(ones);
        const HostTensor da = e.Gradient("a"), db = e.Gradient("b");
        for (int64_t i = 0; i < x.elements(); ++i) {
          EXPECT_NEAR(da.At(i), f.left(x.At(i), y.At(i)), 1e-5) << f.name << ", " << way;
          EXPECT_NEAR(db.At(i), f.right(x.At(i), y.At(i)), 1e-5) << f.name << ", " << way;
        }
      }
    }
  }
}

TEST(Executor, GradientsOfDot) {  // E23
  Executor e(Dot(Variable("a"), Variable("b")), {.inputs = {{"a", {2, 3}}, {"b", {3, 4}}}, .grad_req = kBoth});
  const HostTensor a = RandomTensor({2, 3}, 1), b = RandomTensor({3, 4}, 2), g = RandomTensor({2, 4}, 3);
  e.Forward({{"a", a}, {"b", b}});
  e.Backward(g);
  HostTensor da(DType::kFloat32, {2, 3}), db(DType::kFloat32, {3, 4}), product(DType::kFloat32, {2, 4});
  for (int i = 0; i < 2; ++i) {
    for (int k = 0; k < 3; ++k) {
      for (int j = 0; j < 4; ++j) {
        product.Set(i * 4 + j, product.At(i * 4 + j) + a.At(i * 3 + k) * b.At(k * 4 + j));
        da.Set(i * 3 + k, da.At(i * 3 + k) + g.At(i * 4 + j) * b.At(k * 4 + j));
        db.Set(k * 4 + j, db.At(k * 4 + j) + a.At(i * 3 + k) * g.At(i * 4 + j));
      }
    }
  }
  EXPECT_LE(MaxAbsDiff(e.Output(0), product), 1e-6);
  EXPECT_LE(MaxAbsDiff(e.Gradient("a"), da), 1e-6);
  EXPECT_LE(MaxAbsDiff(e.Gradient("b"), db), 1e-6);
}

TEST(Executor, GradientsOfDotOfVectors) {  // E23
  Executor e(Dot(Variable("a"), Variable("b")), {.inputs = {{"a", {7}}, {"b", {7}}}, .grad_req = kBoth});
  const HostTensor a = RandomTensor({7}, 1), b = RandomTensor({7}, 2),
                   g = HostTensor::Full(DType::kFloat32, e.OutputShape(0), 3);
  e.Forward({{"a", a}, {"b", b}});
  e.Backward(g);
  double product = 0;
  for (int i = 0; i < 7; ++i) {
    product += a.At(i) * b.At(i);
    EXPECT_NEAR(e.Gradient("a").At(i), 3 * b.At(i), 1e-6);
    EXPECT_NEAR(e.Gradient("b").At(i), 3 * a.At(i), 1e-6);
  }
  EXPECT_EQ(e.Output(0).elements(), 1);
  EXPECT_NEAR(e.Output(0).At(0), product, 1e-6);
}

// Inputs are set one by one or all at once, also while a step that was pushed still has to read them.
TEST(Executor, InputsChangeOneByOne) {
  const Symbol net = Variable("a") - Variable("b");
  const auto full = [](double value) { return HostTensor::Full(DType::kFloat32, {2, 3}, value); };
  const std::shared_ptr<Engine> engine = MakeThreadedEngine();
  Executor executor(net, {.inputs = {{"a", {2, 3}}, {"b", {2, 3}}}, .for_training = false, .engine = engine});
  executor.Forward();
  EXPECT_EQ(executor.Output(0), full(0));
  executor.SetInput("a", full(5));
  executor.Forward();
  EXPECT_EQ(executor.Output(0), full(5));
  executor.Forward({{"b", full(2)}});
  EXPECT_EQ(executor.Output(0), full(3));
  EXPECT_THROW(executor.Forward({{"a", full(9)}, {"c", full(9)}}), Error);
  executor.Forward();
  EXPECT_EQ(executor.Output(0), full(3));  // nothing was set
  std::atomic<bool> go{false};
  engine->Push({.name = "hold", .device = Cpu(0), .run = [&go](const OpContext&) {
                  while (!go) {
                  }
                }});
  executor.Forward();
  const Tensor held = executor.OutputArray(0);
  executor.SetInput("a", full(7));
  executor.SetInput("b", full(1));
  go = true;
  EXPECT_EQ(held.ToHost(), full(3));
  executor.Forward();
  EXPECT_EQ(executor.Output(0), full(6));
}

TEST(Executor, HeadGradientFromOutside) {  // E24
  Executor e(2.0 * Variable("a") + Variable("b"), {.inputs = {{"a", {2}}, {"b", {2}}}, .grad_req = kBoth});
  e.Forward({{"a", HostTensor::From({2}, {1, 2})}, {"b", HostTensor::From({2}, {2, 3})}});
  EXPECT_EQ(e.Output(0), HostTensor::From({2}, {4, 7}));
  e.Backward(e.Output(0));
  EXPECT_EQ(e.Gradient("a"), HostTensor::From({2}, {8, 14}));
  EXPECT_EQ(e.Gradient("b"), HostTensor::From({2}, {4, 7}));
}

// E25, by our rule: values equal and weights shared, but outputs are the caller's own.
TEST(Executor, ReshapeUpAndDownKeepsWeights) {
  const Device device = TestDevice(0);
  std::unique_ptr<Executor> e =
      std::make_unique<Executor>(FullyConnected(Variable("x"), {.num_hidden = 4}, "fc"),
                                 ExecutorOptions{.device = device, .inputs = {{"x", {5, 4}}}, .for_training = false});
  e->SetParams(
      {{"fc_weight", HostTensor::Full(DType::kFloat32, {4, 4}, 1)}, {"fc_bias", HostTensor(DType::kFloat32, {4})}});
  const void* const weight = e->ArgumentArray("fc_weight").address();
  std::vector<Tensor> old;
  for (const int64_t n : {5, 3, 6, 5}) {
    std::unique_ptr<Executor> next = e->Reshape({{"x", {n, 4}}});
    EXPECT_EQ(next->ArgumentArray("x").address() == e->ArgumentArray("x").address(), old.empty());  // of the same shape
    e = std::move(next);
    e->Forward({{"x", HostTensor::Full(DType::kFloat32, {n, 4}, 1)}});
    old.push_back(e->OutputArray(0));
    EXPECT_EQ(e->Output(0), HostTensor::Full(DType::kFloat32, {n, 4}, 4));
    EXPECT_EQ(e->ArgumentArray("fc_weight").address(), weight);
  }
  const std::unique_ptr<Executor> other = e->Reshape({{"x", {2, 4}}});
  other->Forward();
  EXPECT_NE(MessageOf([&] { e->Output(0); }).find("another program has used the shared memory"), std::string::npos);
  for (const Tensor& output : old) EXPECT_EQ(output.ToHost(), HostTensor::Full(DType::kFloat32, output.shape(), 4));
  EXPECT_THROW(e->Reshape({{"x", {2, 3}}}), ShapeError);  // another weight
  EXPECT_EQ(MessageOf([&] {
              e->Forward({{"x", HostTensor(DType::kFloat32, {6, 4})}});
            }),
            "ShapeError: input \"x\": expected (5, 4), got (6, 4); Reshape binds for other shapes");
}

TEST(Executor, ReshapedItDrawsOtherRandomNumbersThanBefore) {
  const auto mask = [](Executor* e) {
    e->Forward({{"x", HostTensor::Full(DType::kFloat32, {1, 64}, 1)}});
    return e->Output(0);
  };
  const ExecutorOptions options{.device = TestDevice(0), .inputs = {{"x", {1, 64}}}};
  const Symbol net = MakeLoss(Dropout(Variable("x"), {.p = 0.5}, "drop"));
  Executor one(net, options), other(net, options);
  const HostTensor first = mask(&one);
  EXPECT_EQ(mask(&other), first);
  const std::unique_ptr<Executor> reshaped = one.Reshape({{"x", {1, 64}}});
  const HostTensor second = mask(reshaped.get());
  EXPECT_NE(second, first);
  EXPECT_EQ(mask(&other), second);  // as if there had been no other binding
  EXPECT_EQ(mask(&one), mask(&other));
  EXPECT_EQ(mask(reshaped.get()), mask(&other));
}

TEST(Executor, WeightSharedByTwoPlacesBindsFromTheDataAlone) {  // E28
  const Symbol w = Variable("W");
  const Symbol y = Sum(Abs(w)) + Sum(FullyConnected(Variable("x"), w, {}, {.num_hidden = 7, .no_bias = true}, "fc"));
  Executor e(y, {.inputs = {{"x", {5, 13}}}});
  EXPECT_EQ(e.ArgumentArray("W").shape(), (Shape{7, 13}));
}

// E29, on smaller images: backward through ten squares needs all their inputs; where no gradient comes or none is asked
// for, a value or two are enough.
TEST(Executor, MemoryFollowsWhatIsAskedFor) {
  const Shape shape{10, 3, 64, 64};
  const auto memory = [&](bool stop, GradReq req) {
    Symbol x = Variable("x");
    for (int i = 0; i < 10; ++i) x = Square(x);
    if (stop) x = BlockGrad(x);
    const std::map<std::string, GradReq> request = {{"x", req}};
    return Executor(MakeLoss(x, {}, "loss"), {.inputs = {{"x", shape}}, .grad_req = request}).memory();
  };
  const int64_t value = shape.Elements() * 4;
  const MemoryReport with = memory(false, GradReq::kWrite), without = memory(false, GradReq::kNull);
  const MemoryReport stopped = memory(true, GradReq::kWrite), stopped_without = memory(true, GradReq::kNull);
  EXPECT_GE(with.arena, 10 * value);
  EXPECT_LE(without.arena, 2 * value);
  EXPECT_EQ(stopped.arena, without.arena);
  EXPECT_EQ(stopped.gradients, value);  // asked for, so it is there: zero
  EXPECT_EQ(stopped_without.total(), without.total());
  EXPECT_EQ(stopped_without.gradients, 0);
  EXPECT_EQ(with.inputs, value);
  EXPECT_EQ(with.parameters, 0);
  const Symbol net = SoftmaxOutput(FullyConnected(Variable("data"), {.num_hidden = 6}, "fc"), {}, "softmax");
  const MemoryReport of_net = Executor(net, {.inputs = {{"data", {4, 3}}}}).memory();
  EXPECT_EQ(of_net.inputs, (4 * 3 + 4) * 4);  // and the labels
  EXPECT_EQ(of_net.parameters, (6 * 3 + 6) * 4);
}

}  // namespace
}  // namespace bindery
