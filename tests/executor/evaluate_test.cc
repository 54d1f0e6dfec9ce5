#include "executor/evaluate.h"

#include <gtest/gtest.h>

#include "engine/team.h"
#include "symbol/graph.h"
#include "symbol/ops.h"
#include "symbol/ops/rules.h"
#include "symbol/passes/passes.h"
#include "tests/executor/check_operator.h"
#include "tests/executor/graph_runner.h"

namespace bindery {
namespace {

const Node& NodeOf(const Symbol& symbol) { return *symbol.entries()[0].node; }

class EvaluateTest : public testing::TestWithParam<KernelPolicy> {};
INSTANTIATE_TEST_SUITE_P(Tables, EvaluateTest, testing::Values(KernelPolicy::kReference, KernelPolicy::kFast),
                         [](const auto& info) { return info.param == KernelPolicy::kFast ? "fast" : "reference"; });

TEST_P(EvaluateTest, OneOutput) {
  const Symbol y = Add(Variable("a"), Variable("b"));
  const std::vector<HostTensor> out = EvaluateNode(
      NodeOf(y), {HostTensor::From({2, 2}, {1, 2, 3, 4}), HostTensor::From({2}, {10, 20})}, Mode::kPredict, GetParam());
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0], HostTensor::From({2, 2}, {11, 22, 13, 24}));
}

// A kernel runs on the threads that it was made for, not on the caller's: its scratch memory is for those.
TEST_P(EvaluateTest, TheCallersTeamIsNotUsed) {
  AddOp({.name = fmt::format("TeamSize{}", static_cast<int>(GetParam())),
         .doc = "the size of the team that runs it",
         .infer = rule::Like(0)});
  const OpDef& op = FindOp(fmt::format("TeamSize{}", static_cast<int>(GetParam())));
  AddKernel(op.name, [](const KernelSpec&) {
    return std::optional(Kernel{.implementation = "mine",
                                .input_formats = {Format::Plain()},
                                .output_formats = {Format::Plain()},
                                .bind = [](const KernelArgs& args) -> Call {
                                  auto* y = static_cast<float*>(args.outputs[0]);
                                  return [y] { *y = static_cast<float>(TeamSize()); };
                                }});
  });
  const TeamScope team(3);
  const Symbol y = Apply(op, {}, {Variable("x")}, "y");
  EXPECT_EQ(EvaluateNode(NodeOf(y), {HostTensor::From({1}, {0})}, Mode::kPredict, GetParam())[0].At(0), 1);
  EXPECT_EQ(TeamSize(), 3);
}

// Kernels that take and give other formats are no concern of the caller.
TEST_P(EvaluateTest, OtherFormats) {
  const Symbol y = Convolution(Variable("x"), {.num_filter = 16, .kernel = {3, 3}, .pad = {1, 1}}, "conv");
  const HostTensor x = Uniform({2, 16, 5, 5}).Cast(DType::kFloat32), w = Uniform({16, 16, 3, 3}).Cast(DType::kFloat32),
                   b = Uniform({16}).Cast(DType::kFloat32);
  const HostTensor out = EvaluateNode(NodeOf(y), {x, w, b}, Mode::kPredict, GetParam())[0];
  const HostTensor truth = EvaluateNode(NodeOf(y), {x, w, b}, Mode::kPredict, KernelPolicy::kReference)[0];
  ExpectNear(out, truth, 1e-4, "convolution");
}

TEST_P(EvaluateTest, SeveralAndHiddenOutputs) {
  const Symbol parts = SliceChannel(Variable("x"), {.num_outputs = 2, .axis = 0});
  const std::vector<HostTensor> out =
      EvaluateNode(NodeOf(parts), {HostTensor::From({2, 2}, {1, 2, 3, 4})}, Mode::kPredict, GetParam());
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[1], HostTensor::From({1, 2}, {3, 4}));

  // A state that only kernels understand comes out as zeros.
  const Symbol pool = Pooling(Variable("x"), {.kernel = {2}});
  const std::vector<HostTensor> pooled =
      EvaluateNode(NodeOf(pool), {HostTensor::From({1, 1, 3}, {1, 5, 2})}, Mode::kTrain, GetParam());
  ASSERT_EQ(pooled.size(), 2u);
  EXPECT_EQ(pooled[0], HostTensor::From({1, 1, 2}, {5, 5}));
  EXPECT_EQ(pooled[1], HostTensor(DType::kUInt8, {1}));
}

TEST_P(EvaluateTest, ModeMatters) {
  const Symbol y = Dropout(Variable("x"), {.p = 0.5});
  const HostTensor x = HostTensor::Full(DType::kFloat32, {64}, 1);
  EXPECT_EQ(EvaluateNode(NodeOf(y), {x}, Mode::kPredict, GetParam())[0], x);
  EXPECT_FALSE(EvaluateNode(NodeOf(y), {x}, Mode::kTrain, GetParam())[0] == x);
}

TEST_P(EvaluateTest, ErrorsSayWhatIsWrong) {
  const Symbol y = Add(Variable("a"), Variable("b"), "sum");
  const HostTensor a = HostTensor::From({2}, {1, 2}), b = HostTensor::From({3}, {1, 2, 3});
  EXPECT_THROW(EvaluateNode(NodeOf(y), {a, b}, Mode::kPredict, GetParam()), ShapeError);
  try {
    EvaluateNode(NodeOf(y), {a}, Mode::kPredict, GetParam());
    ADD_FAILURE() << "one input passed";
  } catch (const Error& e) {
    EXPECT_EQ(e.message(), "Add \"sum\" takes 2 inputs, got 1");
  }
}

// As the compiler uses it.
TEST(Evaluate, FoldsConstants) {
  const Symbol c = Constant(HostTensor::From({3}, {1, 2, 3}), "c");
  const Symbol y = Variable("x") * Exp(c * 2.0 + 1.0);
  const Symbol folded =
      FoldConstants(GiveScalarsTypes(y, {}), [](const Node& node, const std::vector<HostTensor>& inputs) {
        return EvaluateNode(node, inputs, Mode::kPredict, KernelPolicy::kReference);
      });
  EXPECT_EQ(Graph::Of(folded).nodes.size(), 3u);  // x, a constant, their product
  const HostTensorMap inputs = {{"x", HostTensor::From({3}, {1, -1, 0.5})}};
  const RunOptions options{.policy = KernelPolicy::kReference};
  EXPECT_EQ(RunGraph(folded, inputs, options).outputs[0], RunGraph(y, inputs, options).outputs[0]);
}

}  // namespace
}  // namespace bindery
