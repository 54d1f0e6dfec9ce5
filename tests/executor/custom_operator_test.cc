// Operators of a program's own, with what executor/custom_operator.h offers them.
#include "executor/custom_operator.h"

#include <gtest/gtest.h>

#include "executor/executor.h"
#include "symbol/ops.h"
#include "tests/executor/check_operator.h"
#include "tests/executor/graph_runner.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

MaybeKernel MakeTwiceInDouble(const KernelSpec& spec) {
  return InDouble(spec, [n = spec.outputs[0].shape.Elements()](const Tensors& t) {
    for (int64_t i = 0; i < n; ++i) t.out[0][i] = 2 * t.in[0][i];
  });
}

MaybeKernel MakeTwiceOfFloats(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::kFloat32) return std::nullopt;
  EXPECT_GT(spec.outputs[0].shape.Elements(), 0) << "values without elements are the reference's";
  return WithLoop(PlainKernel(spec, "floats"), [n = spec.outputs[0].shape.Elements()](const Arguments& a) {
    ParallelFor(n, 1, kSerialElements, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) a.out(0)[i] = 2 * a.in(0)[i];
    });
  });
}

// y = 2 x, and dx = 2 dy by way of operators that are made of others.
const OpDef& TwiceOp() {
  static const OpDef& op = [&]() -> const OpDef& {
    AddReferenceKernel("Twice", MakeTwiceInDouble);
    AddKernel("Twice", MakeTwiceOfFloats);
    return AddOp({.name = "Twice",
                  .doc = "y = 2 x",
                  .infer = rule::Like(0),
                  .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
                    return {Squeeze(ExpandDims(2 * g.output_grad(0), {.axes = {0}}), {.axes = {0}})};
                  }});
  }();
  return op;
}

Kernel TwiceOf(DType dtype, const Shape& shape, DeviceKind device, KernelPolicy policy) {
  KernelSpec spec{.device = device, .op = &TwiceOp(), .node_name = "y"};
  spec.inputs = spec.outputs = {{dtype, shape, -1}};
  spec.input_formats = {Format::Plain()};
  spec.input_is_open = {false};
  spec.output_wishes = {std::nullopt};
  spec.output_used = {true};
  return MakeKernel(spec, policy);
}

TEST(CustomOperator, TheReferenceServesWhereTheFastKernelDoesNot) {
  const auto made = [](DType dtype, const Shape& shape, DeviceKind device, KernelPolicy policy) {
    return TwiceOf(dtype, shape, device, policy).implementation;
  };
  EXPECT_EQ(made(DType::kFloat32, {4}, DeviceKind::kCpu, KernelPolicy::kFast), "floats");
  EXPECT_EQ(made(DType::kFloat32, {4}, DeviceKind::kCpu, KernelPolicy::kReference), "reference");
  EXPECT_EQ(made(DType::kFloat32, {0}, DeviceKind::kCpu, KernelPolicy::kFast), "reference");
  EXPECT_EQ(made(DType::kInt8, {4}, DeviceKind::kCpu, KernelPolicy::kFast), "reference");  // the other declines
  EXPECT_EQ(made(DType::kFloat32, {4}, DeviceKind::kSim, KernelPolicy::kFast), "reference");
  EXPECT_NE(MessageOf<Error>([&] {
              made(DType::kFloat32, {4}, DeviceKind::kCuda, KernelPolicy::kFast);
            }).find("no kernel for operator \"Twice\" on cuda"),
            std::string::npos);
}

TEST(CustomOperator, ASecondReferenceIsRefused) {
  TwiceOp();
  EXPECT_EQ(MessageOf<Error>([&] { AddReferenceKernel("Twice", MakeTwiceInDouble); }),
            "Error: operator \"Twice\" has a reference kernel already");
  EXPECT_EQ(MessageOf<Error>([&] { AddReferenceKernel("Softmax", MakeTwiceInDouble); }),
            "Error: operator \"Softmax\" has a built-in kernel");
}

TEST(CustomOperator, IsCheckedLikeOurs) {
  CheckOperator(
      {.name = "Twice", .symbol = Apply(TwiceOp(), {}, {Variable("x")}, "y"), .inputs = {{"x", Distinct({3, 5})}}});
}

TEST(CustomOperator, ItsGradientMayUseOperatorsThatAreMadeOfOthers) {
  Executor net(MakeLoss(Apply(TwiceOp(), {}, {Variable("x")}, "y")),
               {.inputs = {{"x", {2, 3}}}, .grad_req = std::map<std::string, GradReq>{{"x", GradReq::kWrite}}});
  net.SetInput("x", HostTensor::Full(DType::kFloat32, {2, 3}, 1));
  net.Forward();
  net.Backward();
  EXPECT_EQ(net.Gradient("x"), HostTensor::Full(DType::kFloat32, {2, 3}, 2));
}

}  // namespace
}  // namespace bindery
