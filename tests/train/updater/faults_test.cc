// Every fault of a device leaves the parameters of the last good step, names the device, and spoils no checkpoint.
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>

#include "engine/sim/sim.h"
#include "executor/data_parallel_executor_group.h"
#include "symbol/ops.h"
#include "tests/host_tensors.h"
#include "tests/message_of.h"
#include "train/data/array_iter.h"
#include "train/trainer.h"

namespace bindery {
namespace {

constexpr int64_t kSteps = 4;
constexpr int kHangLimit = 100;  // milliseconds

using Devices = std::vector<Device>;
using Values = std::pair<HostTensorMap, HostTensorMap>;  // parameters, running statistics

// Replicas on devices, or parts of one with devices of their own.
struct Replicas {
  Devices devices;
  Placements placements = {};
};

Symbol Net(bool placed) {
  const auto on = [placed](const char* placement, const auto& make) -> Symbol {
    const AttrScope scope(placed ? Annotations{{"ctx_group", placement}} : Annotations());
    return make();
  };
  const Symbol hidden = on("low", [] {
    return Relu(BatchNorm(FullyConnected(Variable("data"), {.num_hidden = 4}, "fc1"), {.sync = true}, "bn"));
  });
  return on("high", [&] {
    const Symbol x = FullyConnected(Dropout(hidden, {.p = 0.25}, "drop"), {.num_hidden = 3}, "fc2");
    return SoftmaxOutput(x, {}, "softmax");
  });
}

class Training {
 public:
  explicit Training(const Replicas& replicas, const std::string& folder = {})
      : folder_(folder), data_(Sines({27, 5}), ClassesInTurn(27, 3), {.batch_size = 7, .shuffle = true, .seed = 5}),
        trainer_(Net(!replicas.placements.empty()),
                 {.devices = replicas.devices,
                  .placements = replicas.placements,
                  .optimizer = "sgd(lr=0.1, momentum=0.9)",
                  .metrics = "cross-entropy",
                  .engine = MakeThreadedEngine({.spin_microseconds = 0, .hang_milliseconds = kHangLimit})}) {}
  // `begun`: called when two steps are done.
  FitResult Fit(const std::function<void()>& begun = {}, const std::function<void(int64_t)>& at_step = {}) {
    return trainer_.Fit(data_, {.epochs = 1,
                                .checkpoints = folder_,
                                .checkpoint_every = folder_.empty() ? 0 : 1,
                                .resume = !folder_.empty(),
                                .on_batch = [&](const BatchReport& report) {
                                  if (report.step == 2 && begun) {
                                    trainer_.ToCheckpoint(&data_);
                                    begun();
                                  }
                                  if (at_step) at_step(report.step);
                                }});
  }
  Values Get() const {
    const Model model = trainer_.ToModel();
    return {model.params, model.aux};
  }
  // What went wrong and was told to nobody.
  std::string Untold() {
    return MessageOf<Error>([&] { trainer_.group()->engine()->WaitAll(); });
  }
  int64_t step() { return trainer_.updater() ? trainer_.updater()->step() : 0; }
  Trainer& trainer() { return trainer_; }
  ArrayIter& data() { return data_; }

 private:
  const std::string folder_;
  ArrayIter data_;
  Trainer trainer_;
};

double MostDifferent(const Values& a, const Values& b) {
  return std::max(MostDifferent(a.first, b.first), MostDifferent(a.second, b.second));
}

class FaultsTest : public testing::TestWithParam<Replicas> {
 protected:
  ~FaultsTest() override { sim::Reset(); }
  FaultsTest() {
    Training run(GetParam());
    run.Fit({}, [&](int64_t) { good_.push_back(run.Get()); });
    good_.insert(good_.begin(), Values{});  // nothing is known of before the first step
  }
  // A folder that is not there yet.
  static std::string Folder(const std::string& name) {
    const std::string folder = testing::TempDir() + "/faults_" + name;
    std::filesystem::remove_all(folder);
    return folder;
  }

  // Which step of the run without faults left these; -1: none.
  std::pair<int, int> StepsOf(const Values& values) const {
    std::pair<int, int> steps(-1, -1);
    for (int i = 1; i < static_cast<int>(good_.size()); ++i) {
      if (values.first == good_[i].first) steps.first = i;
      if (values.second == good_[i].second) steps.second = i;
    }
    return steps;
  }
  static std::pair<int, int> Both(int64_t step) { return {static_cast<int>(step), static_cast<int>(step)}; }

