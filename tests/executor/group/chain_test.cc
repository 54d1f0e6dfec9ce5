// Batches, head gradients and states that lie on devices: groups and executors one behind the other.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "executor/data_parallel_executor_group.h"
#include "executor/executor.h"
#include "symbol/ops.h"
#include "tests/executor/counting_engine.h"
#include "tests/executor/group_helpers.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

constexpr int64_t kSamples = 7;

std::vector<Device> Devices(std::initializer_list<int> indices) {
  std::vector<Device> devices;
  for (const int i : indices) devices.push_back(TestDevice(i));
  return devices;
}

Symbol Below() { return Tanh(FullyConnected(Variable("data"), {.num_hidden = 5}, "fc1")); }
Symbol Above() { return SoftmaxOutput(FullyConnected(Variable("hidden"), {.num_hidden = 3}, "fc2"), {}, "softmax"); }

GroupOptions BelowOptions(const std::vector<Device>& devices) {
  return {.devices = devices, .data = {{"data", {kSamples, 4}}}, .threads_per_device = 1};
}
GroupOptions AboveOptions(const std::vector<Device>& devices) {
  return {.devices = devices,
          .data = {{"hidden", {kSamples, 5}}},
          .labels = {{"softmax_label", {kSamples}}},
          .inputs_need_grad = true,
          .threads_per_device = 1};
}

Tensor On(const std::shared_ptr<Engine>& engine, Device device, const HostTensor& values) {
  const Tensor tensor(engine, device, values.dtype(), values.shape());
  tensor.CopyFrom(values);
  return tensor;
}

TEST(GroupChain, TwoGroupsEqualOne) {
  const Batch batch = RandomBatch(kSamples, 4, 3, 5);
  DataParallelExecutorGroup one(SmallNet(), {.devices = {Cpu(0)},
                                             .data = {{"data", {kSamples, 4}}},
                                             .labels = {{"softmax_label", {kSamples}}},
                                             .inputs_need_grad = true});
  InitialiseEqually({&one}, 3);
  HostTensorMap params;
  one.GetParams(&params, nullptr);
  one.Forward(batch);
  one.Backward();
  const HostTensor expected = one.Outputs()[0].ToHost();

  // GPUs and simulated devices know nothing of each other.
  const Device other = TestDevices() == "cuda" ? Cuda(0) : Sim(0);
  const std::vector<std::vector<Device>> places = {Devices({0}), Devices({0, 1}), Devices({2, 0, 1}), {Cpu(0), other}};
  for (const auto& below : places) {
    for (const auto& above : places) {
      for (const bool in_pieces : {false, true}) {
        GroupOptions options = BelowOptions(below);
        options.inputs_need_grad = true;
        DataParallelExecutorGroup a(Below(), options), b(Above(), AboveOptions(above));
        a.SetParams(params, {}, {.allow_extra = true});
        b.SetParams(params, {}, {.allow_extra = true});
        for (int run = 0; run < 2; ++run) {
          a.Forward(Batch{.data = batch.data});
          b.Forward(Batch{.label = batch.label,
                          .device_data = in_pieces ? DeviceArrays(a.OutputsPerDevice()) : DeviceArrays(a.Outputs())});
          b.Backward();
          a.Backward(in_pieces ? DeviceArrays(b.InputGradientsPerDevice()) : DeviceArrays(b.InputGradients()));
          EXPECT_LT(MaxAbsDiff(b.Outputs()[0].ToHost(), expected), 1e-6);
          EXPECT_LT(MaxAbsDiff(a.InputGradients()[0].ToHost(), one.InputGradients()[0].ToHost()), 1e-6);
          for (const auto& [name, value] : params) {
            EXPECT_LT(MaxAbsDiff(SumOfGradients(name.starts_with("fc1") ? a : b, name), SumOfGradients(one, name)),
                      1e-5)
                << name;
          }
        }
      }
    }
  }
}

