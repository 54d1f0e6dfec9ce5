// What the tests share of what GPUs exchange by NCCL, over its fake.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/collective.h"
#include "engine/sim/sim.h"
#include "tests/engine/asynchronous_devices.h"
#include "tests/engine/cuda/fake/fake.h"
#include "tests/engine/cuda/fake/nccl.h"

namespace bindery {

namespace fake = cuda::fake;
using fake::NcclFault;

class CudaNcclTest : public testing::Test, protected AsynchronousDevices {
 protected:
  explicit CudaNcclTest(std::shared_ptr<Engine> engine = MakeThreadedEngine())
      : AsynchronousDevices(std::move(engine)) {}
  ~CudaNcclTest() override {
    sim::Reset();
    fake::HoldGroups(false);
    fake::HoldAborts(false);
    cuda::UseNccl(fake::Nccl());
    for (const std::string& violation : fake::TakeViolations()) ADD_FAILURE() << violation;
  }

  // On each device other values that no sum of floats keeps exactly; `elements` of each.
  std::vector<Tensor> Make(const std::vector<Device>& devices, const std::vector<int64_t>& elements) {
    std::vector<Tensor> tensors;
    for (size_t d = 0; d < devices.size(); ++d) {
      HostTensor values(DType::kFloat32, {elements[d % elements.size()]});
      for (int64_t i = 0; i < values.elements(); ++i) values.Set(i, 1.0 / static_cast<double>(3 + i + 100 * d * d));
      tensors.push_back(New(values, devices[d]));
    }
    return tensors;
  }
  StepRange Prepare(Collective what, std::vector<Bucket> buckets, std::shared_ptr<Engine> engine = nullptr) {
    StepParts parts;
    if (!engine) engine = engine_;
    MemoryCollectives(engine, true)->Append(what, "combine", std::move(buckets), &parts);
    return StepRange(engine, std::move(parts));
  }
  // The values of the first device on the second, by a prepared exchange.
  struct Pair {
    Tensor from, to;
    StepRange bring;
  };
  static void WaitUntil(const std::function<bool()>& done) {
    for (int i = 0; i < 4000 && !done(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_TRUE(done());
  }
  // Pushes an exchange that is one group of calls, and waits until NCCL has that, where it may hang.
  static void Begin(const StepRange& exchange) {
    const int64_t groups = fake::CountNccl().groups;
    exchange.Push();
    WaitUntil([&] { return fake::CountNccl().groups == groups + 1; });
  }
  Pair MakePair(int first, int second) {
    const Tensor from = Make({Cuda(first)}, {50})[0], to = New(HostTensor(DType::kFloat32, {50}), Cuda(second));
    return {from, to, Prepare(Collective::kBroadcast, {{{from}, {to}}})};
  }
};

}  // namespace bindery