  const Device failing_ = Sim(0);
  std::vector<Values> good_;  // after each step of a run without faults
};

const std::vector<Replicas> kGroups = {{{Sim(0)}},
                                       {{Sim(0), Sim(1)}},
                                       {{Cpu(0), Sim(0)}},
                                       {{Sim(0)}, {{"low", {Sim(0)}}, {"high", {Sim(1)}}}},
                                       {{Cpu(0)}, {{"low", {Cpu(0)}}, {"high", {Sim(0)}}}}};
std::string GroupName(const testing::TestParamInfo<Replicas>& info) {
  return std::vector<std::string>{"sim", "sims", "mixed", "placed_low", "placed_high"}[info.index];
}
INSTANTIATE_TEST_SUITE_P(Groups, FaultsTest, testing::ValuesIn(kGroups), GroupName);

TEST_P(FaultsTest, DevicesHaveTheSameValues) {
  Training run(GetParam());
  run.Fit();
  for (DataParallelExecutorGroup* stage : run.trainer().group()->stages()) {
    const ParameterStore& store = stage->store();
    for (const StoredParameter& p : store.parameters()) {
      for (int d = 0; d < static_cast<int>(GetParam().devices.size()); ++d) {
        EXPECT_EQ(MaxAbsDiff(store.Get(p, d), store.Get(p)), 0) << p.name << " on device " << d;
      }
    }
  }
}

// Whichever kernel or copy it is that fails, of all that run in the steps after the first.
TEST_P(FaultsTest, AKernelThatFails) {
  const bool alone = GetParam().devices.size() == 1;
  int failed = 0, in_nodes = 0;
  for (int64_t nth = 1;; ++nth) {
    sim::Reset();
    SCOPED_TRACE(nth);
    Training run(GetParam());
    int64_t before = 0;
    Checkpoint checkpoint;
    const std::string message = MessageOf<DeviceError>([&] {
      run.Fit([&] {
        checkpoint = run.trainer().ToCheckpoint(&run.data());
        before = sim::KernelsRun(failing_);
        sim::FailKernel(failing_, nth);
      });
    });
    if (message == "nothing was thrown") {
      // None was to fail, or what failed was nobody's loss: a value that another device gave.
      const bool over = sim::KernelsRun(failing_) - before < nth;
      sim::Reset();
      EXPECT_EQ(StepsOf(run.Get()), Both(kSteps)) << run.Untold();
      if (over) break;
      continue;
    }
    ++failed;
    EXPECT_NE(message.find("sim:0: a kernel failed"), std::string::npos) << message;
    EXPECT_TRUE(message.starts_with("DeviceError: operation \"")) << message;
    static const std::regex kNames(
        "(forward|backward) sim:0[^\"]*\" failed: (gradient of )?[A-Za-z]+ \"[a-z0-9_]+\": ");
    in_nodes += std::regex_search(message, kNames);
    ASSERT_GE(run.step(), 2);
    Values now;
    try {
      now = run.Get();
    } catch (const DeviceError& error) {  // it failed while its parameters were being written, and no other has them
      EXPECT_TRUE(alone) << error.what();
      EXPECT_TRUE(std::regex_search(message, std::regex("^DeviceError: operation \"(commit sim:0|publish states)\"")))
          << message;
      run.trainer().Restore(checkpoint, &run.data());
      run.Fit();
      EXPECT_EQ(StepsOf(run.Get()), Both(kSteps));
      continue;
    }
    EXPECT_EQ(StepsOf(now), Both(run.step())) << message;
    run.Fit();  // without the failed batch
    EXPECT_TRUE(MostDifferent(run.Get(), good_.back()) < 10) << message;
  }
  EXPECT_GT(failed, 30);
  EXPECT_GT(in_nodes, 5);
}

TEST_P(FaultsTest, AKernelThatHangs) {
  for (const int64_t nth : {1, 12, 33, 50}) {
    sim::Reset();
    SCOPED_TRACE(nth);
    Training run(GetParam());
    Checkpoint checkpoint;
    const std::string message = MessageOf<HangError>([&] {
      run.Fit([&] {
        checkpoint = run.trainer().ToCheckpoint(&run.data());
        sim::HangKernel(failing_, nth);
      });
    });
    // What it launches, or a copy of what it has by another device.
    static const std::regex kHangs(
        "(sim:0 hangs: it has been at operation \".+\"|\"fetch\", a copy from sim:0)"
        " for [0-9.]+ s, since 2");
    EXPECT_TRUE(std::regex_search(message, kHangs)) << message;
    EXPECT_THROW(run.Fit(), HangError);
    sim::Release(failing_);
    const auto go_on = [&] {
      if (nth > 30) run.trainer().Restore(checkpoint, &run.data());
      run.Fit();
    };
    while (MessageOf<HangError>(go_on) !=
           "nothing was thrown") {  // at that limit, a busy machine may look like it, too
    }
    EXPECT_EQ(StepsOf(run.Get()), Both(kSteps));
  }
}

// With a checkpoint after each step: what fails or hangs, be it while one is made, leaves the last whole, and the run goes
// on from it to the end of one that nothing happened to, bit for bit.
TEST_P(FaultsTest, CheckpointsStayWhole) {
  int failed = 0;
  for (int64_t nth = 1; nth < 90; nth += 8) {
    sim::Reset();
    SCOPED_TRACE(nth);
    const std::string folder = Folder("kernels");
    Training run(GetParam(), folder);
    const bool hangs = nth % 3 == 0;
    const auto fit = [&] { run.Fit([&] { hangs ? sim::HangKernel(failing_, nth) : sim::FailKernel(failing_, nth); }); };
    const std::string message = hangs ? MessageOf<HangError>(fit) : MessageOf<DeviceError>(fit);
    failed += message != "nothing was thrown";
    sim::Release(failing_);
    sim::Reset();
    const CheckpointStore store(folder, 3);
    for (const std::string& path : store.List()) {
      const Checkpoint checkpoint = LoadCheckpoint(path);
      EXPECT_EQ(StepsOf({checkpoint.model.params, checkpoint.model.aux}), Both(checkpoint.step)) << path << message;
    }
    EXPECT_TRUE(store.LoadNewest().has_value()) << message;
    Training again(GetParam(), folder);
    EXPECT_EQ(again.Fit().steps, kSteps);
    EXPECT_EQ(StepsOf(again.Get()), Both(kSteps)) << message;
  }
  EXPECT_GT(failed, 5);
}

TEST_P(FaultsTest, MemoryThatIsRefused) {
  int refused = 0;
  for (int64_t limit = 1 << 10; limit <= 1 << 22; limit *= 2) {
    SCOPED_TRACE(limit);
    sim::Reset();
    DefaultStorage()->ReleasePool();
    Training run(GetParam());
    sim::SetMemoryLimit(failing_, sim::MemoryInUse(failing_) + limit);
    const std::string message = MessageOf<DeviceError>([&] { run.Fit(); });
    sim::Reset();
    if (message == "nothing was thrown") break;
    ++refused;
    EXPECT_NE(message.find("sim:0"), std::string::npos) << message;
    run.Fit();
    if (run.step() == kSteps - 1) {  // in a step, of values that cross to another placement: its batch is left out
      EXPECT_FALSE(GetParam().placements.empty());
      continue;
    }
    EXPECT_EQ(StepsOf(run.Get()), Both(kSteps));
  }
  EXPECT_GT(refused, 0);
  // In the middle of a run: what needs more memory fails, what has it goes on.
  Training run(GetParam());
  run.Fit({}, [&](int64_t step) {
    if (step != 2) return;
    DefaultStorage()->ReleasePool();
    sim::SetMemoryLimit(failing_, sim::MemoryInUse(failing_));
    HostTensor many(DType::kFloat32, {2'000, 5});
    EXPECT_NE(MessageOf<DeviceError>([&] { run.trainer().Predict({many}); }).find("sim:0"), std::string::npos);
    sim::SetMemoryLimit(failing_, 0);
  });
  EXPECT_EQ(StepsOf(run.Get()), Both(kSteps));
}

TEST_P(FaultsTest, ADeviceThatIsLost) {
  for (const int64_t at : {2, 3}) {
    sim::Reset();
    SCOPED_TRACE(at);
    const std::string folder = Folder("lost");
    Training run(GetParam(), folder);
    const std::string message = MessageOf<DeviceError>([&] {
      run.Fit({}, [&](int64_t step) {
        if (step == at) sim::Lose(failing_);
      });
    });
    EXPECT_NE(message.find("sim:0 is lost"), std::string::npos) << message;
    if (GetParam().devices.size() > 1) {
      EXPECT_EQ(StepsOf(run.Get()), Both(run.step())) << message;  // from those that are left
    }
    EXPECT_THROW(run.Fit(), DeviceError);
    // Other devices go on from the last checkpoint.
    ASSERT_TRUE(CheckpointStore(folder, 3).LoadNewest().has_value());
    Replicas rest;
    for (const Device device : GetParam().devices) {
      if (device != failing_) rest.devices.push_back(device);
    }
    if (rest.devices.empty()) rest.devices.push_back(Cpu(0));
    for (const auto& [name, devices] : GetParam().placements) rest.placements[name] = {Cpu(1)};
    Training other(rest, folder);
    const FitResult result = other.Fit();
    EXPECT_EQ(result.steps, kSteps);
    EXPECT_LT(MostDifferent(other.Get(), good_.back()), 1e-5);
  }
}

}  // namespace
}  // namespace bindery
