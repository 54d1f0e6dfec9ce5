// A training step allocates nothing and takes no page fault once it is warm: the whole program's operator new is
// counted, and the whole process' faults.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

#include "symbol/ops.h"
#include "train/data/array_iter.h"
#include "train/trainer.h"
#include "train/updater/updater.h"
#include "train/zoo.h"

namespace {

std::atomic<int64_t> allocations{0};

// oneDNN makes something now and then while a primitive runs: none of ours.
bool IsOurs(const void* caller) {
  Dl_info info;
  return dladdr(caller, &info) == 0 || std::strstr(info.dli_fname, "libdnnl") == nullptr;
}
void* Allocate(size_t size, const void* caller) {
  allocations += IsOurs(caller);
  return std::malloc(size ? size : 1);
}
void* AllocateOrThrow(size_t size, const void* caller) {
  if (void* memory = Allocate(size, caller)) return memory;
  throw std::bad_alloc();
}
void* AllocateAligned(size_t size, std::align_val_t alignment, const void* caller) {
  allocations += IsOurs(caller);
  const size_t unit = static_cast<size_t>(alignment);
  if (void* memory = std::aligned_alloc(unit, (size + unit - 1) / unit * unit)) return memory;
  throw std::bad_alloc();
}

}  // namespace

// noinline: or the compiler sees malloc and free behind its own new and delete, and warns.
[[gnu::noinline]] void* operator new(size_t size) { return AllocateOrThrow(size, __builtin_return_address(0)); }
[[gnu::noinline]] void* operator new[](size_t size) { return AllocateOrThrow(size, __builtin_return_address(0)); }
[[gnu::noinline]] void* operator new(size_t size, std::align_val_t at) {
  return AllocateAligned(size, at, __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new[](size_t size, std::align_val_t at) {
  return AllocateAligned(size, at, __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return Allocate(size, __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return Allocate(size, __builtin_return_address(0));
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

// Kernels are our own: the net has nothing that a library computes.
std::unique_ptr<DataParallelExecutorGroup> GroupOf(const std::shared_ptr<Engine>& engine, GradReq request,
                                                   bool inputs_need_grad) {
  const Symbol scaled = Variable("data") * Variable("w", {.shape = Shape{4}}) + Variable("b", {.shape = Shape{4}});
  const Symbol net = SoftmaxOutput(Tanh(BatchNorm(scaled, {}, "bn")), {}, "softmax");
  return std::make_unique<DataParallelExecutorGroup>(net,
                                                     GroupOptions{.devices = {Cpu(0), Cpu(1)},
                                                                  .workload = {2, 1},
                                                                  .data = {{"data", {6, 4}}},
                                                                  .labels = {{"softmax_label", {6}}},
                                                                  .inputs_need_grad = inputs_need_grad,
                                                                  .grad_req = request,
                                                                  .engine = engine,
                                                                  .threads_per_device = 1,
                                                                  .switches = {.policy = KernelPolicy::kReference}});
}

BatchPtr OnesAndZeros() {
  return std::make_shared<const Batch>(
      Batch{.data = {HostTensor::Full(DType::kFloat32, {6, 4}, 1)}, .label = {HostTensor(DType::kFloat32, {6})}});
}

// Of `kSteps` warm steps.
int64_t AllocationsOf(const std::shared_ptr<Engine>& engine, GradReq request, bool inputs_need_grad) {
  const auto group = GroupOf(engine, request, inputs_need_grad);
  Updater updater(group.get(), {.optimizer = MakeOptimizer("sgd(lr=0.1, momentum=0.9)")});
  const BatchPtr batch = OnesAndZeros();
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

// Where nothing is in flight, one step makes all that there is to be made.
TEST(StepAllocation, NoneAfterTheFirstOne) {
  const auto group = GroupOf(MakeInlineEngine(), GradReq::kWrite, false);
  Updater updater(group.get(), {.optimizer = MakeOptimizer("sgd(lr=0.1, momentum=0.9)")});
  const BatchPtr batch = OnesAndZeros();
  updater.Update(batch);
  const int64_t before = allocations;
  for (int i = 0; i < kSteps; ++i) updater.Update(batch);
  EXPECT_EQ(allocations - before, 0);
}

// One batch over and over.
class OneBatch final : public DataIter {
 public:
  OneBatch(Batch batch, const DataDesc& label, int64_t steps)
      : batch_(std::make_shared<const Batch>(std::move(batch))), label_(label), steps_(steps) {}
  std::vector<DataDesc> ProvideData() const override { return {{"data", batch_->data[0].shape()}}; }
  std::vector<DataDesc> ProvideLabel() const override { return {label_}; }
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
  const std::shared_ptr<const Batch> batch_;
  const DataDesc label_;
  int64_t steps_, given_ = 0;
};

// The most of any warm step of a trainer with fast kernels. `idle`: each is over before the next begins.
int64_t MostOfATrainersSteps(const Symbol& net, const Batch& batch, const DataDesc& label, TrainerOptions options,
                             bool idle) {
  const std::shared_ptr<Engine> engine = MakeThreadedEngine();
  options.devices = {Cpu(0), Cpu(1)};
  options.threads_per_device = 1;
  options.engine = engine;
  Trainer trainer(net, options);
  OneBatch data(batch, label, 3 * kSteps);
  int64_t before = 0, most = 0;
  trainer.Fit(data, {.on_batch = [&](const BatchReport& report) {
                if (idle) engine->WaitAll();
                const int64_t now = allocations;
                if (report.batch > kSteps) most = std::max(most, now - before);
                before = now;
              }});
  return most;
}

Symbol SmallConvNet() {
  Symbol x = Convolution(Variable("data"), {.num_filter = 8, .kernel = {3, 3}}, "conv1");
  x = Pooling(Relu(BatchNorm(x, {}, "bn1")), {.type = PoolType::kMax, .kernel = {2, 2}, .stride = {2, 2}});
  return SoftmaxOutput(FullyConnected(Flatten(x), {.num_hidden = 10}, "fc1"), {}, "softmax");
}

TEST(StepAllocation, NoneInATrainersStep) {
  const Symbol net = SmallConvNet();
  const Batch batch{.data = {HostTensor::Full(DType::kFloat32, {6, 3, 8, 8}, 1)},
                    .label = {HostTensor(DType::kFloat32, {6})}};
  for (const TrainerOptions& options : std::vector<TrainerOptions>{
           {.optimizer = "sgd(lr=0.01, momentum=0.9)"},
           {.optimizer = "adam(lr=0.01, clip_norm=1)", .loss_scale = "dynamic(start=64)", .average = "ema(0.9)"},
           {.optimizer = "lamb(lr=0.01)", .schedule = "cosine(max=100)"},
           {.optimizer = "sgd(lr=0.01, momentum=0.9)", .precision = "bfloat16"}}) {
    for (const bool idle : {false, true}) {
      EXPECT_EQ(MostOfATrainersSteps(net, batch, {"softmax_label", {6}}, options, idle), 0)
          << options.optimizer << " " << options.precision;
    }
  }
}

TEST(StepAllocation, NoneWhereATableIsUpdatedByRows) {
  const Symbol words = Embedding(Variable("data"), {.input_dim = 20, .output_dim = 3, .sparse_grad = true}, "embed");
  const Symbol net = LinearRegressionOutput(Mean(words, {.axes = {1}}), Variable("label"), {}, "out");
  const Batch batch{.data = {HostTensor::Full(DType::kFloat32, {6, 4}, 1)},
                    .label = {HostTensor::Full(DType::kFloat32, {6, 3}, 2)}};
  for (const bool idle : {false, true}) {
    EXPECT_EQ(
        MostOfATrainersSteps(net, batch, {"label", {6, 3}}, {.optimizer = "adam(lr=0.01)", .metrics = "mse"}, idle), 0);
  }
}

TEST(StepAllocation, NoneWhereLabelsAreBatchedAlongAnotherAxis) {
  const Symbol label = Transpose(Variable("label"));  // (3, N) -> (N, 3)
  const Symbol net = MakeLoss(Square(FullyConnected(Variable("data"), {.num_hidden = 3}, "fc1") - label), {}, "loss");
  const Batch batch{.data = {HostTensor::Full(DType::kFloat32, {6, 4}, 1)},
                    .label = {HostTensor(DType::kFloat32, {3, 6})}};
  const DataDesc desc{"label", {3, 6}, DType::kFloat32, "CN"};
  for (const bool idle : {false, true}) {
    EXPECT_EQ(MostOfATrainersSteps(net, batch, desc, {.optimizer = "sgd(lr=0.01)", .metrics = "loss"}, idle), 0);
  }
}

// Sanitizers fault in shadows of what is touched.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
int64_t MinorFaults() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);  // of all threads
  return usage.ru_minflt;
}

// The fewest that any stretch of kSteps steps takes, as they come. oneDNN packs matrices into what it takes from malloc,
// whose heaps, one for each thread, grow until each has held what ever lies in it at once: LeNet's first 20 steps take up
// to a thousand, with AVX2 and batches of 64 the first 50 still some, the others none. If so many in a row take none, no
// step needs any, whatever else faulted beside them; if each takes one, no stretch is without. Nobody calls
// KeepFreedMemory here: malloc itself keeps what was freed once, up to 32 MiB at a time.
constexpr int kStretches = 6;
int64_t FewestFaults(const Symbol& net, DataIter& data, TrainerOptions options) {
  options.engine = MakeThreadedEngine();
  options.optimizer = "sgd(lr=0.001, momentum=0.9)";
  Trainer trainer(net, options);
  int64_t before = MinorFaults(), fewest = std::numeric_limits<int64_t>::max();
  trainer.Fit(data, {.epoch_batches = kStretches * kSteps, .on_batch = [&](const BatchReport& report) {
                       if (report.batch % kSteps != 0) return;
                       const int64_t now = MinorFaults();
                       fewest = std::min(fewest, now - before);
                       before = now;
                     }});
  return fewest;
}

int64_t FewestFaults(const Symbol& net, const Batch& batch, const TrainerOptions& options) {
  OneBatch data(batch, {"softmax_label", batch.label[0].shape()}, kStretches * kSteps);
  return FewestFaults(net, data, options);
}

TEST(StepFaults, NoneInATrainersStep) {
  const Batch small{.data = {HostTensor::Full(DType::kFloat32, {6, 3, 8, 8}, 1)},
                    .label = {HostTensor(DType::kFloat32, {6})}};
  const Batch digits{.data = {HostTensor::Full(DType::kFloat32, {16, 1, 28, 28}, 1)},
                     .label = {HostTensor(DType::kFloat32, {16})}};
  for (const std::vector<Device>& devices : {std::vector{Cpu(0)}, {Cpu(0), Cpu(1)}}) {
    for (const char* precision : {"float32", "bfloat16"}) {
      for (const int threads : {1, 2}) {
        SCOPED_TRACE(fmt::format("{} devices, {} threads each, {}", devices.size(), threads, precision));
        const TrainerOptions options{.devices = devices, .precision = precision, .threads_per_device = threads};
        EXPECT_EQ(FewestFaults(SmallConvNet(), small, options), 0);
        EXPECT_EQ(FewestFaults(ModelByName("lenet"), digits, options), 0);
      }
    }
  }
}

// Batches of more than a MiB, which have pages of their own.
TEST(StepFaults, NoneForNewBatches) {
  constexpr int64_t kRows = 400;
  const Symbol net = SoftmaxOutput(FullyConnected(Variable("data"), {.num_hidden = 2}, "fc"), {}, "softmax");
  ArrayIter data(HostTensor::Full(DType::kFloat32, {2 * kRows, 784}, 1), HostTensor(DType::kFloat32, {2 * kRows}),
                 {.batch_size = kRows, .last_batch = LastBatch::kRepeat});
  EXPECT_EQ(FewestFaults(net, data, {.threads_per_device = 1}), 0);
}

TEST(StepFaults, TheCounterCounts) {
  constexpr int64_t kBytes = 64 * 4096;
  char* const pages =
      static_cast<char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(pages, MAP_FAILED);
  const int64_t before = MinorFaults();
  for (int64_t i = 0; i < kBytes; i += 4096) static_cast<volatile char*>(pages)[i] = 1;
  EXPECT_GE(MinorFaults() - before, 1);  // one, where the system gives large pages
  munmap(pages, kBytes);
}
#endif

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
