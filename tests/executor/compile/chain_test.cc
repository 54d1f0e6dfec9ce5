// Chains of elementwise operators as one pass over memory on CPUs: the bits that the operators give one by one, in no
// more memory. Of GPUs' chains: cuda/fused_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/team.h"
#include "executor/executor.h"
#include "executor/kernels/native_functions.h"
#include "symbol/builtin_ops.h"
#include "symbol/ops.h"
#include "symbol/ops/fusions.h"
#include "tests/executor/values.h"

namespace bindery {
namespace {

const Shape kShape{37, 5, 101};  // 18685 elements: no multiple of a tile, of a vector, or of what a thread takes
constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16};

struct Options {
  bool fusion = true, gradients = true;
  int threads = 2;
  Mirror mirror = {};
};
struct Results {
  std::vector<HostTensor> values = {};  // the outputs, then the gradients of all inputs
  Plan plan;

  int fused() const {
    return static_cast<int>(std::ranges::count(plan.calls, "fused loops", &PlanCall::implementation));
  }
};

Results StepOf(const Symbol& outputs, const HostTensorMap& inputs, const Options& options) {
  ExecutorOptions bind{.for_training = options.gradients, .mirror = options.mirror, .threads = options.threads};
  bind.switches.fusion = options.fusion;
  std::map<std::string, GradReq> requests;
  for (const auto& [name, value] : inputs) {
    const std::string layout = std::string("CDE").substr(0, static_cast<size_t>(value.shape().rank()));
    bind.inputs.push_back({.name = name, .shape = value.shape(), .dtype = value.dtype(), .layout = layout});
    requests[name] = GradReq::kWrite;
  }
  if (options.gradients) bind.grad_req = requests;
  Executor executor(outputs, bind);
  executor.Forward(inputs, options.gradients ? Mode::kTrain : Mode::kPredict);
  Results results{.plan = executor.plan()};
  for (size_t i = 0; i < outputs.entries().size(); ++i) results.values.push_back(executor.Output(static_cast<int>(i)));
  if (!options.gradients) return results;
  HostTensorMap heads;
  for (size_t i = 0; i < outputs.entries().size(); ++i) {
    const HostTensor& head = results.values[i];
    heads[executor.plan().outputs[i].name] = Uniform(head.shape()).Cast(head.dtype());
  }
  executor.Backward(heads);
  for (const auto& [name, value] : inputs) results.values.push_back(executor.Gradient(name));
  return results;
}

void ExpectSameBits(const Results& results, const Results& expected) {
  ASSERT_EQ(results.values.size(), expected.values.size());
  for (size_t i = 0; i < expected.values.size(); ++i) {
    const HostTensor &a = results.values[i], &b = expected.values[i];
    ASSERT_EQ(a.dtype(), b.dtype());
    ASSERT_EQ(a.shape(), b.shape());
    EXPECT_EQ(std::memcmp(a.raw(), b.raw(), static_cast<size_t>(b.bytes())), 0)
        << ToString(b.dtype()) << ", value " << i;
  }
}

HostTensorMap CastAll(const HostTensorMap& values, DType dtype) {
  HostTensorMap cast;
  for (const auto& [name, value] : values) cast[name] = value.Cast(dtype);
  return cast;
}

// In chains and one by one: the same bits, NaN included, and no larger arena. Returns what it is in chains.
Results ExpectSame(const Symbol& outputs, const HostTensorMap& inputs, Options options = {}) {
  options.fusion = false;
  const Results plain = StepOf(outputs, inputs, options);
  EXPECT_EQ(plain.fused(), 0);
  options.fusion = true;
  Results fused = StepOf(outputs, inputs, options);
  EXPECT_GT(fused.fused(), 0);
  EXPECT_LT(fused.plan.calls.size(), plain.plan.calls.size());
  EXPECT_LE(fused.plan.arena_bytes, plain.plan.arena_bytes);
  ExpectSameBits(fused, plain);
  return fused;
}
Results ExpectSame(const Symbol& outputs, const HostTensorMap& inputs, DType dtype, Options options = {}) {
  return ExpectSame(outputs, CastAll(inputs, dtype), options);
}

TEST(Chain, GivesTheSameBits) {
  const Symbol x = Variable("x"), y = Variable("y"), row = Variable("row"), one = Variable("one");
  Symbol z = Tanh(x * y + row);
  z = Curve(z * one, {.type = CurveType::kGelu});
  z = Exp(Sigmoid(z - y) * 0.3) / (1.5 + Square(x));
  const HostTensorMap inputs = {
      {"x", Uniform(kShape)}, {"y", Uniform(kShape)}, {"row", Uniform({5, 1})}, {"one", Uniform({1})}};
  for (const DType dtype : kFloats) {
    for (const int threads : {1, 2, 3}) ExpectSame(z, inputs, dtype, {.threads = threads});
  }
}

// Operands that are stretched along the last axis, or along others, in runs that are shorter and longer than tiles; one
// of them by one tile after another.
TEST(Chain, StretchedOperands) {
  const Symbol x = Variable("x"), column = Variable("column"), row = Variable("row"), one = Variable("one");
  const Symbol y = Tanh(x * row + column) * one;
  for (const Shape& shape : {Shape({9000, 2}), Shape({6000, 3}), Shape({129, 131}), Shape({3, 7001}), Shape({1, 20011}),
                             Shape({20011, 1})}) {
    const HostTensorMap inputs = {
        {"x", Uniform(shape)}, {"column", Uniform({shape[0], 1})}, {"row", Uniform({shape[1]})}, {"one", Uniform({1})}};
    for (const DType dtype : kFloats) ExpectSame(y, inputs, dtype);
  }
  // Both operands of a link, and a link that has nothing else.
  const Symbol a = Variable("a"), b = Variable("b");
  ExpectSame(Square(PRelu(a, b)) - Maximum(b, a),
             {{"a", Uniform({101, 1, 5}).Cast(DType::kFloat32)}, {"b", Uniform({37, 1}).Cast(DType::kFloat32)}});
}

// What operators pass on by themselves, chains pass on.
TEST(Chain, PassesOnWhatIsNotANumber) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
  HostTensorMap inputs = {{"x", Uniform(kShape)}, {"y", Uniform(kShape)}};
  const double special[] = {kNaN, kInf, -kInf, 0.0, -0.0, 1e-310, -2};
  for (int64_t i = 0; i < 49; ++i) {
    inputs["x"].Set(i * 381, special[i % 7]);
    inputs["y"].Set(i * 381, special[i / 7]);
  }
  const Symbol x = Variable("x"), y = Variable("y");
  for (const DType dtype : kFloats) {
    const Results results = ExpectSame(Relu(Maximum(x, y) * Minimum(y, x)) + x, inputs, dtype);
    EXPECT_TRUE(std::isnan(results.values[0].At(0)));
    EXPECT_TRUE(std::isnan(results.values[0].At(381)));
  }
}

