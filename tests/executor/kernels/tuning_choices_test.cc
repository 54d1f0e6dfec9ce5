// How a choice is made and kept (executor/kernels/cpu/tuning.h), with kernels that do as they are told.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "engine/cpu/pages.h"
#include "executor/kernels/cpu/tuning.h"
#include "executor/tuning.h"
#include "symbol/ops.h"
#include "symbol/ops/convolution.h"

namespace bindery::cpu {
namespace {

using std::chrono::milliseconds;

Kernel Named(const std::string& name, const Call& run) {
  return {.implementation = name, .bind = [run](const KernelArgs&) { return run; }};
}
TuningCandidate Slow(const std::string& name, int ms) {
  return {name, [=] { return Named(name, [ms] { std::this_thread::sleep_for(milliseconds(ms)); }); }};
}

class TuningChoicesTest : public testing::Test {
 protected:
  TuningChoicesTest() {
    std::filesystem::remove_all(folder_);
    Forget();
    SetLogCallback([this](LogLevel, const std::string& line) { log_.push_back(line); });
  }
  ~TuningChoicesTest() override {
    SetLogCallback({});
    UseTuningFolder("");
    std::filesystem::remove_all(folder_);
  }
  // As a process that knows only the file.
  void Forget() const { UseTuningFolder(folder_); }
  // What is chosen for the work with this number.
  static std::string Choose(int number, const std::vector<TuningCandidate>& candidates) {
    const KernelSpec spec{.op = &ConvolutionOp(), .attrs = ConvolutionAttrs{.num_filter = number}, .node_name = "conv"};
    return ChooseMeasured(spec, candidates)->implementation;
  }
  static int64_t MeasuredFor(int number, const std::vector<TuningCandidate>& candidates) {
    const int64_t before = NumTuningMeasurements();
    Choose(number, candidates);
    return NumTuningMeasurements() - before;
  }