// (T, N, C): samples lie in the middle, so shares are not contiguous; labels and data mixed on host and devices; casts.
TEST(GroupChain, AnyBatchAxisAnyTypeAnyPieces) {
  const std::shared_ptr<Engine> engine = DefaultEngine();
  DataParallelExecutorGroup group(Variable("x") + Variable("y"),
                                  {.devices = Devices({0, 1}),
                                   .data = {{"x", {2, 5, 3}, DType::kFloat32, "TNC"}, {"y", {2, 5, 3}, {}, "TNC"}},
                                   .inputs_need_grad = true});
  const HostTensor x = RandomTensor({2, 5, 3}, 1), y = RandomTensor({2, 5, 3}, 2), g = RandomTensor({2, 5, 3}, 3);
  group.Forward(Batch{.data = {x, y}});
  const HostTensor expected = group.Outputs()[0].ToHost();
  for (const std::vector<int64_t>& cuts : {std::vector<int64_t>{0, 5}, {0, 3, 5}, {0, 1, 2, 4, 5}}) {
    std::vector<Tensor> pieces, gradients;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      const Device device = TestDevice(static_cast<int>(cuts.size() - i) % 3);
      pieces.push_back(On(engine, device, x.Slice(1, cuts[i], cuts[i + 1])));
      gradients.push_back(On(engine, device, g.Slice(1, cuts[i], cuts[i + 1]).Cast(DType::kFloat64)));
    }
    Batch batch{.data = {HostTensor(), y}};
    batch.device_data.Set(0, pieces);
    group.Forward(batch);
    EXPECT_EQ(group.Outputs()[0].ToHost(), expected);
    group.Backward(std::vector<std::vector<Tensor>>{gradients});
    EXPECT_EQ(group.InputGradients()[1].ToHost(), g);
  }
  // Padding rows and pre-split batches.
  Batch padded{.pad = 1, .device_data = std::vector<Tensor>{On(engine, TestDevice(1), x), On(engine, Cpu(0), y)}};
  group.Forward(padded);
  EXPECT_EQ(group.Outputs()[0].ToHost(), expected.Slice(1, 0, 4));
  std::vector<BatchPtr> split;
  for (const auto& [begin, end] : {std::pair(0, 1), std::pair(1, 5)}) {
    auto part = std::make_shared<Batch>(Batch{.data = {x.Slice(1, begin, end), HostTensor()}});
    part->device_data.Set(1, {On(engine, TestDevice(end % 2), y.Slice(1, begin, end))});
    split.push_back(part);
  }
  group.Forward(split);
  EXPECT_EQ(group.Outputs()[0].ToHost(), expected);
}

TEST(GroupChain, WithoutABatchAxisOnePieceForAllOrOneForEach) {
  const std::shared_ptr<Engine> engine = DefaultEngine();
  DataParallelExecutorGroup group(Variable("x") * Variable("scale"),
                                  {.devices = Devices({0, 1}), .data = {{"x", {4, 2}}, {"scale", {1, 2}, {}, "-C"}}});
  const HostTensor x = RandomTensor({4, 2}, 1);
  const Tensor two = On(engine, TestDevice(1), HostTensor::Full(DType::kFloat32, {1, 2}, 2));
  const Tensor one = On(engine, TestDevice(0), HostTensor::Full(DType::kFloat32, {1, 2}, 1));
  const auto run = [&](const std::vector<Tensor>& scale) {
    Batch batch{.data = {x}};
    batch.device_data.Set(1, scale);
    group.Forward(batch);
    return group.Outputs()[0].ToHost();
  };
  EXPECT_EQ(run({one}), x);
  const HostTensor each = run({one, two});
  EXPECT_EQ(each.Slice(0, 0, 2), x.Slice(0, 0, 2));
  EXPECT_EQ(each.At(7), 2 * x.At(7));
  // The wrong number of pieces is refused before anything changes.
  EXPECT_EQ(MessageOf<DataError>([&] {
              run({one, two, two});
            }),
            "DataError: \"scale\" has no batch axis: expected one piece, or 2 for the devices with samples, got 3");
  EXPECT_EQ(group.Outputs()[0].ToHost(), each);
  const auto half = std::make_shared<Batch>(Batch{.data = {x.Slice(0, 0, 2)}});
  half->device_data.Set(1, {one, two});
  EXPECT_EQ(MessageOf<DataError>([&] {
              group.Forward(std::vector<BatchPtr>{half, half});
            }),
            "DataError: \"scale\" has no batch axis: expected one piece, got 2");
  EXPECT_EQ(group.Outputs()[0].ToHost(), each);
  EXPECT_EQ(run({one}), x);
}