struct Known {
  size_t operands;
  bool is_truth, of_floats, of_integers;
};
using AllKnown = std::map<std::string_view, Known>;
template <class... F>
void Know(FunctionList<F...>, size_t operands, AllKnown* to) {
  using namespace native;
  (to->emplace(F::kName,
               Known{operands, (F::kFlags & kTruth) != 0, !(F::kFlags & kIntegersOnly), !(F::kFlags & kFloatsOnly)}),
   ...);
}

// Every function that there is, in the types that it has, between two others.
TEST(Chain, EveryFunction) {
  AllKnown all;
  Know(native::UnaryFunctions(), 1, &all);
  Know(native::BinaryFunctions(), 2, &all);
  Know(native::Predicates(), 1, &all);
  Know(native::Relations(), 2, &all);
  const Symbol x = Variable("x"), y = Variable("y"), negative = Negative(x);
  const HostTensorMap fractions = {{"x", Uniform({16411}, 0.1, 0.9)}, {"y", Uniform({16411}, 0.1, 0.9)}};
  const HostTensorMap numbers = {{"x", Integers({40009}, 0, 9)}, {"y", Integers({40009}, 1, 7)}};
  size_t found = 0;
  for (const auto& op : BuiltinOps()) {
    const auto known = all.find(op().name);
    if (known == all.end()) continue;
    SCOPED_TRACE(op().name);
    const Known& function = known->second;
    const Symbol f = Apply(op(), {}, function.operands == 1 ? std::vector{negative} : std::vector{negative, y}, "f");
    const Symbol z = function.is_truth ? Where(f, negative, y) : f * y;
    if (function.of_floats) {
      ExpectSame(z, fractions, DType::kFloat32, {.gradients = false});
      ExpectSame(z, fractions, DType::kBFloat16, {.gradients = false});
    }
    if (function.of_integers) ExpectSame(z, numbers, DType::kInt32, {.gradients = false});
    ++found;
  }
  EXPECT_EQ(found, all.size());
}

TEST(Chain, EveryCurveAndActivation) {
  const Symbol x = Variable("x"), y = Variable("y");
  const HostTensorMap inputs = {{"x", Uniform({16411}, 0.1, 0.9)}, {"y", Uniform({16411}, 0.1, 0.9)}};
  for (const auto& [value, name] : EnumNames(static_cast<CurveType*>(nullptr))) {
    SCOPED_TRACE(name);
    const auto type = static_cast<CurveType>(value);
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      ExpectSame(Curve(x - y, {.type = type, .alpha = 0.3, .beta = 0.7}) * y, inputs, dtype);
    }
  }
  for (const ActivationType type : {ActivationType::kRelu, ActivationType::kSigmoid, ActivationType::kTanh,
                                    ActivationType::kSoftRelu, ActivationType::kSoftSign}) {
    for (const DType dtype : kFloats) ExpectSame(Activation(x - y, {type}) * y, inputs, dtype);
  }
}

