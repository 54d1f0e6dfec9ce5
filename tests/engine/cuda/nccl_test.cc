// What GPUs exchange by NCCL, over the fakes of the driver and of NCCL: the bits that copies give, one order for all,
// and what becomes of it when NCCL fails. Where it hangs, or a GPU is lost: nccl_hang_test.cc.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "engine/backend.h"
#include "engine/collective.h"
#include "engine/sim/sim.h"
#include "tests/engine/cuda/nccl_fixture.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

constexpr int kRefused = 3;  // a communicator of which is not asked for again

// All collectives, with ranges of all sizes.
TEST_F(CudaNcclTest, TheBitsAreThoseOfCopies) {
  const std::vector<std::vector<Device>> groups = {{Cuda(0), Cuda(1)},
                                                   {Cuda(2), Cuda(0), Cuda(1)},
                                                   {Cuda(1), Cuda(0), Cuda(1)},
                                                   {Cpu(), Cuda(1), Cuda(0)},
                                                   {Cuda(0), Cuda(fake::kLonelyGpu)}};
  const auto combine = [&](const std::vector<Device>& devices) {
    std::vector<HostTensor> results;
    sim::SetDelays(3, 100);
    const std::vector<int64_t> cut = devices.size() == 2 ? std::vector<int64_t>{64, 6} : std::vector<int64_t>{64, 6, 0};
    const std::vector<Tensor> sources = Make(devices, {70}), sums = Make(devices, {70}), in_place = Make(devices, {9}),
                              ranges = Make(devices, cut), all = Make(devices, {70}), first = Make(devices, {9});
    Prepare(Collective::kAllReduceSum, {{sources, sums}, {in_place, in_place}}).Push();
    Prepare(Collective::kReduceScatterSum, {{sources, ranges}}).Push();
    Prepare(Collective::kAllGather, {{ranges, all}}).Push();
    Prepare(Collective::kBroadcast, {{{in_place[1]}, first}}).Push();
    for (const std::vector<Tensor>& tensors : {sums, in_place, ranges, all, first}) {
      for (const Tensor& tensor : tensors) results.push_back(tensor.ToHost());
    }
    return results;
  };
  for (const bool threaded : {true, false}) {
    engine_ = threaded ? MakeThreadedEngine() : MakeInlineEngine();
    for (const std::vector<Device>& devices : groups) {
      const fake::NcclCounts before = fake::CountNccl();
      const std::vector<HostTensor> with = combine(devices);
      const fake::NcclCounts after = fake::CountNccl();
      EXPECT_GT(after.sends, before.sends);
      EXPECT_EQ(after.broadcasts > before.broadcasts, devices == groups[1]) << "to all others, who are several";
      cuda::UseNccl(nullptr);
      EXPECT_EQ(combine(devices), with);
      cuda::UseNccl(fake::Nccl());
      EXPECT_EQ(fake::CountNccl().groups, after.groups);
    }
  }
}

TEST_F(CudaNcclTest, ACommunicatorIsMadeOnceForASet) {
  const Pair pair = MakePair(0, 1);
  const int64_t before = fake::CountNccl().communicators;
  for (const auto& [first, second, made] : {std::tuple(0, 1, 0), {1, 0, 0}, {0, 4, 2}, {4, 0, 2}}) {
    const Pair other = MakePair(first, second);
    for (int run = 0; run < 3; ++run) other.bring.Push();
    EXPECT_EQ(other.to.ToHost(), other.from.ToHost());
    EXPECT_EQ(fake::CountNccl().communicators - before, made);
  }
  const int64_t groups = fake::CountNccl().groups;
  const Tensor on_host = New(HostTensor(DType::kFloat32, {50}), Cpu());
  Prepare(Collective::kBroadcast, {{{pair.from}, {on_host}}}).Push();
  EXPECT_EQ(on_host.ToHost(), pair.from.ToHost());
  EXPECT_EQ(fake::CountNccl().groups, groups) << "no other GPU";
}