TEST(GroupChain, TheHostTakesNoPart) {
  const auto engine = std::make_shared<CountingEngine>();
  GroupOptions below = BelowOptions(Devices({0, 1})), above = AboveOptions(Devices({0, 1}));
  below.engine = above.engine = engine;
  DataParallelExecutorGroup a(Below(), below), b(Above(), above);
  InitialiseEqually({&a}, 1);
  InitialiseEqually({&b}, 1);
  const Batch batch = RandomBatch(kSamples, 4, 3, 5);
  const DeviceArrays data(std::vector<Tensor>{On(engine, TestDevice(0), batch.data[0])});
  const DeviceArrays labels(std::vector<Tensor>{On(engine, TestDevice(1), batch.label[0])});
  const auto host_copies = [&] { return engine->Runs("copy to host") + engine->Runs("copy from host"); };
  const int copies_before = host_copies(), on_cpus = engine->RunsOn(DeviceKind::kCpu);
  for (int run = 0; run < 3; ++run) {
    a.Forward(Batch{.device_data = data});
    b.Forward(Batch{.device_data = a.OutputsPerDevice(), .device_label = labels});
    b.Backward();
    a.Backward(b.InputGradientsPerDevice());
  }
  const std::vector<Tensor> outputs = b.Outputs();
  EXPECT_EQ(host_copies(), copies_before);
  if (TestDevices() == "sim") {
    EXPECT_EQ(engine->RunsOn(DeviceKind::kCpu), on_cpus);
  }
  EXPECT_EQ(outputs[0].device(), TestDevice(0));
}

TEST(GroupChain, ErrorsTravel) {
  const std::shared_ptr<Engine> engine = DefaultEngine();
  DataParallelExecutorGroup a(Below(), BelowOptions(Devices({0, 1}))), b(Above(), AboveOptions(Devices({1, 0})));
  InitialiseEqually({&a}, 1);
  InitialiseEqually({&b}, 1);
  const Batch batch = RandomBatch(kSamples, 4, 3, 5);
  const auto broken = [&](const Shape& shape) {
    const Tensor tensor(engine, TestDevice(1), DType::kFloat32, shape);
    engine->Push({.name = "break", .device = TestDevice(1), .writes = {tensor.var()}, .run = [](const OpContext&) {
                    throw NumericError("broken on purpose");
                  }});
    return DeviceArrays(std::vector<Tensor>{tensor});
  };
  const auto all = [&] {
    a.Forward(Batch{.data = batch.data});
    b.Forward(Batch{.label = batch.label, .device_data = a.Outputs()});
    b.Backward();
    a.Backward(b.InputGradients());
    return a.GetGradient("fc1_weight", 0);
  };
  const HostTensor good = all();
  a.Forward(Batch{.device_data = broken({kSamples, 4})});
  b.Forward(Batch{.label = batch.label, .device_data = a.Outputs()});
  EXPECT_NE(MessageOf([&] { b.Outputs()[0].ToHost(); }).find("broken on purpose"), std::string::npos);
  EXPECT_EQ(all(), good);
  a.Forward(Batch{.data = batch.data});
  const Tensor output = a.Outputs()[0];
  a.Backward(broken({kSamples, 5}));
  EXPECT_NO_THROW(output.ToHost());
  EXPECT_NE(MessageOf([&] { a.GetGradient("fc1_weight", 0); }).find("broken on purpose"), std::string::npos);
  EXPECT_EQ(all(), good);
  EXPECT_THROW(engine->WaitAll(), NumericError);
}

