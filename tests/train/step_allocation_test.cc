// A training step allocates nothing once it is warm: the whole program's operator new is counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>

#include "symbol/ops.h"
#include "train/trainer.h"
#include "train/updater.h"

namespace {

std::atomic<int64_t> allocations{0};

void* Allocate(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size ? size : 1)) return memory;
  throw std::bad_alloc();
}
void* AllocateAligned(size_t size, std::align_val_t alignment) {
  ++allocations;
  const size_t unit = static_cast<size_t>(alignment);
  if (void* memory = std::aligned_alloc(unit, (size + unit - 1) / unit * unit)) return memory;
  throw std::bad_alloc();
}

}  // namespace

// noinline: or the compiler sees malloc and free behind its own new and delete, and warns.
[[gnu::noinline]] void* operator new(size_t size) { return Allocate(size); }
[[gnu::noinline]] void* operator new[](size_t size) { return Allocate(size); }
[[gnu::noinline]] void* operator new(size_t size, std::align_val_t at) { return AllocateAligned(size, at); }
[[gnu::noinline]] void* operator new[](size_t size, std::align_val_t at) { return AllocateAligned(size, at); }
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size ? size : 1);
}
[[gnu::noinline]] void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size ? size : 1);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace bindery {
namespace {

constexpr int kSteps = 20;

// Of `kSteps` warm steps. Kernels are our own: the net has nothing that a library computes.
int64_t AllocationsOf(const std::shared_ptr<Engine>& engine, GradReq request, bool inputs_need_grad) {
  const Symbol scaled = Variable("data") * Variable("w", {.shape = Shape{4}}) + Variable("b", {.shape = Shape{4}});
  const Symbol net = SoftmaxOutput(Tanh(BatchNorm(scaled, {}, "bn")), {}, "softmax");
  DataParallelExecutorGroup group(net, {.devices = {Cpu(0), Cpu(1)},
                                        .workload = {2, 1},
                                        .data = {{"data", {6, 4}}},
                                        .labels = {{"softmax_label", {6}}},
                                        .inputs_need_grad = inputs_need_grad,
                                        .grad_req = request,
                                        .engine = engine,
                                        .threads_per_device = 1,
                                        .policy = KernelPolicy::kReference});
  Updater updater(&group, {.optimizer = MakeOptimizer("sgd(lr=0.1, momentum=0.9)")});
  const auto batch = std::make_shared<const Batch>(
      Batch{.data = {HostTensor::Full(DType::kFloat32, {6, 4}, 1)}, .label = {HostTensor(DType::kFloat32, {6})}});
  // How many steps are in flight at a time depends on the scheduler: hold the first ones back until all are pushed, and
  // push more of them than are counted.
  std::atomic<bool> go{engine->name() == std::string("inline")};
  engine->Push({.name = "hold", .device = Cpu(0), .run = [&go](const OpContext&) {
                  while (!go) {
                  }
                }});
  for (int i = 0; i < 2 * kSteps; ++i) updater.Update(batch);
  go = true;
  engine->WaitAll();
  const int64_t before = allocations;
  for (int i = 0; i < kSteps; ++i) updater.Update(batch);
  const int64_t after = allocations;
  engine->WaitAll();
  return after - before;
}

TEST(StepAllocation, NoneOnceItIsWarm) {
  for (const bool threaded : {false, true}) {
    for (const GradReq request : {GradReq::kWrite, GradReq::kAdd}) {
      for (const bool inputs : {false, true}) {
        EXPECT_EQ(AllocationsOf(threaded ? MakeThreadedEngine() : MakeInlineEngine(), request, inputs), 0)
            << "threaded " << threaded << ", adds up " << (request == GradReq::kAdd) << ", inputs " << inputs;
      }
    }
  }
}

// One batch over and over.
class OneBatch final : public DataIter {
 public:
  explicit OneBatch(int64_t steps) : steps_(steps) {}
  std::vector<DataDesc> ProvideData() const override { return {{"data", batch_->data[0].shape()}}; }
  std::vector<DataDesc> ProvideLabel() const override { return {{"softmax_label", batch_->label[0].shape()}}; }
  int64_t batch_size() const override { return 6; }
  int64_t samples() const override { return 6 * steps_; }
  std::shared_ptr<const Batch> Next() override { return given_++ < steps_ ? batch_ : nullptr; }
  void Reset() override { given_ = 0; }
  int64_t epoch() const override { return 0; }
  double epoch_detail() const override { return 0; }
  double previous_epoch_detail() const override { return 0; }
  bool is_new_epoch() const override { return given_ == steps_; }
  IterState SaveState() const override { return {}; }
  void LoadState(const IterState&) override {}

 private:
  const std::shared_ptr<const Batch> batch_ = std::make_shared<const Batch>(
      Batch{.data = {HostTensor::Full(DType::kFloat32, {6, 3, 8, 8}, 1)}, .label = {HostTensor(DType::kFloat32, {6})}});
  int64_t steps_, given_ = 0;
};

// A whole step of a trainer with fast kernels, whose workers have nothing left to do when it begins: from one report to
// the next, oneDNN's allocations included.
struct Allocations {
  int64_t least = std::numeric_limits<int64_t>::max(), most = 0;  // of any warm step
};
Allocations OfATrainersSteps() {
  Symbol x = Convolution(Variable("data"), {.num_filter = 8, .kernel = {3, 3}}, "conv1");
  x = Pooling(Relu(BatchNorm(x, {}, "bn1")), {.type = PoolType::kMax, .kernel = {2, 2}, .stride = {2, 2}});
  const Symbol net = SoftmaxOutput(FullyConnected(Flatten(x), {.num_hidden = 10}, "fc1"), {}, "softmax");
  const std::shared_ptr<Engine> engine = MakeThreadedEngine();
  Trainer trainer(net, {.devices = {Cpu(0), Cpu(1)},
                        .optimizer = "sgd(lr=0.01, momentum=0.9)",
                        .threads_per_device = 1,
                        .engine = engine});
  OneBatch data(2 * kSteps);
  int64_t before = 0;
  Allocations found;
  trainer.Fit(data, {.on_batch = [&](const BatchReport& report) {
                const int64_t now = allocations;
                if (report.batch > kSteps) {
                  found.least = std::min(found.least, now - before);
                  found.most = std::max(found.most, now - before);
                }
                engine->WaitAll();
                before = allocations;
              }});
  return found;
}

// A step allocates nothing. Now and then one makes a queue or a pool longer, by how far its workers have come: up to 11
// allocations were seen. A bound, so that it can only fall.
TEST(StepAllocation, NoneInATrainersStep) {
  const Allocations found = OfATrainersSteps();
  EXPECT_EQ(found.least, 0);
  EXPECT_LE(found.most, 30);
}

TEST(StepAllocation, TheCounterCounts) {
  struct alignas(128) Wide {
    char bytes[128];
  };
  const int64_t before = allocations;
  const auto value = std::make_unique<int>(1);
  const auto wide = std::make_unique<Wide>();
  EXPECT_EQ(allocations - before, 2);
}

}  // namespace
}  // namespace bindery
