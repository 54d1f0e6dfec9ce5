// Every operator runs in its own type, with kernels of the production table: the reference kernels are for tests and
// for simulated devices. (What has no elements is theirs, too: there is nothing to compute.)
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "executor/predictor.h"
#include "symbol/graph.h"
#include "symbol/ops.h"
#include "tests/executor/cases/operator_cases.h"
#include "tests/executor/graph_runner.h"
#include "tests/symbol/op_examples.h"
#include "tests/symbol/op_rules.h"

namespace bindery {
namespace {

TEST(NativeTypes, EveryCaseInEveryType) {
  std::set<DType> taken;
  for (const OperatorCase& c : AllOperatorCases()) {
    try {
      taken.merge(CheckNativeKernels(c));
    } catch (const std::exception& e) {
      ADD_FAILURE() << "case " << c.name << ": " << e.what();
    }
  }
  EXPECT_EQ(taken.size(), static_cast<size_t>(kNumDTypes));
}

// Gradients of integers have no use, but a graph may hold any operator with any types that it allows.
TEST(NativeTypes, EveryOperatorInEveryType) {
  for (const OpExample& example : OpExamples()) {
    if (example.op->compose) continue;  // nothing of it is left when it runs
    const int count = static_cast<int>(example.inputs.size());
    const std::vector<std::string> names = example.op->inputs.Names(example.attrs, count);
    // A state is read by the family that wrote it: the cases above have both.
    if (std::ranges::find(names, "state") != names.end()) continue;
    const Graph graph = Graph::Of(Group(NodeOf(*example.op, example.attrs, count)));
    ShapeMap shapes;
    std::map<std::string, int> batch_axes;
    for (int i = 0; i < count; ++i) {
      shapes[names[i]] = example.inputs[i];
      if (example.batch_axes[i] >= 0) batch_axes[names[i]] = example.batch_axes[i];
    }
    for (int i = 0; i < kNumDTypes; ++i) {
      const auto dtype = static_cast<DType>(i);
      SCOPED_TRACE(example.label + " in " + ToString(dtype));
      NodeTypes types;
      try {
        const DTypeMap dtypes = names.empty() ? DTypeMap() : DTypeMap{{names[0], dtype}};
        types =
            InferTypes(graph, shapes, dtypes, batch_axes, BatchOf(graph, shapes, batch_axes).value_or(kExampleBatch));
      } catch (const ShapeError&) {
        continue;  // not of this type
      }
      KernelSpec spec{
          .op = example.op, .attrs = example.attrs, .node_name = "node", .batch = kExampleBatch, .threads = 2};
      for (const std::string& name : names) {
        for (size_t n = 0; n < graph.nodes.size(); ++n) {
          if (graph.nodes[n]->name() == name) spec.inputs.push_back(types[n][0]);
        }
      }
      spec.outputs = types.back();
      spec.input_formats.resize(spec.inputs.size());
      spec.input_is_open.resize(spec.inputs.size());
      spec.output_wishes.resize(spec.outputs.size());
      spec.output_used.assign(spec.outputs.size(), true);
      EXPECT_NE(MakeKernel(spec, KernelPolicy::kFast).implementation, "reference");
    }
  }
}

// What simulated devices give of integers is what CPUs do, where a type does not hold it, too.
TEST(NativeTypes, IntegersWrapAroundInBothTables) {
  const Symbol x = Variable("x"), w = Variable("w");
  const ScatterAttrs added{.reduction = ScatterReduction::kAdd, .shape = {2}};
  const std::vector<Symbol> symbols = {
      Add(x, w),
      Sub(x, w),
      Mul(x, w),
      Negative(x),
      Abs(x),
      Square(x),
      Apply(AddNOp(), {}, {x, w, x}),
      Sum(x),
      SumSquare(x),
      Prod(x),
      L1Norm(x),
      CumSum(x),
      CumProd(x),
      SumTo(x, {{1}}),
      Div(x, w),
      PutND(Constant(HostTensor::From({3, 1}, {1, 1, 1}).Cast(DType::kInt64)), x, added)};
  for (const DType dtype :
       {DType::kInt8, DType::kUInt8, DType::kInt16, DType::kUInt16, DType::kInt32, DType::kUInt32, DType::kUInt64}) {
    const HostTensorMap inputs = {{"x", Values({3}, {100, -128, 0}).Cast(dtype)},
                                  {"w", Values({3}, {120, 2, 0}).Cast(dtype)}};
    for (const Symbol& y : symbols) {
      SCOPED_TRACE(fmt::format("{} {}", dtype, y.DebugString()));
      ExpectNear(RunGraph(y, inputs, {}).outputs[0],
                 RunGraph(y, inputs, {.policy = KernelPolicy::kReference}).outputs[0], 0, "both tables");
    }
  }
}

// 2^53 + 1 is no double.
TEST(NativeTypes, LargeIntegersAreExact) {
  const auto integers = [](const Shape& shape, std::vector<int64_t> values) {
    HostTensor tensor(DType::kInt64, shape);
    std::memcpy(tensor.raw(), values.data(), static_cast<size_t>(tensor.bytes()));
    return tensor;
  };
  constexpr int64_t kBig = (int64_t{1} << 53) + 1;
  const Symbol x = Variable("x"), w = Variable("w");
  const HostTensor row = integers({1, 4}, {kBig, 1, -kBig, 7}), image = integers({1, 1, 2, 2}, {kBig, 1, -kBig, 7});
  const struct {
    const char* name;
    Symbol symbol;
    HostTensorMap inputs;
    HostTensor wanted;
  } cases[] = {
      {"Dot", Dot(x, w), {{"x", row}, {"w", integers({4, 1}, {1, 0, 0, 0})}}, integers({1, 1}, {kBig})},
      {"FullyConnected",
       FullyConnected(x, w, {}, {.num_hidden = 2, .no_bias = true}),
       {{"x", row}, {"w", integers({2, 4}, {1, 1, 0, 0, 0, 0, 1, 0})}},
       integers({1, 2}, {kBig + 1, -kBig})},
      {"Convolution",
       Convolution(x, w, {}, {.num_filter = 1, .kernel = {2, 2}, .pad = {0, 1}, .no_bias = true}),
       {{"x", image}, {"w", integers({1, 1, 2, 2}, {1, 1, 0, 1})}},
       integers({1, 1, 1, 3}, {0, kBig + 8, 1})},
      {"maximum", Pooling(x, {.kernel = {2, 2}}), {{"x", image}}, integers({1, 1, 1, 1}, {kBig})},
      {"average",
       Pooling(x, {.type = PoolType::kAvg, .kernel = {1, 2}}),
       {{"x", integers({1, 1, 1, 2}, {kBig, kBig + 2})}},
       integers({1, 1, 1, 1}, {kBig + 1})},
  };
  for (const auto& c : cases) {
    const RunResult result = RunGraph(c.symbol, c.inputs, {.threads = 2});
    EXPECT_EQ(result.outputs[0], c.wanted) << c.name;
  }
}

// In their own type, whichever operator adds or multiplies them.
TEST(NativeTypes, NarrowIntegersWrapAround) {
  const Symbol x = Variable("x");
  const HostTensor both = HostTensor::From({2}, {100, 100}).Cast(DType::kInt8);
  const HostTensor ones = HostTensor::From({1}, {100}).Cast(DType::kInt8);
  for (const auto& [symbol, in, wanted] : {std::tuple{Sum(x), both, -56.0},
                                           {L1Norm(x), both, -56.0},
                                           {Prod(x), both, 16.0},
                                           {Slice(CumSum(x), {.begin = {1}, .end = {2}}), both, -56.0},
                                           {Add(x, x), ones, -56.0},
                                           {Apply(AddNOp(), NoAttrs{}, {x, x}), ones, -56.0}}) {
    EXPECT_EQ(RunGraph(symbol, {{"x", in}}, {}).outputs[0].At(0), wanted) << symbol.name();
  }
}

// As in NumPy, PyTorch and ONNX; -1 is the largest of an unsigned type.
TEST(NativeTypes, CastsBetweenIntegersKeepTheLowBits) {
  const auto cast = [](DType from, std::vector<double> numbers, DType to, KernelPolicy policy) {
    HostTensor x(from, {std::ssize(numbers)});
    for (size_t i = 0; i < numbers.size(); ++i) x.Set(static_cast<int64_t>(i), numbers[i]);
    const Symbol y = Cast(Variable("x"), {.dtype = to}, "y");
    const HostTensor result = RunGraph(y, {{"x", x}}, {.policy = policy}).outputs[0];
    std::vector<double> all;
    for (int64_t i = 0; i < result.elements(); ++i) all.push_back(result.At(i));
    return all;
  };
  using List = std::vector<double>;
  for (const KernelPolicy policy : {KernelPolicy::kFast, KernelPolicy::kReference}) {
    EXPECT_EQ(cast(DType::kInt16, {200, -200, 7}, DType::kInt8, policy), (List{-56, 56, 7}));
    EXPECT_EQ(cast(DType::kInt8, {-1, 5}, DType::kUInt64, policy), (List{0x1p64, 5}));
    EXPECT_EQ(cast(DType::kInt64, {0x1p32 + 3, -0x1p40, -0x1p31 - 1}, DType::kInt32, policy), (List{3, 0, 0x1p31 - 1}));
    EXPECT_EQ(cast(DType::kUInt64, {0x1p63, 9}, DType::kInt64, policy), (List{-0x1p63, 9}));
    EXPECT_EQ(cast(DType::kInt32, {256, 0}, DType::kBool, policy), (List{1, 0}));
    EXPECT_EQ(cast(DType::kBool, {1, 0}, DType::kInt32, policy), (List{1, 0}));
    EXPECT_EQ(cast(DType::kFloat32, {300, -1}, DType::kUInt8, policy), (List{255, 0}));
  }
}

// Constants are folded by the same arithmetic: exactly, and where a type ends it begins anew.
TEST(NativeTypes, FoldedIntegersAreThoseThatAreComputed) {
  const auto integers = [](DType dtype, std::vector<int64_t> values) {
    HostTensor tensor(DType::kInt64, {1, std::ssize(values)});
    std::memcpy(tensor.raw(), values.data(), static_cast<size_t>(tensor.bytes()));
    return tensor.Cast(dtype);
  };
  const auto computed = [](const Symbol& a, const Symbol& b, const HostTensorMap& inputs) {
    const Symbol x = Variable("x");
    const Symbol all =
        Group({x + (a + b), x + (a - b), x + a * b, x + Negative(a), x + Square(b), Where(Less(a, b - a), x, a)});
    PredictorOptions options;
    for (const auto& [name, value] : inputs) options.inputs.push_back({name, value.shape(), value.dtype()});
    return Predictor(Model{.symbol = all}, options).Predict(inputs);
  };
  constexpr int64_t kOdd = (int64_t{1} << 53) + 1;
  for (const DType dtype : {DType::kInt8, DType::kUInt8, DType::kInt16, DType::kInt32, DType::kInt64}) {
    const HostTensor a = integers(dtype, {kOdd, INT64_MAX, INT64_MIN, 200, -100}),
                     b = integers(dtype, {2, 3, 1, 100, 77});
    const HostTensor zeros(dtype, {1, 5});
    const auto folded = computed(Constant(a), Constant(b), {{"x", zeros}});
    const auto run = computed(Variable("a"), Variable("b"), {{"x", zeros}, {"a", a}, {"b", b}});
    for (size_t i = 0; i < run.size(); ++i) EXPECT_EQ(folded[i], run[i]) << ToString(dtype) << ", output " << i;
  }
}

}  // namespace
}  // namespace bindery
