// What becomes of what GPUs exchange by NCCL where it hangs or a GPU is lost: it is aborted, and all goes on, but for
// those that are lost.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/memory/storage.h"
#include "tests/engine/cuda/nccl_fixture.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

constexpr int kLimit = 1000;  // milliseconds, of all work, also where little of the machine is free

// Devices that are lost stay so.
constexpr int kFirst = 5, kLost = 6, kLeft = 7, kAfterIts = 8, kSender = 9, kReceiver = 10;

class CudaNcclHangTest : public CudaNcclTest {
 protected:
  CudaNcclHangTest() : CudaNcclTest(MakeThreadedEngine({.hang_milliseconds = kLimit})) {}

  // Whatever hung, they exchange again, by a new communicator.
  void ExpectGoesOn(const Pair& pair) {
    engine_->Recover();
    for (int run = 0; run < 2; ++run) pair.bring.Push();
    EXPECT_EQ(pair.to.ToHost(), pair.from.ToHost());
  }
};

// Ones, and what tells whether their memory is in use.
std::pair<Tensor, std::weak_ptr<Chunk>> Watched(const std::shared_ptr<Engine>& engine, Device device) {
  const std::shared_ptr<Chunk> memory = DefaultStorage()->Allocate(device, 80);
  Tensor ones(engine, device, DType::kFloat32, {20}, memory->data(), memory, engine->NewVar());
  ones.Fill(1);
  return {std::move(ones), memory};
}

