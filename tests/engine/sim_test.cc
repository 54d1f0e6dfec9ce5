// Simulated devices: what they refuse, that their work comes later, and that engines keep their promises all the same.
#include "engine/sim/sim.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "engine/backend.h"
#include "engine/host_call.h"
#include "engine/memory/arena.h"
#include "engine/sim/stream.h"
#include "engine/tensor.h"
#include "tests/engine/asynchronous_devices.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

using MakeEngine = std::shared_ptr<Engine> (*)();
std::shared_ptr<Engine> Threaded() { return MakeThreadedEngine(); }

class SimTest : public testing::TestWithParam<MakeEngine>, protected AsynchronousDevices {
 protected:
  SimTest() : AsynchronousDevices(GetParam()()) {}
  ~SimTest() override { sim::Reset(); }
};

INSTANTIATE_TEST_SUITE_P(Engines, SimTest, testing::Values(&Threaded, &MakeInlineEngine),
                         [](const auto& info) { return info.index ? "inline" : "threaded"; });

TEST_P(SimTest, MemoryIsOutOfTheHostsReach) {
  const Tensor tensor = New(HostTensor::Full(DType::kFloat32, {4}, 2), Sim(0));
  EXPECT_EQ(MessageOf<DeviceError>([&] { tensor.data(); }),
            "DeviceError: the host cannot address a tensor on sim:0; copy it with ToHost");
  EXPECT_DEATH(*static_cast<volatile float*>(tensor.address()) = 1, "");
  EXPECT_TRUE(tensor.ToHost() == HostTensor::Full(DType::kFloat32, {4}, 2));
}

TEST_P(SimTest, CopiesCastsAndFillsBetweenAllKinds) {
  ExpectCopiesCastsAndFills({Cpu(0), Sim(0)}, {Cpu(1), Sim(0), Sim(1)});
}

TEST_P(SimTest, CopiesBetweenViewsThatMeet) { ExpectCopiesBetweenViewsThatMeet(Sim(0)); }

TEST_P(SimTest, OperationsOfSeveralDevicesRunInOrderWhateverTheDelays) { ExpectOrderWhateverTheDelays(Sim(0), Sim(1)); }

TEST_P(SimTest, AFailureThatShowsLaterTravelsAndLeavesWhatIsUpdatedUntouched) {
  const Tensor parameter = New(HostTensor::Full(DType::kFloat32, {2}, 5), Sim(1));
  const Tensor source = New(HostTensor::Full(DType::kFloat32, {2}, 1), Sim(0));
  Tensor created(engine_, Sim(0), DType::kFloat32, {2});
  engine_->WaitAll();
  sim::FailKernel(Sim(0), 1);
  created.CopyFrom(source);
  const auto update = [&] {
    const Tensor there(engine_, Sim(1), DType::kFloat32, {2});
    there.CopyFrom(created);
    engine_->Push({.name = "update",
                   .device = Sim(1),
                   .reads = {there.var()},
                   .writes = {},
                   .updates = {parameter.var()},
                   .run = [there, parameter](const OpContext& context) {
                     Backend::Of(DeviceKind::kSim)
                         .flat()
                         .Add(context.stream, DType::kFloat32, there.address(), parameter.address(), 2);
                   }});
  };
  update();
  EXPECT_EQ(parameter.ToHost().At(0), 5);
  const std::string message = "DeviceError: operation \"copy\" failed: sim:0: a kernel failed, as was asked for";
  EXPECT_EQ(MessageOf<DeviceError>([&] { created.ToHost(); }), message);
  EXPECT_EQ(MessageOf<DeviceError>([&] { created.Wait(); }), message);  // for every reader
  EXPECT_FALSE(engine_->Version(created.var()).has_value());
  EXPECT_TRUE(engine_->Version(parameter.var()).has_value());
  EXPECT_EQ(MessageOf<DeviceError>([&] { engine_->WaitAll(); }), message);
  EXPECT_NO_THROW(engine_->WaitAll());
  created.CopyFrom(source);  // written anew: whole again
  update();
  EXPECT_EQ(parameter.ToHost().At(0), 6);
  EXPECT_TRUE(engine_->Version(created.var()).has_value());
}