// With what their gradients are.
TEST(Chain, FunctionsAndTheirGradients) {
  const Symbol x = Variable("x"), y = Variable("y");
  const HostTensorMap inputs = {{"x", Uniform({16411}, 0.1, 0.9)}, {"y", Uniform({16411}, 0.1, 0.9)}};
  for (const DType dtype : kFloats) {
    ExpectSame(Power(x, y) + PRelu(x - y, y) * Mod(x, y) - Fmod(y, x), inputs, dtype);
    ExpectSame(Erf(Log1p(x)) * Sqrt(Abs(Negative(y))) + Atanh(x) * Cosh(Sin(y)), inputs, dtype);
  }
}

TEST(Chain, SumsOfSeveral) {
  HostTensorMap inputs;
  std::vector<Symbol> terms;
  for (int i = 0; i < 5; ++i) {
    const std::string name = "x" + std::to_string(i);
    inputs[name] = Uniform(kShape, -1, 1 + i);
    terms.push_back(Variable(name));
  }
  for (const DType dtype : kFloats) {
    ExpectSame(Tanh(Apply(AddNOp(), {}, terms, "sum")), inputs, dtype);
    ExpectSame(Apply(AddNOp(), {}, {terms[0] * 2.0, terms[1], Exp(terms[2]), terms[3], terms[4]}, "sum"), inputs,
               dtype);
  }
}

TEST(Chain, OtherTypes) {
  const Symbol x = Variable("x"), y = Variable("y");
  const Symbol integers = Where(Greater(x, y), x * 3.0 + y, BitXor(x, y) - 7.0);
  const Symbol truths = Where(Or(Less(x, y), Not(x)), y, Negative(x));
  for (const DType dtype : {DType::kInt8, DType::kUInt8, DType::kInt32, DType::kInt64}) {
    const HostTensorMap inputs = {{"x", Integers({40009}, 0, 9).Cast(dtype)},
                                  {"y", Integers({40009}, 1, 7).Cast(dtype)}};
    ExpectSame(integers, inputs, {.gradients = false});
    ExpectSame(truths, inputs, {.gradients = false});
  }
  // There and back: what lies between has another size.
  const HostTensorMap inputs = {{"x", Uniform({40009}, -300, 300).Cast(DType::kFloat32)}};
  for (const DType dtype : {DType::kInt8, DType::kBool, DType::kFloat64, DType::kBFloat16, DType::kInt64}) {
    const Symbol there = Cast(x * 1.5, {.dtype = dtype});
    ExpectSame(Tanh(Cast(there, {.dtype = DType::kFloat32}) + x), inputs, {.gradients = IsFloat(dtype)});
  }
}

TEST(Chain, DropoutsGradient) {
  const Symbol x = Variable("x");
  for (const DType dtype : kFloats) {
    const Results all = ExpectSame(Dropout(Tanh(x * 2.0), {.p = 0.3}), {{"x", Uniform(kShape)}}, dtype);
    EXPECT_TRUE(std::ranges::any_of(all.plan.calls, [](const PlanCall& call) {
      return call.op.starts_with("DropoutGrad+ActivationGrad");
    })) << ToString(all.plan);
    ExpectSame(Dropout(Tanh(x * 2.0) + x, {.p = 0.3, .axes = {0}}), {{"x", Uniform(kShape)}}, dtype);
  }
}

// A value that somebody else reads, as a head, or a reduction, or backward, is in memory.
TEST(Chain, ValuesThatOthersReadStay) {
  const Symbol x = Variable("x");
  const Symbol a = Exp(x) * 2.0, b = Tanh(a) + 1.0;
  const HostTensorMap inputs = {{"x", Uniform({80, 206})}};
  ExpectSame(Group({a, b}), inputs, DType::kFloat32);
  ExpectSame(Sum(b, {.axes = {1}, .keepdims = true}) + Square(b) * 3.0, inputs, DType::kFloat32);
}

// A value that only the chain reads, though twice, is none; calls and nodes are named by all that they do.
TEST(Chain, OneCallReadsItsInputsAndWritesItsOutput) {
  const Symbol x = Variable("x"), y = Variable("y");
  const Symbol z = Add(Mul(x, Sigmoid(x, "gate"), "swish"), y, "sum");
  const ExecutorOptions options{.inputs = {{"x", {300, 301}}, {"y", {300, 301}}}, .for_training = false};
  const Executor executor(z, options);
  ASSERT_EQ(executor.plan().calls.size(), 1u);
  const PlanCall& call = executor.plan().calls[0];
  EXPECT_EQ(call.op, "Activation+Mul+Add");
  EXPECT_EQ(call.node, "gate+swish+sum");
  EXPECT_EQ(call.implementation, "fused loops");
  EXPECT_EQ(call.inputs.size(), 2u);
  EXPECT_LT(call.scratch, 0);
  EXPECT_EQ(executor.plan().arena_bytes, (300 * 301 * 4 + 63) / 64 * 64);
}