  const std::string folder_ = testing::TempDir() + "tuning_choices";
  std::vector<std::string> log_;
};

TEST_F(TuningChoicesTest, ARecordCountsWhereFilesAreGone) {
  EXPECT_EQ(TuningChoices(), "");
  const std::vector<TuningCandidate> candidates = {Slow("slow", 20), Slow("fast", 1)};
  EXPECT_EQ(Choose(1, candidates), "fast, tuned");
  const std::string record = TuningChoices();
  std::filesystem::remove_all(folder_);
  Forget();
  AdoptTuningChoices("bindery tuning 0\nanother machine\n");
  AdoptTuningChoices(record.substr(0, record.size() - 2));
  EXPECT_EQ(MeasuredFor(2, candidates), 1);
  AdoptTuningChoices(record);
  EXPECT_EQ(MeasuredFor(1, {Slow("slow", 1), Slow("fast", 20)}), 0);
  EXPECT_EQ(Choose(1, {Slow("slow", 1), Slow("fast", 20)}), "fast, tuned");
  // What was chosen here stays.
  Forget();
  std::filesystem::remove_all(folder_);
  EXPECT_EQ(Choose(1, {Slow("slow", 1), Slow("fast", 20)}), "slow, tuned");
  AdoptTuningChoices(record);
  EXPECT_EQ(Choose(1, candidates), "slow, tuned");
}

TEST_F(TuningChoicesTest, TheFastestIsTakenAndKept) {
  EXPECT_EQ(Choose(1, {Slow("rules", 4), Slow("slower", 6), Slow("fast", 1)}), "fast, tuned");
  EXPECT_EQ(MeasuredFor(1, {Slow("rules", 1), Slow("fast", 4)}), 0);
  Forget();
  EXPECT_EQ(Choose(1, {Slow("rules", 1), Slow("fast", 4)}), "fast, tuned");
}

// The rules' choice does the work; the next time it is measured again.
TEST_F(TuningChoicesTest, WhatFailsIsNoErrorWhereTheRulesHaveAKernel) {
  const TuningCandidate cannot_be_made = {"broken", []() -> MaybeKernel { Throw<DeviceError>("no room for code"); }};
  const TuningCandidate cannot_run = {"broken",
                                      [] { return Named("broken", [] { Throw<DeviceError>("no room for code"); }); }};
  for (const TuningCandidate& broken : {cannot_be_made, cannot_run}) {
    log_.clear();
    EXPECT_EQ(Choose(1, {Slow("rules", 1), broken}), "rules");
    ASSERT_EQ(log_.size(), 1u);
    EXPECT_EQ(log_[0],
              "Convolution \"conv\" is not tuned: a kernel failed when it was measured: DeviceError: no room for code");
    EXPECT_FALSE(std::filesystem::exists(TuningFile()));
  }
  EXPECT_EQ(Choose(1, {Slow("rules", 4), Slow("fast", 1)}), "fast, tuned");
  EXPECT_THROW(Choose(2, {cannot_be_made, Slow("fast", 1)}), DeviceError) << "that is all there is";
}

// A plan may be of a batch that does not fit.
TEST_F(TuningChoicesTest, WhatDoesNotFitIsNotMeasured) {
  const TuningCandidate large = {"large", [] {
                                   Kernel kernel = Named("large", [] {});
                                   kernel.scratch_bytes = AvailableMemory() + (int64_t{1} << 30);
                                   return kernel;
                                 }};
  EXPECT_EQ(Choose(1, {Slow("rules", 1), large}), "rules");
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_EQ(log_[0], "Convolution \"conv\" is not tuned: no memory is left to measure its kernels in");
}

// A sanitizer keeps memory of its own for what was there.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
int64_t ResidentBytes() {
  const std::string statm = ReadFile("/proc/self/statm");  // all pages, resident ones
  return std::stoll(statm.substr(statm.find(' '))) * PageBytes();
}

// Once a piece of this size has been given back to malloc, it takes others from what it keeps for the process.
TEST_F(TuningChoicesTest, WhatWasMeasuredInIsGivenBack) {
  constexpr int64_t kScratch = 20 << 20;
  const auto large = [](const std::string& name, int ms) -> TuningCandidate {
    return {name, [=] {
              Kernel kernel = *Slow(name, ms).make();
              kernel.scratch_bytes = kScratch;
              return kernel;
            }};
  };
  Choose(1, {Slow("rules", 2), Slow("fast", 1)});  // threads have their stacks
  const int64_t before = ResidentBytes();
  Choose(2, {large("rules", 2), large("fast", 1)});
  EXPECT_LT(ResidentBytes(), before + kScratch / 2);
}
#endif

TEST_F(TuningChoicesTest, AChoiceThatIsNoLongerThereIsReplaced) {
  EXPECT_EQ(Choose(1, {Slow("rules", 4), Slow("fast", 1)}), "fast, tuned");
  Forget();
  EXPECT_EQ(Choose(1, {Slow("rules", 4), Slow("other", 1)}), "other, tuned");
  Forget();
  EXPECT_EQ(MeasuredFor(1, {Slow("rules", 4), Slow("other", 1)}), 0);
}

TEST_F(TuningChoicesTest, ProcessesTakeOverWhatOthersHaveChosen) {
  const std::vector<TuningCandidate> candidates = {Slow("rules", 4), Slow("fast", 1)};
  Choose(1, candidates);
  const std::string others = ReadFile(TuningFile());
  std::filesystem::remove_all(folder_);
  Forget();
  Choose(2, candidates);
  WriteFileAtomically(TuningFile(), others);
  Choose(3, candidates);
  EXPECT_EQ(MeasuredFor(1, candidates), 0);
  Forget();
  for (const int number : {1, 2, 3}) EXPECT_EQ(MeasuredFor(number, candidates), 0) << number;
}

TEST_F(TuningChoicesTest, AFolderThatCannotBeWrittenIsNamedOnce) {
  const std::string file = testing::TempDir() + "tuning_choices_file";
  WriteFileAtomically(file, "a file");
  UseTuningFolder(file + "/below");
  for (const int number : {1, 2, 3}) Choose(number, {Slow("rules", 1)});
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_TRUE(log_[0].starts_with("what kernels were chosen is not kept for other processes: ")) << log_[0];
}

}  // namespace
}  // namespace bindery::cpu
