// GPUs over the fake of the driver: what they keep of the engine's promises, and what they do to memory, streams and
// events.
#include "engine/backend.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "engine/cuda/gpu.h"
#include "engine/cuda/stream.h"
#include "engine/memory/arena.h"
#include "engine/memory/storage.h"
#include "engine/sim/sim.h"
#include "engine/step.h"
#include "engine/tensor.h"
#include "tests/engine/asynchronous_devices.h"
#include "tests/engine/cuda/fake/fake.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

namespace fake = cuda::fake;

// Devices that are lost stay so: each test that loses some has its own.
constexpr int kNamed = 2, kLost = 4, kWaiting = 6, kMisused = 8, kOfNode = 9;

class CudaTest : public testing::TestWithParam<bool>, protected AsynchronousDevices {
 protected:
  CudaTest() : AsynchronousDevices(GetParam() ? MakeThreadedEngine() : MakeInlineEngine()) {}
  ~CudaTest() override {
    sim::Reset();
    for (const std::string& violation : fake::TakeViolations()) ADD_FAILURE() << violation;
  }
  // Of two devices that a test may lose, the one of this engine.
  Device OneOf(int first) const { return Cuda(first + GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Engines, CudaTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Threaded" : "Inline"; });

TEST_P(CudaTest, MemoryIsOutOfTheHostsReach) {
  const Tensor tensor = New(HostTensor::Full(DType::kFloat32, {4}, 2), Cuda(0));
  EXPECT_EQ(MessageOf<DeviceError>([&] { tensor.data(); }),
            "DeviceError: the host cannot address a tensor on cuda:0; copy it with ToHost");
  EXPECT_TRUE(tensor.ToHost() == HostTensor::Full(DType::kFloat32, {4}, 2));
}

TEST_P(CudaTest, CopiesCastsAndFillsBetweenAllKinds) {
  ExpectCopiesCastsAndFills({Cpu(0), Cuda(0)}, {Cpu(1), Cuda(0), Cuda(1), Cuda(fake::kLonelyGpu)});
}

TEST_P(CudaTest, CopiesBetweenViewsThatMeet) { ExpectCopiesBetweenViewsThatMeet(Cuda(0)); }

TEST_P(CudaTest, OperationsOfSeveralDevicesRunInOrderWhateverTheDelays) {
  ExpectOrderWhateverTheDelays(Cuda(0), Cuda(1));
}

// A thread that uses a GPU by calls of its own finds it current after ours, of other GPUs, and after those that fail.
TEST_P(CudaTest, TheCallersGpuStaysCurrent) {
  CUcontext context = nullptr;
  ASSERT_EQ(fake::Api().device_primary_ctx_retain(&context, 3), CUDA_SUCCESS);
  ASSERT_EQ(fake::Api().ctx_push_current(context), CUDA_SUCCESS);
  const Tensor tensor = New(HostTensor::Full(DType::kFloat32, {4}, 2), Cuda(0));
  const Tensor copy = New(HostTensor(DType::kFloat32, {4}), Cuda(1));
  EXPECT_EQ(tensor.ToHost().At(0), 2);
  EXPECT_EQ(fake::CurrentGpu(), 3);
  fake::SetMemoryLimit(0, 1 << 10);
  EXPECT_THROW(Tensor(engine_, Cuda(0), DType::kFloat32, {1 << 20}).Wait(), DeviceError);
  fake::SetMemoryLimit(0, 0);
  EXPECT_EQ(fake::CurrentGpu(), 3);
  CUcontext mine = nullptr;
  EXPECT_EQ(fake::Api().ctx_pop_current(&mine), CUDA_SUCCESS);
  EXPECT_EQ(fake::CurrentGpu(), -1) << "nothing is left behind";
}

// Lanes of one device, which only events keep in order.
TEST_P(CudaTest, LanesWaitForEachOther) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    sim::SetDelays(seed, 300);
    const Tensor sum = New(HostTensor(DType::kFloat32, {100}), Cuda(1));
    const Tensor one = New(HostTensor::Full(DType::kFloat32, {100}, 1), Cuda(1));
    for (int i = 0; i < 12; ++i) {
      engine_->Push({.name = "add",
                     .device = Cuda(1),
                     .reads = {one.var()},
                     .writes = {},
                     .updates = {sum.var()},
                     .run =
                         [=](const OpContext& context) {
                           const FlatKernels& flat = Backend::Of(DeviceKind::kCuda).flat();
                           flat.Add(context.stream, DType::kFloat32, one.address(), sum.address(), 100);
                           flat.Scale(context.stream, DType::kFloat32, sum.address(), 100, 2);
                         },
                     .lane = static_cast<Lane>(i % 3)});
    }
    EXPECT_EQ(sum.ToHost(), HostTensor::Full(DType::kFloat32, {100}, 8190));
  }
}

TEST_P(CudaTest, FlatMathIsThatOfCpus) {
  HostTensor values(DType::kFloat32, {4, 33}), bad = values;
  for (int64_t i = 0; i < values.elements(); ++i) values.Set(i, static_cast<double>(i * i) / 7);
  bad.Set(100, HUGE_VAL);
  std::vector<HostTensor> results[2];
  for (const Device device : {Cpu(0), Cuda(0)}) {
    const Tensor in = New(values, device), infinite = New(bad, device),
                 out = New(HostTensor(DType::kFloat32, {4, 33}), device);
    const FlatKernels& flat = Backend::Of(device.kind).flat();
    std::vector<HostTensor>& mine = results[device.kind == DeviceKind::kCuda];
    const auto run = [&](const std::function<void(Stream&)>& work) {
      engine_->Push({.name = "work",
                     .device = device,
                     .reads = {in.var(), infinite.var()},
                     .writes = {},
                     .updates = {out.var()},
                     .run = [work](const OpContext& context) { work(context.stream); }});
      mine.push_back(out.ToHost());
    };
    const void* const sources[] = {in.address(), in.address(), in.address()};
    run([&](Stream& s) { flat.Sum(s, DType::kFloat32, sources, out.address(), 132); });
    run([&](Stream& s) { flat.Scale(s, DType::kFloat32, out.address(), 131, -0.3); });
    run([&](Stream& s) { flat.CopyFinite(s, DType::kFloat32, infinite.address(), out.address(), 132); });
    run([&](Stream& s) { flat.CopyFinite(s, DType::kFloat32, in.address(), out.address(), 132); });
    run([&](Stream& s) { flat.CopyRows(s, in.address(), 33 * 4, out.address(), 32 * 4, 4, 20); });
    run([&](Stream& s) { flat.Sum(s, DType::kFloat32, {}, out.address(), 50); });
    run([&](Stream& s) { flat.Sum(s, DType::kFloat32, {sources, 1}, out.address(), 7); });
    engine_->WaitAll();
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_P(CudaTest, AFailureNamesWhatRanAndLosesTheDevice) {
  const Device device = OneOf(kNamed);
  const Tensor tensor = New(HostTensor::Full(DType::kFloat32, {2}, 5), device);
  const Tensor elsewhere = New(HostTensor::Full(DType::kFloat32, {2}, 5), Cuda(0));
  engine_->WaitAll();
  fake::FailKernel(device.index, 1);
  Increment(elsewhere);
  tensor.Fill(1);
  const std::string message = "DeviceError: operation \"fill\" failed: " + ToString(device) +
                              " is lost: an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS), in "
                              "operation \"fill\"";
  for (int i = 0; i < 2; ++i) EXPECT_EQ(MessageOf<DeviceError>([&] { tensor.ToHost(); }), message);
  EXPECT_EQ(MessageOf<DeviceError>([&] { engine_->WaitAll(); }), message);
  EXPECT_EQ(elsewhere.ToHost().At(1), 6);  // other devices go on
  // What comes later fails, too, by its own name.
  tensor.Fill(2);
  const std::string later = MessageOf<DeviceError>([&] { tensor.Wait(); });
  EXPECT_NE(later.find("operation \"fill\" failed: " + ToString(device) + " is lost: "), std::string::npos) << later;
  engine_->Recover();
}

// Work that does not say what it is has the name of the node that it is done for.
TEST_P(CudaTest, AFailureNamesTheNode) {
  const Device device = OneOf(kOfNode);
  const Tensor tensor = New(HostTensor::Full(DType::kFloat32, {2}, 5), device);
  const auto sum = [&] {
    engine_->Push(
        {.name = "forward",
         .device = device,
         .reads = {},
         .writes = {},
         .updates = {tensor.var()},
         .run =
             [=](const OpContext& context) {
               const cuda::CudaStream::Naming naming(cuda::CudaStreamOf(context.stream), "AddN \"node\"");
               const void* const both[] = {tensor.address(), tensor.address()};
               Backend::Of(DeviceKind::kCuda).flat().Sum(context.stream, DType::kFloat32, both, tensor.address(), 2);
             },
         .lane = Lane::kCompute});
  };
  sum();
  EXPECT_EQ(tensor.ToHost().At(1), 10);
  fake::FailKernel(device.index, 1);
  sum();
  const std::string message = MessageOf<DeviceError>([&] { tensor.Wait(); });
  EXPECT_NE(message.find(", in operation \"forward\", AddN \"node\""), std::string::npos) << message;
  engine_->Recover();
}

// It would wait for ever.
TEST_P(CudaTest, WhoWaitsForALostDeviceIsLost) {
  if (!GetParam()) return;  // where nothing ever waits
  const Device device = OneOf(kLost), other = OneOf(kWaiting);
  const Tensor source = New(HostTensor::Full(DType::kFloat32, {2}, 5), device);
  const Tensor target = New(HostTensor::Full(DType::kFloat32, {2}, 5), other);
  engine_->WaitAll();
  fake::HangKernel(device.index, 1);
  fake::FailKernel(device.index, 2);
  source.Fill(1);
  source.Fill(2);
  target.CopyFrom(source);
  fake::Release(device.index);
  const std::string message = MessageOf<DeviceError>([&] { target.ToHost(); });
  EXPECT_NE(message.find("operation \"fill\" failed: " + ToString(device) + " is lost: "), std::string::npos)
      << message;
  engine_->Recover();
}

TEST_P(CudaTest, WorkComesLaterAndWhatItUsesLivesAsLong) {
  if (!GetParam()) return;
  const auto payload = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = payload;
  const Tensor tensor = New(HostTensor(DType::kFloat32, {2}), Cuda(0));
  engine_->WaitAll();
  fake::HangKernel(0, 1);
  const PreparedPtr operation = engine_->Prepare(
      {.name = "work",
       .device = Cuda(0),
       .reads = {},
       .writes = {tensor.var()},
       .updates = {},
       .run = [&](const OpContext& context) {
         Backend::Of(DeviceKind::kCuda).flat().Fill(context.stream, DType::kFloat32, tensor.address(), 2, 4);
       }});
  engine_->Push(operation, std::make_shared<std::shared_ptr<int>>(payload));
  const Tensor elsewhere(engine_, Cuda(1), DType::kFloat32, {2});
  EXPECT_EQ(elsewhere.ToHost().At(0), 0);  // another device is not held up
  EXPECT_GT(watch.use_count(), 1);
  fake::Release(0);
  EXPECT_EQ(tensor.ToHost().At(0), 4);
  engine_->WaitAll();
  EXPECT_EQ(watch.use_count(), 1);
}

// Though the refused work, and so what would say that it failed, is not done when what reads its result is begun.
TEST_P(CudaTest, NothingRunsOnWhatALibraryHasRefused) {
  if (!GetParam()) return;
  const Tensor first = New(HostTensor(DType::kFloat32, {2}), Cuda(0));
  const Tensor product = New(HostTensor(DType::kFloat32, {2}), Cuda(0));
  const Tensor next = New(HostTensor(DType::kFloat32, {2}), Cuda(0));
  engine_->WaitAll();
  fake::HangKernel(0, 1);
  first.Fill(1);
  engine_->Push({.name = "product",
                 .device = Cuda(0),
                 .reads = {first.var()},
                 .writes = {product.var()},
                 .run = [](const OpContext& context) {
                   const auto refuse = [](const void*, std::span<void* const>, CUstream) -> std::string {
                     return "not for such shapes";
                   };
                   cuda::CudaStreamOf(context.stream).CallLibrary(refuse, "multiply", nullptr, {}, "");
                 }});
  std::atomic<bool> ran = false;
  engine_->Push({.name = "next",
                 .device = Cuda(0),
                 .reads = {product.var()},
                 .writes = {next.var()},
                 .run = [&](const OpContext&) { ran = true; }});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  fake::Release(0);
  const std::string message = MessageOf<Error>([&] { next.Wait(); });
  EXPECT_NE(message.find("operation \"product\" failed"), std::string::npos) << message;
  EXPECT_NE(message.find("not for such shapes"), std::string::npos) << message;
  EXPECT_FALSE(ran);
  EXPECT_EQ(first.ToHost().At(0), 1);
  EXPECT_NE(MessageOf<Error>([&] { engine_->WaitAll(); }), "nothing was thrown");
}

TEST(CudaMemoryTest, LimitsAndRefusals) {
  const auto storage = MakeStorage();
  fake::SetMemoryLimit(3, 1 << 20);
  EXPECT_THROW(storage->Allocate(Cuda(3), 2 << 20), DeviceError);
  EXPECT_NO_THROW(storage->Allocate(Cuda(3), 1 << 18));
  fake::FailAllocation(3, 1);
  storage->ReleasePool();
  EXPECT_NO_THROW(storage->Allocate(Cuda(3), 1 << 18));  // tried again when the pool was released
  fake::SetMemoryLimit(3, 0);
  EXPECT_EQ(MessageOf<DeviceError>([&] { storage->Allocate(Cuda(12), 1); }),
            "DeviceError: cuda:12 is not available: the GPUs of this machine are cuda:0 to cuda:11");
  EXPECT_EQ(storage->Stats(Cuda(12)).in_use, 0);
}

TEST(CudaMemoryTest, ArenasGrowInPlaceAndBeginWithZeros) {
  Backend::Of(Cuda(0));
  DefaultStorage()->ReleasePool();
  const fake::Live before = fake::CountLive();
  {
    const std::shared_ptr<Engine> engine = MakeInlineEngine();
    const auto arena = Arena::Make(Cuda(0), engine);
    char* const base = arena->base();
    const auto look = [&](int64_t begin) {
      Tensor view(engine, Cuda(0), DType::kUInt8, {100}, arena->base() + begin, nullptr, arena->var());
      return view.ToHost();
    };
    arena->Grow(10000);
    EXPECT_EQ(look(9900), HostTensor(DType::kUInt8, {100}));
    arena->Grow(5 << 20);
    EXPECT_EQ(look((5 << 20) - 100), HostTensor(DType::kUInt8, {100}));
    EXPECT_EQ(look((2 << 20) - 50), HostTensor(DType::kUInt8, {100}));  // across the border of two mappings
    fake::SetMemoryLimit(0, 1 << 20);
    EXPECT_THROW(arena->Grow(100 << 20), DeviceError);
    fake::SetMemoryLimit(0, 24 << 20);
    DefaultStorage()->Allocate(Cuda(0), 10 << 20);
    EXPECT_NO_THROW(arena->Grow(16 << 20));  // with what was kept of that
    EXPECT_EQ(look((16 << 20) - 100), HostTensor(DType::kUInt8, {100}));
    fake::SetMemoryLimit(0, 0);
    EXPECT_GE(arena->committed(), 16 << 20);
    arena->SetLimit(18 << 20);
    EXPECT_THROW(arena->Grow(19 << 20), DeviceError);
    EXPECT_EQ(arena->base(), base);
  }
  DefaultStorage()->ReleasePool();
  EXPECT_EQ(fake::CountLive(), before);
}

TEST(CudaMemoryTest, AnArenaThatWasNotZeroedCanGrow) {
  static int failures = 0;
  static cuda::RuntimeApi api = fake::Api();
  api.memset_d8_async = [](CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
    if (failures > 0) return --failures, CUDA_ERROR_INVALID_VALUE;
    return fake::Api().memset_d8_async(to, value, bytes, stream);
  };
  static cuda::Gpu& gpu = *new cuda::Gpu(api, 1, cuda::FindGpus(api));  // such are never destroyed
  const auto arena = cuda::MakeCudaArena(gpu, MakeInlineEngine(), 1 << 30);
  arena->Grow(10000);
  const fake::Live before = fake::CountLive();
  failures = 1;
  EXPECT_THROW(arena->Grow(5 << 20), DeviceError);
  EXPECT_EQ(fake::CountLive(), before);
  EXPECT_NO_THROW(arena->Grow(5 << 20));
}

TEST(CudaMemoryTest, NothingIsLeftOfAnEngine) {
  for (int i = 0; i < 2; ++i) Backend::Of(Cuda(i));
  DefaultStorage()->ReleasePool();
  const fake::Live before = fake::CountLive();
  for (int run = 0, streams = 0; run < 3; ++run) {
    {
      const std::shared_ptr<Engine> engine = MakeThreadedEngine();
      const Tensor a(engine, Cuda(1), DType::kFloat32, {1000}), b(engine, Cuda(0), DType::kFloat32, {1000});
      a.Fill(3);
      b.CopyFrom(a);
      EXPECT_EQ(b.ToHost().At(999), 3);
      EXPECT_NE(fake::CountLive(), before);
    }
    DefaultStorage()->ReleasePool();
    EXPECT_EQ(fake::CountLive(), before);
    if (run == 0) streams = fake::CountStreams();
    EXPECT_EQ(fake::CountStreams(), streams) << "the next engine works on those of the one before";
  }
}

TEST(CudaMemoryTest, UseAfterFreeIsSeen) {
  const std::shared_ptr<Engine> engine = MakeThreadedEngine();
  const auto storage = MakeStorage();
  const Device device = Cuda(kMisused);
  engine->StreamOf(device);  // what it needs of the device's memory it takes now
  void* address = nullptr;
  {
    const auto chunk = storage->Allocate(device, 64);
    address = chunk->data();
  }
  storage->ReleasePool();
  fake::CountLive();  // waits until it is free
  Tensor gone(engine, device, DType::kFloat32, {4}, address, nullptr, engine->NewVar());
  gone.Fill(1);
  EXPECT_THROW(gone.Wait(), DeviceError);
  const std::vector<std::string> violations = fake::TakeViolations();
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_NE(violations[0].find("bindery_fill on GPU 8 uses 1 bytes at"), std::string::npos) << violations[0];
}

}  // namespace
}  // namespace bindery
