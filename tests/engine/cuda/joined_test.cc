// Operations that are joined are one launch on a GPU, and fail one by one; over the fake of the driver.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/backend.h"
#include "engine/cuda/progress.h"
#include "engine/cuda/recording.h"
#include "engine/cuda/stream.h"
#include "engine/step.h"
#include "tests/engine/asynchronous_devices.h"
#include "tests/engine/cuda/fake/fake.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

namespace fake = cuda::fake;

constexpr int kCount = 50;
constexpr int kNamed = 2, kTwice = 4;  // they and the next are lost, and stay so

class CudaJoinedTest : public testing::TestWithParam<bool>, protected AsynchronousDevices {
 protected:
  CudaJoinedTest() : AsynchronousDevices(GetParam() ? MakeThreadedEngine() : MakeInlineEngine()) {}
  ~CudaJoinedTest() override {
    sim::Reset();
    cuda::UseGraphs(true);
    for (const std::string& violation : fake::TakeViolations()) ADD_FAILURE() << violation;
  }
  Tensor Of(double value, Device device = Cuda(0)) {
    return New(HostTensor::Full(DType::kFloat32, {kCount}, value), device);
  }
  // Makes `out` = 2 * (in + in), by two nodes and three commands.
  Operation Make(const std::string& name, const Tensor& in, const Tensor& out, Lane lane = Lane::kCompute) {
    return {.name = name,
            .device = out.device(),
            .reads = {in.var()},
            .writes = {out.var()},
            .run =
                [=, this](const OpContext& context) {
                  if (name == failing_) throw DataError("no");
                  const FlatKernels& flat = Backend::Of(DeviceKind::kCuda).flat();
                  cuda::CudaStream& stream = cuda::CudaStreamOf(context.stream);
                  {
                    const cuda::CudaStream::Naming naming(stream, "Node \"" + name + " sum\"");
                    flat.Copy(stream, in.address(), out.address(), out.bytes());
                    flat.Add(stream, DType::kFloat32, in.address(), out.address(), kCount);
                  }
                  const cuda::CudaStream::Naming naming(stream, "Node \"" + name + " double\"");
                  flat.Scale(stream, DType::kFloat32, out.address(), kCount, 2);
                },
            .lane = lane};
  }
  std::string failing_;
};