TEST(GroupChain, WhatDoesNotFitIsRefused) {
  const std::shared_ptr<Engine> engine = DefaultEngine(), other = MakeInlineEngine();
  DataParallelExecutorGroup group(Above(), AboveOptions(Devices({0, 1})));
  const auto forward = [&](const std::vector<Tensor>& pieces) {
    return MessageOf([&] {
      Batch batch;
      batch.device_data.Set(0, pieces);
      group.Forward(batch, Mode::kPredict);
    });
  };
  const auto tensor = [&](const Shape& shape) { return Tensor(engine, TestDevice(0), DType::kFloat32, shape); };
  EXPECT_EQ(forward({tensor({2, 5}), tensor({3, 4})}),
            "DataError: \"hidden\": its pieces have different shapes, (2, 5) and (3, 4)");
  EXPECT_EQ(forward({tensor({2})}), "DataError: \"hidden\": expected 2 axes as in (7, 5), got (2)");
  EXPECT_EQ(forward({tensor({2, 5}), Tensor()}), "DataError: \"hidden\": an empty tensor");
  EXPECT_EQ(forward({Tensor(other, Cpu(0), DType::kFloat32, {2, 5})}),
            "DataError: \"hidden\": the tensor belongs to another engine");
  EXPECT_EQ(forward({}), "DataError: the batch has no array for \"hidden\"");
  EXPECT_EQ(forward({tensor({2, 5}), tensor({1, 5})}), "nothing was thrown");
  EXPECT_EQ(group.Outputs()[0].shape(), (Shape{3, 3}));

  DataParallelExecutorGroup below(Below(), BelowOptions(Devices({0, 1})));
  below.Forward(RandomBatch(kSamples, 4, 3, 1));
  EXPECT_EQ(MessageOf([&] {
              below.Backward(std::vector<Tensor>{tensor({kSamples, 4})});
            }),
            "ShapeError: Backward: gradient of head \"" + below.output_names()[0] + "\": expected (7, 5), got (7, 4)");
  EXPECT_NO_THROW(below.Backward(std::vector<Tensor>{tensor({kSamples, 5})}));
}

TEST(GroupChain, Executors) {
  const Device device = TestDevice(1);
  Executor a(Below(), {.device = device, .inputs = {{"data", {kSamples, 4}}}});
  Executor b(Tanh(Variable("x") * Variable("y")), {.device = TestDevice(0),
                                                   .inputs = {{"x", {kSamples, 5}}, {"y", {kSamples, 5}}},
                                                   .grad_req = std::map<std::string, GradReq>{{"x", GradReq::kWrite}}});
  Initialise(&a, 1);
  const HostTensor y = RandomTensor({kSamples, 5}, 2), ones = HostTensor::Full(DType::kFloat32, {kSamples, 5}, 1);
  a.Forward({{"data", RandomTensor({kSamples, 4}, 1)}});
  b.SetInput("y", y);
  b.SetInput("x", a.OutputArray(0));
  b.Forward();
  const HostTensor chained = b.Output(0);
  b.Backward(On(DefaultEngine(), device, ones));
  const HostTensor gradient = b.Gradient("x");
  b.Forward({{"x", a.Output(0)}});  // in place of the device's
  EXPECT_EQ(b.Output(0), chained);
  b.Backward(ones);
  EXPECT_EQ(b.Gradient("x"), gradient);
}

// The next batch is on its device, but for one copy within it, while a step is still running.
TEST(GroupChain, TheNextBatchIsStagedWhileAStepRuns) {
  const Device device = Sim(5);
  GroupOptions options = BelowOptions({device});
  options.engine = MakeThreadedEngine();
  DataParallelExecutorGroup group(Below(), options);
  InitialiseEqually({&group}, 1);
  const auto first = std::make_shared<const Batch>(RandomBatch(kSamples, 4, 3, 1));
  const auto second = std::make_shared<const Batch>(RandomBatch(kSamples, 4, 3, 2));
  group.Forward(second);
  const HostTensor expected = group.Outputs()[0].ToHost();
  options.engine->WaitAll();
  int64_t ran = sim::KernelsRun(device);
  group.Forward(first);
  options.engine->WaitAll();
  const int64_t in_step = sim::KernelsRun(device) - ran;
  const auto wait_for = [&](int64_t kernels) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (sim::KernelsRun(device) < kernels && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    return sim::KernelsRun(device);
  };
  ran = sim::KernelsRun(device) + in_step;
  sim::HangKernel(device, in_step);  // the last
  group.Forward(first);
  EXPECT_EQ(wait_for(ran), ran);
  group.Forward(second);
  EXPECT_EQ(wait_for(ran + 2), ran + 2);  // its step block and its data
  sim::Release(device);
  EXPECT_EQ(group.Outputs()[0].ToHost(), expected);
}

}  // namespace
}  // namespace bindery