// Some of it may be done: nobody is to read it.
TEST_P(SimTest, AnUpdateThatFailsItselfFailsWhatItUpdates) {
  const Tensor sum = New(HostTensor::Full(DType::kFloat32, {2}, 5), Sim(0)),
               other = New(HostTensor(DType::kFloat32, {2}), Sim(0));
  const auto update = [&](bool twice) {
    engine_->Push({.name = "update",
                   .device = Sim(0),
                   .reads = {other.var()},
                   .writes = {},
                   .updates = {sum.var()},
                   .run = [=](const OpContext& context) {
                     for (int i = 0; i <= twice; ++i) {
                       Backend::Of(DeviceKind::kSim).flat().Fill(context.stream, DType::kFloat32, sum.address(), 2, i);
                     }
                   }});
  };
  engine_->WaitAll();
  sim::FailKernel(Sim(0), 2);
  update(true);
  const std::string message = "DeviceError: operation \"update\" failed: sim:0: a kernel failed, as was asked for";
  update(false);  // skipped
  for (int i = 0; i < 2; ++i) EXPECT_EQ(MessageOf<DeviceError>([&] { sum.ToHost(); }), message);
  EXPECT_FALSE(engine_->Version(sum.var()).has_value());
  EXPECT_EQ(MessageOf<DeviceError>([&] { sum.Wait(); }), message);
  const Tensor copy(engine_, Sim(1), DType::kFloat32, {2});
  copy.CopyFrom(sum);
  EXPECT_EQ(MessageOf<DeviceError>([&] { copy.ToHost(); }), message);
  EXPECT_EQ(other.ToHost().At(0), 0);
  sum.Fill(3);  // written anew
  update(false);
  EXPECT_EQ(sum.ToHost().At(0), 0);
}

TEST_P(SimTest, ACopyToTheHostThatFailsIsToldAndLeavesTheTensor) {
  const Tensor tensor = New(HostTensor::Full(DType::kFloat32, {2}, 5), Sim(0));
  engine_->WaitAll();
  sim::FailKernel(Sim(0), 1);
  EXPECT_EQ(MessageOf<DeviceError>([&] { tensor.ToHost(); }),
            "DeviceError: operation \"copy to host\" failed: sim:0: a kernel failed, as was asked for");
  EXPECT_EQ(tensor.ToHost().At(1), 5);
}

TEST_P(SimTest, RecoverClearsFailuresThatShowLater) {
  const Tensor tensor = New(HostTensor::Full(DType::kFloat32, {2}, 1), Sim(0));
  engine_->WaitAll();
  sim::FailKernel(Sim(0), 1);
  tensor.Fill(7);
  engine_->Recover();
  EXPECT_EQ(tensor.ToHost().At(0), 1);
  EXPECT_NO_THROW(engine_->WaitAll());
}

TEST(SimStreamTest, WorkComesLaterAndWhatItUsesLivesAsLong) {
  const std::shared_ptr<Engine> engine = MakeThreadedEngine();
  const VarPtr var = engine->NewVar();
  const auto payload = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = payload;
  std::atomic<bool> ran = false;
  sim::HangKernel(Sim(0), 1);
  const PreparedPtr operation = engine->Prepare(
      {.name = "work",
       .device = Sim(0),
       .reads = {},
       .writes = {var},
       .updates = {},
       .run = [&](const OpContext& context) { sim::SimStreamOf(context.stream).Enqueue([&ran] { ran = true; }); }});
  engine->Push(operation, std::make_shared<std::shared_ptr<int>>(payload));
  const Tensor elsewhere(engine, Sim(1), DType::kFloat32, {2});
  EXPECT_EQ(elsewhere.ToHost().At(0), 0);  // another device is not held up
  EXPECT_FALSE(ran);
  EXPECT_GT(watch.use_count(), 1);
  sim::Release(Sim(0));
  engine->Wait(var);
  EXPECT_TRUE(ran);
  engine->WaitAll();
  EXPECT_EQ(watch.use_count(), 1);
  sim::Reset();
}

TEST(SimMemoryTest, LimitsAndRefusals) {
  const auto storage = MakeStorage();
  sim::SetMemoryLimit(Sim(2), 1 << 20);
  EXPECT_EQ(MessageOf<DeviceError>([&] { storage->Allocate(Sim(2), 2 << 20); }),
            "DeviceError: sim:2: cannot allocate 2097152 bytes: out of memory; 0 in use by tensors");
  EXPECT_NO_THROW(storage->Allocate(Sim(2), 1 << 18));
  sim::FailAllocation(Sim(2), 1);
  storage->ReleasePool();
  EXPECT_NO_THROW(storage->Allocate(Sim(2), 1 << 18));  // tried again when the pool was released
  storage->ReleasePool();
  sim::Lose(Sim(2));
  EXPECT_THROW(storage->Allocate(Sim(2), 1 << 18), DeviceError);
  sim::Reset();
  EXPECT_EQ(sim::MemoryInUse(Sim(2)), 0);
  EXPECT_EQ(MessageOf<DeviceError>([&] { storage->Allocate(Sim(16), 1); }),
            "DeviceError: sim:16: simulated devices are sim:0 to sim:15");

  const std::shared_ptr<Engine> engine = MakeInlineEngine();
  {
    const auto arena = Arena::Make(Sim(2), engine);
    arena->Grow(10000);
    EXPECT_GE(sim::MemoryInUse(Sim(2)), 10000);
    sim::SetMemoryLimit(Sim(2), 1 << 20);
    EXPECT_THROW(arena->Grow(2 << 20), DeviceError);
    EXPECT_GE(arena->committed(), 10000);
    DefaultStorage()->Allocate(Sim(2), 512 << 10);
    EXPECT_NO_THROW(arena->Grow(768 << 10));  // with what was kept of that
    sim::Reset();
  }
  EXPECT_EQ(sim::MemoryInUse(Sim(2)), 0);
}