INSTANTIATE_TEST_SUITE_P(Engines, CudaJoinedTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Threaded" : "Inline"; });

TEST_P(CudaJoinedTest, TheyAreOneLaunch) {
  for (const bool graphs : {false, true}) {
    cuda::UseGraphs(graphs);
    for (uint64_t seed = 1; seed < 6; ++seed) {
      sim::SetDelays(seed, 100);
      const Tensor a = Of(1), b = Of(0), c = Of(0), d = Of(0);
      const StepRange range(engine_, {Make("first", a, b),
                                      Make("second", b, c, Lane::kCollective),
                                      {.name = "third",
                                       .device = Cuda(0),
                                       .reads = {c.var()},
                                       .updates = {d.var()},
                                       .run = [=](const OpContext& context) {
                                         Backend::Of(DeviceKind::kCuda)
                                             .flat()
                                             .Add(context.stream, DType::kFloat32, c.address(), d.address(), kCount);
                                       }}});
      engine_->WaitAll();
      for (int run = 0; run < 4; ++run) {
        const int64_t before = fake::GraphLaunches();
        range.Push();
        if (run == 0) continue;  // two may be under way
        engine_->WaitAll();
        if (run > 1) {
          EXPECT_EQ(fake::GraphLaunches() - before, !graphs ? 0 : GetParam() ? 1 : 2);
        }
      }
      EXPECT_EQ(c.ToHost(), HostTensor::Full(DType::kFloat32, {kCount}, 16));
      EXPECT_EQ(d.ToHost(), HostTensor::Full(DType::kFloat32, {kCount}, 64));
    }
  }
}

// What an operation throws fails what it was to make, and what is made of that; the others do their work.
TEST_P(CudaJoinedTest, EachFailsByItself) {
  const Tensor a = Of(1), b = Of(0), c = Of(0), d = Of(0), e = Of(5);
  std::vector<PreparedPtr> operations;
  for (const Operation& one : {Make("first", a, b), Make("second", a, c), Make("third", c, d), Make("fourth", b, e)}) {
    operations.push_back(engine_->Prepare(one));
  }
  const HostTensor four = HostTensor::Full(DType::kFloat32, {kCount}, 4);
  for (const bool fails : {false, false, true, false, true, false}) {
    failing_ = fails ? "second" : "";
    {
      const Joining joining(engine_.get(), Cuda(0));
      for (const PreparedPtr& operation : operations) engine_->Push(operation);
    }
    if (fails) {
      const std::string expected = "DataError: operation \"second\" failed: no";
      EXPECT_EQ(MessageOf<DataError>([&] { engine_->Wait(c.var()); }), expected);
      EXPECT_EQ(MessageOf<DataError>([&] { engine_->Wait(d.var()); }), expected);
      EXPECT_THROW(engine_->WaitAll(), DataError);
    } else {
      EXPECT_EQ(d.ToHost(), HostTensor::Full(DType::kFloat32, {kCount}, 16));
    }
    EXPECT_EQ(b.ToHost(), four);
    EXPECT_EQ(e.ToHost(), HostTensor::Full(DType::kFloat32, {kCount}, 16));
  }
}

// At a graph's end the stream takes back what the graph said, and then says it in its own way.
TEST(CudaProgressTest, WhatIsDoneStaysSo) {
  const std::shared_ptr<Engine> engine = MakeThreadedEngine();
  const cuda::Progress progress(cuda::CudaStreamOf(engine->StreamOf(Cuda(0), Lane::kCompute)).gpu(), Lane::kCompute);
  const std::atomic_ref done(*reinterpret_cast<uint64_t*>(progress.word())), within(*progress.within());
  EXPECT_EQ(progress.done(), 0u);
  for (const uint64_t before : {0, 3}) {
    within = 2;  // of three pieces
    EXPECT_EQ(progress.done(), before + 2);
    within = 0;
    EXPECT_EQ(progress.done(), before + 2);
    done = before + 3;
    EXPECT_EQ(progress.done(), before + 3);
  }
}

TEST_P(CudaJoinedTest, AFailureNamesWhatRan) {
  const Device device = Cuda(kNamed + GetParam());
  const Tensor a = Of(1, device), b = Of(0, device), c = Of(0, device);
  const StepRange range(engine_, {Make("first", a, b), Make("second", a, c, Lane::kCollective)});
  for (int run = 0; run < 3; ++run) range.Push();
  engine_->WaitAll();
  fake::FailKernel(device.index, 6);  // three commands and a mark, then the second's
  range.Push();
  const std::string message = MessageOf<DeviceError>([&] { engine_->Wait(c.var()); });
  EXPECT_NE(message.find("operation \"second\" failed: " + ToString(device) + " is lost: "), std::string::npos)
      << message;
  EXPECT_NE(message.find(", in operation \"second\", Node \"second sum\""), std::string::npos) << message;
  EXPECT_NO_THROW(engine_->Wait(b.var())) << "it had ended";
  engine_->Recover();
}

// One operation, of which no command has a name, twice in a row: it is the second run that fails.
TEST_P(CudaJoinedTest, OneOperationTwice) {
  const Device device = Cuda(kTwice + GetParam());
  const Tensor a = Of(1, device), b = Of(0, device);
  const PreparedPtr copy = engine_->Prepare(
      {.name = "copy", .device = device, .reads = {a.var()}, .writes = {b.var()}, .run = [=](const OpContext& context) {
         Backend::Of(DeviceKind::kCuda).flat().Copy(context.stream, a.address(), b.address(), b.bytes());
       }});
  const auto twice = [&] {
    const Joining together(engine_.get(), device);
    engine_->Push(copy);
    engine_->Push(copy);
  };
  twice();
  EXPECT_EQ(b.ToHost().At(0), 1);
  fake::FailKernel(device.index, 2);
  twice();
  const std::string message = MessageOf<DeviceError>([&] { engine_->Wait(b.var()); });
  EXPECT_NE(message.find("operation \"copy\" failed: " + ToString(device) + " is lost: "), std::string::npos)
      << message;
  engine_->Recover();
}

// What others do with it comes behind all of them, unless one of them needs that, or somebody waits.
TEST(CudaJoinTest, OthersComeBehind) {
  const std::shared_ptr<Engine> engine = MakeThreadedEngine();
  const Tensor x(engine, Cuda(0), DType::kFloat32, {kCount}), y(engine, Cuda(0), DType::kFloat32, {kCount});
  const Tensor other(engine, Cuda(1), DType::kFloat32, {kCount});
  const VarPtr said = engine->NewVar();
  engine->WaitAll();
  std::mutex mutex;
  std::string order;
  const auto push = [&](const std::string& name, Device device, const std::vector<VarPtr>& reads,
                        const std::vector<VarPtr>& writes, Lane lane = Lane::kCompute) {
    engine->Push(engine->Prepare({.name = name,
                                  .device = device,
                                  .reads = reads,
                                  .writes = writes,
                                  .run =
                                      [&order, &mutex, name](const OpContext&) {
                                        const std::lock_guard lock(mutex);
                                        order += name + " ";
                                      },
                                  .lane = lane}));
  };
  const auto order_is = [&](const std::string& expected) {
    engine->WaitAll();
    const std::lock_guard lock(mutex);
    EXPECT_EQ(std::exchange(order, ""), expected);
  };
  const auto ran = [&] {
    const std::lock_guard lock(mutex);
    return order;
  };
  {
    const Joining joining(engine.get(), Cuda(0)), nested(engine.get(), Cuda(0));
    push("a", Cuda(0), {}, {x.var()});
    push("host", Cpu(), {x.var()}, {said});
    push("b", Cuda(0), {x.var()}, {y.var()}, Lane::kCollective);
    EXPECT_FALSE(engine->Join(Cuda(1)));
    EXPECT_FALSE(std::async(std::launch::async, [&] { return engine->Join(Cuda(0)); }).get());
    push("far", Cuda(1), {}, {other.var()});  // has nothing to do with these
    engine->Wait(other.var());
    EXPECT_EQ(ran(), "far ");
  }
  order_is("far a b host ");
  {
    const Joining joining(engine.get(), Cuda(0));
    push("a", Cuda(0), {}, {x.var()});
    push("host", Cpu(), {x.var()}, {said});
    push("b", Cuda(0), {said}, {y.var()});
    engine->Wait(said);
    EXPECT_EQ(ran(), "a host b ");
    push("c", Cuda(0), {}, {y.var()});
    std::thread([&] { push("late", Cuda(0), {y.var()}, {x.var()}); }).join();  // another thread's
    push("d", Cuda(0), {}, {y.var()});
  }
  order_is("a host b c late d ");
  for (const Device device : {Cpu(), Sim(0)}) EXPECT_FALSE(engine->Join(device));
}

TEST(CudaJoinedHangTest, IsNamed) {
  const std::shared_ptr<Engine> engine = MakeThreadedEngine({.hang_milliseconds = 100});
  const Tensor tensor(engine, Cuda(1), DType::kFloat32, {kCount});
  const auto fill = [&](const std::string& name) {
    return Operation{
        .name = name, .device = Cuda(1), .updates = {tensor.var()}, .run = [tensor](const OpContext& context) {
          for (int i = 0; i < 3; ++i) {
            Backend::Of(DeviceKind::kCuda).flat().Fill(context.stream, DType::kFloat32, tensor.address(), kCount, i);
          }
        }};
  };
  const StepRange joined(engine, {fill("first"), fill("second")});
  for (int run = 0; run < 2; ++run) joined.Push();
  engine->WaitAll();
  fake::HangKernel(1, 6);
  joined.Push();
  const std::string message = MessageOf<HangError>([&] { engine->Wait(tensor.var()); });
  EXPECT_NE(message.find("cuda:1 hangs: it has been at operation \"second\" for "), std::string::npos) << message;
  fake::Release(1);
  engine->WaitAll();
  EXPECT_EQ(tensor.ToHost(), HostTensor::Full(DType::kFloat32, {kCount}, 2));
}

}  // namespace
}  // namespace bindery
