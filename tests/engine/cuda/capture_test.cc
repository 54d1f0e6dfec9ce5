// Work of operations that repeat themselves is captured into a graph and launched as one; over the fake of the driver.
#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/backend.h"
#include "engine/cuda/recording.h"
#include "engine/cuda/stream.h"
#include "engine/memory/storage.h"
#include "engine/sim/sim.h"
#include "engine/tensor.h"
#include "tests/engine/asynchronous_devices.h"
#include "tests/engine/cuda/fake/fake.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

namespace fake = cuda::fake;

constexpr int kCount = 50;
// Devices that are lost stay so.
constexpr int kNamed = 2, kRefused = 4;

class CudaCaptureTest : public testing::TestWithParam<bool>, protected AsynchronousDevices {
 protected:
  CudaCaptureTest() : AsynchronousDevices(GetParam() ? MakeThreadedEngine() : MakeInlineEngine()) {}
  ~CudaCaptureTest() override {
    sim::Reset();
    cuda::UseGraphs(true);
    for (const std::string& violation : fake::TakeViolations()) ADD_FAILURE() << violation;
  }
  // Adds `in` to `out` and doubles it, `times` times.
  PreparedPtr AddAndDouble(const Tensor& in, const Tensor& out, const int* times) {
    return engine_->Prepare({.name = "add and double",
                             .device = out.device(),
                             .reads = {in.var()},
                             .updates = {out.var()},
                             .run = [=](const OpContext& context) {
                               const FlatKernels& flat = Backend::Of(DeviceKind::kCuda).flat();
                               for (int i = 0; i < *times; ++i) {
                                 const cuda::CudaStream::Naming naming(cuda::CudaStreamOf(context.stream),
                                                                       "Node \"n" + std::to_string(i) + "\"");
                                 flat.Add(context.stream, DType::kFloat32, in.address(), out.address(), kCount);
                                 flat.Scale(context.stream, DType::kFloat32, out.address(), kCount, 2);
                               }
                             }});
  }
  Tensor Of(double value, Device device = Cuda(0)) {
    return New(HostTensor::Full(DType::kFloat32, {kCount}, value), device);
  }
};