TEST(HostCallTest, TouchesNothingUnlessEverythingWentWell) {
  const std::shared_ptr<Engine> engine = MakeThreadedEngine();
  std::vector<Tensor> tensors;
  for (const Device device : {Sim(0), Cpu(0), Sim(1)}) {
    tensors.emplace_back(engine, device, DType::kFloat32, Shape{3}).Fill(static_cast<double>(tensors.size()));
  }
  const auto call = [&](bool fail) {
    std::vector<HostCallRange> ranges;
    for (const Tensor& t : tensors) {
      ranges.push_back({t.device(), t.address(), t.bytes(), t.var(), true, HostCallRange::After::kUpdate});
    }
    const auto add_up = [fail](std::span<void* const> addresses) {
      float sum = 0;
      for (void* address : addresses) sum += *static_cast<float*>(address);
      for (void* address : addresses) *static_cast<float*>(address) = sum;
      if (fail) throw DataError("no good");
    };
    StepParts parts;
    AppendHostCall(engine.get(), "add up", ranges, add_up, {}, nullptr, &parts);
    return StepRange(engine, std::move(parts));
  };
  call(true).Push();
  EXPECT_EQ(MessageOf<DataError>([&] { engine->WaitAll(); }), "DataError: operation \"add up\" failed: no good");
  for (size_t i = 0; i < tensors.size(); ++i) EXPECT_EQ(tensors[i].ToHost().At(0), static_cast<double>(i + 1));
  const StepRange add = call(false);
  add.Push();
  add.Push();
  for (const Tensor& t : tensors) EXPECT_EQ(t.ToHost().At(0), 18);
  for (const Tensor& t : tensors) EXPECT_EQ(t.ToHost().At(1), 0 + t.ToHost().At(2));
}

TEST(HostCallTest, RangesThatBeginAtOnePlaceAreOfOneSize) {
  const std::shared_ptr<Engine> engine = MakeInlineEngine();
  const Tensor tensor(engine, Sim(0), DType::kFloat32, {3});
  const auto append = [&](int64_t bytes) {
    StepParts parts;
    const std::vector<HostCallRange> ranges = {{tensor.device(), tensor.address(), tensor.bytes(), tensor.var()},
                                               {tensor.device(), tensor.address(), bytes, tensor.var()}};
    AppendHostCall(
        engine.get(), "add up", ranges, [](std::span<void* const>) {}, {}, nullptr, &parts);
  };
  append(12);
  append(0);
  EXPECT_EQ(MessageOf([&] { append(8); }),
            "Error: add up: two ranges begin at one place of sim:0, one of 12 bytes, the other of 8");
}

TEST(HostCallTest, MayGoWhileItIsInFlightWithTheMemoryItUses) {
  const std::shared_ptr<Engine> engine = MakeThreadedEngine();
  const Tensor sum(engine, Cpu(0), DType::kFloat32, {1000});
  sim::SetDelays(1, 300);
  for (int round = 1; round <= 20; ++round) {
    const auto one = std::make_shared<Tensor>(engine, Sim(0), DType::kFloat32, Shape{1000});
    one->Fill(1);
    const std::vector<HostCallRange> ranges = {
        {one->device(), one->address(), one->bytes(), one->var()},
        {sum.device(), sum.address(), sum.bytes(), sum.var(), true, HostCallRange::After::kUpdate}};
    const auto add = [](std::span<void* const> addresses) {
      for (int i = 0; i < 1000; ++i) static_cast<float*>(addresses[1])[i] += static_cast<float*>(addresses[0])[i];
    };
    StepParts parts;
    AppendHostCall(engine.get(), "add", ranges, add, {}, one, &parts);
    StepRange(engine, std::move(parts)).Push();
  }
  EXPECT_EQ(sum.ToHost(), HostTensor::Full(DType::kFloat32, {1000}, 20));
  sim::Reset();
}

// A worker with nothing to do finds it (docs/engine.md), and keeps it for whoever waits.
TEST(SimWorkerTest, AnErrorThatShowsMeanwhileIsTold) {
  for (const bool by_variable : {true, false}) {
    std::vector<std::string> lines;
    SetLogCallback([&](LogLevel, const std::string& line) { lines.push_back(line); });
    {
      const std::shared_ptr<Engine> engine = MakeThreadedEngine();
      const Tensor tensor(engine, Sim(0), DType::kFloat32, {4});
      tensor.Wait();
      sim::FailKernel(Sim(0), 1);
      tensor.Fill(1);
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      EXPECT_THROW(by_variable ? tensor.Wait() : engine->WaitAll(), DeviceError);
    }
    SetLogCallback(nullptr);
    EXPECT_EQ(lines, std::vector<std::string>()) << by_variable;
    sim::Reset();
  }
}

}  // namespace
}  // namespace bindery