TEST_F(CudaNcclTest, WithoutACommunicatorTheyCopy) {
  std::vector<std::string> lines;
  SetLogCallback([&](LogLevel, const std::string& line) { lines.push_back(line); });
  fake::RefuseCommunicators(true);
  const int64_t groups = fake::CountNccl().groups;
  for (int i = 0; i < 2; ++i) {
    const Pair pair = MakePair(kRefused, 0);
    pair.bring.Push();
    EXPECT_EQ(pair.to.ToHost(), pair.from.ToHost());
    fake::RefuseCommunicators(false);
  }
  SetLogCallback(nullptr);
  EXPECT_EQ(lines, std::vector<std::string>{
                       "cuda:0, cuda:3 copy what they exchange: ncclCommInitAll: unhandled system error"});
  EXPECT_EQ(fake::CountNccl().groups, groups);
  EXPECT_NE(MessageOf<DeviceError>([] { cuda::OpenNccl("libnone.so.0"); }).find("libnone.so.0: cannot open"),
            std::string::npos);
}

TEST_F(CudaNcclTest, TheEnvironmentMayLeaveItOut) {
  const int64_t groups = fake::CountNccl().groups;
  ASSERT_EQ(setenv("BINDERY_NCCL", "no", 1), 0);
  const Pair pair = MakePair(0, 1);
  ASSERT_EQ(setenv("BINDERY_NCCL", "perhaps", 1), 0);
  EXPECT_EQ(MessageOf<Error>([&] { MakePair(0, 1); }), "Error: BINDERY_NCCL must be yes or no, got \"perhaps\"");
  ASSERT_EQ(setenv("BINDERY_NCCL", "yes", 1), 0);
  pair.bring.Push();
  EXPECT_EQ(pair.to.ToHost(), pair.from.ToHost());
  EXPECT_EQ(fake::CountNccl().groups, groups);
  MakePair(0, 1).bring.Push();
  engine_->WaitAll();
  EXPECT_EQ(fake::CountNccl().groups, groups + 1);
  unsetenv("BINDERY_NCCL");
}

// Whoever waits is told, by whatever way NCCL fails; then all goes on by a new communicator.
TEST_F(CudaNcclTest, AFailureNamesTheCollective) {
  for (const auto& [fault, text] : {std::pair(NcclFault::kFails, "remote process exited or there was a network error"),
                                    {NcclFault::kEndsAndFails, "remote process exited or there was a network error"},
                                    {NcclFault::kIsNotEnqueued, "unhandled system error"}}) {
    const Pair pair = MakePair(0, 1);
    engine_->WaitAll();
    const fake::NcclCounts before = fake::CountNccl();
    fake::BreakNccl(fault);
    pair.bring.Push();
    EXPECT_EQ(MessageOf<DeviceError>([&] { pair.to.ToHost(); }),
              std::string("DeviceError: operation \"combine by NCCL\" failed: NCCL on cuda:0, cuda:1: ") + text);
    EXPECT_EQ(pair.from.ToHost().At(0), 1.0f / 3);
    engine_->Recover();
    for (int run = 0; run < 2; ++run) pair.bring.Push();
    EXPECT_EQ(pair.to.ToHost(), pair.from.ToHost());
    EXPECT_EQ(fake::CountNccl().communicators - before.communicators, 2);
  }
}

// As by a network that is gone: nobody tries for ever.
TEST_F(CudaNcclTest, WhereEveryCommunicatorFailsItIsToldAtOnce) {
  cuda::NcclApi broken = *fake::Nccl();
  broken.comm_get_async_error = [](cuda::NcclComm*, cuda::NcclResult* error) {
    *error = cuda::kNcclRemoteError;
    return cuda::kNcclSuccess;
  };
  cuda::UseNccl(std::make_shared<const cuda::NcclApi>(broken));
  const Pair pair = MakePair(0, 1);
  engine_->WaitAll();
  const int64_t before = fake::CountNccl().communicators;
  pair.bring.Push();
  EXPECT_EQ(MessageOf<DeviceError>([&] { pair.to.ToHost(); }),
            "DeviceError: operation \"combine by NCCL\" failed: NCCL on cuda:0, cuda:1: remote process exited or there "
            "was a network error");
  EXPECT_EQ(fake::CountNccl().communicators - before, 2) << "another one, of two GPUs";
  engine_->Recover();
}