INSTANTIATE_TEST_SUITE_P(Engines, CudaCaptureTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Threaded" : "Inline"; });

// The first run is enqueued one by one, the second captured; from then on it is one launch a run, of whatever its
// memory holds by then.
TEST_P(CudaCaptureTest, WhatRepeatsIsLaunchedAsOne) {
  const int times = 20;
  std::vector<HostTensor> results;
  for (const bool graphs : {false, true}) {
    cuda::UseGraphs(graphs);
    sim::SetDelays(7, 100);
    const Tensor in = Of(0.3), out = Of(-1);
    const PreparedPtr work = AddAndDouble(in, out, &times);
    engine_->WaitAll();
    for (int run = 0; run < 6; ++run) {
      const int64_t before = fake::GraphLaunches();
      if (run == 4) in.Fill(-0.7);
      engine_->Push(work);
      engine_->WaitAll();
      EXPECT_EQ(fake::GraphLaunches() - before, graphs && run > 0 ? 1 : 0) << "run " << run;
      results.push_back(out.ToHost());
    }
  }
  for (size_t run = 0; run < 6; ++run) EXPECT_EQ(results[run], results[run + 6]) << "run " << run;
}

// Nobody promises that it is the same: that is seen, and what came before is known again.
TEST_P(CudaCaptureTest, WhatChangesIsNot) {
  int times = 3;
  const Tensor in = Of(1), out = Of(0);
  const PreparedPtr work = AddAndDouble(in, out, &times);
  double expected = 0;
  for (const auto& [now, launched] : {std::pair(3, 0), {3, 1}, {4, 0}, {4, 1}, {4, 1}, {3, 1}, {5, 0}, {4, 1}}) {
    engine_->WaitAll();
    times = now;
    const int64_t before = fake::GraphLaunches();
    engine_->Push(work);
    engine_->WaitAll();
    EXPECT_EQ(fake::GraphLaunches() - before, launched);
    for (int i = 0; i < now; ++i) expected = 2 * (expected + 1);
    EXPECT_EQ(out.ToHost(), HostTensor::Full(DType::kFloat32, {kCount}, expected));
  }
}

// However often it changed: what was captured may be replaced by what repeats itself now. Only what is another each time,
// nine times and more, is not looked at any longer.
TEST_P(CudaCaptureTest, WhatChangesNowAndThenIsCapturedAgain) {
  int times = 3;
  const Tensor in = Of(0), out = Of(0);
  const auto launched = [&](const PreparedPtr& work) {
    const int64_t before = fake::GraphLaunches();
    engine_->Push(work);
    engine_->WaitAll();
    return fake::GraphLaunches() - before;
  };
  engine_->WaitAll();
  const PreparedPtr now_and_then = AddAndDouble(in, out, &times);
  for (; times < 23; ++times) {
    for (int run = 0; run < 3; ++run) EXPECT_EQ(launched(now_and_then), run > 0) << times;
  }
  const PreparedPtr each_time = AddAndDouble(in, out, &times);
  for (times = 3; times < 15; ++times) EXPECT_EQ(launched(each_time), 0);
  for (int run = 0; run < 3; ++run) EXPECT_EQ(launched(each_time), 0);
}

TEST_P(CudaCaptureTest, SeveralRunsMayBeUnderWay) {
  const int times = 3;
  const Tensor in = Of(0), out = Of(1);
  {
    const PreparedPtr work = AddAndDouble(in, out, &times);
    for (int run = 0; run < 5; ++run) engine_->Push(work);
  }
  EXPECT_EQ(out.ToHost(), HostTensor::Full(DType::kFloat32, {kCount}, 1 << 15));
}

// A graph tells how far it came by every eighth node.
TEST_P(CudaCaptureTest, AFailureNamesWhatRan) {
  const Device device = Cuda(kNamed + GetParam());
  const int times = 20;
  const Tensor in = Of(0, device), out = Of(1, device);
  const PreparedPtr work = AddAndDouble(in, out, &times);
  for (int run = 0; run < 3; ++run) engine_->Push(work);
  engine_->WaitAll();
  fake::FailKernel(device.index, 20);  // two a node, and one more for a mark: of the tenth
  engine_->Push(work);
  const std::string message = MessageOf<DeviceError>([&] { engine_->WaitAll(); });
  EXPECT_NE(message.find("operation \"add and double\" failed: " + ToString(device) + " is lost: "), std::string::npos)
      << message;
  EXPECT_NE(message.find(", in operation \"add and double\", Node \"n8\" to Node \"n15\""), std::string::npos)
      << message;
  engine_->Recover();
}

// Of a library: fills with what its plan says, or fails.
struct Filling {
  unsigned char value;
  bool fails = false;
  static std::string Run(const void* plan, std::span<void* const> addresses, CUstream stream) {
    const auto& filling = *static_cast<const Filling*>(plan);
    if (filling.fails) return "it does not like that";
    fake::Api().memset_d8_async(reinterpret_cast<CUdeviceptr>(addresses[0]), filling.value, kCount * sizeof(float),
                                stream);
    return "";
  }
};

// The same plan at the same addresses repeats itself; another plan does not, and whoever runs keeps his.
TEST_P(CudaCaptureTest, CallsOfLibraries) {
  const Tensor out = Of(0);
  auto plan = std::make_shared<const Filling>(Filling{.value = 1});
  const PreparedPtr work = engine_->Prepare(
      {.name = "calls", .device = out.device(), .writes = {out.var()}, .run = [&](const OpContext& context) {
         for (int i = 0; i < 3; ++i) {
           void* const addresses[] = {out.address()};
           cuda::CudaStreamOf(context.stream).CallLibrary(&Filling::Run, "Fill", plan, addresses, "node");
         }
       }});
  for (const auto& [value, launched] : {std::pair(1, 0), {1, 1}, {1, 1}, {2, 0}, {2, 1}}) {
    if (value != plan->value) plan = std::make_shared<const Filling>(Filling{static_cast<unsigned char>(value)});
    const int64_t before = fake::GraphLaunches();
    engine_->Push(work);
    engine_->WaitAll();
    EXPECT_EQ(fake::GraphLaunches() - before, launched);
    const float expected = std::bit_cast<float>(0x01010101u * static_cast<unsigned>(value));
    EXPECT_EQ(out.ToHost(), HostTensor::Full(DType::kFloat32, {kCount}, expected));
  }
  plan = std::make_shared<const Filling>(Filling{.value = 3, .fails = true});
  engine_->Push(work);
  const std::string message = MessageOf<DeviceError>([&] { engine_->WaitAll(); });
  EXPECT_NE(message.find("operation \"calls\" failed: cuda:0: Fill: it does not like that"), std::string::npos)
      << message;
  engine_->Recover();
}

TEST_P(CudaCaptureTest, WhereTheDriverRefusesItIsDoneWithout) {
  fake::RefuseCapture(true);
  const int times = 2;
  const Tensor in = Of(0, Cuda(kRefused)), out = Of(1, Cuda(kRefused));
  const PreparedPtr work = AddAndDouble(in, out, &times);
  const int64_t before = fake::GraphLaunches();
  for (int run = 0; run < 3; ++run) engine_->Push(work);
  EXPECT_EQ(out.ToHost(), HostTensor::Full(DType::kFloat32, {kCount}, 64));
  EXPECT_EQ(fake::GraphLaunches(), before);
  fake::RefuseCapture(false);
}

TEST(CudaCaptureLifeTest, GraphsGoWithTheirOperations) {
  for (const bool engine_first : {false, true}) {
    Backend::Of(Cuda(0));
    DefaultStorage()->ReleasePool();
    const fake::Live before = fake::CountLive();
    {
      std::shared_ptr<Engine> engine = MakeThreadedEngine();
      std::optional<Tensor> out = Tensor(engine, Cuda(0), DType::kFloat32, {kCount});
      PreparedPtr work = engine->Prepare(
          {.name = "fills",
           .device = Cuda(0),
           .writes = {out->var()},
           .run = [address = out->address()](const OpContext& context) {
             for (int i = 0; i < 4; ++i) {
               Backend::Of(DeviceKind::kCuda).flat().Fill(context.stream, DType::kFloat32, address, kCount, i);
             }
           }});
      for (int run = 0; run < 3; ++run) engine->Push(work);
      engine->WaitAll();
      EXPECT_EQ(fake::CountLive().graphs, 1);
      out.reset();
      if (engine_first) engine.reset();
      work.reset();
    }
    DefaultStorage()->ReleasePool();
    EXPECT_EQ(fake::CountLive(), before);
  }
}

// Those of operations that are no more go when somebody waits for all, whatever comes next.
TEST_P(CudaCaptureTest, GraphsOfWhatIsNoMoreGo) {
  const int times = 3;
  const Tensor in = Of(0), out = Of(0);
  PreparedPtr work = AddAndDouble(in, out, &times);
  engine_->WaitAll();
  const int before = fake::CountLive().graphs;
  for (int run = 0; run < 3; ++run) engine_->Push(work);
  engine_->WaitAll();
  EXPECT_EQ(fake::CountLive().graphs, before + 1);
  work.reset();
  // The inline engine waits for each. A thread that was told of an operation's end may hold the operation for a moment.
  for (int i = 0; i < 1000 && fake::CountLive().graphs > before; ++i) {
    if (!GetParam()) in.Fill(0);
    engine_->WaitAll();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(fake::CountLive().graphs, before);
}

// Of lists of operations, as joined ones are, however many take turns, those that came last are known.
TEST_P(CudaCaptureTest, OfManyTheLastAreKept) {
  constexpr int kMost = 32;
  const int times = 3;
  std::vector<PreparedPtr> all;
  std::vector<Tensor> results;
  const Tensor in = Of(0.5);
  for (int i = 0; i < kMost + 8; ++i) {
    results.push_back(Of(i));
    all.push_back(AddAndDouble(in, results.back(), &times));
  }
  engine_->WaitAll();
  const int before = fake::CountLive().graphs;
  for (const PreparedPtr& work : all) {
    for (int run = 0; run < 2; ++run) {
      engine_->Push(work);
      engine_->WaitAll();
    }
  }
  EXPECT_EQ(fake::CountLive().graphs - before, kMost);
  const int64_t launches = fake::GraphLaunches();
  for (const int i : {kMost + 7, 8, 7}) {
    engine_->Push(all[static_cast<size_t>(i)]);
    engine_->WaitAll();
  }
  EXPECT_EQ(fake::GraphLaunches() - launches, 2) << "the last of these is not known any more";
  for (const int i : {0, 7, 8, kMost + 7}) {
    double expected = i;
    for (int k = 0; k < times * (i == 0 ? 2 : 3); ++k) expected = 2 * (expected + 0.5);
    EXPECT_EQ(results[static_cast<size_t>(i)].ToHost(), HostTensor::Full(DType::kFloat32, {kCount}, expected));
  }
}

// What CUDA refuses while a stream is captured.
TEST(CudaFakeTest, RefusesWhatCannotBeCaptured) {
  const cuda::RuntimeApi& api = fake::Api();
  CUcontext context = nullptr;
  CUstream stream = nullptr, other = nullptr;
  CUevent event = nullptr;
  ASSERT_EQ(api.device_primary_ctx_retain(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(api.ctx_push_current(context), CUDA_SUCCESS);
  ASSERT_EQ(api.stream_create_with_priority(&stream, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
  ASSERT_EQ(api.stream_create_with_priority(&other, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
  ASSERT_EQ(api.event_create(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  void* pinned = nullptr;
  const std::vector<std::function<CUresult()>> refused = {
      [&] { return api.stream_synchronize(stream); },
      [&] { return api.stream_query(stream); },
      [&] { return api.stream_wait_event(stream, event, 0); },
      [&] { return api.mem_host_alloc(&pinned, 64, CU_MEMHOSTALLOC_PORTABLE); },
  };
  CUgraph graph = nullptr;
  for (size_t i = 0; i < refused.size(); ++i) {
    ASSERT_EQ(api.stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
    EXPECT_EQ(refused[i](), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(fake::TakeViolations().size(), 1u);
    EXPECT_EQ(api.stream_synchronize(other), CUDA_SUCCESS) << "another stream is not captured";
    const CUresult result = api.stream_end_capture(stream, &graph);
    EXPECT_EQ(result, i < 3 ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
    if (result == CUDA_SUCCESS) {
      EXPECT_EQ(api.graph_destroy(graph), CUDA_SUCCESS);
    }
  }
  EXPECT_EQ(api.ctx_pop_current(&context), CUDA_SUCCESS);
  EXPECT_TRUE(fake::TakeViolations().empty());
}

// Copies of two streams from and to one place are a race unless an event keeps them in order, or one is over.
#if !defined(__SANITIZE_THREAD__)  // which sees these races, too, and ends the test
TEST(CudaFakeTest, SeesRacesBetweenStreams) {
  const cuda::RuntimeApi& api = fake::Api();
  const std::shared_ptr<Chunk> memory = DefaultStorage()->Allocate(Cuda(0), 256);
  const auto at = [&](int64_t offset) {
    return reinterpret_cast<CUdeviceptr>(memory->data()) + static_cast<CUdeviceptr>(offset);
  };
  CUcontext context = nullptr;
  CUstream first = nullptr, second = nullptr;
  CUevent event = nullptr;
  ASSERT_EQ(api.device_primary_ctx_retain(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(api.ctx_push_current(context), CUDA_SUCCESS);
  ASSERT_EQ(api.stream_create_with_priority(&first, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
  ASSERT_EQ(api.stream_create_with_priority(&second, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
  ASSERT_EQ(api.event_create(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  enum class Order { kNone, kEvent, kOver };
  const auto races = [&](int64_t from, int64_t to, Order order) {
    fake::HangKernel(0, 1);  // until both are there
    EXPECT_EQ(api.memset_d8_async(at(0), 1, 64, first), CUDA_SUCCESS);
    EXPECT_EQ(api.event_record(event, first), CUDA_SUCCESS);
    if (order == Order::kEvent) {
      EXPECT_EQ(api.stream_wait_event(second, event, 0), CUDA_SUCCESS);
    }
    if (order == Order::kOver) {
      fake::Release(0);
      EXPECT_EQ(api.stream_synchronize(first), CUDA_SUCCESS);
    }
    EXPECT_EQ(api.memcpy_dtod_async(at(to), at(from), 32, second), CUDA_SUCCESS);
    fake::Release(0);
    EXPECT_EQ(api.stream_synchronize(first), CUDA_SUCCESS);
    EXPECT_EQ(api.stream_synchronize(second), CUDA_SUCCESS);
    return fake::TakeViolations();
  };
  EXPECT_TRUE(races(64, 128, Order::kNone).empty()) << "other memory";
  for (const auto& [from, to] : {std::pair<int64_t, int64_t>(32, 128), {63, 128}, {128, 0}}) {
    const std::vector<std::string> found = races(from, to, Order::kNone);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].find("cuMemcpyDtoDAsync and cuMemsetD8Async on another stream use "), 0u) << found[0];
    EXPECT_TRUE(races(from, to, Order::kEvent).empty());
    EXPECT_TRUE(races(from, to, Order::kOver).empty());
  }
  EXPECT_EQ(api.ctx_pop_current(&context), CUDA_SUCCESS);
}
#endif

}  // namespace
}  // namespace bindery
