// Networks whose shapes are computed from their data's, as exporters write them: bound to any batch, and to any share of
// it on several devices.
#include <gtest/gtest.h>

#include "executor/executor.h"
#include "tests/executor/group_helpers.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

Symbol Integers(std::initializer_list<float> numbers) {
  return Constant(HostTensor::From({std::ssize(numbers)}, numbers).Cast(DType::kInt64));
}
Symbol ExtentOf(const Symbol& x, int64_t axis) { return ShapeArray(x, {.begin = axis, .end = axis + 1}); }

// (N, 4, 6) -> heads of 3 -> (N, 12, 2) -> classes; scaled by the square root of an extent, positions added.
Symbol Exported() {
  const Symbol x = Variable("data"), n = ExtentOf(x, 0), time = ExtentOf(x, 1);
  const Symbol heads = ReshapeBy({x, Concat({n, Integers({-1, 3}), ExtentOf(x, 2) / Integers({3})}, {.axis = 0})});
  const Symbol turned = Transpose(heads, {.axes = {0, 2, 1, 3}});
  const Symbol joined = ReshapeBy({turned, Concat({n, time * Integers({3}), Integers({-1})}, {.axis = 0})});
  const Symbol first = SliceBy({joined, Integers({0}), time * Integers({2}), Integers({1}), Integers({1})});
  const Symbol positions = BroadcastToBy({Variable("position", {.shape = Shape{2}}), ShapeArray(first)});
  const Symbol scaled = (first + positions) / Sqrt(Cast(time, {.dtype = DType::kFloat32}));
  const Symbol flat = ReshapeBy({scaled, Concat({n, Integers({-1})}, {.axis = 0})}, "flat");
  return SoftmaxOutput(FullyConnected(flat, {.num_hidden = 3}, "fc"), {}, "softmax");
}

std::unique_ptr<DataParallelExecutorGroup> Bind(int devices, bool numbered) {
  GroupOptions options{.data = {{"data", {7, 4, 6}}}, .labels = {{"softmax_label", {7}}}, .inputs_need_grad = true};
  options.devices.clear();
  for (int i = 0; i < devices; ++i) {
    options.devices.push_back(Cpu(i));
    options.workload.push_back(i == 1 ? 1 : 2.5);
  }
  if (numbered) return std::make_unique<DataParallelExecutorGroup>(Exported(), options);
  const Symbol heads = Reshape(Variable("data"), {.shape = {0, 4, 3, 2}});
  const Symbol joined = Reshape(Transpose(heads, {.axes = {0, 2, 1, 3}}), {.shape = {0, 12, 2}});
  const Symbol first = Slice(joined, {.begin = {0}, .end = {8}, .axes = {1}});
  const Symbol flat = Flatten((first + Variable("position", {.shape = Shape{2}})) / 2.0);
  return std::make_unique<DataParallelExecutorGroup>(
      SoftmaxOutput(FullyConnected(flat, {.num_hidden = 3}, "fc"), {}, "softmax"), options);
}

TEST(ShapeNumbers, ANetworkThatComputesItsShapes) {
  const auto plain = Bind(1, false);
  for (const int devices : {1, 2, 3}) {
    SCOPED_TRACE(devices);
    const auto group = Bind(devices, true);
    InitialiseEqually({plain.get(), group.get()}, 5);
    for (const int64_t samples : {7, 4, 12}) {
      SCOPED_TRACE(samples);
      Batch batch{.data = {RandomTensor({samples, 4, 6}, 3)}, .label = {HostTensor(DType::kFloat32, {samples})}};
      for (DataParallelExecutorGroup* each : {plain.get(), group.get()}) {
        each->Forward(batch);
        each->Backward();
      }
      EXPECT_LE(MaxAbsDiff(group->Outputs()[0].ToHost(), plain->Outputs()[0].ToHost()), 1e-6);
      for (const std::string& name : plain->param_names()) {
        EXPECT_LE(MaxAbsDiff(SumOfGradients(*group, name), SumOfGradients(*plain, name)), 1e-5) << name;
      }
      EXPECT_LE(MaxAbsDiff(group->InputGradients()[0].ToHost(), plain->InputGradients()[0].ToHost()), 1e-6);
    }
  }
}

// What only shapes need does not run.
TEST(ShapeNumbers, NothingOfItIsLeft) {
  Executor e(Exported(), {.inputs = {{"data", {7, 4, 6}}, {"softmax_label", {7}}}});
  e.Forward();
  for (const PlanCall& call : e.plan().calls) {
    EXPECT_TRUE(call.op != "ShapeArray" && call.op != "Concat" && call.op != "Cast" && call.op != "Sqrt") << call.op;
  }
}

// Not even where the shape of what they make is taken from its neighbour.
TEST(ShapeNumbers, NumbersThatAreDataAreRefused) {
  const Symbol range = RangeBy({Variable("begin"), Variable("end"), Variable("step")}, "range");
  const std::string message = MessageOf<ShapeError>([&] {
    Executor e(range * Variable("data"), {.inputs = {{"data", {7}}, {"begin", {}}, {"end", {}}, {"step", {}}}});
  });
  EXPECT_NE(message.find("RangeBy \"range\": the numbers that it takes have to follow from constants"),
            std::string::npos)
      << message;
}

// Data of which only the shape is used; numbers that are a head.
TEST(ShapeNumbers, AsHeads) {
  const Symbol x = Variable("data"), other = Variable("other");
  const Symbol y = BroadcastToBy({Constant(HostTensor::From({}, {2.5f})), ShapeArray(x)}, "y");
  Executor e(Group({y, ShapeArray(other, {}, "shape"), SizeArray(x, "size")}),
             {.inputs = {{"data", {3, 2}}, {"other", {5}}}, .for_training = false});
  e.Forward({{"data", RandomTensor({3, 2}, 1)}, {"other", RandomTensor({5}, 1)}});
  EXPECT_EQ(e.Output(0), HostTensor::Full(DType::kFloat32, {3, 2}, 2.5));
  EXPECT_EQ(e.Output(1), HostTensor::Full(DType::kInt64, {1}, 5));
  EXPECT_EQ(e.Output(2), HostTensor::Full(DType::kInt64, {}, 6));
}

// Each of two devices would divide by its own share.
TEST(ShapeNumbers, TheExtentOfTheBatchIsNoDataOnSeveralDevices) {
  const Symbol x = Variable("data"), as_float = Cast(ShapeArray(x), {.dtype = DType::kFloat32});
  const auto extent = [&](int64_t axis) { return Slice(as_float, {.begin = {axis}, .end = {axis + 1}}); };
  const auto bind = [&](const Symbol& net, std::vector<Device> devices) {
    DataParallelExecutorGroup(net, {.devices = std::move(devices), .data = {{"data", {4, 3}}}, .for_training = false});
  };
  const std::vector<Device> two = {Cpu(0), Cpu(1)};
  EXPECT_NE(MessageOf([&] { bind(x / extent(0), two); }).find("it holds the extent of the batch"), std::string::npos);
  EXPECT_NO_THROW(bind(x / extent(0), {Cpu(0)}));
  EXPECT_NO_THROW(bind(x / extent(1), two));
}

}  // namespace
}  // namespace bindery