// What had been enqueued behind it runs, on memory that nobody has written: what it updates is not what it was.
TEST_F(CudaNcclTest, WhatRanOnWhatFailedHasFailed) {
  const Pair pair = MakePair(0, 1);
  const Tensor before = New(HostTensor::Full(DType::kFloat32, {50}, 3), Cuda(1)),
               after = New(HostTensor::Full(DType::kFloat32, {50}, 3), Cuda(1)),
               elsewhere = New(HostTensor::Full(DType::kFloat32, {50}, 3), Cuda(1));
  engine_->WaitAll();
  const auto add = [&](const Tensor& to) {
    engine_->Push(
        {.name = "add",
         .device = to.device(),
         .reads = {pair.to.var()},
         .updates = {to.var()},
         .run = [from = pair.to, to](const OpContext& context) {
           Backend::Of(to.device().kind).flat().Add(context.stream, to.dtype(), from.address(), to.address(), 50);
         }});
  };
  fake::HangKernel(0, 1);
  pair.from.Fill(7);
  fake::BreakNccl(NcclFault::kEndsAndFails);
  pair.bring.Push();
  add(before);
  add(elsewhere);
  std::atomic<bool> enqueued = false;
  engine_->Push({.name = "look",
                 .device = Cuda(1),
                 .reads = {before.var(), elsewhere.var()},
                 .writes = {engine_->NewVar()},
                 .run = [&](const OpContext&) { enqueued = true; }});
  WaitUntil([&] { return enqueued.load(); });
  fake::Release(0);
  const std::string message = MessageOf<DeviceError>([&] { before.ToHost(); });
  EXPECT_NE(message.find("operation \"combine by NCCL\" failed: NCCL on cuda:0, cuda:1: "), std::string::npos)
      << message;
  EXPECT_THROW(elsewhere.ToHost(), DeviceError);
  add(after);
  EXPECT_EQ(after.ToHost(), HostTensor::Full(DType::kFloat32, {50}, 3)) << "it did not run";
  engine_->Recover();
}

// An error is told, whatever others do meanwhile.
TEST_F(CudaNcclTest, AFailureIsToldWhileOthersEnqueue) {
  const Pair pair = MakePair(0, 1), other = MakePair(0, 1);
  engine_->WaitAll();
  fake::HangKernel(0, 1);
  pair.from.Fill(7);
  fake::BreakNccl(NcclFault::kEndsAndFails);
  Begin(pair.bring);
  fake::HoldGroups(true);
  other.bring.Push();
  WaitUntil([] { return fake::HeldGroups() > 0; });
  fake::Release(0);
  EXPECT_NE(MessageOf<DeviceError>([&] { pair.to.ToHost(); }).find("operation \"combine by NCCL\" failed: NCCL on "),
            std::string::npos);
  fake::HoldGroups(false);
  EXPECT_THROW(other.to.ToHost(), DeviceError) << "of the same communicator";
  engine_->Recover();
}