void ExpectHas(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST_F(CudaNcclHangTest, ItIsAbortedAndNamed) {
  const Pair pair = MakePair(0, 1);
  for (int round = 0; round < 2; ++round) {
    engine_->WaitAll();
    const fake::NcclCounts before = fake::CountNccl();
    fake::BreakNccl(NcclFault::kHangs);
    pair.bring.Push();
    std::thread another([&] { engine_->WaitIdle(pair.to.var()); });  // who looks often, too
    const std::string message = MessageOf<DeviceError>([&] { pair.to.ToHost(); });
    another.join();
    EXPECT_EQ(message.find("DeviceError: operation \"combine by NCCL\" failed: NCCL on cuda:0, cuda:1: aborted, as "
                           "operation \"combine by NCCL\" hung for "),
              0u)
        << message;
    ExpectHas(message, " s, since 20");
    WaitUntil([&] { return fake::CountNccl().aborted - before.aborted == 2; });
    EXPECT_EQ(pair.from.ToHost().At(0), 1.0f / 3);
    ExpectGoesOn(pair);
    EXPECT_EQ(fake::CountNccl().communicators - before.communicators, 2);
  }
}

// It may wait for that, and goes on with it.
TEST_F(CudaNcclHangTest, NotWhereSomethingElseHangs) {
  const Pair pair = MakePair(0, 1);
  const Tensor other = New(HostTensor(DType::kFloat32, {4}), Cuda(2));
  engine_->WaitAll();
  const fake::NcclCounts before = fake::CountNccl();
  fake::HangKernel(2, 1);
  other.Fill(1);
  EXPECT_THROW(other.Wait(), HangError);
  fake::BreakNccl(NcclFault::kHangs);
  pair.bring.Push();
  std::string message;
  WaitUntil([&] {
    message = MessageOf<HangError>([&] { pair.to.ToHost(); });
    return message.find("NCCL") != std::string::npos;
  });
  ExpectHas(message, "cuda:0 hangs: it has been at operation \"combine by NCCL\" for ");
  ExpectHas(message, "cuda:2 hangs: it has been at ");
  fake::ReleaseNccl();
  fake::Release(2);
  engine_->WaitIdle(pair.to.var());
  EXPECT_EQ(pair.to.ToHost(), pair.from.ToHost());
  EXPECT_EQ(fake::CountNccl().aborted, before.aborted);
}

TEST_F(CudaNcclHangTest, NotWhileACallDoesNotReturn) {
  const Pair pair = MakePair(0, 1);
  engine_->WaitAll();
  const fake::NcclCounts before = fake::CountNccl();
  fake::HoldGroups(true);
  pair.bring.Push();
  ExpectHas(MessageOf<HangError>([&] { pair.to.ToHost(); }),
            "cuda:0 hangs: it has been at operation \"combine by NCCL\" for ");
  fake::HoldGroups(false);
  engine_->WaitIdle(pair.to.var());
  EXPECT_EQ(pair.to.ToHost(), pair.from.ToHost());
  EXPECT_EQ(fake::CountNccl().aborted, before.aborted);
}

// An abort that does not end it is a hang as any other.
TEST_F(CudaNcclHangTest, AnAbortMayHang) {
  const Pair pair = MakePair(0, 1);
  engine_->WaitAll();
  fake::BreakNccl(NcclFault::kHangs);
  Begin(pair.bring);
  fake::HoldAborts(true);
  ExpectHas(MessageOf<HangError>([&] { pair.to.ToHost(); }),
            "cuda:0 hangs: it has been at operation \"combine by NCCL\" for ");
  fake::HoldAborts(false);
  engine_->WaitIdle(pair.to.var());
  ExpectHas(MessageOf<DeviceError>([&] { pair.to.ToHost(); }), "NCCL on cuda:0, cuda:1: aborted, as ");
  ExpectGoesOn(pair);
}

// One that was told to hang beside something else, and is given up when that goes on, is told again.
TEST_F(CudaNcclHangTest, AnAbortThatHangsIsToldAgain) {
  std::atomic<int> told = 0;
  engine_ = MakeThreadedEngine({.hang_milliseconds = kLimit, .on_hang = [&](const HangError& error) {
                                  if (std::string(error.what()).find("NCCL") != std::string::npos) ++told;
                                }});
  const Pair pair = MakePair(0, 1);
  const Tensor other = New(HostTensor(DType::kFloat32, {4}), Cuda(2));
  engine_->WaitAll();
  fake::HangKernel(2, 1);
  other.Fill(1);
  fake::BreakNccl(NcclFault::kHangs);
  fake::HoldAborts(true);
  Begin(pair.bring);
  WaitUntil([&] {
    EXPECT_THROW(pair.to.ToHost(), HangError);
    return told == 1;
  });
  fake::Release(2);
  WaitUntil([&] {
    EXPECT_THROW(pair.to.ToHost(), HangError);
    return fake::HeldAborts() > 0;
  });
  WaitUntil([&] {
    EXPECT_THROW(pair.to.ToHost(), HangError);
    return told == 2;
  });
  fake::HoldAborts(false);
  engine_->WaitIdle(pair.to.var());
  ExpectHas(MessageOf<DeviceError>([&] { pair.to.ToHost(); }), "NCCL on cuda:0, cuda:1: aborted, as ");
  ExpectGoesOn(pair);
}

// What waits on a GPU for another set's exchange goes on when that has been aborted. Its time begins anew then, however
// much of it had passed, since an abort takes time.
TEST_F(CudaNcclHangTest, NotWhatIsBehindIt) {
  const Pair pair = MakePair(1, 2), behind = MakePair(0, 1);
  engine_->WaitAll();
  fake::BreakNccl(NcclFault::kHangs);
  fake::HoldAborts(true);
  Begin(pair.bring);
  std::jthread who_looks([&] { engine_->WaitIdle(pair.to.var()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(kLimit / 4));
  Begin(behind.bring);
  std::jthread who_aborts([&] {
    WaitUntil([] { return fake::HeldAborts() > 0; });
    std::this_thread::sleep_for(std::chrono::milliseconds(kLimit * 2 / 5));
    fake::HoldAborts(false);
  });
  EXPECT_EQ(behind.to.ToHost(), behind.from.ToHost());
  who_aborts.join();
  who_looks.join();
  ExpectHas(MessageOf<DeviceError>([&] { pair.to.ToHost(); }), "failed: NCCL on cuda:1, cuda:2: aborted, as ");
  ExpectGoesOn(pair);
  ExpectGoesOn(behind);
}

// Where that is another engine's, for which nobody waits, it hangs, and names the other.
TEST_F(CudaNcclHangTest, BehindAnotherEngines) {
  const Pair pair = MakePair(1, 2);
  engine_->WaitAll();
  fake::BreakNccl(NcclFault::kHangs);
  Begin(pair.bring);
  const std::shared_ptr<Engine> first = std::exchange(engine_, MakeThreadedEngine({.hang_milliseconds = kLimit}));
  const Pair behind = MakePair(0, 1);
  Begin(behind.bring);
  const std::string message = MessageOf<HangError>([&] { behind.to.ToHost(); });
  ExpectHas(message, "cuda:0 hangs: it has been at operation \"combine by NCCL\", behind exchange ");
  ExpectHas(message, " of NCCL on cuda:1, cuda:2 for ");
  ExpectHas(MessageOf<DeviceError>([&] { pair.to.ToHost(); }), "failed: NCCL on cuda:1, cuda:2: aborted, as ");
  engine_->WaitIdle(behind.to.var());
  EXPECT_EQ(behind.to.ToHost(), behind.from.ToHost());
  engine_ = first;
  ExpectGoesOn(pair);
}

// Whoever waits ends it.
TEST_F(CudaNcclHangTest, ForWhoIsPatientToo) {
  bool told = false;
  engine_ = MakeThreadedEngine({.hang_milliseconds = kLimit, .on_hang = [&](const HangError&) { told = true; }});
  const Pair pair = MakePair(0, 1);
  engine_->WaitAll();
  fake::BreakNccl(NcclFault::kHangs);
  pair.bring.Push();
  engine_->WaitIdle(pair.to.var());
  EXPECT_FALSE(told);
  ExpectGoesOn(pair);
}

// The work of the GPUs that are left ends. Who waits for it is lost, as with copies; who only sent is not. Until then it
// may use all memory that it was told of.
TEST_F(CudaNcclTest, ALostGpuEndsIt) {
  const std::vector<Device> devices = {Cuda(kFirst), Cuda(kLost), Cuda(kLeft)};
  std::vector<Tensor> sources = Make(devices, {20}), all = Make({Cuda(kFirst)}, {60});
  std::weak_ptr<Chunk> still_there;
  std::tie(sources[2], still_there) = Watched(engine_, Cuda(kLeft));
  std::optional<StepRange> gather = Prepare(Collective::kAllGather, {{sources, all}});
  const Pair others = MakePair(kLeft, kAfterIts);
  const Tensor lost(engine_, Cuda(kLost), DType::kFloat32, {4});
  gather->Push();
  engine_->WaitAll();
  const fake::NcclCounts counts = fake::CountNccl();
  fake::BreakNccl(NcclFault::kHangs);
  Begin(*gather);
  fake::HoldGroups(true);  // the one by which it is aborted
  fake::FailKernel(kLost, 1);
  lost.Fill(1);
  const std::string lost_text = "cuda:6 is lost: an illegal memory access was encountered";
  EXPECT_NE(MessageOf<DeviceError>([&] { lost.ToHost(); }).find(lost_text), std::string::npos);
  const std::string message = MessageOf<DeviceError>([&] { all[0].ToHost(); });
  EXPECT_EQ(
      message.find("DeviceError: operation \"combine by NCCL\" failed: NCCL on cuda:5, cuda:6, cuda:7: " + lost_text),
      0u)
      << message;
  engine_->Recover();
  gather.reset();
  sources.clear();
  engine_->WaitAll();
  EXPECT_FALSE(still_there.expired());
  fake::HoldGroups(false);
  WaitUntil([&] { return still_there.expired(); });
  // Nothing that hangs is in the way of others.
  others.bring.Push();
  EXPECT_EQ(others.to.ToHost(), others.from.ToHost());
  WaitUntil([&] { return fake::CountNccl().aborted == counts.aborted + 3; });
}

// Where it is lost while the exchange is being enqueued, what the exchange before has left is not taken for its end.
TEST_F(CudaNcclTest, AGpuLostMeanwhileEndsIt) {
  auto [from, still_there] = Watched(engine_, Cuda(kSender));
  const Tensor to(engine_, Cuda(kReceiver), DType::kFloat32, {20});
  std::optional<StepRange> bring = Prepare(Collective::kBroadcast, {{{from}, {to}}});
  const Tensor lost(engine_, Cuda(kReceiver), DType::kFloat32, {4});
  bring->Push();
  engine_->WaitAll();
  const fake::NcclCounts counts = fake::CountNccl();
  fake::HoldGroups(true);
  bring->Push();
  WaitUntil([] { return fake::HeldGroups() == 1; });
  fake::FailKernel(kReceiver, 1);
  lost.Fill(1);
  EXPECT_THROW(lost.ToHost(), DeviceError);
  fake::HoldAborts(true);
  fake::HoldGroups(false);
  WaitUntil([&] { return fake::CountNccl().groups == counts.groups + 1; });
  fake::HoldGroups(true);  // the one by which it is aborted
  std::thread who_looks([&, sent = from.var()] { engine_->WaitIdle(sent); });
  WaitUntil([] { return fake::HeldAborts() == 1; });
  fake::HoldAborts(false);
  WaitUntil([] { return fake::HeldGroups() == 1; });
  who_looks.join();
  ExpectHas(MessageOf<DeviceError>([&] { to.ToHost(); }), "NCCL on cuda:9, cuda:10: cuda:10 is lost");
  engine_->Recover();
  bring.reset();
  from = Tensor();
  engine_->WaitAll();
  EXPECT_FALSE(still_there.expired());
  fake::HoldGroups(false);
  WaitUntil([&, &memory = still_there] { return memory.expired(); });
  EXPECT_EQ(New(HostTensor::Full(DType::kFloat32, {4}, 3), Cuda(kSender)).ToHost().At(0), 3) << "it is not lost";
}

// One before it that has been enqueued to its end waits for the lost GPU for ever: the first GPU is lost with it.
TEST_F(CudaNcclTest, WhatIsUnderWayEndsWithIt) {
  auto [from, still_there] = Watched(engine_, Cuda(kAfterIts));
  const Tensor to(engine_, Cuda(kSender), DType::kFloat32, {20}), lost(engine_, Cuda(kSender), DType::kFloat32, {4});
  std::optional<StepRange> bring = Prepare(Collective::kBroadcast, {{{from}, {to}}});
  const Pair other = MakePair(kAfterIts, kSender);
  engine_->WaitAll();
  fake::BreakNccl(NcclFault::kHangs);
  Begin(*bring);
  fake::HoldGroups(true);
  other.bring.Push();
  WaitUntil([] { return fake::HeldGroups() == 1; });
  fake::FailKernel(kSender, 1);
  lost.Fill(1);
  EXPECT_THROW(lost.ToHost(), DeviceError);
  fake::HoldGroups(false);
  engine_->WaitIdle(from.var());
  EXPECT_THROW(to.ToHost(), DeviceError);
  engine_->Recover();
  ExpectHas(MessageOf<DeviceError>([&, &sent = from] { sent.ToHost(); }), "cuda:8 is lost");
  bring.reset();
  from = Tensor();
  WaitUntil([&, &memory = still_there] { return memory.expired(); });
}

}  // namespace
}  // namespace bindery