TEST(Chain, LongChains) {
  Symbol z = Variable("x");
  for (int i = 0; i < 40; ++i) z = i % 2 == 0 ? Tanh(z) : z * 1.25;
  EXPECT_GE(ExpectSame(z, {{"x", Uniform(kShape)}}, DType::kFloat32).fused(), 3);
  Symbol sum = Variable("x0") * 2.0;
  HostTensorMap inputs = {{"x0", Uniform(kShape)}};
  for (int i = 1; i < 20; ++i) {
    const std::string name = "x" + std::to_string(i);
    sum = sum + Exp(Variable(name));
    inputs[name] = i % 3 == 0 ? Uniform({5, 1}) : Uniform(kShape);
  }
  EXPECT_GE(ExpectSame(sum, inputs, DType::kFloat64).fused(), 2);
}

// In the memory of an operand that ends here, where the last link allows that: a sum of three does of its first alone.
TEST(Chain, InTheMemoryOfAnOperand) {
  const Symbol x = Variable("x"), a = Softmax(x), b = Softmax(x * 2.0), c = Softmax(x * 3.0);
  const HostTensorMap inputs = {{"x", Uniform({80, 206})}};
  const Options options{.gradients = false};
  for (const DType dtype : kFloats) {
    ExpectSame(Square(a) + b, inputs, dtype, options);
    ExpectSame(b - Square(a), inputs, dtype, options);
    ExpectSame(Apply(AddNOp(), {}, {Square(a), b, c}, "sum"), inputs, dtype, options);
    ExpectSame(Apply(AddNOp(), {}, {b, Square(a), a}, "sum"), inputs, dtype, options);
    ExpectSame(Where(Greater(a, b), Square(a), b), inputs, dtype, options);
  }
}

// What a chain reads is alive until its end, and may be more than what it saves: then only those are joined that keep
// no more alive.
TEST(Chain, TakesNoMoreMemory) {
  const Symbol x = Variable("x"), a = Softmax(x), b = Softmax(x * 2.0), c = Softmax(x * 3.0);
  const Symbol h = Tanh(a * b + c);
  Symbol branch = Softmax(Sqrt(h));
  for (int i = 0; i < 3; ++i) branch = Softmax(Concat({branch, x}, {.axis = 1}) * 0.5);
  branch = Sum(branch, {.axes = {1}, .keepdims = true});
  const HostTensorMap inputs = {{"x", Uniform({128, 128})}};
  for (const Symbol& y : {h + branch, Tanh(a * b + c) + Softmax(Softmax(x * 4.0))}) {
    ExpectSame(y, inputs, DType::kFloat32, {.gradients = false});
  }
}

// Values that are computed again in backward are links there, too.
TEST(Chain, WithMirror) {
  Symbol z = Variable("x");
  for (int i = 0; i < 6; ++i) z = Tanh(Exp(Softmax(z) * 2.0) - Square(z)) + 0.1;
  ExpectSame(z, {{"x", Uniform({80, 206})}}, DType::kFloat32, {.mirror = {.least = true}});
}

// The watchdog says which operators run, not the last one alone.
TEST(Chain, IsCalledByAllOfIt) {
  const Symbol y = Tanh(Exp(Variable("x"), "a"), "b");
  const Executor executor(y, {.inputs = {{"x", Shape{200, 200}}}, .for_training = false});
  const PlanCall& call = executor.plan().calls.at(0);
  EXPECT_EQ(call.op + " " + call.node + call.who, "Exp+Activation a+b");
}

// Where nothing is gained nothing is joined, and where kernels are others.
TEST(Chain, WhereThereAreNone) {
  const Symbol y = Tanh(Exp(Variable("x")));
  const auto calls = [&y](const Shape& shape, ExecutorOptions options = {}) {
    options.inputs = {{"x", shape}};
    options.for_training = false;
    return Executor(y, options).plan().calls.size();
  };
  const Shape large{200, 200};
  EXPECT_EQ(calls(large), 1u);
  EXPECT_EQ(calls({20, 20}), 2u);
  EXPECT_EQ(calls(large, {.device = Sim(0)}), 2u);
  EXPECT_EQ(calls(large, {.switches = {.policy = KernelPolicy::kReference}}), 2u);
  EXPECT_EQ(calls(large, {.switches = {.fusion = false}}), 2u);
}

}  // namespace
}  // namespace bindery