// Cliques that share GPUs, of several engines, whose threads come in any order.
TEST_F(CudaNcclTest, ManyAtOnceDoNotWaitForEachOther) {
  sim::SetDelays(11, 100);
  std::vector<std::thread> threads;
  for (const std::vector<Device>& devices :
       std::vector<std::vector<Device>>{{Cuda(0), Cuda(1), Cuda(2)}, {Cuda(1), Cuda(2)}, {Cuda(0), Cuda(2)}}) {
    threads.emplace_back([devices] {
      const std::shared_ptr<Engine> engine = MakeThreadedEngine();
      Bucket bucket;
      for (const Device device : devices) {
        bucket.sources.emplace_back(engine, device, DType::kFloat32, Shape{10}).Fill(1);
        bucket.replicas.emplace_back(engine, device, DType::kFloat32, Shape{10});
      }
      std::vector<StepRange> sums;
      for (int i = 0; i < 2; ++i) {
        StepParts parts;
        MemoryCollectives(engine, true)->Append(Collective::kAllReduceSum, "combine", {bucket}, &parts);
        sums.emplace_back(engine, std::move(parts));
        std::swap(bucket.sources, bucket.replicas);
      }
      for (int run = 0; run < 20; ++run) sums[static_cast<size_t>(run % 2)].Push();
      double expected = 1;
      for (int run = 0; run < 20; ++run) expected *= static_cast<double>(devices.size());
      for (const Tensor& tensor : bucket.sources) {
        EXPECT_EQ(tensor.ToHost(), HostTensor::Full(DType::kFloat32, {10}, expected));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// What NCCL refuses, or would hang.
TEST(CudaFakeNcclTest, RefusesWhatNcclRefuses) {
  const cuda::RuntimeApi& api = fake::Api();
  const cuda::NcclApi& nccl = *fake::Nccl();
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  cuda::NcclComm* comms[2] = {};
  const int twice[] = {1, 1}, two[] = {1, 2};
  void* const memory = &comms;
  ASSERT_EQ(api.device_primary_ctx_retain(&context, 1), CUDA_SUCCESS);
  ASSERT_EQ(api.ctx_push_current(context), CUDA_SUCCESS);
  ASSERT_EQ(api.stream_create_with_priority(&stream, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
  const auto send = [&](cuda::NcclComm* comm, int to) {
    return nccl.send(memory, 8, cuda::kNcclUint8, to, comm, stream);
  };
  const auto refused = [&](cuda::NcclResult result, const std::string& why) {
    EXPECT_NE(result, cuda::kNcclSuccess) << why;
    const std::vector<std::string> violations = fake::TakeViolations();
    ASSERT_FALSE(violations.empty()) << why;
    EXPECT_NE(violations[0].find(why), std::string::npos) << violations[0];
  };
  refused(nccl.comm_init_all(comms, 2, twice), "a GPU twice");
  ASSERT_EQ(nccl.comm_init_all(comms, 2, two), cuda::kNcclSuccess);
  refused(send(comms[0], 1), "outside of a group");
  refused(nccl.comm_abort(comms[0]), "outside of a group");
  refused(nccl.group_end(), "without a beginning");
  const auto in_group = [&](const std::function<void()>& calls) {
    nccl.group_start();
    calls();
    return nccl.group_end();
  };
  refused(in_group([&] { send(comms[1], 0); }), "a stream of another GPU");
  refused(in_group([&] { send(comms[0], 2); }), "no such rank");
  // Two ends of different sizes: they wait until they are aborted.
  CUcontext other_context = nullptr;
  CUstream other_stream = nullptr;
  cuda::NcclComm* others[2] = {};
  ASSERT_EQ(nccl.comm_init_all(others, 2, two), cuda::kNcclSuccess);
  ASSERT_EQ(api.device_primary_ctx_retain(&other_context, 2), CUDA_SUCCESS);
  EXPECT_EQ(in_group([&] {
              send(others[0], 1);
              ASSERT_EQ(api.ctx_push_current(other_context), CUDA_SUCCESS);
              ASSERT_EQ(api.stream_create_with_priority(&other_stream, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
              nccl.receive(&others, 4, cuda::kNcclUint8, 0, others[1], other_stream);
            }),
            cuda::kNcclSuccess);
  EXPECT_EQ(fake::TakeViolations(), std::vector<std::string>{"NCCL: 8 bytes at one end, 4 at another"});
  EXPECT_EQ(api.stream_query(other_stream), CUDA_ERROR_NOT_READY);
  in_group([&] {
    for (cuda::NcclComm* const comm : others) nccl.comm_abort(comm);
  });
  EXPECT_EQ(api.stream_synchronize(other_stream), CUDA_SUCCESS);
  EXPECT_EQ(api.ctx_pop_current(&other_context), CUDA_SUCCESS);
  in_group([&] { nccl.comm_abort(comms[0]); });
  EXPECT_EQ(fake::TakeViolations(),
            std::vector<std::string>{"ncclGroupEnd: some ranks of a communicator are aborted, others not"});
  refused(in_group([&] { send(comms[0], 1); }), "no more");
  EXPECT_EQ(api.ctx_pop_current(&context), CUDA_SUCCESS);
}

}  // namespace
}  // namespace bindery
